"""LangGraph's own savers on the same states, step for step."""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

import clew
from bench.content import message, text
from bench.ground import Ground
from bench.rows import Row, shown, spent
from bench.shapes import langchain_message
from bench.timing import Pairs, alternate, no_garbage, percentile, take_turns

SIZE = 1024
_READS = 20
_MISSING = "not installed: `pip install --group test`"


class Peer:
    """A conversation as LangGraph's loop keeps it: the node's writes when it is done, then the checkpoint."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._thread = {"thread_id": "bench", "checkpoint_ns": ""}
        self._config: dict[str, Any] = {"configurable": self._thread}
        self._version: str | None = None
        self._step = -1
        self._messages: list[Any] = []
        self.step([])

    def step(self, new: list[Any]) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        if self._step >= 0:
            self._saver.put_writes(self._config, [("messages", new)], str(uuid.uuid4()), "~__pregel_pull, model")
        self._messages = [*self._messages, *new]
        self._version = self._saver.get_next_version(self._version, None)
        versions: dict[str, Any] = {"messages": self._version, "branch:to:model": self._version}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self._messages}
        checkpoint["channel_versions"] = versions
        checkpoint["versions_seen"] = {"__input__": {}, "model": {"branch:to:model": self._version}}
        metadata: Any = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, {"messages": self._version})
        self._step += 1

    def read(self) -> Any:
        return self._saver.get_tuple({"configurable": self._thread}).checkpoint["channel_values"]


class Way(NamedTuple):
    """What the messages are, and how we learn of a new one."""

    made: Callable[[str, int], Any]
    messages: str
    how: str


WAYS = (
    Way(message, "dicts", "told"),
    Way(message, "dicts", "shadow"),
    Way(langchain_message, "LangChain messages", "told"),
    Way(langchain_message, "LangChain messages", "shadow"),
)


class Steps:
    """The same messages, one a step, for us and for the peer."""

    def __init__(self, thread: clew.Thread, way: Way, peer: Peer) -> None:
        self._thread = thread
        self._make, _, self._how = way
        self._peer = peer
        self.state: dict[str, Any] = {"messages": []}
        self._rngs = random.Random(12), random.Random(12)

    def ours(self, turn: int) -> Callable[[], object]:
        new = self._make(text(self._rngs[0], SIZE), turn)
        self.state["messages"].append(new)
        if self._how == "told":
            return partial(self._thread.update, {"messages": clew.extend([new])})
        return partial(self._thread.save, self.state)

    def theirs(self, turn: int) -> Callable[[], object]:
        return partial(self._peer.step, [self._make(text(self._rngs[1], SIZE), turn)])


def _compare(ground: Ground, engine: str, db: clew.Database, peer: Peer, way: Way) -> list[Row]:
    """Times of steps and of reading the latest state; both hold the same at the end."""
    count = ground.sizes.peer_steps
    steps = Steps(db.thread("bench"), way, peer)
    with no_garbage():
        ours, theirs = take_turns(steps.ours, steps.theirs, count)
    assert db.thread("bench").state() == peer.read() == steps.state
    rows = [_step_row(f"{engine}: one of {count} steps of 1 KB, {way.messages}, {way.how}, strict", ours, theirs)]
    reads = Pairs()
    alternate(reads, lambda _: partial(_read, db), lambda _: peer.read, 3 if ground.sizes.quick else _READS)
    what = f"{engine}: the latest state of {count} {way.messages} ({way.how}), fresh handle"
    return [*rows, _step_row(what, reads.ours, reads.other)]


def _read(db: clew.Database) -> object:
    return db.thread("bench").state()


def _step_row(what: str, ours: list[int], theirs: list[int]) -> Row:
    mine, other = percentile(ours, 0.5) / 1000, percentile(theirs, 0.5) / 1000
    numbers = {"ours": spent(ours), "other": spent(theirs)}
    detail = f"{shown(ours)}; LangGraph {shown(theirs)}: {other / mine:.1f} times ours"
    return Row("peers", what, mine, "ms", other, f"≤ {other:.2f} ms", detail, peer=True, numbers=numbers)


def _weight_row(what: str, ours: int, theirs: int) -> Row:
    detail = f"{ours:,} B; LangGraph {theirs:,} B: {theirs / ours:.0f} times ours"
    numbers = {"ours": ours, "other": theirs}
    return Row(
        "peers", what, ours / 1e6, "MB", theirs / 1e6, f"≤ {theirs / 1e6:.1f} MB", detail, peer=True, numbers=numbers
    )


def peers(ground: Ground) -> Iterator[Row]:
    """Both keep every step durably (`synchronous=FULL`, `synchronous_commit=on`): the savers' default, and ours."""
    count = ground.sizes.peer_steps
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        yield Row("peers", "langgraph-checkpoint-sqlite, langgraph-checkpoint-postgres", None, problem=_MISSING)
        return
    for way in WAYS:
        ours, other = ground.file(), ground.file()
        yield from _sqlite(ground, SqliteSaver, ours, other, way)
        stored = ground.discard(ours), ground.discard(other)
        if way.how == "shadow":
            yield _weight_row(f"SQLite: bytes of {count} steps of 1 KB, {way.messages}", *stored)
        yield from _postgres(ground, PostgresSaver, way)


def _sqlite(ground: Ground, saver_type: Any, ours: Path, other: Path, way: Way) -> Iterator[Row]:
    connection = sqlite3.connect(other, check_same_thread=False)
    saver = saver_type(connection)
    saver.setup()
    with clew.open(str(ours)) as db:
        yield from _compare(ground, "SQLite", db, Peer(saver), way)
    connection.close()


def _postgres(ground: Ground, saver_type: Any, way: Way) -> Iterator[Row]:
    ours_at, other_at = ground.postgres.database(), ground.postgres.empty()
    connection: Any = psycopg.connect(other_at.owner, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = saver_type(connection)
    saver.setup()
    with clew.open(ours_at.application) as db:
        yield from _compare(ground, "PostgreSQL", db, Peer(saver), way)
    connection.close()
    stored = ground.postgres.weigh(ours_at), ground.postgres.weigh(other_at, "public")
    if way.how == "shadow":
        what = f"PostgreSQL: bytes of {ground.sizes.peer_steps} steps of 1 KB, {way.messages}"
        yield _weight_row(what, *stored)
    ground.postgres.drop(ours_at)
    ground.postgres.drop(other_at)
