"""What is learnt in one thread is known in another: LangGraph's store, beside the checkpoints in memory.db."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.config import get_store
from scripted import Scripted

import clew
from clew.adapters.langgraph import ClewSaver, ClewStore


@tool
def remember(fact: str) -> str:
    """Keep a fact about the user."""
    get_store().put(("users", "anna"), fact, {"fact": fact})
    return "I will remember that"


@tool
def recall() -> str:
    """All facts about the user."""
    return "; ".join(item.value["fact"] for item in get_store().search(("users", "anna")))


db = clew.open("memory.db")
agent = create_agent(Scripted(), [remember, recall], checkpointer=ClewSaver(db), store=ClewStore(db))

for thread, text in (("monday", "I like trains."), ("friday", "What do you know about me?")):
    messages = agent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread}})["messages"]
    print(f"{thread} > {text}\n  {messages[-1].text}")
