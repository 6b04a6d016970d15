"""The time of a save, beside the least that would keep the same bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import clew
from bench.bare import CREATE_BARE, BarePostgres, BareSqlite, Bytes, filler, sqlite_row_bytes
from bench.content import message, text
from bench.ground import Ground
from bench.rows import Row, ratio_row
from bench.shapes import langchain_message
from bench.timing import Pairs, Prepare, alternate

SIZE = 1024
AROUND = 100
"""Messages in the list, on average: threads begin below it and are left as far above it."""

SPAN = 40
TOLD, SHADOW, STRICT, GROWTH, SERVER = 3.0, 5.0, 1.5, 1.5, 2.0


Make = Callable[[str, int], Any]


class Conversation:
    """Threads of about 100 messages, one after the other; each turn of a bench saves one more message."""

    def __init__(self, db: clew.Database, how: str, make: Make = message) -> None:
        self._db = db
        self._how = how
        self._make = make
        self._rng = random.Random(7)
        self._numbers = itertools.count()
        self._left = 0

    def next(self, _turn: int) -> Callable[[], object]:
        """The save of one more message, ready to be timed."""
        if not self._left:
            self._begin()
        self._left -= 1
        new = self._make(text(self._rng, SIZE), self._left)
        if self._how == "told":
            return partial(self._thread.update, {"messages": clew.extend([new])})
        self._state["messages"].append(new)
        return partial(self._thread.save, self._state)

    def _begin(self) -> None:
        self._thread = self._db.thread(f"conversation-{next(self._numbers)}")
        self._state: dict[str, Any] = {
            "messages": [self._make(text(self._rng, SIZE), step) for step in range(AROUND - SPAN // 2)]
        }
        self._thread.save(self._state)
        self._left = SPAN


def _step_bytes(ground: Ground, make: Make = message) -> Bytes:
    """What one such save leaves in its two rows."""
    path = ground.file()
    with clew.open(str(path), durability="relaxed") as db:
        conversation = Conversation(db, "told", make)
        for turn in range(3):
            conversation.next(turn)()
        sizes = sqlite_row_bytes(path)
    ground.discard(path)
    return filler(sizes)


def _bare_turn(bare: BareSqlite | BarePostgres, rows: Bytes) -> Prepare:
    return lambda _turn: partial(bare.write, rows)


def _on_sqlite(ground: Ground, how: str, durability: str, turns: int, make: Make = message) -> Pairs:
    pairs = Pairs()
    rows = _step_bytes(ground, make)
    for _ in range(ground.sizes.repetitions):
        ours, other = ground.file(), ground.file()
        bare = BareSqlite(other, "FULL" if durability == "strict" else "NORMAL")
        with clew.open(str(ours), durability=durability) as db:  # type: ignore[arg-type]
            alternate(pairs, Conversation(db, how, make).next, _bare_turn(bare, rows), turns)
        bare.close()
        ground.discard(ours)
        ground.discard(other)
    return pairs


def saves(ground: Ground) -> Iterator[Row]:
    """`save` and `update` of one 1 KB message, in a list of about 100."""
    turns = ground.sizes.turns
    for how, durability, target in (
        ("told", "relaxed", TOLD),
        ("shadow", "relaxed", SHADOW),
        ("told", "strict", STRICT),
        ("shadow", "strict", STRICT),
    ):
        pairs = _on_sqlite(ground, how, durability, turns)
        yield ratio_row("saves", f"SQLite {durability}, {how}", pairs, target, "bare two-row transaction")
    pairs = _on_sqlite(ground, "shadow", "relaxed", turns // 4, langchain_message)
    yield ratio_row("saves", "SQLite relaxed, shadow, LangChain messages", pairs, None, "bare two-row transaction")
    for how in ("told", "shadow"):
        for durability in ("relaxed", "strict"):
            pairs = _on_postgres(ground, how, durability, turns // 2)
            what = f"PostgreSQL {durability}, {how}, row-level security"
            yield ratio_row("saves", what, pairs, SERVER, "bare prepared insert")


def _on_postgres(ground: Ground, how: str, durability: str, turns: int) -> Pairs:
    pairs = Pairs()
    server = ground.postgres
    rows = _step_bytes(ground)
    for _ in range(ground.sizes.repetitions):
        place = server.database()
        for statement in CREATE_BARE:
            server.role_may(place, statement)
        bare = BarePostgres(place.application, synchronous=durability == "strict")
        with clew.open(place.application, durability=durability) as db:  # type: ignore[arg-type]
            alternate(pairs, Conversation(db, how).next, _bare_turn(bare, rows), turns)
        bare.close()
        server.drop(place)
    return pairs


class Aging:
    """Saves at about step 50, on ever new threads."""

    def __init__(self, db: clew.Database) -> None:
        self._db = db
        self._left = 0
        self._numbers = itertools.count()
        self._rng = random.Random(9)

    def next(self, _turn: int) -> Callable[[], object]:
        if not self._left:
            self._thread = self._db.thread(f"young-{next(self._numbers)}")
            grow(self._thread, 40, self._rng)
            self._left = 20
        self._left -= 1
        return partial(self._thread.update, {"messages": clew.extend([message(text(self._rng, SIZE), self._left)])})


def grow(thread: clew.Thread, steps: int, rng: random.Random) -> None:
    for step in range(steps):
        thread.update({"messages": clew.extend([message(text(rng, SIZE), step)])})


def growth(ground: Ground) -> Iterator[Row]:
    """Does a save cost more when the thread has grown long? Both kinds of thread are in one file."""
    pairs = Pairs()
    long, rng = ground.sizes.long, random.Random(8)
    for _ in range(ground.sizes.repetitions if ground.sizes.quick else 3):
        path = ground.file()
        with clew.open(str(path), durability="relaxed") as db:
            old = db.thread("old")
            grow(old, long, rng)

            def late(turn: int, thread: clew.Thread = old) -> Callable[[], object]:
                return partial(thread.update, {"messages": clew.extend([message(text(rng, SIZE), turn)])})

            alternate(pairs, late, Aging(db).next, ground.sizes.turns)
        ground.discard(path)
    yield ratio_row("growth", f"SQLite relaxed, told: at step {long} against step 50", pairs, GROWTH, "at step 50")
