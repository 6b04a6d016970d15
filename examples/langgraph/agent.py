"""LangChain's `create_agent` with a tool. Every step is a checkpoint in agent.db."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from scripted import Scripted

from clew.adapters.langgraph import ClewSaver


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


agent = create_agent(Scripted(), [weather], checkpointer=ClewSaver.open("agent.db"))

config = {"configurable": {"thread_id": "weather-1"}}
for text in ("What is the weather in Oslo?", "Which city was it?"):
    print(f"> {text}")
    for update in agent.stream({"messages": [("user", text)]}, config, stream_mode="updates"):
        for node, change in update.items():
            message = change["messages"][-1]
            calls = [f"{call['name']}({call['args']['city']})" for call in getattr(message, "tool_calls", [])]
            print(f"  {node:5}  {message.text or ', '.join(calls)}")
