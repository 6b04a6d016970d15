"""A chat on `MessagesState`. The conversation is in chat.db: run it again, and it goes on."""

from langgraph.graph import START, MessagesState, StateGraph
from scripted import Scripted

from clew.adapters.langgraph import ClewSaver

model = Scripted()


def reply(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile(checkpointer=ClewSaver.open("chat.db"))

config = {"configurable": {"thread_id": "anna"}}
for text in ("Three days in Tokyo, please.", "Which city was it?"):
    messages = graph.invoke({"messages": [("user", text)]}, config)["messages"]
    print(f"> {text}\n  {messages[-1].text}")
print(f"{len(messages)} messages")
