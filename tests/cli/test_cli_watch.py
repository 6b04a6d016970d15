"""`clew runs --watch`: each change is told, in a file and on a terminal, until the run is over or Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clew_shell import command, environment

import clew

trip = clew.Agent("trip")


@trip.node(start=True, then="book")
def plan(state):
    return {"price": 420}


@trip.node
def book(state):
    return {"paid": clew.ask("Book?", schema=bool)}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[clew.Database]:
    """order-1 waits for R-1."""
    with clew.open(str(tmp_path / "agent.db"), durability="relaxed") as db:
        trip.run(db.thread("order-1"))
        yield db


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        words = command("runs", "--watch", *args)
        process = subprocess.Popen(
            words, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(db: clew.Database) -> None:
    db.request("R-1").answer(True, by="alice")
    assert trip.resume(db.thread("order-1")).status == "done"


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_each_change_of_a_run_is_a_line_until_it_is_over(database, watching) -> None:
    process = watching("order-1")
    first = line(process)
    assert first.split()[2:] == ["waiting", "trip", "on", "order-1", "R-1:", "Book?"]
    finish(database)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1].split()[2:] == ["done", "trip", "on", "order-1"]


def test_with_json_a_line_is_an_object(database, watching) -> None:
    process = watching("order-1", "--json")
    told = json.loads(line(process))
    assert (told["status"], told["thread"], told["remark"]) == ("waiting", "order-1", "R-1: Book?")
    finish(database)
    out, _ = process.communicate(timeout=30)
    assert json.loads(out.splitlines()[-1])["status"] == "done"


def test_new_runs_join_the_list_until_ctrl_c(database, watching) -> None:
    process = watching("--agent", "trip")
    assert "order-1" in line(process)
    trip.run(database.thread("order-2"))
    assert "order-2" in line(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_on_a_terminal_the_list_is_drawn_again(database, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("runs", "--watch", "order-1"), cwd=tmp_path, env=environment(TERM="xterm-256color", COLUMNS="120"),
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while b"Book?" not in seen:
            seen += os.read(ours, 4096)
        finish(database)
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other end is closed
    finally:
        process.wait(30)
        os.close(ours)
    text = seen.decode()
    assert process.returncode == 0, text
    assert text.index("Book?") < text.rindex("done")
    assert "\x1b[2K" in text  # lines are drawn over
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
