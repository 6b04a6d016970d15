"""kill -9 in any node of a graph: it resumes from the last superstep, and what had finished does not run again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from clew.adapters.langgraph import ClewSaver
from clew.testing.faults import in_child

CONFIG: Any = {"configurable": {"thread_id": "t"}}
NAMES = ["first", "left", "right", "in1", "in2", "spread", "part0", "part1", "part2", "last"]


def union(old: list[str], new: list[str]) -> list[str]:
    """A graph within gives back what it was given."""
    return old + [text for text in new if text not in old]


class Log(TypedDict):
    log: Annotated[list[str], union]


class Watched(ClewSaver):
    """A saver that tells which nodes' writes it has recorded, and what it has placed."""

    def watch(self) -> None:
        self.recorded: dict[str, Any] = {}
        self.placed: set[Any] = set()
        self.came = threading.Condition()

    def _record(self, writing: Any) -> None:
        super()._record(writing)
        self.note(writing)

    def note(self, writing: Any) -> None:
        with self.came:
            for row in writing.rows:
                if row.name == "log" and not row.path.endswith("__start__"):
                    self.recorded = {text.split()[1]: writing.place for text in row.value} | self.recorded
            self.came.notify_all()

    def _finish(self, begun: Any) -> Any:
        config = super()._finish(begun)
        with self.came:
            self.placed.add(begun.place)
            self.came.notify_all()
        return config

    def wait_for(self, names: set[str]) -> None:
        """Until the writes of these nodes are recorded, and the checkpoints beside which they are stand."""
        with self.came:
            assert self.came.wait_for(
                lambda: names <= set(self.recorded) and {self.recorded[name] for name in names} <= self.placed, 60
            )


class Forgetful(Watched):
    """The control: what tasks have finished with is not written down."""

    def _record(self, writing: Any) -> None:
        self.note(writing)


class Killer:
    """Dies at one call of a node, once what finished before is recorded."""

    def __init__(self, saver: Watched, nonce: str, ledger: Path, at: int, when: str) -> None:
        self._saver, self._nonce, self._ledger = saver, nonce, ledger
        self._at, self._when = at, when
        self._calls = count(1)
        self._done: set[str] = set()
        self._one_by_one = threading.Lock()

    def node(self, name: str) -> Any:
        def run(state: Any) -> Any:
            here = f"{name}{state.get('part', '')}"
            with self._one_by_one:
                if next(self._calls) == self._at:
                    self._saver.wait_for(self._done)
                    if self._when == "after":
                        self._tell(here)
                    os.kill(os.getpid(), signal.SIGKILL)
                self._tell(here)
                self._done.add(here)
            return {"log": [f"{self._nonce} {here}"]}

        return run

    def _tell(self, here: str) -> None:
        with self._ledger.open("a") as ledger:
            ledger.write(here + "\n")


def graph_on(saver: Any, killer: Killer) -> Any:
    """One; then three side by side, one of them a graph; then one, which sends three; then the last."""
    inner = StateGraph(Log)
    inner.add_node("in1", killer.node("in1"))
    inner.add_node("in2", killer.node("in2"))
    inner.add_edge(START, "in1")
    inner.add_edge("in1", "in2")
    builder = StateGraph(Log)
    for name in ("first", "left", "right", "spread", "part", "last"):
        builder.add_node(name, killer.node(name))
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "first")
    for name in ("left", "right", "inner"):
        builder.add_edge("first", name)
    builder.add_edge(["left", "right", "inner"], "spread")
    builder.add_conditional_edges("spread", lambda _: [Send("part", {"part": at}) for at in range(3)], ["part"])
    builder.add_edge("part", "last")
    return builder.compile(checkpointer=saver)


def play(url: str, ledger: Path, nonce: str, how: str, at: int, when: str, of: type[Watched] = Watched) -> Any:
    """Run the graph, or go on with it, in a process of its own."""

    def child(tell: Any) -> None:
        saver = of.open(url, durability="relaxed")
        saver.watch()
        graph = graph_on(saver, Killer(saver, nonce, ledger, at, when))
        given = None if graph.get_state(CONFIG).created_at else {"log": []}
        called, durability = how.split()
        if called == "awaited":
            asyncio.run(graph.ainvoke(given, CONFIG, durability=durability))
        else:
            graph.invoke(given, CONFIG, durability=durability)
        state = graph.get_state(CONFIG)
        tell((state.values["log"], list(state.next), len(list(graph.get_state_history(CONFIG)))))

    return in_child(child)


@pytest.fixture(params=["sqlite", "postgres"])
def urls(request: pytest.FixtureRequest, ram: Path) -> Iterator[str]:
    if request.param == "postgres":
        databases = request.getfixturevalue("postgres_databases")
        return (databases.make().url for _ in count())
    return (str(ram / f"{number}.db") for number in count())


def kills(long: bool) -> list[tuple[int, str, str]]:
    every = [
        (at, when, how)
        for at in range(1, len(NAMES) + 1)
        for when in ("before", "after")
        for how in ("called sync", "called async", "awaited sync", "awaited async")
    ]
    return every if long else random.Random(3).sample(every, 10)


def test_it_goes_on_from_the_last_superstep(urls: Iterator[str], ram: Path, long: bool) -> None:
    whole = play(next(urls), ram / "whole", "x", "called sync", 0, "")
    (log, _, supersteps) = whole.told[0]
    assert Counter(log) == Counter([f"x {name}" for name in NAMES])
    for number, (at, when, how) in enumerate(kills(long)):
        url, ledger = next(urls), ram / f"ledger {number}"
        first = play(url, ledger, "killed", how, at, when)
        assert first.killed_by == signal.SIGKILL, first.raised
        before = ledger.read_text().split() if ledger.exists() else []
        assert len(before) == at - (when == "before")
        second = play(url, ledger, "resumed", how, 0, "")
        assert second.raised is None, second.raised
        found, next_, steps = second.told[0]
        assert next_ == []
        assert steps == supersteps, (at, when, how)
        ran = Counter(ledger.read_text().split())
        died_in = before[-1] if when == "after" else None
        finished = set(before) - {died_in}
        # What had finished ran once; the one that died after its work ran again.
        assert ran == Counter(NAMES) + Counter([died_in] if died_in else []), (at, when, how, ran)
        assert Counter(found) == Counter([f"{'killed' if name in finished else 'resumed'} {name}" for name in NAMES]), (
            at,
            when,
            how,
        )


def test_control_without_their_records_siblings_run_again(ram: Path) -> None:
    url, ledger = str(ram / "a.db"), ram / "ledger"
    assert play(url, ledger, "killed", "called sync", 9, "before", Forgetful).killed_by == signal.SIGKILL
    second = play(url, ledger, "resumed", "called sync", 0, "")
    assert second.raised is None
    assert max(Counter(ledger.read_text().split()).values()) == 2
