"""Reading LangGraph's checkpoints: the latest one, and listings of a thread of many turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from bench.ground import Ground
from bench.langgraph_chat import CONFIG, Chat, Open, contenders
from bench.rows import Row, ratio_row, shown, spent
from bench.timing import Pairs, alternate, clock, no_garbage, percentile

BENCH = "langgraph"
LATEST, LISTED, LISTED_MS = 1 / 2, 1 / 20, 20.0
_READS = 20
_TARGETS = {
    ("SQLite", 10): (LISTED_MS, LISTED),
    ("SQLite", 1000): (LISTED_MS, LISTED),
    ("PostgreSQL", 10): (LISTED_MS, None),
    ("PostgreSQL", 1000): (None, LISTED),
}
"""Milliseconds and part of the peer's time, by engine and limit. PostgresSaver needs ten times as long for ten as for
one; ours reads one, and nine that share its messages. With half of the peer's time for one, a twentieth is spent."""
_LISTINGS = ((10, 15, 2), (1000, 5, 1))
"""How many checkpoints, and how often ours and the peer's are listed: theirs takes half a minute."""


def latest(ground: Ground, engine: str, ours: Open, full: Open) -> Iterator[Row]:
    """`get_tuple` at 1000 messages: by a process that goes on with the thread, and by one that reads it first."""
    count = ground.sizes.steps
    turns = 5 if ground.sizes.quick else _READS
    going_on, first = Pairs(), Pairs()
    for _ in range(ground.sizes.repetitions):
        with contenders(ground, "relaxed", ours, full) as chats:
            for chat in chats:
                chat.begin(count // 2)
            mine, theirs = (chat.saver for chat in chats)
            assert len(_messages(mine)) == len(_messages(theirs)) == count
            peer = partial(theirs.get_tuple, CONFIG)
            alternate(going_on, lambda _: partial(mine.get_tuple, CONFIG), lambda _: peer, turns)  # noqa: B023
            alternate(first, lambda _: partial(type(mine)(mine.db).get_tuple, CONFIG), lambda _: peer, turns)  # noqa: B023
            name = chats[1].name
    what = f"{engine}: get_tuple of {count} messages"
    yield ratio_row(BENCH, f"{what}, by whoever goes on with the thread", going_on, LATEST, name)
    yield ratio_row(BENCH, f"{what}, read for the first time", first, LATEST, name)


def _messages(saver: Any) -> list[Any]:
    found: list[Any] = saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"]
    return found


def listings(ground: Ground, engine: str, chats: Sequence[Chat]) -> Iterator[Row]:
    """`list` of a thread that has had many turns, by ours (the first chat) and by a full saver (the second)."""
    quick = ground.sizes.quick
    turns = ground.sizes.graph_turns
    for limit, often, seldom in _LISTINGS:
        with no_garbage():
            ours = [clock(_listing(chats[0].saver, limit)) for _ in range(1 if quick else often)]
            theirs = [clock(_listing(chats[1].saver, limit)) for _ in range(seldom)]
        figure, peer = percentile(ours, 0.5) / 1000, percentile(theirs, 0.5) / 1000
        what = f"{engine}: list(limit={limit}) of a thread of {turns} turns"
        numbers = {"ours": spent(ours), "other": spent(theirs)}
        detail = f"{shown(ours)}; {chats[1].name} {shown(theirs)}"
        wanted, part = (None, None) if quick else _TARGETS[engine, limit]
        yield Row(BENCH, what, figure, "ms", wanted, detail=detail, numbers=numbers)
        yield Row(BENCH, f"{what}, of {chats[1].name}", figure / peer, target=part, numbers=numbers)


def _listing(saver: Any, limit: int) -> Callable[[], object]:
    def read() -> int:
        return sum(1 for _ in saver.list(CONFIG, limit=limit))

    return read
