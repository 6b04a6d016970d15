"""A busy branch: callers that run, stream and submit at once. The order is that of admission, whoever drives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from crews import until
from test_worker import Gate, agent_of, noting

import clew
from clew.errors import Busy

RACERS = Path(__file__).with_name("contenders.py")


def test_run_stands_in_line_until_it_is_its_turn(db):
    gate = Gate()
    agent = agent_of(gate)
    runs: list[clew.Run] = []

    def call(n: int) -> None:
        runs.append(agent.run(db.thread("t"), {"log": [str(n)]}, if_busy="enqueue"))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for n, thread in enumerate(threads):
        thread.start()
        until(lambda n=n: len(db.runs()) == n + 1)
    with pytest.raises(Busy):
        agent.run(db.thread("t"), {"log": []})
    gate.open.set()
    for thread in threads:
        thread.join()
    assert {run.status for run in runs} == {"done"}
    assert db.thread("t").state()["log"] == [item for n in range(4) for item in (str(n), "out")]


def test_run_returns_what_a_worker_has_driven(db):
    agent = noting()
    first = db.submit(agent, "t", {"log": ["a"]})
    with clew.Worker(db, [agent]):
        run = agent.run(db.thread("t"), {"log": ["b"]}, if_busy="enqueue")
        until(lambda: first.status == "done")
    assert run.status == "done"
    assert db.thread("t").state()["log"] == ["a", "saw 1", "b", "saw 3"]


def test_whoever_waits_helps_what_nobody_goes_on_with(shared_url):
    """A run that was left, and a queued one whose submitter has no worker, are driven by the caller that waits."""
    agent = noting()
    with clew.open(shared_url) as db:
        other = clew.open(shared_url)
        left = other.submit(agent, "t", {"log": ["left"]})
        from clew.storage.ledger import ledger_of

        assert ledger_of(other._storage).claim_runs(["trip"])
        other.close()
        queued = db.submit(agent, "t", {"log": ["queued"]})
        run = agent.run(db.thread("t"), {"log": ["mine"]}, if_busy="enqueue")
        assert [db.run(one.id).status for one in (left, queued, run)] == ["done"] * 3
        assert db.thread("t").state()["log"] == ["left", "saw 1", "queued", "saw 3", "mine", "saw 5"]


def test_a_run_that_takes_another_ones_place(db):
    entered = threading.Event()

    def node(state: Any) -> Any:
        while state["log"] == ["first"]:
            entered.set()
            clew.emit("still here")
            time.sleep(0.01)
        return {"log": ["out"]}

    agent = agent_of(node)
    first = threading.Thread(target=lambda: agent.run(db.thread("t"), {"log": ["first"]}))
    first.start()
    assert entered.wait(20)
    found: list[clew.Run] = []
    second = threading.Thread(
        target=lambda: found.append(agent.run(db.thread("t"), {"log": ["second"]}, if_busy="rollback"))
    )
    second.start()
    first.join()
    second.join()
    assert db.thread("t").state()["log"] == ["second", "out"]
    assert [run.status for run in db.runs()] == ["done", "cancelled"]


def test_stream_stands_in_line_too(db):
    agent = noting()
    db.submit(agent, "t", {"log": ["a"]})
    kinds = [event.kind for event in agent.stream(db.thread("t"), {"log": ["b"]}, if_busy="enqueue")]
    assert kinds[-1] == "end"
    assert db.thread("t").state()["log"] == ["a", "saw 1", "b", "saw 3"]


def test_whoever_stops_awaiting_leaves_the_line(db, url):
    async def work() -> None:
        async with clew.aio.Database(db, clew.aio._Hop()) if url == "memory:" else clew.aio.open(url) as adb:
            gate = Gate()
            agent = clew.aio.Agent.of(agent_of(gate))
            holder = asyncio.ensure_future(agent.run(adb.thread("t"), {"log": ["a"]}))
            while not gate.entered.acquire(blocking=False):
                await asyncio.sleep(0.01)
            waiter = asyncio.ensure_future(agent.run(adb.thread("t"), {"log": ["b"]}, if_busy="enqueue"))
            while len(await adb.runs()) < 2:
                await asyncio.sleep(0.01)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert [run.info.status for run in await adb.runs()] == ["cancelled", "running"]
            gate.open.set()
            assert await (await holder).status == "done"
            assert (await adb.thread("t").state())["log"] == ["a", "out"]

    asyncio.run(work())


def race(url: str, kind: str, *policies: str) -> list[list[str]]:
    """Four processes submit 25 runs each at once; what each of them says of its runs."""
    racers = [
        subprocess.Popen(
            [sys.executable, str(RACERS), url, kind, str(n), *policies],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(4)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [racer.communicate(timeout=120)[0].split() for racer in racers]


POLICIES = ["enqueue", "reject", "interrupt", "rollback", "inject"]


@pytest.mark.parametrize("kind", ["agent", "graph"])
@pytest.mark.parametrize("policy", [*POLICIES, "all"])
def test_racing_submits(shared_url, policy, kind):
    """A worker drives while 100 runs are submitted from four processes."""
    from contenders import racer

    agent = racer(kind)
    with clew.open(shared_url, durability="relaxed") as db, clew.Worker(db, [agent], concurrency=2):
        told = race(shared_url, kind, *(POLICIES if policy == "all" else [policy]))
        admitted = [name for names in told for name in names if not name.startswith("-")]
        runs = everything(db)
        until(lambda: all(run.status in ("done", "cancelled") for run in runs), every=0.2)
        assert sorted(run.key for run in runs) == sorted(admitted), "what was acknowledged is there, and nothing else"
        assert len(admitted) == 100 or policy in ("reject", "all")
        check_order(db, runs)


def everything(db: clew.Database) -> list[clew.Run]:
    """All runs, in the order of their admission."""
    runs: list[clew.Run] = []
    page = db.runs()
    while True:
        runs += page
        if page.cursor is None:
            return runs[::-1]
        page = db.runs(cursor=page.cursor)


def check_order(db: clew.Database, runs: list[clew.Run]) -> None:
    """The serial order: each input that is in the head stands there once, in the order of admission.

    Each run that was not taken back or cancelled unseen left its input. Whoever interrupted keeps what was before it.
    """
    log = db.thread("t").state()["log"]
    order = {run.key: at for at, run in enumerate(runs)}
    inputs = [item for item in log if item in order]
    policy = {run.key: run.key.split(":")[0] for run in runs}
    assert len(set(inputs)) == len(inputs), "nothing twice"
    assert {item.rpartition(" of ")[2] for item in log} <= set(inputs), "what was taken back leaves no trace"
    # An injected input is taken in while others stand in line; all the others keep the order of their admission.
    others = [order[item] for item in inputs if policy[item] != "inject"]
    assert others == sorted(others)
    last = max((order[run.key] for run in runs if policy[run.key] == "rollback"), default=-1)
    for run in runs:
        # What was admitted after the last one that took everything back is there; and each that is done before is too,
        # unless somebody took it back later.
        if order[run.key] >= last:
            assert run.key in inputs, (run.key, run.status)
    if set(policy.values()) == {"rollback"}:
        assert inputs == [run.key for run in runs if run.status == "done"]
    if set(policy.values()) <= {"enqueue", "reject"}:
        assert {run.status for run in runs} == {"done"}
        assert log == [item for run in runs for item in (run.key, f"first of {run.key}", f"second of {run.key}")]
