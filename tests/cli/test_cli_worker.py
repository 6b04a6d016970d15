"""`clew worker`, and the commands that hand runs to one: retry, revive, move."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from clew_shell import command, environment, shell

import clew

APP = """
import time
import clew

trip, flaky, other = clew.Agent("trip"), clew.Agent("flaky"), clew.Agent("other")

@trip.node
def plan(state):
    return {"plan": "3 days"}

@flaky.node
def look(state):
    if not clew.store(lookups="1").get((), "mended"):
        raise LookupError("no such flight")
    return {"found": True}

@other.node(start=True, then="second")
def first(state):
    time.sleep(0.5)
    return {"first": True}

@other.node
def second(state):
    return {"second": True}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def agent(name: str) -> clew.Agent:
    made = clew.Agent(name)
    made.node(name="node")(lambda state: None)
    return made


def test_until_idle(here):
    with clew.open(str(here / "agent.db")) as db:
        runs = [db.submit(agent("trip"), f"order-{n}", {"city": "Tokyo"}) for n in range(3)]
        left = db.submit(agent("flaky"), "order-9", {})
        done = shell("worker", "app:trip", "--until-idle", cwd=here)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.count("is done") == 3
        assert [run.status for run in [*runs, left]] == ["done"] * 3 + ["queued"]


def test_it_makes_the_database_that_is_missing_and_says_what_it_does_not_find(here):
    assert shell("worker", "app:trip", "--until-idle", cwd=here).returncode == 0
    assert (here / "agent.db").exists()
    assert shell("worker", "app:nobody", "--until-idle", cwd=here).returncode == 2
    assert shell("worker", cwd=here).returncode == 2


def test_sigterm_drains(here):
    with clew.open(str(here / "agent.db")) as db:
        words = command("worker", "app:other")
        with subprocess.Popen(words, cwd=here, env=environment(), stderr=subprocess.PIPE, text=True) as child:
            run = db.submit(agent("other"), "order-1", {})
            deadline = time.monotonic() + 30
            while run.status != "running" and time.monotonic() < deadline:
                time.sleep(0.01)
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
        assert run.status in ("sleeping", "done")  # done, if the second round was quicker than the signal
        assert run.info.crashes == 0
        assert shell("worker", "app:other", "--until-idle", cwd=here).returncode == 0
        assert run.state == {"first": True, "second": True}


def test_retry_revive_and_move(here):
    with clew.open(str(here / "agent.db")) as db:
        run = db.submit(agent("old-name"), "order-1", {})
        moved = shell("move", "order-1", "--agent", "flaky", cwd=here)
        assert "is queued: flaky on order-1" in moved.stdout
        assert shell("worker", "app:flaky", "--attempts", "1", "--until-idle", cwd=here).returncode == 0
        assert run.status == "failed"
        db.store(lookups="1").put((), "mended", {"yes": True})
        assert shell("revive", "order-1", cwd=here).returncode == 14
        assert "is sleeping" in shell("retry", "order-1", cwd=here).stdout
        assert shell("worker", "app:flaky", "--until-idle", cwd=here).returncode == 0
        assert (run.status, run.state) == ("done", {"found": True})
        assert shell("move", "order-1", "--agent", "trip", cwd=here).returncode == 14
        assert shell("move", "order-1", cwd=here).returncode == 2
        assert shell("move", "order-1", "--node", "a", cwd=here).returncode == 2
