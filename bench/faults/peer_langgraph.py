"""The agent under LangGraph and its SQLite saver.

Twice: with plain functions as nodes, as most graphs are written; and as its page on durable execution recommends, with
each model call and side effect wrapped in `@task`. Both with `durability="sync"`, the mode that waits for each
checkpoint. After a crash the thread is invoked again with None, a question is answered with `Command(resume=…)`.
"""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from bench.faults.agent import ANSWER, QUESTION, RUN, change, model
from bench.faults.marks import is_free, marked_sqlite
from clew.testing.outside import say

CONFIG: Any = {"configurable": {"thread_id": RUN}}


class Trip(TypedDict):
    log: Annotated[list[str], operator.add]


def build(*, tasks: bool, retry: bool) -> Any:
    """The graph, not compiled."""
    policy = RetryPolicy(initial_interval=0.01, retry_on=TimeoutError) if retry else None

    def wrapped(fn: Callable[[str], str]) -> Callable[[str], str]:
        if not tasks:
            return fn
        called = task(fn, retry_policy=policy)
        return lambda what: str(called(what).result())

    ask_model, book = wrapped(model), wrapped(change)

    def plan(_: Trip) -> dict[str, Any]:
        say("begin:plan")
        text = ask_model("plan")
        say("got:plan")
        say("end:plan")
        return {"log": [text]}

    def flight(_: Trip) -> dict[str, Any]:
        say("begin:flight")
        say("about:flight")
        receipt = book("flight")
        say("got:flight")
        say("end:flight")
        return {"log": [receipt]}

    def hotel(_: Trip) -> dict[str, Any]:
        say("begin:hotel")
        text = ask_model("hotel")
        say("got:hotel")
        answer = interrupt(QUESTION)
        say("told:hotel")
        say("about:charge")
        receipt = book("charge")
        say("got:charge")
        say("end:hotel")
        return {"log": [text, answer, receipt]}

    builder: Any = StateGraph(Trip)
    for node in (plan, flight, hotel):
        builder.add_node(node.__name__, node, retry_policy=None if tasks else policy)
    builder.add_edge(START, "plan")
    for name in ("flight", "hotel"):
        builder.add_edge("plan", name)
        builder.add_edge(name, END)
    return builder


class LangGraph:
    """A contender."""

    finds = "nobody: the caller must know the thread, and that it was interrupted"

    def __init__(self, *, tasks: bool) -> None:
        self.name = "LangGraph, calls as @task" if tasks else "LangGraph, plain nodes"
        self._tasks = tasks
        self.notes = 2 if tasks else 1

    def prepare(self, place: str) -> None:
        SqliteSaver(sqlite3.connect(Path(place) / "graph.db")).setup()

    def _open(self, place: str, *, retry: bool = False) -> Any:
        marked_sqlite()
        saver = SqliteSaver(sqlite3.connect(Path(place) / "graph.db", check_same_thread=False))
        saver.is_setup = True  # it was done: a checkpoint's commit is what is to be marked
        return build(tasks=self._tasks, retry=retry).compile(checkpointer=saver)

    def free(self, place: str) -> bool:
        return is_free(f"{place}/graph.db")

    def restart(self, place: str) -> str:  # noqa: ARG002
        return "nobody"

    def go(self, place: str, *, retry: bool = False) -> str:
        graph = self._open(place, retry=retry)
        known = graph.get_state(CONFIG)
        if known.created_at is None:
            graph.invoke({"log": []}, CONFIG, durability="sync")
        elif known.tasks and not known.interrupts:
            graph.invoke(None, CONFIG, durability="sync")
        return self._told(graph)

    @staticmethod
    def _told(graph: Any) -> str:
        known = graph.get_state(CONFIG)
        # Not `known.next`: it is empty also when a node's writes were kept, but not yet the checkpoint after them.
        return "waiting" if known.interrupts else "running" if known.tasks else "done"

    def answer(self, place: str, *, retry: bool = False) -> str:
        graph = self._open(place, retry=retry)
        say("answering")
        graph.invoke(Command(resume=ANSWER), CONFIG, durability="sync")
        say("answer:given")
        return self._told(graph)

    def final(self, place: str) -> Any:
        return self._open(place).get_state(CONFIG).values
