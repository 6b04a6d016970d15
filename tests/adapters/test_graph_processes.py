"""Two processes and one LangGraph thread: one waits, is refused or stands in line; one that lost it writes no more."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from stories import Log

import clew
from clew.adapters.langgraph import LangGraphAgent
from clew.errors import Busy, ClewError
from clew.runtime.executor import claim, execute
from outsiders import Ground, pull_down

fork = multiprocessing.get_context("fork")
PATIENCE = 60


class Process:
    """Another process. `begun` is set when its node runs; it goes on once `go` is."""

    def __init__(self, ground: Ground, work: Callable[[clew.Database, LangGraphAgent], Any]) -> None:
        self.begun, self.go = fork.Event(), fork.Event()
        self._said = fork.Queue()

        def live() -> None:
            with ground.open() as db:
                try:
                    self._said.put(work(db, self._agent()))
                except ClewError as error:
                    self._said.put(type(error).__name__)

        self._process = fork.Process(target=live, daemon=True)
        self._process.start()
        self.pid: int = self._process.pid or 0

    def _agent(self) -> LangGraphAgent:
        def node(state: Any) -> Any:
            self.begun.set()
            assert self.go.wait(PATIENCE)
            return {"log": [f"after {state['log'][-1]}"]}

        builder = StateGraph(Log)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        return LangGraphAgent(builder.compile(), name="graph")

    def said(self) -> Any:
        return self._said.get(timeout=PATIENCE)

    def end(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)


@pytest.fixture
def started(ground: Ground) -> Iterator[Callable[..., Process]]:
    """Starts processes that run the graph on one thread."""
    processes: list[Process] = []

    def start(text: str, if_busy: Any = "reject", *, fenced: bool = True) -> Process:
        def work(db: clew.Database, agent: LangGraphAgent) -> Any:
            if not fenced:
                pull_down(db._storage)
            return agent.run(db.thread("t"), {"log": [text]}, if_busy=if_busy).state["log"]

        processes.append(Process(ground, work))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


def until(ground: Ground, status: str, count: int = 1) -> None:
    """Wait until so many runs have a status."""
    with ground.open() as db:
        for _ in range(PATIENCE * 100):
            if len(list(db.runs(status=status))) == count:
                return
            fork.Event().wait(0.01)
    raise AssertionError(f"no run became {status}")


def test_one_waits(ground: Ground, started: Callable[..., Process]) -> None:
    first = started("first")
    assert first.begun.wait(PATIENCE)
    second = started("second", "enqueue")
    until(ground, "queued")
    assert not second.begun.is_set()
    second.go.set()
    first.go.set()
    assert first.said() == ["first", "after first"]
    assert second.said() == ["first", "after first", "second", "after second"]


def test_one_is_refused(ground: Ground, started: Callable[..., Process]) -> None:
    first = started("first")
    assert first.begun.wait(PATIENCE)
    assert started("second").said() == Busy.__name__
    first.go.set()
    assert first.said() == ["first", "after first"]
    with ground.open() as db:
        assert len(list(db.runs())) == 1


def test_one_stands_in_line_for_a_worker(ground: Ground, started: Callable[..., Process]) -> None:
    first = started("first")
    assert first.begun.wait(PATIENCE)
    with ground.open() as db:
        idle = Process(ground, lambda db, agent: None)
        agent = idle._agent()
        run = db.submit(agent, "t", {"log": ["second"]}, if_busy="enqueue")
        assert claim(db, [agent], run=run.id) is None
        first.go.set()
        assert first.said() == ["first", "after first"]
        held = claim(db, [agent], run=run.id)
        assert held is not None
        idle.go.set()
        assert execute(held) == "done"
        assert run.state["log"] == ["first", "after first", "second", "after second"]
        idle.end()


def test_one_that_was_left_goes_on_first(ground: Ground, started: Callable[..., Process]) -> None:
    first = started("first")
    assert first.begun.wait(PATIENCE)
    first.end()
    second = started("second")
    second.go.set()
    assert second.said() == ["first", "after first", "second", "after second"]
    with ground.open() as db:
        assert [run.status for run in db.runs()] == ["done", "done"]


DONE = ["first", "after first", "second", "after second"]


def stopped_past_its_lease(ground: Ground, started: Callable[..., Process], *, fenced: bool) -> tuple[Any, ...]:
    """What the first one says when it goes on after another one has done both runs; the state, and what it added."""
    first = started("first", fenced=fenced)
    assert first.begun.wait(PATIENCE)
    os.kill(first.pid, signal.SIGSTOP)
    ground.silence()
    second = started("second")
    second.go.set()
    assert second.said() == DONE
    with ground.open() as db:
        before = len(db.thread("t").history())
        os.kill(first.pid, signal.SIGCONT)
        first.go.set()
        said = first.said()
        assert [run.status for run in db.runs()] == ["done", "done"]
        return said, db.thread("t").state()["log"], len(db.thread("t").history()) - before


def test_one_that_was_stopped_past_its_lease_writes_no_more(ground: Ground, started: Callable[..., Process]) -> None:
    assert stopped_past_its_lease(ground, started, fenced=True) == ("Fenced", DONE, 0)


def test_the_control_without_a_fence_takes_the_other_run_back(ground: Ground, started: Callable[..., Process]) -> None:
    """LangGraph's latest checkpoint is the one with the greatest id, whoever places it."""
    _, log, _ = stopped_past_its_lease(ground, started, fenced=False)
    assert log == ["first", "after first"]
