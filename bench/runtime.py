"""The runtime: what a round costs beside LangGraph and DBOS, and whether a long conversation gets dearer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import clew
from bench.agents import SHAPES, Chat, Counted, Run, of_dbos, of_graph, one_node, ours, sqlite_saver
from bench.ground import Ground
from bench.rows import TIMES, Row, ratio_row
from bench.timing import Pairs, no_garbage, take_turns

BENCH = "runtime"
BARE, STORED, WHOLE, LATE = 1.0, 1 / 2, 1 / 2, 1.3
"""Targets: a round without storage, one on SQLite, a run of one node beside DBOS, a turn late in a conversation."""


def runtime(ground: Ground) -> Iterator[Row]:
    """Nodes do nothing, so that what is left is the runtime's own."""
    if not all(map(find_spec, ("langgraph", "dbos"))):
        yield Row(BENCH, "LangGraph and DBOS", None, problem="not installed: pip install --group test")
        return
    yield from _rounds(ground)
    yield from _one_node(ground)
    yield from _conversation(ground)


def _per_round(pairs: Pairs, rounds: int) -> Pairs:
    return Pairs([time // rounds for time in pairs.ours], [time // rounds for time in pairs.other], pairs.ratios)


def _compared(ground: Ground, mine: Run, other: Run, *, warm: int, count: int, repeat: int = 1) -> Pairs:
    """Repetitions on the same databases: threads are new, files are not."""
    pairs = Pairs()
    for turn in range(warm):
        mine(-1 - turn)()
        other(-1 - turn)()
    for repetition in range(ground.sizes.repetitions * repeat):
        first = repetition * count
        with no_garbage():
            pairs.add(*take_turns(lambda turn: mine(first + turn), lambda turn: other(first + turn), count))  # noqa: B023
    return pairs


def _rounds(ground: Ground) -> Iterator[Row]:
    from langgraph.checkpoint.memory import InMemorySaver

    quick = ground.sizes.quick
    for shape, (agent, graph, rounds) in SHAPES.items():
        count = 3 if quick else 400 // rounds
        for saver, target in ((None, BARE), (InMemorySaver(), None)):
            with ExitStack() as stack:
                mine, other = ours(stack, "memory:", "strict", agent()), of_graph(graph(saver))
                pairs = _compared(ground, mine, other, warm=2, count=count)
            name = "LangGraph without a checkpointer" if saver is None else "LangGraph + InMemorySaver"
            yield ratio_row(BENCH, f"a round, {shape}: in memory", _per_round(pairs, rounds), target, name)
        for durability in ("relaxed", "strict"):
            with ExitStack() as stack:
                mine = ours(stack, str(ground.file()), durability, agent())
                other = of_graph(graph(sqlite_saver(stack, ground, durability)))
                repeat = 3 if durability == "strict" and not quick else 1  # waiting for the disk varies most
                pairs = _compared(ground, mine, other, warm=2 if quick else 1600 // rounds, count=count, repeat=repeat)
            what = f"a round, {shape}: SQLite, {durability}"
            yield ratio_row(BENCH, what, _per_round(pairs, rounds), STORED, "LangGraph + SqliteSaver")


def _one_node(ground: Ground) -> Iterator[Row]:
    """In WAL mode, which it does not choose itself, DBOS waits for the disk as often as we do."""
    count = 5 if ground.sizes.quick else 100
    for wal in (False, True):
        with ExitStack() as stack:
            mine = ours(stack, str(ground.file()), "strict", one_node())
            pairs = _compared(ground, mine, of_dbos(stack, ground, wal=wal), warm=count, count=count)
        note = "DBOS, its file in WAL mode" if wal else "DBOS as it comes"
        what = f"a run of one node with one recorded call: SQLite, strict, beside {note}"
        yield ratio_row(BENCH, what, pairs, None if wal else WHOLE, "DBOS")


def _conversation(ground: Ground) -> Iterator[Row]:
    """Two conversations take turns, of which one is a thousand turns old; then the bytes of a thousand turns."""
    turns, early = ground.sizes.graph_turns, 10
    for durability in ("relaxed", "strict"):
        pairs = Pairs()
        path = ground.file()
        with clew.open(str(path), durability=durability) as db:  # type: ignore[arg-type]
            late = Chat(db.thread("late"))
            for _ in range(turns - early):
                late.turn()()
            for repetition in range(ground.sizes.repetitions * 4):
                young = Chat(db.thread(f"young-{repetition}"))
                for _ in range(early - 5):
                    young.turn()()
                with no_garbage():
                    pairs.add(*take_turns(late.turn, young.turn, 10))
        ground.discard(path)
        what = f"SQLite, {durability}: a turn after {turns}, of one after {early}"
        yield ratio_row(BENCH, what, pairs, LATE, "the early one")
    for durability in ("relaxed", "strict"):
        yield _one_run(ground, turns, durability)
    yield _bytes(ground, turns)


def _one_run(ground: Ground, turns: int, durability: str) -> Row:
    """The same in a single run: the rounds around the tenth, and around the last."""
    pairs = Pairs()
    for _ in range(ground.sizes.repetitions):
        path = ground.file()
        with clew.open(str(path), durability=durability) as db:  # type: ignore[arg-type]
            counted = Counted(turns + 10)
            with no_garbage():
                counted.agent.run(db.thread("bench"), {"messages": []})
            pairs.add(counted.times[-20:], counted.times[5:25])
        ground.discard(path)
    what = f"SQLite, {durability}: round {turns} of a run with a recorded call in each, of round 10"
    return ratio_row(BENCH, what, pairs, LATE, "round 10")


def _bytes(ground: Ground, turns: int) -> Row:
    path = ground.file()
    with clew.open(str(path), durability="relaxed") as db:
        chat = Chat(db.thread("bench"))
        for _ in range(turns):
            chat.turn()()
        said = sum(len(one["content"]) for one in db.thread("bench").state()["messages"])
    size = ground.discard(path) - _empty(ground)
    beside = (size - said) / (2 * turns)
    what = f"SQLite: bytes of {turns} turns of 1 KB, each reply a recorded call"
    detail = f"{size:,} B stored, {said:,} B said; {beside:.0f} B beside it for each of the 2 steps of a turn"
    allowed = (1.35 * said + 250 * 2 * turns) / said
    text = f"≤ 1.35 {TIMES} + 250 B a step"
    return Row(BENCH, what, size / said, TIMES, allowed, text, detail, numbers={"stored": size, "said": said})


def _empty(ground: Ground) -> int:
    """What a database weighs with one thread of one small state in it."""
    path = ground.file()
    with clew.open(str(path)) as db:
        db.thread("bench").save({})
    return ground.discard(path)
