"""Telling people: a command is run for each open request, until it has worked once."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import pytest
from asks import asking
from ledgers import DAY, ledger_of, start

import clew
from clew.errors import BadInput
from clew.model import Notified
from clew.storage.ledger import Withdraw

SECOND = 1_000_000


def python(code: str, *more: str) -> list[str]:
    return [sys.executable, "-c", code, *more]


@pytest.fixture
def writes(tmp_path):
    """A command that adds what it is told to a file, and what has been told so far."""
    told = tmp_path / "told"
    command = python("import sys; open(sys.argv[1], 'a').write(sys.stdin.read())", str(told))

    def lines():
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    return command, lines


def failing(tmp_path, code: str = "sys.exit(3)"):
    """A command that counts its calls and ends so."""
    calls = tmp_path / "calls"
    return python(f"import sys, time, os; open(sys.argv[1], 'a').write('x'); {code}", str(calls)), calls


def test_each_open_request_is_told_once(db, ask, writes):
    command, lines = writes
    assert db.notify(command) == Notified(0, 0)
    ask("Über 420 €?", ask="a", assignee="ann", expires=60, default=False)
    ask({"tool": "charge", "args": [1]}, None, ask="b")
    assert db.notify(command) == Notified(2, 0)
    assert db.notify(command) == Notified(0, 0)
    first, second = lines()
    assert {key: first.pop(key) for key in ("event", "tenant", "attempt")} == {
        "event": "request", "tenant": "default", "attempt": 1}  # fmt: skip
    assert first == db.request(1).as_json()
    assert (first["question"], first["schema"], first["choices"]) == ("Über 420 €?", {"type": "boolean"}, [True, False])
    assert (second["id"], second["question"]) == ("R-2", {"tool": "charge", "args": [1]})


def test_nobody_is_told_of_what_is_closed(db, ask, writes, place):
    command, lines = writes
    for name in "abcd":
        ask(ask=name, expires=86400 if name == "d" else None)
    db.request(1).approve(by="ann")
    ledger_of(db).apply("trip", [Withdraw([2])])
    place.let_pass(db, DAY)
    assert db.notify(command) == Notified(1, 0)
    assert [line["id"] for line in lines()] == ["R-3"]


def test_what_failed_is_told_again_later_and_later(db, ask, place, tmp_path, writes, caplog):
    ask()
    command, calls = failing(tmp_path)
    waits = []
    with caplog.at_level(logging.WARNING, "clew.notify"):
        for attempt in range(1, 13):
            assert db.notify(command) == Notified(0, 1)
            assert len(calls.read_text()) == attempt
            assert db.notify(command) == Notified(0, 0), "not again at once"
            ((due,),) = place.execute(db, "SELECT due FROM notice")
            waits.append(round((due - time.time_ns() // 1000) / SECOND))
            place.let_pass(db, waits[-1] * SECOND - 5 * SECOND)
            assert db.notify(command) == Notified(0, 0)
            place.let_pass(db, 10 * SECOND)
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
    assert "R-1 was not told" in caplog.text
    assert "ended with 3; again in 10 s" in caplog.text
    assert "Book for" not in caplog.text
    told, lines = writes
    assert db.notify(told) == Notified(1, 0)
    assert lines()[0]["attempt"] == 13


def test_one_failure_does_not_keep_others_from_being_told(db, ask, tmp_path, writes):
    for name in "abc":
        ask(f"Question {name}?", ask=name)
    told, lines = writes
    command = python(
        "import sys; t = sys.stdin.read(); 'b?' in t and sys.exit(1); open(sys.argv[1], 'a').write(t)", told[-1]
    )
    assert db.notify(command) == Notified(2, 1)
    assert [line["id"] for line in lines()] == ["R-1", "R-3"]


def test_no_more_than_the_limit(db, ask, writes):
    for name in "abc":
        ask(ask=name)
    assert db.notify(writes[0], limit=2) == Notified(2, 0)
    assert db.notify(writes[0], limit=2) == Notified(1, 0)


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path):
    child = tmp_path / "child"
    with clew.open("memory:") as db:
        asking(db)()
        assert db.notify(["sh", "-c", 'sleep 600 & echo $! > "$0"; wait', str(child)], timeout=2) == Notified(0, 1)
    pid = int(child.read_text())
    deadline = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < deadline, "the command's own child still runs"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_that_does_not_listen_has_been_told(db, ask):
    ask("x" * 500_000)
    assert db.notify(python("pass")) == Notified(1, 0)


def test_nothing_is_read_by_a_shell_and_nothing_of_ours_is_told(db, ask, tmp_path, monkeypatch, writes):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    ask("$(touch owned); `touch owned` && touch owned")
    command, lines = writes
    monkeypatch.chdir(tmp_path)
    db.notify(command)
    assert not (tmp_path / "owned").exists()
    assert "hunter2" not in json.dumps(lines())
    assert not any(word in json.dumps(lines()) for word in ("postgresql:", ".db"))


@pytest.mark.parametrize("command", ["notify-send hello", [], [7], ["no-such-command"], ["a\0b"], None, [""]])
def test_commands_that_cannot_be_run(db, ask, command):
    ask()
    with pytest.raises(BadInput, match="command"):
        db.notify(command)
    assert db.notify(python("pass")) == Notified(1, 0), "the notice was not touched"


@pytest.mark.parametrize("given", [{"limit": 0}, {"timeout": 0}, {"timeout": True}, {"timeout": 1e9}])
def test_bounds(db, given):
    with pytest.raises(BadInput):
        db.notify(python("pass"), **given)


def test_a_kill_in_the_middle_tells_again(shared_place, tmp_path, writes):
    command, lines = writes
    with shared_place.open() as db:
        asking(db)()
        child = start(
            """
            import clew, sys
            with clew.open(sys.argv[1], durability="relaxed") as db:
                db.notify([sys.executable, "-c", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"])
            """,
            shared_place.url,
        )
        assert child.wait(60) == -9
        assert db.notify(command) == Notified(0, 0), "it may still be told by who took it"
        shared_place.let_pass(db, 3600 * SECOND)
        assert db.notify(command) == Notified(1, 0)
        assert lines()[0]["attempt"] == 2


def test_several_tell_each_request_once(shared_place, tmp_path, writes):
    command, lines = writes
    with shared_place.open() as db:
        ask = asking(db)
        for number in range(12):
            ask(ask=f"q{number}")
        code = """
            import sys, json, clew
            with clew.open(sys.argv[1], durability="relaxed") as db:
                print("ready", flush=True)
                sys.stdin.readline()
                print(db.notify(json.loads(sys.argv[2])).told)
        """
        tellers = [start(code, shared_place.url, json.dumps(command)) for _ in range(2)]
        for teller in tellers:
            assert teller.stdout.readline() == "ready\n"
        counts = [int(teller.communicate("go\n", timeout=60)[0]) for teller in tellers]
        assert sum(counts) == 12
        assert sorted(line["id"] for line in lines()) == sorted(f"R-{n + 1}" for n in range(12))
        assert db.notify(command) == Notified(0, 0)
