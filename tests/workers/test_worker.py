"""A worker in this process: what it claims, when, in which order, and how it stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import psycopg
import pytest

import clew
from clew.errors import BadInput
from clew.runtime.executor import live
from clew.storage.ledger import Want, ledger_of

PATIENCE = 20.0


class State(TypedDict, total=False):
    log: Annotated[list[str], clew.extend]


def agent_of(node: Callable[[Any], Any], name: str = "trip", **options: Any) -> clew.Agent:
    agent = clew.Agent(name, state=State, **options)
    agent.node(name="node")(node)
    return agent


def noting(name: str = "trip") -> clew.Agent:
    return agent_of(lambda state: {"log": [f"saw {len(state['log'])}"]}, name)


def until(done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := done():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


class Gate:
    """A node that waits here, so that a test knows what is under way."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, state: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.open.wait(PATIENCE)
        with self._lock:
            self.inside -= 1
        return {"log": ["out"]}


@contextmanager
def working(*arguments: Any, **options: Any) -> Iterator[clew.Worker]:
    with clew.Worker(*arguments, **options) as worker:
        yield worker


def test_all_that_was_submitted_is_done(db):
    agent = noting()
    runs = [db.submit(agent, f"t{n % 5}", {"log": [str(n)]}) for n in range(30)]
    worker = clew.Worker(db, agent, concurrency=4)
    worker.run(until_idle=True)
    assert {run.status for run in runs} == {"done"}
    assert worker.outcomes == {"done": 30}
    for n in range(5):
        log = db.thread(f"t{n}").state()["log"]
        assert [item for item in log if item.isdigit()] == [str(m) for m in range(n, 30, 5)]


def test_it_can_be_run_again_and_again(db):
    agent = noting()
    worker = clew.Worker(db, agent, concurrency=2)
    for n in range(5):
        run = db.submit(agent, "t", {"log": [str(n)]})
        working = threading.Thread(target=lambda: worker.run(until_idle=True), daemon=True)
        working.start()
        working.join(PATIENCE)
        assert run.status == "done"


def test_one_that_waits_is_woken(db):
    """By what is submitted in this process, and by another handle on the same database."""
    agent = noting()
    with working(db, [agent]):
        for n in range(3):
            run = db.submit(agent, "t", {"log": [str(n)]})
            began = time.monotonic()
            until(lambda run=run: run.status == "done")
            assert time.monotonic() - began < 1.9, "before it would have looked by itself"


def test_a_person_answers_and_the_run_goes_on(db):
    def book(state: Any) -> Any:
        return {"log": [str(clew.ask("Book?", schema=bool)), str(clew.wait("paid"))]}

    agent = agent_of(book)
    run = db.submit(agent, "t", {"log": []})
    with working(db, [agent]):
        until(lambda: run.requests)[0].approve(by="alice")
        until(lambda: run.status == "waiting" and not run.requests)
        db.signal("paid", 420)
        until(lambda: run.status == "done")
    assert run.state["log"] == ["True", "420"]


def test_what_sleeps_goes_on_in_time(db):
    def nap(state: Any) -> Any:
        clew.sleep(0.3)
        return {"log": ["awake"]}

    agent = agent_of(nap)
    run = db.submit(agent, "t", {"log": []})
    later = db.submit(agent, "u", {"log": []}, at=timedelta(seconds=0.3))
    with working(db, [agent]):
        until(lambda: run.status == later.status == "done")


def test_async_nodes(db):
    async def node(state: Any) -> Any:
        await asyncio.sleep(0)
        return {"log": ["async"]}

    agent = agent_of(node)
    awaited = clew.aio.Agent.of(agent_of(node, "awaited"))
    runs = [db.submit(agent, "t", {"log": []}), db.submit(awaited, "u", {"log": []})]
    clew.Worker(db, [agent, awaited]).run(until_idle=True)
    assert [run.state["log"] for run in runs] == [["async"], ["async"]]


def test_an_error_is_tried_again_and_then_the_run_has_failed(db):
    calls: list[int] = []

    def node(state: Any) -> Any:
        calls.append(1)
        raise ValueError("boom")

    agent = agent_of(node)
    run = db.submit(agent, "t", {"log": []})
    with working(db, [agent], retry=clew.Retry(attempts=3, delay=0.05)) as worker:
        until(lambda: run.status == "failed")
    assert (len(calls), run.error.message, worker.outcomes) == (3, "boom", {"sleeping": 2, "failed": 1})


def test_not_more_at_once_than_it_may(db):
    gate = Gate()
    agent = agent_of(gate)
    runs = [db.submit(agent, f"t{n}", {"log": []}) for n in range(6)]
    with working(db, [agent], concurrency=2) as worker:
        for _ in range(2):
            assert gate.entered.acquire(timeout=PATIENCE)
        assert len(worker.active) == 2
        gate.open.set()
        until(lambda: all(run.status == "done" for run in runs))
    assert gate.most == 2


@pytest.mark.parametrize("limit", [{"agent_limits": {"trip": 2}}, {"group_limit": 2}, {"tenant_limit": 2}])
def test_limits(db, limit):
    gate = Gate()
    agent = agent_of(gate)
    runs = [db.submit(agent, f"t{n}", {"log": []}, group="acct") for n in range(6)]
    with working(db, [agent], concurrency=3, **limit), working(db, [agent], concurrency=3, **limit):
        for _ in range(2):
            assert gate.entered.acquire(timeout=PATIENCE)
        gate.open.set()
        until(lambda: all(run.status == "done" for run in runs))
    assert gate.most == 2


def test_tenants_take_turns(db):
    order: list[str] = []

    def node(state: Any) -> Any:
        order.extend(state["log"])

    agent = agent_of(node)
    for name in ("a", "b"):
        for n in range(8):
            db.tenant(name).submit(agent, f"t{n}", {"log": [name]})
    clew.Worker(db, [agent], tenants=["a", "b"], concurrency=1).run(until_idle=True)
    assert len(order) == 16
    assert {"a", "b"} == set(order[:4]), order


def test_it_hands_over_after_the_round(db):
    gate = Gate()
    agent = clew.Agent("trip", state=State)
    agent.node(name="first", start=True, then="second")(gate)
    agent.node(name="second")(lambda state: {"log": ["second"]})
    run = db.submit(agent, "t", {"log": []})
    worker = clew.Worker(db, [agent]).start()
    assert gate.entered.acquire(timeout=PATIENCE)
    worker.stop(wait=False)
    until(lambda: live[run.id]._halted)
    gate.open.set()
    worker._background.join(PATIENCE)
    assert (run.status, run.state["log"], run.info.crashes) == ("sleeping", ["out"], 0)
    clew.Worker(db, [agent]).run(until_idle=True)
    assert (run.status, run.state["log"]) == ("done", ["out", "second"])


def test_what_does_not_come_to_an_end_is_handed_over_as_it_stands(db):
    gate = Gate()
    agent = agent_of(gate)
    run = db.submit(agent, "t", {"log": []})
    worker = clew.Worker(db, [agent], drain=0.1).start()
    assert gate.entered.acquire(timeout=PATIENCE)
    worker.stop()
    assert run.status == "sleeping"
    other = clew.Worker(db, [agent]).start()
    assert gate.entered.acquire(timeout=PATIENCE)
    gate.open.set()
    until(lambda: run.status == "done")
    other.stop()
    assert run.state["log"] == ["out"], "the first one came back, and was refused"


@pytest.mark.parametrize("word", ["cancel", "interrupt", "rollback", "pause"])
def test_word_reaches_what_it_drives(db, word):
    entered = threading.Event()

    def node(state: Any) -> Any:
        entered.set()
        while True:
            clew.emit("still here")
            time.sleep(0.01)

    def rounds(state: Any) -> Any:
        entered.set()
        time.sleep(0.01)
        return {"log": ["round"]}

    agent = clew.Agent("trip", state=State)
    if word == "pause":
        agent.node(name="node", then=lambda state: "node")(rounds)
    else:
        agent.node(name="node")(node)
    run = db.submit(agent, "t", {"log": ["in"]})
    with working(db, [agent]):
        assert entered.wait(PATIENCE)
        ledger_of(db._storage).apply("t", [Want(run.id, word)])
        until(lambda: run.status == ("paused" if word == "pause" else "cancelled"))
    state = run.thread.state()
    assert state == {} if word == "rollback" else state["log"][0] == "in"


def test_a_run_that_kills_its_process_is_dead_at_last_and_others_go_on(shared_url):
    """Processes are really killed in test_killed_workers; here one leaves as if it had been."""
    with clew.open(shared_url) as db:
        agent = noting()
        run = db.submit(agent, "t", {"log": []})
        for _ in range(3):
            other = clew.open(shared_url)
            [row] = ledger_of(other._storage).claim_runs(["trip"], sweep=True)
            assert row.id == run.id
            other.close()
        other = clew.open(shared_url)
        ledger_of(other._storage).claim_runs(["trip"], sweep=True)
        other.close()
        fine = db.submit(agent, "u", {"log": []})
        with working(db, [agent], crashes=3) as worker:
            until(lambda: fine.status == "done")
            until(lambda: run.status == "dead")
        assert worker.outcomes == {"done": 1, "dead": 1}


@pytest.mark.parametrize("why", ["crashes", "damage"])
def test_one_that_cannot_even_be_called_dead_does_not_keep_those_claimed_with_it(postgres, why):
    agent = noting()
    with clew.open(postgres.url) as db, psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        db.submit(agent, "t", {"log": []})
        if why == "crashes":
            other = clew.open(postgres.url)
            ledger_of(other._storage).claim_runs(["trip"])
            other.close()  # it leaves as if it had been killed
        else:
            admin.execute("UPDATE clew.run SET input = '?'")
        admin.execute("ALTER TABLE clew.run ADD CONSTRAINT nobody_dies CHECK (status <> 'dead')")
        fine = db.submit(agent, "u", {"log": []})
        with working(db, [agent], crashes=0):
            until(lambda: fine.status == "done")
            admin.execute("ALTER TABLE clew.run DROP CONSTRAINT nobody_dies")
            until(lambda: db._room.ledger.counts().runs.get("dead") == 1)
        assert fine.info.attempts == 1


def test_what_makes_no_sense_is_refused(db):
    with pytest.raises(BadInput):
        clew.Worker(db, [])
    with pytest.raises(BadInput):
        clew.Worker(db, [noting()], concurrency=0)
    with pytest.raises(BadInput):
        clew.Worker(db, [noting()], agent_limits={"other": 1})


def test_within_an_application(url):
    """Async nodes run on the application's own loop."""
    loops: list[Any] = []

    async def node(state: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return {"log": ["async"]}

    async def work() -> None:
        async with clew.aio.open(url) as db:
            agent = clew.aio.Agent.of(agent_of(node))
            async with clew.aio.Worker(db, [agent], concurrency=2):
                runs = [await db.submit(agent, f"t{n}", {"log": []}) for n in range(3)]
                deadline = time.monotonic() + PATIENCE
                while [await run.status for run in runs] != ["done"] * 3 and time.monotonic() < deadline:
                    await asyncio.sleep(0.01)
            assert [await run.status for run in runs] == ["done"] * 3
            assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(work())
