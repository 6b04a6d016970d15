"""ClewSaver beside LangGraph's own savers, on a chat of `MessagesState`: bytes, and the time of a late turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from bench.bare import CREATE_BARE, BarePostgres, BareSqlite, filler
from bench.ground import Ground
from bench.langgraph_chat import (
    Chat,
    Open,
    clew_on_postgres,
    clew_on_sqlite,
    contenders,
    memory_saver,
    postgres_saver,
    postgres_saver_delta,
    sqlite_saver,
    sqlite_saver_delta,
)
from bench.langgraph_reads import latest, listings
from bench.rows import TIMES, Row, ratio_row
from bench.timing import Pairs, clock, no_garbage

BENCH = "langgraph"
TURN, OWN, COMMIT = 1 / 2, 1 / 5, 1.0
"""Targets: a whole turn, the saver's own part of it, and a turn against memory and a commit."""


class Engine(NamedTuple):
    """Who takes part on a database, and how small we are to be beside each peer."""

    name: str
    ours: Open
    full: Open
    delta: Open
    of_full: float
    of_delta: float


ENGINES = (
    Engine("SQLite", clew_on_sqlite, sqlite_saver, sqlite_saver_delta, 1 / 100, 1 / 2),
    Engine("PostgreSQL", clew_on_postgres, postgres_saver, postgres_saver_delta, 1 / 20, 1.0),
)


def langgraph(ground: Ground) -> Iterator[Row]:
    """Whole graphs, as their users run them: LangGraph's own work is in every turn."""
    for engine in ENGINES:
        yield from _bytes(ground, engine)
        yield from latest(ground, engine.name, engine.ours, engine.full)
    for engine in ENGINES:
        for durability in ("relaxed", "strict"):
            yield from _turns(ground, engine, durability)


def _bytes(ground: Ground, engine: Engine) -> Iterator[Row]:
    """Ratios to the peers change with the turns: the targets are for those of a whole run. Listings are of the same
    threads."""
    turns = ground.sizes.graph_turns
    with contenders(ground, "relaxed", engine.ours, engine.full, engine.delta) as chats:
        for chat in chats:
            chat.grow(turns)
        assert chats[0].messages()[::2] == chats[1].messages()[::2]
        yield from listings(ground, engine.name, chats)
        ours, full, delta = [chat.weigh() for chat in chats]
    what = f"{engine.name}: bytes of a chat of {turns} turns of 1 KB"
    for peer, theirs, target in ((chats[1], full, engine.of_full), (chats[2], delta, engine.of_delta)):
        detail = f"{ours:,} B; {peer.name} {theirs:,} B"
        wanted = None if ground.sizes.quick else target
        numbers = {"ours": ours, "other": theirs, "turns": turns}
        yield Row(BENCH, f"{what}, of {peer.name}", ours / theirs, TIMES, wanted, detail=detail, numbers=numbers)


class _Times:
    """What the turns of some contenders took, and how much of it their savers."""

    def __init__(self, chats: Sequence[Chat]) -> None:
        self.turns: list[list[int]] = [[] for _ in chats]
        self.own: list[list[int]] = [[] for _ in chats]

    def take(self, chats: Sequence[Chat], count: int) -> None:
        for turn in range(count):
            order = range(len(chats)) if turn % 2 else reversed(range(len(chats)))
            for at in order:
                chat = chats[at]
                call, chat.own = chat.turn(), 0
                self.turns[at].append(clock(call))
                self.own[at].append(chat.own)


def _turns(ground: Ground, engine: Engine, durability: str) -> Iterator[Row]:
    before = ground.sizes.graph_turns
    count = 6 if ground.sizes.quick else 30
    full, delta, memory, own, own_delta = (Pairs() for _ in range(5))
    for _ in range(ground.sizes.repetitions):
        with contenders(ground, durability, engine.ours, engine.full, engine.delta, memory_saver) as chats:
            for chat in chats:
                chat.begin(before)
                chat.grow(2)
                chat.watch()
            times = _Times(chats)
            with no_garbage():
                times.take(chats, count)
            commits = _commits(ground, engine, durability, count)
        full.add(times.turns[0], times.turns[1])
        delta.add(times.turns[0], times.turns[2])
        own.add(times.own[0], times.own[1])
        own_delta.add(times.own[0], times.own[2])
        memory.add(times.turns[0], [a + b for a, b in zip(times.turns[3], commits, strict=True)])
    what = f"{engine.name} {durability}: a turn after {before}"
    name = chats[1].name
    yield ratio_row(BENCH, f"{what}, the whole graph", full, TURN, name)
    yield ratio_row(BENCH, f"{what}, the saver's own part", own, OWN, name)
    yield ratio_row(BENCH, f"{what}, against memory and a commit", memory, COMMIT, "InMemorySaver and a commit")
    yield ratio_row(BENCH, f"{what}, the whole graph, of {chats[2].name}", delta, None, chats[2].name)
    yield ratio_row(BENCH, f"{what}, the saver's own part, of {chats[2].name}", own_delta, None, chats[2].name)


def _commits(ground: Ground, engine: Engine, durability: str, count: int) -> list[int]:
    """The times of one bare commit of a turn's text."""
    rows = filler((300, 1024))
    bare: BareSqlite | BarePostgres
    with ExitStack() as stack:
        if engine.name == "SQLite":
            path = ground.file()
            bare = BareSqlite(path, "FULL" if durability == "strict" else "NORMAL")
            stack.callback(ground.discard, path)
        else:
            place = ground.postgres.database()
            stack.callback(ground.postgres.drop, place)
            for statement in CREATE_BARE:
                ground.postgres.role_may(place, statement)
            bare = BarePostgres(place.application, synchronous=durability == "strict")
        stack.callback(bare.close)
        return [clock(partial(bare.write, rows)) for _ in itertools.repeat(None, count)]
