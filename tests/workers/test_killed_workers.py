"""Worker processes that are killed, told to go, stopped for a while: everything accepted is done, once."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from crews import Crew, all_over, submit, until, verdict
from errands import Outside, errand, open_with, warnings_of

import clew
from clew.runtime.worker import SWEEP

SLACK = 2.0
"""Seconds that this machine may take for anything."""


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_killed_every_half_second(shared_url, outside, tmp_path, long, kind):
    count = 300 if long else 60
    with clew.open(shared_url, durability="relaxed") as db, Crew(3, shared_url, tmp_path / "outside", kind) as crew:
        runs = submit(db, errand(outside, graph=kind == "graph"), count, count // 5)
        over = all_over(runs)
        while not over() or crew.kills < 3:
            time.sleep(0.5)
            crew.kill_one()
        assert verdict(db, runs, outside, count // 5) == {}


def test_the_control_does_things_twice(tmp_path, outside):
    """Effects that are plain calls, and take a while."""
    url = str(tmp_path / "control.db")
    with clew.open(url, durability="relaxed") as db:
        runs = submit(db, errand(outside), 60, 20)
        over = all_over(runs)
        with Crew(3, url, tmp_path / "outside", "careless", "10", "0.5") as crew:
            while not over() and len(set(outside.done())) == len(outside.done()):
                time.sleep(0.1)
                crew.kill_one()
    assert max(Counter(outside.done()).values()) >= 2


def test_told_to_go_they_hand_over(shared_url, outside, tmp_path):
    """SIGTERM every now and then: no run counts as crashed, and all are done."""
    path = tmp_path / "outside"
    with clew.open(shared_url, durability="relaxed") as db, Crew(2, shared_url, path).ready() as crew:
        runs = submit(db, errand(outside), 40, 8)
        over = all_over(runs)
        for _ in range(3):
            at = random.randrange(2)
            crew.workers[at].send_signal(signal.SIGTERM)
            assert crew.workers[at].wait(30) == 0
            crew.workers[at] = crew.hire()
            crew.ready()
        until(over)
        assert crew.drain() == [0, 0]
        assert verdict(db, runs, outside, 8) == {}
        assert {run.info.crashes for run in runs} == {0}


def stopped_past_its_lease(url: str, outside: Outside, path: Path, how: str) -> str:
    """A worker is stopped within an effect, another one does the run, and the first goes on: what it complains of.

    The run is what the other one made of it.
    """
    with open_with(url, 1.5) as db, Crew(1, url, path, how, "1.5", "3").ready() as first:
        run = submit(db, errand(outside), 1, 1)[0]
        until(outside.done)  # it is within its first effect
        (stopped,) = first.workers
        stopped.send_signal(signal.SIGSTOP)
        with Crew(1, url, path, "careful", "1.5", "3").ready():
            until(lambda: run.status and run.info.attempts == 2, patience=1.5 + SWEEP + SLACK)
            until(lambda: run.status == "done")
            state, steps = run.thread.state(), len(run.thread.history())
            stopped.send_signal(signal.SIGCONT)
            stopped.send_signal(signal.SIGTERM)
            assert stopped.wait(30) == 0
            assert (run.thread.state(), len(run.thread.history())) == (state, steps)
            assert verdict(db, [run], outside, 1) == {}
    return warnings_of(path, stopped.pid)


def test_stopped_past_its_lease_it_is_refused(shared_url, outside, tmp_path):
    told = stopped_past_its_lease(shared_url, outside, tmp_path / "outside", "careful")
    assert "has passed on; nothing was written" in told


def test_the_control_without_a_fence_is_not_refused(shared_url, outside, tmp_path):
    """Then only the comparison of heads keeps it from writing, because the branch has grown meanwhile."""
    told = stopped_past_its_lease(shared_url, outside, tmp_path / "outside", "unfenced")
    assert "written without its lease" in told
    assert "passed on" not in told
