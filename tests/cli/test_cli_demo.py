"""`clew demo`, whole: real processes, a real SIGKILL, an answer from another process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from clew_shell import shell

import clew
from clew.cli import demo_agent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a demonstration has been given."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    done = shell("demo", "--fast", "--keep", ".", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return str(done.stdout)


def test_it_shows_what_it_promises(said: str) -> None:
    assert "\x1b" not in said
    for line in (
        "  R-1: Book Tokyo for 825 €?",
        "│ $ clew approve R-1 --by alice",
        "  charges: 1",
        "$ clew fork trip-7@1 --as osaka --set city=Osaka",
        "  R-2: Book Osaka for 745 €?",
        "$ clew log trip-7",
        "$ clew diff trip-7 osaka",
        '~ city         "Tokyo" → "Osaka"',
    ):
        assert f"{line}\n" in said or f"{line}  " in said, line
    assert re.search(r"\n  charge the card \.{8} done\n  write the plan  \.{4,8}  killed\n", said)
    again = said.partition("The same command again")[2].partition("Counted")[0]
    assert "write the plan" in again
    assert "charge" not in again


def test_what_was_called_is_what_it_says(said: str, folder: Path) -> None:
    called = (folder / "calls.txt").read_text(encoding="utf-8").splitlines()
    assert called == [*demo_agent.CALLS, "write the plan", *demo_agent.CALLS[:3]]
    assert (folder / "charges.txt").read_text(encoding="utf-8") == "825 €\n"


def test_the_database_holds_both_trips_and_who_approved(said: str, folder: Path) -> None:
    with clew.open(str(folder / "agent.db")) as db:
        tokyo, osaka = db.thread("trip-7"), db.thread("trip-7", branch="osaka")
        assert tokyo.state()["booked"]
        assert tokyo.state()["messages"][-2] == "Paid 825 €."
        assert (osaka.state()["city"], osaka.state()["price"]) == ("Osaka", 745)
        assert [run.status for run in db.runs()] == ["waiting", "done"]
        assert db.requests()[0].id == "R-2"
        assert [answer.by for answer in db.request("R-1").audit()] == ["alice"]


def test_the_second_trip_asks_before_it_pays_again(said: str, folder: Path) -> None:
    def agent() -> str:
        command = [sys.executable, "agent.py", "trip-7", "--branch", "osaka"]
        done = subprocess.run(command, cwd=folder, env={"PACE": "0"}, capture_output=True, encoding="utf-8", check=True)
        return done.stdout

    assert shell("approve", "R-2", "--by", "alice", cwd=folder).returncode == 0
    assert agent().startswith("  R-3: Call charge(amount=745)?")
    assert shell("answer", "R-3", "reuse", "--by", "alice", cwd=folder).returncode == 0
    assert "write the plan" in agent()
    assert (folder / "charges.txt").read_text(encoding="utf-8") == "825 €\n"


def test_it_does_not_write_over_a_database(tmp_path: Path) -> None:
    (tmp_path / "agent.db").touch()
    done = shell("demo", "--keep", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "has an agent.db already" in done.stderr
    assert (tmp_path / "agent.db").stat().st_size == 0
