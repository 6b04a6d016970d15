"""The time of reading: the latest state, and the history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import ormsgpack

import clew
from bench.content import message, text
from bench.ground import Ground
from bench.rows import Row, ratio_row, shown, spent
from bench.timing import Pairs, alternate, clock, no_garbage, percentile
from clew.state.codec import encode

COLD, HISTORY = 3.0, 5.0
_READS = 30


def write_conversation(thread: clew.Thread, steps: int, size: int) -> dict[str, Any]:
    """A thread of so many steps, one message each; returns its state."""
    rng = random.Random(size)
    state: dict[str, Any] = {"messages": []}
    for step in range(steps):
        state["messages"].append(message(text(rng, size), step))
        thread.update({"messages": clew.extend(state["messages"][-1:])})
    return state


class OneBlob:
    """The whole state in one row of an SQLite table, read and decoded."""

    def __init__(self, path: Path, state: dict[str, Any]) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self.connection.execute("CREATE TABLE state (key INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self.connection.execute("INSERT INTO state VALUES (1, ?)", (encode(state),))
        self._execute = self.connection.cursor().execute

    def read(self) -> Any:
        return ormsgpack.unpackb(self._execute("SELECT data FROM state WHERE key = 1").fetchall()[0][0])


def latest(ground: Ground) -> Iterator[Row]:
    """A fresh handle on an open database reads the head's state, written in as many steps as it has messages."""
    count = ground.sizes.steps
    turns = 10 if ground.sizes.quick else _READS
    for size in (1024, 300):
        pairs = Pairs()
        ours, other = ground.file(), ground.file()
        with clew.open(str(ours), durability="relaxed") as db:
            state = write_conversation(db.thread("bench"), count, size)
            blob = OneBlob(other, state)
            assert db.thread("bench").state() == blob.read() == state
            for _ in range(ground.sizes.repetitions):
                alternate(pairs, lambda _: partial(_read_head, db), lambda _: blob.read, turns)  # noqa: B023
            blob.connection.close()
        ground.discard(ours)
        ground.discard(other)
        what = f"SQLite: latest state of {count} messages of {size} B, fresh handle"
        yield ratio_row("latest", what, pairs, COLD, "one row, `unpackb`")


def _read_head(db: clew.Database) -> object:
    return db.thread("bench").state()


def history(ground: Ground) -> Iterator[Row]:
    """Metadata of 1000 checkpoints: one page."""
    count = ground.sizes.steps
    path = ground.file()
    with clew.open(str(path), durability="relaxed") as db:
        write_conversation(db.thread("bench"), count, 1024)
    queries: list[str] = []
    with _Listening(queries), clew.open(str(path)) as db:
        queries.clear()
        assert len(db.thread("bench").history(limit=count)) == count
    asked = [query for query in queries if not query.startswith(("BEGIN", "ROLLBACK", "COMMIT", "PRAGMA"))]
    walks = [query for query in asked if "RECURSIVE" in query]
    with clew.open(str(path)) as db:
        yield _timed(ground, "SQLite", db, count, HISTORY, f"; {len(asked)} queries, {len(walks)} of them for the page")
    ground.discard(path)
    place = ground.postgres.database()
    with clew.open(place.application, durability="relaxed") as db:
        write_conversation(db.thread("bench"), count, 1024)
        yield _timed(ground, "PostgreSQL", db, count, None, "")
    ground.postgres.drop(place)
    yield Row("history", "SQLite: queries for the page itself", len(walks), "", 1, "1")


def _timed(ground: Ground, engine: str, db: clew.Database, count: int, target: float | None, note: str) -> Row:
    with no_garbage():
        times = [clock(_lister(db, count)) for _ in range(5 if ground.sizes.quick else 2 * _READS)]
    what = f"{engine}: history of {count} checkpoints, metadata"
    said = f"≤ {target:g} ms" if target else ""
    detail = f"{shown(times)}{note}"
    return Row(
        "history", what, percentile(times, 0.5) / 1000, "ms", target, said, detail, numbers={"ours": spent(times)}
    )


def _lister(db: clew.Database, count: int) -> Callable[[], object]:
    return partial(db.thread("bench").history, limit=count)


class _Listening:
    """Writes down the statements of every SQLite connection that is opened meanwhile."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def _hook(self, connection: apsw.Connection) -> None:
        def trace(_cursor: object, statement: str, _bindings: object) -> bool:
            self._heard.append(statement.strip())
            return True

        connection.exec_trace = trace

    def __enter__(self) -> None:
        apsw.connection_hooks.append(self._hook)

    def __exit__(self, *_: object) -> None:
        apsw.connection_hooks.remove(self._hook)
