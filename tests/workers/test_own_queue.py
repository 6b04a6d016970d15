"""A queue of one's own: it carries ids of runs, and asks a worker for one at a time."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import clew
from clew.testing.faults import in_child


def make(ran: list[str], *, strike: bool = False) -> clew.Agent:
    agent = clew.Agent("trip")

    @agent.node
    def go(state: Any) -> Any:
        ran.append(state["what"])
        if strike:
            os.kill(os.getpid(), signal.SIGKILL)
        if state["what"] == "broken":
            raise ValueError("broken")
        return {}

    return agent


def test_a_job_drives_its_run_if_that_can_go_on(db):
    ran: list[str] = []
    agent = make(ran)
    worker = clew.Worker(db, agent, retry=clew.Retry(attempts=2, delay=600))
    first, second = (db.submit(agent, "t", {"what": what}) for what in ("first", "second"))
    later = db.submit(agent, "u", {"what": "later"}, at=timedelta(hours=1))
    broken = db.submit(agent, "v", {"what": "broken"})
    assert worker.due() == [first.id, broken.id]
    assert worker.drive(second.id) is None  # it stands in line
    assert worker.drive(first.id) == "done"
    assert worker.drive(first.id) is None
    assert worker.due() == [broken.id, second.id]
    assert worker.drive(second.id) == "done"
    assert (worker.drive(later.id), later.status) == (None, "queued")
    assert worker.drive(broken.id) == "sleeping"
    assert worker.drive(broken.id) is None  # it pauses before its second attempt, whoever asks
    assert worker.drive("run-of-nobody") is None
    assert clew.Worker(db, clew.Agent("other")).due() == []
    assert (worker.due(), ran) == ([], ["first", "second", "broken"])


def test_a_run_that_was_left_is_due(shared_url):
    def die(tell: Any) -> None:
        with clew.open(shared_url) as db:
            run = db.submit(make([]), "t", {"what": "first"})
            tell(run.id)
            clew.Worker(db, make([], strike=True)).drive(run.id)

    died = in_child(die)
    assert died.killed_by == signal.SIGKILL
    with clew.open(shared_url) as db:
        worker = clew.Worker(db, make([]))
        assert worker.due() == died.told
        assert worker.drive(died.told[0]) == "done"
        assert worker.due() == []
