"""What agents ask of people, from the shell: inbox, show R-1, approve, reject, answer, signal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import clew

REQUEST = [
    "id", "thread", "branch", "run", "step", "question", "schema", "choices", "assignee", "approvals", "answers",
    "status", "created_at", "expires_at", "default", "decided_at", "value", "rejected",
]  # fmt: skip


@dataclass
class Booking:
    approved: bool
    note: str = ""


def booking(thread: clew.Thread, question: Any, schema: Any, **more: Any) -> clew.Run:
    agent = clew.Agent("trip")

    @agent.node(start=True, then="book")
    def plan(state: Any) -> Any:
        return {"price": 420}

    @agent.node
    def book(state: Any) -> Any:
        return {"answer": clew.ask(question, schema=schema, **more)}

    return agent.run(thread, {"city": "Tokyo"})


@pytest.fixture
def asked(db_path: Path) -> Path:
    """R-1 a booking for alice, R-2 a seat that expires, R-3 a yes of two, R-4 anything."""
    with clew.open(str(db_path)) as db:
        booking(db.thread("t-1"), "Book the flight?\nIt is 420 €.", Booking, assignee="alice")
        booking(db.thread("t-2"), "Seat?", Literal["window", "aisle"], expires=7200, default="aisle")
        booking(db.thread("t-3"), {"tool": "pay", "args": {"amount": 420}}, bool, approvals=2)
        booking(db.thread("t-4"), "Anything else?", None)
    return db_path


@pytest.mark.usefixtures("asked")
class TestInbox:
    def test_lists_the_oldest_first(self, run):
        lines = run("inbox").stdout.splitlines()
        assert lines[0].split() == ["request", "thread", "for", "asked", "expires", "question"]
        assert [line.split()[:2] for line in lines[1:]] == [
            ["R-1", "t-1@2"], ["R-2", "t-2@2"], ["R-3", "t-3@2"], ["R-4", "t-4@2"],
        ]  # fmt: skip
        assert lines[1].endswith("Book the flight? …")
        assert "in 2 h" in lines[2]
        assert lines[3].endswith('{"tool": "pay", "args": {"amount": 420}}  (0 of 2)')

    @pytest.mark.parametrize(
        ("args", "ids"),
        [
            (["--for", "alice"], ["R-1"]),
            (["--thread", "t-3"], ["R-3"]),
            (["--status", "answered"], ["R-4"]),
            (["--status", "all"], ["R-1", "R-2", "R-3", "R-4"]),
        ],
    )
    def test_filters(self, run, run_json, args, ids):
        run("answer", "R-4", "no")
        assert [one["id"] for one in run_json("inbox", *args)["requests"]] == ids

    def test_pages(self, run, run_json):
        first = run_json("inbox", "-n", "3")
        assert list(first["requests"][0]) == REQUEST
        second = run_json("inbox", "-n", "3", "--cursor", first["cursor"])
        assert ([one["id"] for one in second["requests"]], second["cursor"]) == (["R-4"], None)
        assert f"--cursor {first['cursor']}" in run("inbox", "-n", "3").stderr
        assert "not one of ours" in run("inbox", "--cursor", "nonsense", code=2).stderr

    def test_nothing_is_asked(self, run):
        for args in (["--thread", "chat-1"], ["--tenant", "bob"], ["--status", "expired"]):
            done = run("inbox", *args)
            assert done.stdout == ""
            assert "no " in done.stderr

    def test_another_tenant_cannot_answer(self, run):
        assert "no request R-1" in run("approve", "R-1", "--by", "bob", "--tenant", "bob", code=10).stderr


@pytest.mark.usefixtures("asked")
class TestOne:
    def test_a_reviewer_sees_what_is_asked_and_what_has_changed(self, run):
        text = run("inbox", "R-1").stdout
        assert run("show", "R-1").stdout == text
        assert text.startswith("R-1  open\nBook the flight?\nIt is 420 €.\n")
        for line in ("thread  t-1@2", "for     alice", "answer  an object", "          approved: true or false",
                     '          note: text; "" if left out', "+ price  420", 'city   "Tokyo"'):  # fmt: skip
            assert line in text.splitlines(), text

    def test_what_its_expiry_decides(self, run):
        assert "in 2 h; then it is aisle" in run("show", "R-2").stdout

    def test_who_has_answered(self, run, run_json):
        run("approve", "R-3", "--by", "alice", "--reason", "fine with me")
        text = run("show", "R-3").stdout
        assert "approvals  1 of 2" in text
        assert "answered  by alice: true (fine with me)" in text
        run("reject", "R-3", "--by", "bob", "--reason", "too dear")
        told = run_json("show", "R-3")
        assert list(told) == [*REQUEST, "audit", "state", "changes"]
        assert [(one["by"], one["value"], one["reason"]) for one in told["audit"]] == [
            ("alice", True, "fine with me"), ("bob", False, "too dear"),
        ]  # fmt: skip
        assert told["state"] == {"city": "Tokyo", "price": 420}
        assert "decided  false, just now" in " ".join(run("show", "R-3").stdout.split(" " * 3))

    def test_a_thread_of_that_name_is_not_mistaken_for_it(self, run, asked):
        with clew.open(str(asked)) as db:
            db.thread("R-1").save({"n": 1})
            db.thread("R-77").save({"n": 77})
        assert "R-1@head" in run("show", "R-1", code=13).stderr
        assert "n  1" in run("show", "R-1@head").stdout
        assert "n  77" in run("show", "R-77").stdout
        assert "Book the flight?" in run("inbox", "R-1").stdout

    @pytest.mark.parametrize(("name", "code"), [("R-99", 10), ("x", 2), ("R-0", 10), ("-1", 2), ("R-" + "9" * 40, 2)])
    def test_there_is_no_such_request(self, run, name, code):
        assert "R" in run("inbox", name, code=code).stderr

    def test_nothing_of_a_question_reaches_the_terminal(self, run, asked):
        with clew.open(str(asked)) as db:
            booking(db.thread("t-5"), "Sure?\x1b[2J\r\n\x9b1m", bool)
        for args in (["inbox"], ["show", "R-5"], ["runs"], ["status"]):
            text = run(*args).stdout
            assert "Sure?" in text
            assert not {"\x1b", "\r", "\x9b"} & set(text)


@pytest.mark.usefixtures("asked")
class TestAnswering:
    def test_approve(self, run, asked):
        done = run("approve", "R-1", "--by", "alice", "--reason", "ok by finance")
        assert done.stdout == 'R-1 is answered: {"approved": true}, by alice\n'
        assert "clew resume MODULE:trip t-1" in done.stderr
        with clew.open(str(asked)) as db:
            (answer,) = db.request("R-1").audit()
        assert (answer.by, answer.value, answer.reason) == ("alice", {"approved": True}, "ok by finance")

    def test_reject(self, run, run_json):
        told = run_json("reject", "R-1", "R-2", "--by", "alice")["requests"]
        assert [(one["status"], one["value"], one["rejected"]) for one in told] == [
            ("answered", {"approved": False}, False), ("answered", None, True),
        ]  # fmt: skip
        assert "decided" in run("show", "R-2").stdout

    def test_two_have_to_agree(self, run):
        assert run("approve", "R-3", "--by", "alice").stdout == "R-3 has 1 of the 2 answers that it needs, by alice\n"
        assert "alice has answered R-3 already" in run("approve", "R-3", "--by", "alice", code=14).stderr
        assert "is answered: true, by bob" in run("approve", "R-3", "--by", "bob").stdout
        assert "has been answered already, by alice, bob" in run("approve", "R-3", "--by", "carol", code=14).stderr

    def test_who_you_are(self, run, monkeypatch):
        monkeypatch.setenv("CLEW_BY", "dora")
        assert ", by dora" in run("approve", "R-1").stdout
        monkeypatch.delenv("CLEW_BY")
        monkeypatch.setenv("LOGNAME", "emil")
        assert ", by emil" in run("approve", "R-3").stdout
        assert "printable" in run("approve", "R-3", "--by", "a\nb", code=2).stderr

    def test_what_is_no_question_of_yes_or_no(self, run):
        assert '"window" or "aisle"' in run("approve", "R-2", "--by", "alice", code=2).stderr

    def test_a_mistyped_one_among_several_changes_nothing(self, run, run_json):
        run("approve", "R-1", "R-99", "--by", "alice", code=10)
        assert len(run_json("inbox")["requests"]) == 4

    def test_those_before_one_that_is_refused_are_told(self, run):
        done = run("approve", "R-1", "R-2", "R-3", "--by", "alice", code=2)
        assert done.stdout.startswith("R-1 is answered")
        assert "R-3" not in done.stdout

    @pytest.mark.parametrize(
        ("request_", "args", "value"),
        [
            ("R-1", ['{"approved": false, "note": "no"}'], {"approved": False, "note": "no"}),
            ("R-1", ["--set", "approved=true", "--set", "note=fine"], {"approved": True, "note": "fine"}),
            ("R-2", ["window"], "window"),
            ("R-2", ['"window"'], "window"),
            ("R-3", ["false"], False),
            ("R-4", ["12"], 12),
            ("R-4", ["twelve"], "twelve"),
            ("R-4", ["NaN"], "NaN"),
        ],
    )
    def test_json_or_text(self, run, run_json, request_, args, value):
        run("answer", request_, *args, "--by", "alice")
        if request_ == "R-3":
            run("answer", request_, *args, "--by", "bob")
        assert run_json("show", request_)["value"] == value

    def test_from_stdin(self, run, run_json):
        run("answer", "R-1", "-", "--by", "alice", typed='{"approved": true}\n')
        assert run_json("show", "R-1")["value"] == {"approved": True}

    @pytest.mark.parametrize("value", ["yes", "1", "[]", "null", '{"approved": 1}', '{"approved": true, "x": 1}'])
    def test_another_shape_is_refused_and_not_consumed(self, run, run_json, value):
        error = run("answer", "R-1", value, "--by", "alice", code=2).stderr
        assert "has another shape" in error
        assert "approved: true or false" in error
        assert run_json("show", "R-1")["status"] == "open"

    def test_all_that_is_wrong_is_told(self, run):
        error = run("answer", "R-1", "--set", "approved=yes", "--set", "a\x1b=1", "--by", "alice", code=2).stderr
        assert "also:  " in error
        assert "\x1b" not in error

    @pytest.mark.parametrize("args", [[], ["true", "--set", "approved=true"], ["--set", "approved"]])
    def test_usage(self, run, args):
        assert "Usage" in run("answer", "R-1", *args, code=2).stderr

    def test_text_that_looks_like_json_where_text_is_asked_for(self, run, run_json, asked):
        with clew.open(str(asked)) as db:
            booking(db.thread("t-5"), "Room?", str)
        run("answer", "R-5", "12", "--by", "alice")
        assert run_json("show", "R-5")["value"] == "12"


def test_signals(run, db_path):
    @clew.agent
    def paid(state: Any) -> Any:
        return {"paid": clew.wait("paid:42")}

    with clew.open(str(db_path)) as db:
        paid.run(db.thread("order"))
        assert "for a signal" in run("runs").stdout
        assert run("signal", "paid:42", '{"amount": 420}', "--key", "e-1").stdout == "paid:42 is signalled\n"
        assert "may go on now" in run("runs").stdout
        assert "nothing was changed" in run("signal", "paid:42", "--key", "e-1").stderr
        assert json.loads(run("signal", "paid:42", "--key", "e-1", "--json").stdout)["new"] is False
        assert paid.resume(db.thread("order")).state == {"paid": {"amount": 420}}
    assert "printable" in run("signal", "a\nb", code=2).stderr
