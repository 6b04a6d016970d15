"""Runs from the shell: status, runs, resume, retry, cancel; and the code that two of them need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clew_shell import environment, shell

import clew

APP = """
import os
import clew

trip = clew.Agent("trip")

@trip.node(start=True, then="book")
def plan(state):
    print("planning")
    return {"price": 420}

@trip.node
def book(state):
    return {"paid": clew.ask("Book?", schema=bool)}

flaky = clew.Agent("flaky")

@flaky.node
def look(state):
    if not os.path.exists("flight"):
        raise LookupError("no such flight")
    return {"found": True}

slow = clew.Agent("slow")

@slow.node
def work(state):
    if not os.path.exists("go"):
        print("working", flush=True)
        import time
        time.sleep(60)
    return {"done": True}

nested = [trip]
not_one = 1
"""
ONE = """
import clew.aio

@clew.aio.agent
async def greet(state):
    return {"said": await clew.aio.ask("Name?", id="n")}
"""
RUN = [
    "id", "agent", "branch", "status", "key", "input_step", "step", "parent", "parent_step", "attempts", "crashes",
    "wanted", "created_at", "updated_at", "due_at", "error", "thread",
]  # fmt: skip


def python(code: str, cwd: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", f"import clew, app\ndb = clew.open('agent.db')\n{code}"]
    return subprocess.Popen(
        words, cwd=cwd, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture
def here(db_path: Path) -> Path:
    """order-1 waits for R-1; order-2 has failed. Their agents are in app.py."""
    (db_path.parent / "app.py").write_text(APP)
    code = """
app.trip.run(db.thread("order-1"), {"city": "Tokyo"})
try:
    app.flaky.run(db.thread("order-2"), {"city": "Osaka"})
except LookupError:
    pass
"""
    with python(code, db_path.parent) as child:
        assert child.wait() == 0, child.stderr and child.stderr.read()
    return db_path.parent


@pytest.mark.usefixtures("here")
class TestLooking:
    def test_runs_are_listed_with_what_they_wait_for(self, run):
        lines = run("runs").stdout.splitlines()
        assert lines[0].split() == ["run", "status", "agent", "thread", "changed"]
        assert lines[1].split()[1:4] == ["failed", "flaky", "order-2"]
        assert lines[1].endswith("LookupError: no such flight")
        assert lines[2].split()[1:4] == ["waiting", "trip", "order-1"]
        assert lines[2].endswith("R-1: Book?")

    def test_filters_and_pages(self, run, run_json):
        found = run_json("runs", "-n", "1")
        assert list(found["runs"][0]) == RUN
        assert [one["thread"] for one in run_json("runs", "--cursor", found["cursor"])["runs"]] == ["order-1"]
        for args in (["--status", "waiting"], ["--agent", "trip"], ["--thread", "order-1"]):
            assert [one["thread"] for one in run_json("runs", *args)["runs"]] == ["order-1"]
        assert "no runs like that" in run("runs", "--status", "dead").stderr

    def test_one_by_its_id_or_its_place(self, run, run_json):
        told = run_json("runs", "order-1")
        assert (told["status"], told["requests"]) == ("waiting", ["R-1"])
        for args in (["runs", told["id"]], ["show", told["id"]], ["runs", "order-1@main"]):
            text = run(*args).stdout
            assert text.startswith(f"{told['id']}  waiting\n")
            assert "order-1, at step 2" in text
            assert "R-1  Book?" in text
        assert "error   LookupError: no such flight" in run("runs", "order-2").stdout

    @pytest.mark.parametrize(
        ("name", "code", "told"),
        [
            ("run-0123456789abcdef", 10, "no run"),
            ("nothing", 10, "no thread"),
            ("chat-1", 10, "no agent has run"),
            ("order-1@1", 2, "no branch"),
            ("order-1@nothing", 2, "no branch"),
        ],
    )
    def test_there_is_none(self, run, name, code, told):
        assert told in run("runs", name, code=code).stderr

    def test_status(self, run, run_json):
        text = run("status").stdout
        assert "runs      1 waiting, 1 failed" in text
        assert "inbox     1 open" in text
        assert "R-1" in text
        assert "LookupError" in text
        told = run_json("status")
        assert told["runs"] == {"failed": 1, "waiting": 1}
        assert (told["requests"], told["due"], told["left"], told["durability"]) == (1, 0, 0, "strict")
        assert "empty" in run("--tenant", "bob", "status").stdout


def test_status_tells_no_password(here, monkeypatch):
    from clew.cli.status import _without_password

    assert _without_password("postgresql://anna:secret@host/db") == "postgresql://anna@host/db"
    assert _without_password("postgresql://host/db") == "postgresql://host/db"
    assert _without_password("we@home.db") == "we@home.db"


class TestResume:
    def test_it_waits_until_somebody_has_answered(self, here):
        done = shell("resume", "app:trip", "order-1", cwd=here)
        assert done.returncode == 15, done.stderr
        assert "is waiting: trip on order-1 at step 2" in done.stdout
        assert "R-1  Book?" in done.stdout
        assert shell("approve", "R-1", "--by", "alice", cwd=here).returncode == 0
        done = shell("resume", "app:trip", "order-1", cwd=here)
        assert done.returncode == 0, done.stderr
        assert "is done: trip on order-1 at step 3" in done.stdout
        assert json.loads(shell("show", "order-1", "--key", "paid", "--json", cwd=here).stdout) is True

    def test_on_a_fork_and_from_an_earlier_checkpoint(self, here):
        assert shell("fork", "order-1@1", "--as", "osaka", "--set", "city=Osaka", cwd=here).returncode == 0
        done = shell("resume", "app:trip", "order-1@osaka", "--json", cwd=here)
        told = json.loads(done.stdout)
        assert (done.returncode, told["branch"], told["requests"]) == (15, "osaka", ["R-2"])
        assert "planning" in done.stderr  # what nodes print stays out of the JSON
        assert shell("cancel", "order-1", cwd=here).returncode == 0
        done = shell("resume", "app.py:trip", "order-1@1", cwd=here)
        assert (done.returncode, "planning" in done.stdout) == (15, True)

    def test_an_error_of_a_node_is_shown_without_ours(self, here):
        done = shell("resume", "app:flaky", "order-2", cwd=here)
        assert done.returncode == 1
        assert 'app.py", line' in done.stderr
        assert "LookupError: no such flight" in done.stderr
        assert "in node 'look' of run" in done.stderr
        assert "clew/runtime" not in done.stderr

    @pytest.mark.parametrize(
        ("spec", "told"),
        [
            ("app", "which agent of app is meant; it has trip, flaky, slow"),
            ("app:", "which agent"),
            ("app:nix", "has no 'nix'; it has trip, flaky, slow"),
            ("app:not_one", "has a int, not an agent"),
            ("nix:trip", "there is no module 'nix'"),
            ("app.sub:trip", "there is no module 'app.sub'"),
            ("../app:trip", "no module's name"),
            (":", "no module's name"),
            ("a b:c", "no module's name"),
        ],
    )
    def test_no_such_agent(self, here, spec, told):
        done = shell("resume", spec, "order-1", cwd=here)
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_module_that_cannot_be_imported_tells_why(self, here):
        (here / "broken.py").write_text("import nothing_of_this_name\n")
        done = shell("resume", "broken:trip", "order-1", cwd=here)
        assert done.returncode == 1
        assert "nothing_of_this_name" in done.stderr
        assert "clew/cli" not in done.stderr

    def test_the_only_agent_of_a_module_need_not_be_named_and_may_be_one_to_be_awaited(self, here):
        (here / "one.py").write_text(ONE)
        with python("import one\nclew.Agent.run(one.greet, db.thread('g'))", here) as child:
            assert child.wait() == 0, child.stderr and child.stderr.read()
        assert shell("answer", "R-2", "Anna", "--by", "anna", cwd=here).returncode == 0
        done = shell("resume", "one", "g", cwd=here)
        assert done.returncode == 0, done.stderr
        assert "is done: greet on g" in done.stdout

    def test_another_agents_run_is_refused(self, here):
        shell("approve", "R-1", "--by", "alice", cwd=here)
        done = shell("resume", "app:flaky", "order-1", cwd=here)
        assert (done.returncode, "belongs to agent 'trip'" in done.stderr) == (2, True)


class TestRetry:
    def test_the_node_that_failed_is_run_again(self, here):
        (here / "flight").touch()
        done = shell("retry", "app:flaky", "order-2", cwd=here)
        assert (done.returncode, "is done: flaky" in done.stdout) == (0, True), done.stderr
        done = shell("retry", "app:flaky", "order-2", cwd=here)
        assert (done.returncode, "only one that has failed" in done.stderr) == (14, True)

    def test_one_that_another_has_come_after(self, here):
        with clew.open(str(here / "agent.db")) as db:
            failed = db.runs(status="failed")[0].id
        with python("open('flight', 'w')\napp.flaky.run(db.thread('order-2'))", here) as child:
            assert child.wait() == 0
        done = shell("retry", "app:flaky", failed, cwd=here)
        assert (done.returncode, "has come after it" in done.stderr) == (14, True)


class TestCancel:
    def test_a_run_that_waits(self, here, run, run_json):
        assert "is cancelled: trip on order-1" in run("cancel", "order-1").stdout
        assert run_json("inbox")["requests"] == []
        assert "is cancelled already" in run("cancel", "order-1", code=14).stderr

    def test_what_it_has_done_is_undone_by_whoever_has_the_code(self, here, run, run_json):
        done = shell("cancel", "order-1", "--compensate", cwd=here)
        assert "is to be undone: trip on order-1 is waiting" in done.stdout
        assert "clew resume MODULE:trip order-1" in done.stderr
        assert "is to compensate" in run("runs", "--thread", "order-1").stdout
        assert "is cancelled: trip" in shell("resume", "app:trip", "order-1", cwd=here).stdout
        assert run_json("inbox")["requests"] == []

    def test_a_run_that_was_killed_is_left_and_one_at_work_is_asked_to_stop(self, here, run, run_json):
        child = python("app.slow.run(db.thread('order-3'))", here)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "working\n"
            assert run_json("status")["left"] == 0
            assert "is asked to stop: slow on order-3 is running" in run("cancel", "order-3").stdout
            assert "is to cancel" in run("runs", "--thread", "order-3").stdout
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
        assert run_json("status")["left"] == 1
        assert "1 run by a process that is gone" in run("status").stdout
        assert "is cancelled" in run("cancel", "order-3").stdout
        assert run_json("status")["left"] == 0

    def test_a_killed_run_goes_on(self, here, run_json):
        child = python("app.slow.run(db.thread('order-3'))", here)
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        (here / "go").touch()
        done = shell("resume", "app:slow", "order-3", "--json", cwd=here)
        told = json.loads(done.stdout)
        assert (told["status"], told["attempts"], told["crashes"]) == ("done", 2, 1)
