"""A fork from an earlier checkpoint: the same conversation about another city. Both stay in fork.db."""

from langgraph.graph import START, MessagesState, StateGraph
from scripted import Scripted

from clew.adapters.langgraph import ClewSaver

model = Scripted()
builder = StateGraph(MessagesState)
builder.add_node("reply", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.add_edge(START, "reply")
graph = builder.compile(checkpointer=ClewSaver.open("fork.db"))

config = {"configurable": {"thread_id": "trip-7"}}
for text in ("Three days in Tokyo, please.", "Which city was it?"):
    graph.invoke({"messages": [("user", text)]}, config)

history = list(graph.get_state_history(config))
asked = history[-2]  # the first question has been asked, and not been answered
other = graph.update_state(asked.config, {"messages": [("user", "Make it Osaka.")]})
graph.invoke(None, other)

for title, state in (("before", history[0]), ("after", graph.get_state(config))):
    print(f"{title}: {' | '.join(message.text for message in state.values['messages'])}")
print(f"{len(history)} checkpoints before the fork, {len(list(graph.get_state_history(config)))} after it")
