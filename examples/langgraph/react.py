"""LangGraph's prebuilt ReAct agent with a tool. Every step is a checkpoint in react.db."""

import warnings

from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from scripted import Scripted

from clew.adapters.langgraph import ClewSaver

warnings.simplefilter("ignore")  # LangGraph recommends LangChain's create_agent now: see agent.py


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


agent = create_react_agent(Scripted(), [weather], checkpointer=ClewSaver.open("react.db"))

config = {"configurable": {"thread_id": "weather-1"}}
for text in ("What is the weather in Oslo?", "Which city was it?"):
    messages = agent.invoke({"messages": [("user", text)]}, config)["messages"]
    print(f"> {text}\n  {messages[-1].text}")
print(f"{len(messages)} messages, {sum(1 for _ in agent.get_state_history(config))} checkpoints")
