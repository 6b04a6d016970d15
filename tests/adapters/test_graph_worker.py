"""Graphs under a worker: word from other processes, and being told to go."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from stories import Log

import clew
from clew.adapters.langgraph import LangGraphAgent
from clew.storage.ledger import ENDED

PATIENCE = 30


class Gate:
    """Three nodes in a row, of which the second waits here."""

    def __init__(self, *, awaited: bool) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.ran: list[str] = []

        def plain(name: str) -> Any:
            def node(state: Any) -> Any:
                self.ran.append(name)
                if name == "two":
                    self.entered.set()
                    assert self.open.wait(PATIENCE)
                return {"log": [name]}

            return node

        async def waits(state: Any) -> Any:
            self.ran.append("two")
            self.entered.set()
            while not self.open.is_set():
                await asyncio.sleep(0.01)
            return {"log": ["two"]}

        builder = StateGraph(Log)
        for name in ("one", "two", "three"):
            builder.add_node(name, waits if awaited and name == "two" else plain(name))
        for before, after in zip([START, "one", "two", "three"], ["one", "two", "three", END], strict=True):
            builder.add_edge(before, after)
        self.agent = LangGraphAgent(builder.compile(), name="graph")


@pytest.fixture(params=[False, True], ids=["plain", "awaited"])
def gate(request: pytest.FixtureRequest) -> Gate:
    return Gate(awaited=request.param)


def until(done: Callable[[], Any]) -> None:
    for _ in range(PATIENCE * 50):
        if done():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not come to that")


def test_told_to_go_it_hands_over_after_the_superstep(db: clew.Database, gate: Gate) -> None:
    run = db.submit(gate.agent, "t", {"log": []})
    worker = clew.Worker(db, gate.agent).start()
    assert gate.entered.wait(PATIENCE)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: all(held._halted for held, _ in list(worker._active.values())))
    gate.open.set()
    stopping.join(PATIENCE)
    assert (run.status, run.state["log"], gate.ran) == ("sleeping", ["one", "two"], ["one", "two"])
    clew.Worker(db, gate.agent).run(until_idle=True)
    assert (run.status, run.state["log"], gate.ran) == ("done", ["one", "two", "three"], ["one", "two", "three"])
    assert (run.info.crashes, run.info.attempts) == (0, 2)


def test_told_to_go_at_once_it_is_handed_over_as_it_stands(db: clew.Database, gate: Gate) -> None:
    """Whoever drove it is refused from then on, and the next worker runs that superstep again."""
    run = db.submit(gate.agent, "t", {"log": []})
    worker = clew.Worker(db, gate.agent).start()
    assert gate.entered.wait(PATIENCE)
    worker.stop(at_once=True)
    assert (run.status, run.state["log"]) == ("sleeping", ["one"])
    steps = len(db.thread("t").history())
    gate.open.set()
    until(lambda: worker.active == [])
    assert len(db.thread("t").history()) == steps
    clew.Worker(db, gate.agent).run(until_idle=True)
    assert (run.status, run.state["log"], gate.ran) == ("done", ["one", "two", "three"], ["one", "two", "two", "three"])


def test_cancelled_from_another_process(db: clew.Database, gate: Gate) -> None:
    """Asynchronous nodes are interrupted; plain ones end, and nothing begins after them."""
    run = db.submit(gate.agent, "t", {"log": []})
    with clew.Worker(db, gate.agent) as worker:
        assert gate.entered.wait(PATIENCE)
        db.run(run.id).cancel()
        if not gate.agent._awaited:
            worker._pass_word_on()  # as it does twice a second
            gate.open.set()
        until(lambda: run.status == "cancelled")
    assert run.state["log"] in (["one"], ["one", "two"])
    assert "three" not in gate.ran


def test_each_policy_under_a_worker(db: clew.Database) -> None:
    """What stands before, while a run is under way, by the policy of the one that comes."""
    logs = {
        "enqueue": (["a", "one", "two", "three", "b", "one", "two", "three"], "done"),
        "interrupt": (["a", "one", "two", "b", "one", "two", "three"], "cancelled"),
        "rollback": (["b", "one", "two", "three"], "cancelled"),
        "inject": (["a", "one", "two", "b", "three"], "done"),
    }
    for if_busy, (log, first_status) in logs.items():
        gate = Gate(awaited=False)
        first = db.submit(gate.agent, if_busy, {"log": ["a"]})
        with clew.Worker(db, gate.agent) as worker:
            assert gate.entered.wait(PATIENCE)
            second = db.submit(gate.agent, if_busy, {"log": ["b"]}, if_busy=if_busy)
            worker._pass_word_on()  # as it does twice a second
            gate.open.set()
            until(lambda: first.status in ENDED and second.status in ENDED)
        assert (first.status, second.status) == (first_status, "done"), if_busy
        assert db.thread(if_busy).state()["log"] == log, if_busy


MODULE = """
import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

from clew.adapters.langgraph import LangGraphAgent

class State(TypedDict):
    log: Annotated[list, operator.add]

builder = StateGraph(State)
builder.add_node("greet", lambda state: {"log": ["hello"]})
builder.add_edge(START, "greet")
agent = LangGraphAgent(builder.compile(), name="greeter")
"""


def test_from_the_shell(tmp_path: Path) -> None:
    """`clew worker module:agent`: the graph's module knows of no database."""
    (tmp_path / "greeting.py").write_text(MODULE)
    names = runpy.run_path(str(tmp_path / "greeting.py"))
    with clew.open(str(tmp_path / "agent.db")) as db:
        run = db.submit(names["agent"], "t", {"log": ["in"]})
        command = [sys.executable, "-m", "clew.cli", "worker", "greeting:agent", "--until-idle", "-d", "agent.db"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert (run.status, run.state["log"]) == ("done", ["in", "hello"])


def test_one_graph_for_several_tenants(db: clew.Database) -> None:
    """It has no checkpointer of its own: each tenant's runs have theirs."""
    builder = StateGraph(Log)
    builder.add_node("node", lambda state: {"log": [f"after {state['log'][-1]}"]})
    builder.add_edge(START, "node")
    agent = LangGraphAgent(builder.compile(), name="graph")
    runs = [db.tenant(name).submit(agent, "t", {"log": [f"{name}{n}"]}) for n in range(3) for name in ("a", "b")]
    clew.Worker(db, agent, tenants=["a", "b"]).run(until_idle=True)
    assert {run.status for run in runs} == {"done"}
    for name in ("a", "b"):
        log = db.tenant(name).thread("t").state()["log"]
        assert log == [word for n in range(3) for word in (f"{name}{n}", f"after {name}{n}")]
    assert db.thread("t").head is None
