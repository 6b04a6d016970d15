"""One chat graph on LangGraph's savers and on ours: who takes part, and what a turn is."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Any, TypedDict

import psycopg
from psycopg.rows import dict_row

import clew
from bench.content import text
from bench.ground import Ground

HALF = 512
"""A turn of 1 KB: half of it asked, half of it answered."""
CALLS = ("get_tuple", "put", "put_writes", "get_delta_channel_history")
CONFIG: Any = {"configurable": {"thread_id": "bench"}}


@dataclass
class Chat:
    """A chat on a saver. `own` counts the nanoseconds inside the saver's calls."""

    name: str
    saver: Any
    graph: Any
    weigh: Callable[[], int]
    """The bytes that it has stored. Nothing may be asked of it afterwards."""
    own: int = 0
    _rng: random.Random = field(default_factory=lambda: random.Random(31))

    def turn(self, _turn: int = 0) -> Callable[[], object]:
        """A turn, ready to be timed."""
        from langchain_core.messages import HumanMessage

        asked = HumanMessage(text(self._rng, HALF))
        return partial(self.graph.invoke, {"messages": [asked]}, CONFIG, durability="sync")

    def grow(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()()

    def begin(self, turns: int) -> None:
        """A conversation of so many turns, in one update."""
        from langchain_core.messages import AIMessage, HumanMessage

        kinds = (HumanMessage, AIMessage)
        made = [kinds[at % 2](text(self._rng, HALF), id=f"msg-{at:08d}") for at in range(2 * turns)]
        self.graph.update_state(CONFIG, {"messages": made}, as_node="reply")

    def messages(self) -> list[str]:
        return [one.content for one in self.graph.get_state(CONFIG).values["messages"]]

    def watch(self) -> None:
        """Count the time that the saver takes."""
        for name in CALLS:
            setattr(self.saver, name, self._timed(getattr(self.saver, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            begun = perf_counter_ns()
            try:
                return call(*args, **named)
            finally:
                self.own += perf_counter_ns() - begun

        return timed


def graph_on(saver: Any, *, delta: bool = False) -> Any:
    """`MessagesState` and one node that answers; with `delta`, LangGraph's channel that stores only what is new."""
    from langchain_core.messages import AIMessage
    from langgraph.channels import DeltaChannel
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.graph.message import _messages_delta_reducer

    # Not a class: its annotations would be texts, and nobody finds the names of a function in them.
    kept: Any = Annotated[list, DeltaChannel(_messages_delta_reducer)]
    growing: Any = TypedDict("growing", {"messages": kept})
    rng = random.Random(32)

    def reply(_state: Any) -> dict[str, Any]:
        # With an id, as chat models give their replies one.
        return {"messages": [AIMessage(text(rng, HALF), id=f"run--{rng.getrandbits(128):032x}")]}

    builder: Any = StateGraph(growing if delta else MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


Open = Callable[[ExitStack, Ground, str], Chat]
"""Makes a contender on a database of its own; the last argument is the durability, in our words."""


def clew_on_sqlite(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    from clew.adapters.langgraph import ClewSaver

    path = ground.file()
    db = stack.enter_context(clew.open(str(path), durability=durability))  # type: ignore[arg-type]
    saver = ClewSaver(db)

    def weigh() -> int:
        db.close()
        return ground.discard(path)

    return Chat("Clew", saver, graph_on(saver), weigh)


def _sqlite_saver(stack: ExitStack, ground: Ground, durability: str, *, delta: bool) -> Chat:
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = ground.file()
    connection = sqlite3.connect(path, check_same_thread=False)
    stack.callback(connection.close)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'strict' else 'NORMAL'}")

    def weigh() -> int:
        connection.close()
        return ground.discard(path)

    return Chat("SqliteSaver" + " + DeltaChannel" * delta, saver, graph_on(saver, delta=delta), weigh)


def sqlite_saver(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    return _sqlite_saver(stack, ground, durability, delta=False)


def sqlite_saver_delta(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    return _sqlite_saver(stack, ground, durability, delta=True)


def memory_saver(_stack: ExitStack, _ground: Ground, _durability: str) -> Chat:
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()
    return Chat("InMemorySaver", saver, graph_on(saver), lambda: 0)


def clew_on_postgres(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    from clew.adapters.langgraph import ClewSaver

    server = ground.postgres
    place = server.database()
    stack.callback(server.drop, place)
    db = stack.enter_context(clew.open(place.application, durability=durability))  # type: ignore[arg-type]
    saver = ClewSaver(db)
    return Chat("Clew", saver, graph_on(saver), lambda: server.weigh(place))


def _postgres_saver(stack: ExitStack, ground: Ground, durability: str, *, delta: bool) -> Chat:
    from langgraph.checkpoint.postgres import PostgresSaver

    server = ground.postgres
    place = server.empty()
    stack.callback(server.drop, place)
    connection: Any = psycopg.connect(place.owner, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    stack.callback(connection.close)
    connection.execute(f"SET synchronous_commit = {'on' if durability == 'strict' else 'off'}")
    saver = PostgresSaver(connection)
    saver.setup()
    weigh = partial(server.weigh, place, "public")
    return Chat("PostgresSaver" + " + DeltaChannel" * delta, saver, graph_on(saver, delta=delta), weigh)


def postgres_saver(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    return _postgres_saver(stack, ground, durability, delta=False)


def postgres_saver_delta(stack: ExitStack, ground: Ground, durability: str) -> Chat:
    return _postgres_saver(stack, ground, durability, delta=True)


@contextmanager
def contenders(ground: Ground, durability: str, *opens: Open) -> Iterator[list[Chat]]:
    with ExitStack() as stack:
        yield [made(stack, ground, durability) for made in opens]
