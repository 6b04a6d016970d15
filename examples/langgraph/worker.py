"""A graph whose runs come back by themselves. Messages are accepted durably; workers take them up, on any machine:

python worker.py send "Book a hotel in Tokyo."     accepts a message, and ends
python worker.py work                              a worker: kill it, start it again (here it ends when nothing is left)
python worker.py answer yes                        a person answers, from a process that has none of this running
python worker.py show
"""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.types import interrupt
from scripted import Scripted

import clew
from clew.adapters.langgraph import ClewSaver, LangGraphAgent

db = clew.open("worker.db")


@tool
def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    answer = interrupt({"question": f"Book {hotel} for {nights} nights?"})
    return f"booked {hotel}" if answer == "yes" else "not booked"


graph = create_agent(Scripted(), [book], checkpointer=ClewSaver(db))
agent = LangGraphAgent(graph, name="travel")

command, *words = sys.argv[1:] or ["show"]
if command == "send":
    db.submit(agent, "trip-7", {"messages": [("user", words[0])]}, if_busy="enqueue")
elif command == "work":
    clew.Worker(db, [agent]).run(until_idle=True)
elif command == "answer":
    for request in db.requests():
        print(request.answer(words[0], by="alice").question["question"])
for run in db.runs(thread="trip-7"):
    print(run.status, *([run.state["messages"][-1].text] if run.status == "done" else []))
