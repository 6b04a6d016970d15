"""An approval before a tool is called. The question waits in approval.db, for another process to answer:

python approval.py          asks, and ends
python approval.py yes      goes on from there (or: no)
"""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.types import Command, interrupt
from scripted import Scripted

from clew.adapters.langgraph import ClewSaver


@tool
def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    answer = interrupt({"question": f"Book {hotel} for {nights} nights?"})
    return f"booked {hotel}" if answer == "yes" else "not booked"


agent = create_agent(Scripted(), [book], checkpointer=ClewSaver.open("approval.db"))

config = {"configurable": {"thread_id": "trip-7"}}
if len(sys.argv) == 1:
    asked = agent.invoke({"messages": [("user", "Book a hotel in Tokyo.")]}, config)
    print(asked["__interrupt__"][0].value["question"])
else:
    print(agent.invoke(Command(resume=sys.argv[1]), config)["messages"][-1].text)
