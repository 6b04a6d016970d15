"""Graphs, and what is done with them: each story is played on LangGraph's own saver and on ours.

A story builds its graph, plays on it, and returns it. Nodes are plain functions, so that it can be called or awaited.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer
from langgraph.types import Command, Overwrite, RetryPolicy, Send, interrupt
from playing import Play
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    count: int


def _says(play: Play, name: str, **more: Any):
    def node(state: Any) -> dict[str, Any]:
        play.ran(name)
        return {"log": [f"{name} {len(state.get('log', []))}"], **more}

    return node


def _builder(play: Play, *names: str, state: Any = Log) -> StateGraph:
    builder = StateGraph(state)
    for name in names:
        builder.add_node(name, _says(play, name))
    return builder


# -- plain graphs


def side_by_side(play: Play) -> Any:
    """Nodes that run in one superstep, and a join that waits for both."""
    builder = _builder(play, "begin", "one", "two", "join")
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "one")
    builder.add_edge("begin", "two")
    builder.add_edge(["one", "two"], "join")
    builder.add_edge("join", END)
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["hello"]})
    play.invoke(graph, {"log": ["again"], "count": 3})
    return graph


def loop(play: Play) -> Any:
    """A cycle with a conditional edge, until it has had enough."""
    builder = StateGraph(Log)
    builder.add_node("turn", lambda state: {"count": state.get("count", 0) + play.ran("turn") * 0 + 1, "log": ["turn"]})
    builder.add_edge(START, "turn")
    builder.add_conditional_edges("turn", lambda state: "turn" if state["count"] < 5 else END)
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": []})
    play.history(graph, limit=3)
    return graph


def sends(play: Play) -> Any:
    """Fan-out with `Send`, whose tasks get inputs of their own."""
    builder = _builder(play, "begin", "gather")
    builder.add_node("work", lambda given: {"log": [f"work {given['of']} {play.ran('work') * 0}"]})
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", lambda _: [Send("work", {"of": of}) for of in "abc"], ["work"])
    builder.add_edge("work", "gather")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]})
    play.invoke(graph, {"log": ["y"]})
    return graph


def goto_and_update(play: Play) -> Any:
    """`Command` from nodes: where to go on, what to change, tasks to send."""

    def choose(state: Any) -> Command[Literal["left", "right"]]:
        if play.ran("choose") == 1:
            return Command(goto="left", update={"log": ["to the left"]})
        return Command(goto=["right", Send("left", {"log": ["sent"]})], update={"count": 7})

    builder = _builder(play, "left", "right")
    builder.add_node("choose", choose)
    builder.add_edge(START, "choose")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": []})
    play.invoke(graph, {"log": ["more"]})
    play.invoke(graph, Command(goto="right", update={"log": ["from outside"]}))
    return graph


# -- subgraphs


def _inner(play: Play, *, checkpointer: Any = None, asks: bool = False) -> Any:
    def inside(state: Any) -> Any:
        play.ran("inside")
        answer = interrupt("inside?") if asks else "no question"
        return {"log": [f"inside {answer}"]}

    builder = _builder(play, "before")
    builder.add_node("inside", inside)
    builder.add_edge(START, "before")
    builder.add_edge("before", "inside")
    return builder.compile(checkpointer=checkpointer)


def _around(play: Play, inner: Any) -> Any:
    builder = _builder(play, "first", "last")
    builder.add_node("inner", inner)
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    builder.add_edge("inner", "last")
    return builder.compile(checkpointer=play.saver)


def subgraph(play: Play) -> Any:
    graph = _around(play, _inner(play))
    play.invoke(graph, {"log": ["hello"]})
    play.invoke(graph, {"log": ["again"]})
    return graph


def subgraph_that_asks(play: Play) -> Any:
    graph = _around(play, _inner(play, asks=True))
    play.invoke(graph, {"log": ["hello"]})
    play.state(graph, subgraphs=True)
    play.invoke(graph, Command(resume="yes"))
    play.invoke(graph, {"log": ["again"]})
    play.invoke(graph, Command(resume="no"))
    return graph


def subgraph_with_a_memory(play: Play) -> Any:
    """A subgraph compiled with `checkpointer=True` goes on where it was."""
    graph = _around(play, _inner(play, checkpointer=True, asks=True))
    play.invoke(graph, {"log": ["hello"]})
    play.invoke(graph, Command(resume="yes"))
    play.invoke(graph, {"log": ["again"]})
    play.state(graph, subgraphs=True)
    play.invoke(graph, Command(resume="no"))
    return graph


def subgraphs_in_subgraphs(play: Play) -> Any:
    middle = StateGraph(Log)
    middle.add_node("deep", _inner(play, asks=True))
    middle.add_edge(START, "deep")
    graph = _around(play, middle.compile())
    play.invoke(graph, {"log": ["hello"]})
    waiting = play.state(graph, subgraphs=True)
    play.history(graph, waiting.tasks[0].state.config)
    play.update(graph, {"log": ["edited inside"]}, config=waiting.tasks[0].state.tasks[0].state.config)
    play.invoke(graph, Command(resume="yes"))
    return graph


def to_the_parent(play: Play) -> Any:
    """A node inside a subgraph sends the parent on."""

    def leave(state: Any) -> Command[Any]:
        play.ran("leave")
        return Command(goto="far", update={"log": ["left"]}, graph=Command.PARENT)

    inner = StateGraph(Log)
    inner.add_node("leave", leave)
    inner.add_edge(START, "leave")
    builder = _builder(play, "far", "near")
    builder.add_node("inner", inner.compile(), destinations=("far",))
    builder.add_edge(START, "inner")
    builder.add_edge("far", "near")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["hello"]})
    play.invoke(graph, {"log": ["again"]})
    return graph


def sends_to_subgraphs(play: Play) -> Any:
    """One subgraph several times in a superstep: each has a namespace of its own."""
    builder = _builder(play, "begin")
    builder.add_node("inner", _inner(play, asks=True))
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", lambda _: [Send("inner", {"log": [of]}) for of in "ab"], ["inner"])
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]}, play.config(max_concurrency=1))
    asked = play.state(graph, subgraphs=True)
    answers = {one.id: f"answer {place}" for place, one in enumerate(asked.interrupts)}
    play.invoke(graph, Command(resume=answers), play.config(max_concurrency=1))
    return graph


# -- interrupts, errors, retries


def asks_in_a_loop(play: Play) -> Any:
    """Several questions of one node, and the node several times."""

    def ask(state: Any) -> Any:
        play.ran("ask")
        name = interrupt({"question": "name", "at": len(state["log"])})
        age = interrupt(("age of", name))
        return {"log": [(name, age)]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", lambda state: "ask" if len(state["log"]) < 3 else END)
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["start"]})
    for answer in ["Ada", 36, "Alan"]:
        play.invoke(graph, Command(resume=answer))
        play.state(graph)
    play.invoke(graph, Command(resume=41, update={"count": 5}))
    return graph


def asks_side_by_side(play: Play) -> Any:
    """Parallel questions, answered one by one by their ids; a sibling that asks nothing runs once."""

    def asks(name: str) -> Any:
        def node(state: Any) -> Any:
            play.ran(name)
            return {"log": [f"{name}: {interrupt(name + '?')}"]}

        return node

    builder = _builder(play, "silent", "after")
    for name in ("one", "two"):
        builder.add_node(name, asks(name))
        builder.add_edge(START, name)
    builder.add_edge(START, "silent")
    builder.add_edge(["one", "two", "silent"], "after")
    graph = builder.compile(checkpointer=play.saver)
    alone = play.config(max_concurrency=1)
    play.invoke(graph, {"log": []}, alone)
    asked = play.state(graph).interrupts
    play.tries(graph, Command(resume="which?"), alone)
    by_value = {one.value: one.id for one in asked}
    play.invoke(graph, Command(resume={by_value["two?"]: "second"}), alone)
    play.state(graph)
    play.invoke(graph, Command(resume={by_value["one?"]: "first"}), alone)
    return graph


def breakpoints(play: Play) -> Any:
    """Static ones, before and after nodes."""
    builder = _builder(play, "one", "two", "three")
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    builder.add_edge("two", "three")
    graph = builder.compile(checkpointer=play.saver, interrupt_before=["two"], interrupt_after=["two"])
    play.invoke(graph, {"log": []})
    play.state(graph)
    play.update(graph, {"log": ["edited"]})
    play.invoke(graph, None)
    play.state(graph)
    play.invoke(graph, None)
    return graph


def fails_then_goes_on(play: Play) -> Any:
    """A node that fails: what its sibling wrote is kept, and only the failed one runs again."""

    def fragile(state: Any) -> Any:
        if play.ran("fragile") < 3:
            raise RuntimeError("not today")
        return {"log": ["fragile"]}

    builder = _builder(play, "begin", "a_sibling", "end")
    builder.add_node("fragile", fragile)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "a_sibling")
    builder.add_edge("begin", "fragile")
    builder.add_edge(["a_sibling", "fragile"], "end")
    graph = builder.compile(checkpointer=play.saver)
    alone = play.config(max_concurrency=1)
    play.tries(graph, {"log": ["x"]}, alone)
    play.state(graph)
    play.tries(graph, None, alone)
    play.invoke(graph, None, alone)
    return graph


def retried(play: Play) -> Any:
    """A retry policy: what failed leaves nothing behind."""

    def flaky(state: Any) -> Any:
        if play.ran("flaky") < 3:
            raise ConnectionError("try again")
        return {"log": ["at last"]}

    builder = _builder(play, "begin")
    policy = RetryPolicy(initial_interval=0.001, max_interval=0.001, max_attempts=3, jitter=False)
    builder.add_node("flaky", flaky, retry_policy=policy)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "flaky")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": []})
    return graph


# -- travel


def edits(play: Play) -> Any:
    """`update_state`: at the head, as a node, as another one, from an earlier checkpoint, several at once."""
    builder = _builder(play, "one", "two", "three")
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    builder.add_edge("two", "three")
    graph = builder.compile(checkpointer=play.saver)
    play.update(graph, {"log": ["before anything"]}, as_node="one")
    play.invoke(graph, None)
    play.invoke(graph, {"log": ["x"]})
    play.update(graph, {"log": ["as two"]}, as_node="two")
    play.state(graph)
    play.invoke(graph, None)
    earlier = play.history(graph)[3].config
    play.update(graph, {"log": ["from earlier"], "count": 1}, config=earlier, as_node="one")
    play.invoke(graph, None)
    play.update(graph, None, as_node=END)
    play.update(graph, None, as_node="__copy__")
    from langgraph.types import StateUpdate

    play.bulk_update(graph, [[StateUpdate({"log": ["b1"]}, "one")], [StateUpdate({"log": ["b2"]}, "two")]])
    return graph


def forks(play: Play) -> Any:
    """Runs from earlier checkpoints: replayed, and with new input; the old histories stay."""
    builder = _builder(play, "one", "two", "three")
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    builder.add_edge("two", "three")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]})
    play.invoke(graph, {"log": ["y"]})
    play.invoke(graph, {"log": ["z"]})
    at = [one.config for one in play.history(graph)]
    play.invoke(graph, None, at[1])
    play.invoke(graph, {"log": ["new input"]}, at[2])
    play.invoke(graph, {"log": ["at the root"]}, at[-1])
    play.state(graph, at[1])
    play.history(graph, at[2])
    return graph


def forks_while_waiting(play: Play) -> Any:
    """Travel around a question: replayed before it, answered again after it was answered."""

    def ask(state: Any) -> Any:
        play.ran("ask")
        return {"log": [interrupt("well?")]}

    builder = _builder(play, "one", "two")
    builder.add_node("ask", ask)
    builder.add_edge(START, "one")
    builder.add_edge("one", "ask")
    builder.add_edge("ask", "two")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]})
    waiting = play.state(graph).config
    play.invoke(graph, Command(resume="first answer"))
    play.invoke(graph, Command(resume="another answer"), waiting)
    play.invoke(graph, None, waiting)
    play.state(graph, waiting)
    play.invoke(graph, Command(resume="third answer"))
    return graph


def listings(play: Play) -> Any:
    """Histories and lists with filters, `before` and limits."""
    builder = _builder(play, "one", "two")
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(checkpointer=play.saver)
    for turn in range(3):
        play.invoke(graph, {"log": [turn]}, play.config(metadata={"turn": turn, "who": "Ada"}))
    before = play.history(graph)[5].config if play.manner.durability != "exit" else play.history(graph)[1].config
    for wanted in ({"source": "loop"}, {"source": "input", "turn": 1}, {"who": "nobody"}, {"absent": None}, {}):
        play.history(graph, filter=wanted)
        play.history(graph, filter=wanted, before=before, limit=2)
    play.history(graph, before=before)
    play.history(graph, limit=0)
    play.note(play.tuples(filter={"step": 1}, limit=1))
    play.note(play.tuples({"configurable": {"thread_id": play.thread_id, "checkpoint_ns": ""}}, limit=2))
    play.note(play.tuples({"configurable": {"thread_id": play.thread_id, "checkpoint_ns": "no:such"}}))
    play.note(play.tuples(before))
    play.note(play.tuples({"configurable": {"thread_id": f"{play.thread_id}-unknown"}}))
    return graph


# -- messages and delta channels


def _conversation(play: Play, state: Any) -> Any:
    # The reducer gives messages their ids in place, while their writes are being saved: so these have theirs.
    def reply(given: Any) -> Any:
        turn = play.ran("reply")
        call = {"name": "look", "args": {"at": turn}, "id": f"call-{turn}"}
        return {"messages": [AIMessage(f"reply {turn}", id=f"reply-{turn}", tool_calls=[call] if turn % 2 else [])]}

    def tools(given: Any) -> Any:
        last = given["messages"][-1]
        return {"messages": [ToolMessage("seen", id=call["id"], tool_call_id=call["id"]) for call in last.tool_calls]}

    builder = StateGraph(state)
    builder.add_node("reply", reply)
    builder.add_node("tools", tools)
    builder.add_edge(START, "reply")
    builder.add_conditional_edges("reply", lambda given: "tools" if given["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "reply")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"messages": [("user", "hello")]})
    play.invoke(graph, {"messages": [HumanMessage("with an id", id="mine")]})
    play.invoke(graph, {"messages": {"role": "user", "content": "as a dict"}})
    return graph


def messages(play: Play) -> Any:
    graph = _conversation(play, MessagesState)
    play.update(graph, {"messages": [HumanMessage("changed", id="mine")]})
    play.update(graph, {"messages": [RemoveMessage(id="mine")]}, as_node="tools")
    play.invoke(graph, None)
    play.update(
        graph, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("anew", id="anew")]}, as_node="tools"
    )
    play.invoke(graph, None)
    return graph


class DeltaMessages(TypedDict):
    messages: Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


def delta_messages(play: Play) -> Any:
    graph = _conversation(play, DeltaMessages)
    play.update(graph, {"messages": [RemoveMessage(id="mine")]}, as_node="tools")
    play.invoke(graph, None)
    return graph


def _together(state: Any, writes: Any) -> Any:
    return [*(state or []), *(one for write in writes for one in write)]


class DeltaLog(TypedDict, total=False):
    log: Annotated[list, DeltaChannel(_together, snapshot_frequency=1000)]
    count: int


def delta_travel(play: Play) -> Any:
    """A `DeltaChannel` with parallel writers, forks from earlier checkpoints, edits and an `Overwrite`."""
    builder = _builder(play, "begin", "one", "two", "end", state=DeltaLog)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "one")
    builder.add_edge("begin", "two")
    builder.add_edge(["one", "two"], "end")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]})
    play.invoke(graph, {"log": ["y"]})
    past = play.history(graph)
    earlier = past[min(4, len(past) - 1)].config
    play.tries(graph, None, earlier)
    play.update(graph, {"log": ["edited"]}, config=past[-1].config, as_node="begin")
    play.tries(graph, None)
    play.update(graph, {"log": Overwrite(["only this"])}, as_node="end")
    play.invoke(graph, {"log": ["z"]})
    for one in play.history(graph):
        play.state(graph, one.config)
    return graph


def delta_waiting(play: Play) -> Any:
    """A `DeltaChannel` beside questions and failures."""

    def ask(state: Any) -> Any:
        play.ran("ask")
        return {"log": [interrupt("well?")]}

    def fragile(state: Any) -> Any:
        if play.ran("fragile") == 1:
            raise RuntimeError("not today")
        return {"log": ["fragile"]}

    builder = _builder(play, "begin", "end", state=DeltaLog)
    builder.add_node("ask", ask)
    builder.add_node("fragile", fragile)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "ask")
    builder.add_edge("ask", "fragile")
    builder.add_edge("fragile", "end")
    graph = builder.compile(checkpointer=play.saver)
    play.invoke(graph, {"log": ["x"]})
    play.tries(graph, Command(resume="answer", update={"log": ["with it"]}))
    play.invoke(graph, None)
    play.invoke(graph, {"log": ["y"]})
    return graph


STORIES = [
    side_by_side,
    loop,
    sends,
    goto_and_update,
    subgraph,
    subgraph_that_asks,
    subgraph_with_a_memory,
    subgraphs_in_subgraphs,
    to_the_parent,
    sends_to_subgraphs,
    asks_in_a_loop,
    asks_side_by_side,
    breakpoints,
    fails_then_goes_on,
    retried,
    edits,
    forks,
    forks_while_waiting,
    listings,
    messages,
    delta_messages,
    delta_travel,
    delta_waiting,
]

JOINS = {side_by_side, asks_side_by_side, fails_then_goes_on, delta_travel}
"""Stories with a join. With the durability "async", LangGraph goes on while a checkpoint is being put, and a join
counts on within it: what is put then depends on how fast the saver is, whichever it is. So they are not played so."""
