"""The agents that the runtime is measured by, under Clew and under others: the same nodes, doing next to nothing."""

from __future__ import annotations

import itertools
import operator
import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Any, TypedDict

import clew
from bench.content import text
from bench.ground import Ground

ROUNDS = 20
"""Rounds of a run of the loop."""
SAID = 300
"""Characters that each node adds."""

Run = Callable[[int], Callable[[], object]]
"""Makes, untimed, a run on a thread of its own."""


class Told(TypedDict):
    messages: Annotated[list[Any], clew.extend]
    count: int


class Added(TypedDict):
    messages: Annotated[list[Any], operator.add]
    count: int


def think(_state: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "x" * SAID}]}


def act(state: Any) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "content": "y" * SAID}], "count": state["count"] + 1}


def again(state: Any) -> str | None:
    return "think" if state["count"] < ROUNDS // 2 else None


def loop_agent() -> clew.Agent:
    """think → act → think …, twenty rounds."""
    agent = clew.Agent("loop", state=Told)
    agent.node(start=True, then="act")(think)
    agent.node(then=again)(act)
    return agent


def loop_graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    builder: Any = StateGraph(Added)
    builder.add_node("think", think)
    builder.add_node("act", act)
    builder.add_edge(START, "think")
    builder.add_edge("think", "act")
    builder.add_conditional_edges("act", lambda state: again(state) or END)
    return builder.compile(checkpointer=saver)


def _part(name: str) -> Callable[[Any], dict[str, Any]]:
    def part(_state: Any) -> dict[str, Any]:
        return {"messages": [{"role": "tool", "content": name * SAID}]}

    return part


PARTS = ("a", "b", "c")


def fan_agent() -> clew.Agent:
    """think → a, b, c side by side → act: three rounds."""
    agent = clew.Agent("fan", state=Told)
    agent.node(start=True, then=PARTS)(think)
    for name in PARTS:
        agent.node(name=name)(_part(name))
    agent.node(after=PARTS)(act)
    return agent


def fan_graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    builder: Any = StateGraph(Added)
    builder.add_node("think", think)
    builder.add_node("act", act)
    builder.add_edge(START, "think")
    for name in PARTS:
        builder.add_node(name, _part(name))
        builder.add_edge("think", name)
    builder.add_edge(list(PARTS), "act")
    builder.add_edge("act", END)
    return builder.compile(checkpointer=saver)


SHAPES: dict[str, tuple[Callable[[], clew.Agent], Callable[[Any], Any], int]] = {
    "20 rounds of one node": (loop_agent, loop_graph, ROUNDS),
    "3 rounds, 3 nodes side by side in one": (fan_agent, fan_graph, 3),
}
"""What a graph is called, who makes it, and how many rounds it has."""


def _asked() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "go"}], "count": 0}


def ours(stack: ExitStack, place: str, durability: str, agent: clew.Agent) -> Run:
    db = stack.enter_context(clew.open(place, durability=durability))  # type: ignore[arg-type]

    def run(turn: int) -> Callable[[], object]:
        return partial(agent.run, db.thread(f"thread-{turn}"), _asked())

    return run


def of_graph(graph: Any) -> Run:
    def run(turn: int) -> Callable[[], object]:
        config = {"configurable": {"thread_id": f"thread-{turn}"}, "recursion_limit": 1000}
        durable = {"durability": "sync"} if graph.checkpointer else {}
        return partial(graph.invoke, _asked(), config, **durable)

    return run


def sqlite_saver(stack: ExitStack, ground: Ground, durability: str) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(ground.file(), check_same_thread=False)
    stack.callback(connection.close)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'strict' else 'NORMAL'}")
    return saver


# -- one node


def answer() -> str:
    return "x" * SAID


def one_node() -> clew.Agent:
    """A node that makes one recorded call."""
    ask_model = clew.recorded(answer)

    @clew.agent
    def reply(_state: Any) -> dict[str, Any]:
        return {"reply": ask_model()}

    return reply


def of_dbos(stack: ExitStack, ground: Ground, *, wal: bool) -> Run:
    """A workflow of one step. DBOS leaves the file's journal as it finds it: a rollback journal, unless it is WAL."""
    from dbos import DBOS, SetWorkflowID

    path = ground.file()
    if wal:
        sqlite3.connect(path).execute("PRAGMA journal_mode = WAL").connection.close()
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})
    stack.callback(DBOS.destroy, destroy_registry=True)
    step = DBOS.step()(answer)

    @DBOS.workflow()
    def reply(_asked: dict[str, Any]) -> dict[str, Any]:
        return {"reply": step()}

    DBOS.launch()

    def run(turn: int) -> Callable[[], object]:
        def once() -> object:
            with SetWorkflowID(f"thread-{turn}"):
                return reply(_asked())

        return once

    return run


# -- a long conversation


class Chat:
    """A conversation of half a kilobyte each way and turn; the model's reply is a recorded call."""

    def __init__(self, thread: clew.Thread) -> None:
        self.thread = thread
        rng, replies = random.Random(3), random.Random(4)
        self._asked = ({"role": "user", "content": text(rng, 512)} for _ in itertools.count())

        @clew.recorded
        def model(_messages: list[Any]) -> dict[str, Any]:
            return {"role": "assistant", "content": text(replies, 512)}

        self.agent = clew.Agent("chat", state=Told)

        @self.agent.node
        def reply(state: Any) -> dict[str, Any]:
            return {"messages": [model(state["messages"])]}

    def turn(self, _turn: int = 0) -> Callable[[], object]:
        return partial(self.agent.run, self.thread, {"messages": [next(self._asked)]})


class Counted:
    """A run of so many rounds, each with a recorded call that is answered by half a kilobyte, and what each took."""

    def __init__(self, rounds: int) -> None:
        self.times: list[int] = []
        replies = random.Random(4)
        begun = perf_counter_ns()

        @clew.recorded
        def model(_messages: list[Any]) -> dict[str, Any]:
            return {"role": "assistant", "content": text(replies, 512)}

        self.agent = clew.Agent("counted", state=Told, max_rounds=rounds + 1)

        @self.agent.node(then=lambda _: "reply" if len(self.times) < rounds else None)
        def reply(state: Any) -> dict[str, Any]:
            nonlocal begun
            begun, before = perf_counter_ns(), begun
            self.times.append(begun - before)
            return {"messages": [model(state["messages"])]}
