"""The commands that only look: threads, log, show, diff, usage."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.cli.output import age, size

CHECKPOINT = ["id", "step", "parent", "kind", "label", "run", "next", "created_at", "metadata"]


def graph(text: str) -> list[str]:
    """The drawing and the step of each line of a log."""
    return [line[:10].rstrip() for line in text.splitlines()]


class TestThreads:
    def test_lists_the_last_changed_first(self, run):
        lines = run("threads").stdout.splitlines()
        assert lines[0].split() == ["thread", "steps", "branches", "updated", "last"]
        assert [line.split()[:3] for line in lines[1:]] == [["trip-7", "6", "2"], ["chat-1", "1", "1"]]

    def test_pages(self, run, run_json):
        first = run_json("threads", "--order", "id", "-n", "1")
        assert [one["id"] for one in first["threads"]] == ["chat-1"]
        second = run_json("threads", "--order", "id", "-n", "1", "--cursor", first["cursor"])
        assert [one["id"] for one in second["threads"]] == ["trip-7"]
        assert second["cursor"] is None
        assert f"--cursor {first['cursor']}" in run("threads", "--order", "id", "-n", "1").stderr

    def test_json_keys(self, run_json):
        found = run_json("threads")
        assert list(found) == ["threads", "cursor"]
        assert list(found["threads"][0]) == [
            "id", "created_at", "updated_at", "steps", "branches", "label", "metadata", "busy",
        ]  # fmt: skip
        assert datetime.fromisoformat(found["threads"][0]["updated_at"]).tzinfo is not None

    def test_another_tenant_sees_nothing(self, run, run_json):
        assert run_json("--tenant", "bob", "threads")["threads"] == []
        assert "'bob' has no threads" in run("threads", "--tenant", "bob").stderr
        assert "tenant 'bob'" in run("log", "trip-7", "--tenant", "bob", code=10).stderr

    def test_a_thread_at_work_is_busy(self, run, run_json, db_path):
        with clew.open(str(db_path)) as db, db.thread("chat-1").lease():
            assert [one["busy"] for one in run_json("threads", "--order", "id")["threads"]] == [True, False]
            assert "busy" in run("threads").stdout


class TestLog:
    def test_draws_branches_as_lanes(self, run):
        text = run("log", "trip-7").stdout
        assert graph(text) == [
            "  ●  6  fo",
            "● │  5  do",
            "● │  4  pa",
            "├─╯",
            "●    3  bo",
            "●    2  pl",
            "●    1  as",
        ]
        assert "fork (osaka)" in text
        assert "done (main)" in text
        assert "pay [before-payment]" in text
        assert text.count("just now") == 6

    def test_in_ascii(self, run):
        text = run("log", "trip-7", "--ascii").stdout
        assert text.isascii()
        assert graph(text)[:4] == ["  *  6  fo", "* |  5  do", "* |  4  pa", "|-'"]

    @pytest.mark.parametrize(
        ("args", "steps"),
        [
            (["trip-7"], [6, 5, 4, 3, 2, 1]),
            (["trip-7@osaka"], [6, 3, 2, 1]),
            (["trip-7", "--branch", "osaka"], [6, 3, 2, 1]),
            (["trip-7@4"], [4, 3, 2, 1]),
            (["trip-7@~1"], [4, 3, 2, 1]),
            (["trip-7@before-payment~2"], [2, 1]),
            (["trip-7", "-n", "2"], [6, 5]),
            (["trip-7", "-n", "0"], [6, 5, 4, 3, 2, 1]),
        ],
    )
    def test_which_checkpoints(self, run_json, args, steps):
        assert [one["step"] for one in run_json("log", *args)["checkpoints"]] == steps

    def test_says_that_there_are_older_ones(self, run, run_json):
        assert "clew log trip-7 -n 4" in run("log", "trip-7", "-n", "2").stderr
        assert run_json("log", "trip-7", "-n", "5")["more"] is True
        assert run_json("log", "trip-7", "-n", "6")["more"] is False

    def test_stat_tells_what_changed(self, run, run_json):
        text = run("log", "trip-7", "--stat").stdout
        assert [line.lstrip("●│ ").strip() for line in text.splitlines() if "+" in line or "~" in line] == [
            "~city", "+1 messages", "+1 messages", "+1 messages", "+1 messages", "+city  +messages",
        ]  # fmt: skip
        changes = {one["step"]: one["changes"] for one in run_json("log", "trip-7", "--stat")["checkpoints"]}
        assert changes[6] == [{"key": "city", "whole": "changed", "added": 0, "removed": 0, "changed": 0}]
        assert changes[5] == [{"key": "messages", "whole": None, "added": 1, "removed": 0, "changed": 0}]

    def test_stat_of_changes_inside(self, run, db_path):
        with clew.open(str(db_path)) as db, db.thread("trip-7").edit() as state:
            state["messages"][0]["content"] = "other"
            del state["messages"][3]
            del state["city"]
        lines = run("log", "trip-7", "--stat", "-n", "1").stdout.splitlines()
        assert lines[1].strip("│ ").split() == ["-city", "-1", "messages", "~messages"]

    def test_json_keys(self, run_json):
        found = run_json("log", "trip-7")
        assert list(found) == ["thread", "branches", "tags", "tips", "checkpoints", "more"]
        assert found["branches"] == {"main": 5, "osaka": 6}
        assert found["tags"] == {"before-payment": 4}
        assert list(found["checkpoints"][0]) == [*CHECKPOINT, "branches", "tags"]
        assert found["checkpoints"][0]["branches"] == ["osaka"]
        assert found["checkpoints"][2]["tags"] == ["before-payment"]
        assert found["checkpoints"][2]["metadata"] == {"user": "anna"}

    def test_pages_of_a_long_history_meet_without_gaps(self, run_json, db_path):
        with clew.open(str(db_path), durability="relaxed") as db:
            thread = db.thread("long")
            for number in range(450):
                thread.save({"n": number})
            thread.fork(420, branch="side", update={"x": 1})
        steps = [one["step"] for one in run_json("log", "long", "-n", "0")["checkpoints"]]
        assert steps == list(range(451, 0, -1))

    def test_a_label_is_shown_as_it_was_given(self, run, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("odd").save({"n": 1}, label="[bold]not markup[/bold] :smile: 日本")
        assert "[bold]not markup[/bold] :smile: 日本 (main)" in run("log", "odd").stdout


class TestShow:
    def test_header_and_state(self, run):
        text = run("show", "trip-7").stdout
        assert text.startswith("trip-7@5 (main)\n")
        for line in (
            "label     done",
            "parent    4",
            'metadata  user = "anna"',
            'city      "Tokyo"',
            "messages  5 items",
        ):
            assert line in text
        assert '  [4]  {role: "user", content: "message 4"}' in text

    def test_names_of_the_checkpoint(self, run):
        assert run("show", "trip-7@before-payment").stdout.startswith("trip-7@4 [before-payment]\n")
        assert "kind    fork\n" in run("show", "trip-7@osaka").stdout

    def test_json_keys(self, run_json):
        found = run_json("show", "trip-7@1")
        assert list(found) == [*CHECKPOINT, "thread", "branches", "tags", "state"]
        assert found["state"] == {"city": "Tokyo", "messages": [{"role": "user", "content": "message 0"}]}

    def test_values_that_json_lacks(self, run_json, run, db_path):
        when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
        with clew.open(str(db_path)) as db:
            db.thread("odd").save(
                {"when": when, "pair": (1, 2), "keys": {1: "a"}, "raw": b"abc", "text": {"$type": "x"}}
            )
        state = run_json("show", "odd")["state"]
        assert state["when"] == {"$type": "datetime", "text": str(when)}
        assert state["pair"] == {"$type": "tuple", "items": [1, 2]}
        text = run("show", "odd").stdout
        for line in (
            f"when  datetime {when}",
            "pair  (1, 2)",
            'keys  {1: "a"}',
            'text  {$type: "x"}',
            "raw   bytes 3 B #",
        ):
            assert line in text

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("messages.3.content", "message 3"),
            ("messages[3].content", "message 3"),
            ("messages.-1.content", "message 4"),
            ("city", "Tokyo"),
        ],
    )
    def test_one_value(self, run, run_json, path, value):
        assert run("show", "trip-7", "--key", path).stdout == value
        assert run_json("show", "trip-7", "--key", path) == value

    def test_keys_with_dots_and_numbers_are_found(self, run, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("odd").save({"a.b": {"c.d": "dots"}, "n": {7: "seven", "8": "eight"}, "é ü": "quoted"})
        for path, value in [
            ("a.b.c.d", "dots"),
            ("n.7", "seven"),
            ("n.8", "eight"),
            ('["é ü"]', "quoted"),
            ("é ü", "quoted"),
        ]:
            assert run("show", "odd", "--key", path).stdout == value

    def test_a_missing_key_tells_what_there_is(self, run):
        stderr = run("show", "trip-7", "--key", "messages.9", code=10).stderr
        assert "messages has no '9'" in stderr
        assert "5 items" in stderr
        assert "it has city, messages" in run("show", "trip-7", "--key", "town", code=10).stderr
        assert "it is a str" in run("show", "trip-7", "--key", "city.name", code=10).stderr

    def test_bytes_and_blobs_come_out_whole(self, run, db_path):
        data = bytes(range(256)) * 300
        with clew.open(str(db_path)) as db:
            db.thread("odd").save({"blob": clew.Blob(data, media_type="image/png"), "raw": data})
        assert run("show", "odd", "--key", "blob").stdout_bytes == data
        assert run("show", "odd", "--key", "raw").stdout_bytes == data

    def test_long_things_are_cut_unless_full(self, run, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("long").save(
                {"doc": "\n".join(f"line {n}" for n in range(50)), "rows": [[n, n] for n in range(90)]}
            )
        short, full = run("show", "long").stdout, run("show", "long", "--full").stdout
        assert "line 49" not in short
        assert "[50]" not in short
        assert "--full" in short
        assert "line 49" in full
        assert "[50]" in full
        assert "--full" not in full

    def test_a_state_cannot_drive_the_terminal(self, run, db_path):
        evil = "\x1b[2J\x1b]0;owned\x07\u202e"
        with clew.open(str(db_path)) as db:
            db.thread("evil").save({"text": evil, evil: 1, "lines": f"a\n{evil}"}, metadata={"m": evil})
        for args in (
            ["show", "evil"],
            ["diff", "evil@1", "trip-7@1"],
            ["log", "evil", "--stat"],
            ["show", "evil", "--json"],
        ):
            out = run(*args, code=1 if args[0] == "diff" else 0).stdout
            assert "\x1b" not in out
            assert "\x07" not in out

    def test_a_deep_state(self, run, db_path):
        deep: Any = "bottom"
        for _ in range(60):
            deep = {"down": [deep, "x" * 200]}
        with clew.open(str(db_path)) as db:
            db.thread("deep").save({"deep": deep})
        assert "--key leads deeper" in run("show", "deep").stdout
        run("show", "deep", "--json")

    def test_lone_surrogates_are_printed_as_escapes(self, run, run_json, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("odd").save({"text": "\ud83d alone"})
        assert "\\ud83d alone" in run("show", "odd").stdout
        assert run_json("show", "odd")["state"] == {"text": "\ud83d alone"}


class TestDiff:
    def test_what_changed(self, run):
        result = run("diff", "trip-7@3", "osaka", code=1)
        assert result.stdout == 'trip-7@3 book → trip-7@6\n~ city  "Tokyo" → "Osaka"\n'

    @pytest.mark.parametrize(
        ("args", "old", "new"),
        [
            (["trip-7@4"], 4, 5),
            (["trip-7@4", "2"], 4, 2),
            (["trip-7@~2", "trip-7@osaka"], 3, 6),
            (["trip-7", "~1"], 5, 4),
        ],
    )
    def test_which_two(self, run_json, args, old, new):
        found = run_json("diff", *args, code=1)
        assert (found["old"]["step"], found["new"]["step"]) == (old, new)

    def test_the_same(self, run, run_json):
        result = run("diff", "trip-7@5", "main")
        assert result.stdout == ""
        assert "the same" in result.stderr
        assert run_json("diff", "trip-7@5")["same"] is True

    def test_two_threads(self, run_json):
        found = run_json("diff", "trip-7@1", "chat-1@head", code=1)
        assert found["new"]["thread"] == "chat-1"
        assert sorted(change["where"] for change in found["changes"]) == ["city", "messages", "text"]

    def test_json_keys(self, run_json):
        found = run_json("diff", "trip-7@4", code=1)
        assert list(found) == ["old", "new", "same", "changes"]
        assert list(found["old"]) == ["thread", *CHECKPOINT]
        assert [list(change) for change in found["changes"]] == [["kind", "where", "path", "new"]]


class TestUsage:
    def test_for_people(self, run):
        text = run("usage").stdout
        assert "2 threads" in text
        assert "7 checkpoints" in text
        assert "on average" in text

    def test_json_keys(self, run_json):
        found = run_json("usage")
        assert list(found) == [
            "threads", "checkpoints", "checkpoint_bytes", "payload_bytes", "blobs", "blob_bytes", "items", "item_bytes",
            "runs", "effects", "requests", "ledger_bytes",
            "file_bytes", "free_bytes", "bytes_per_checkpoint",
        ]  # fmt: skip
        assert found["threads"] == 2

    def test_of_nobody(self, run_json):
        assert run_json("usage", "--tenant", "bob")["bytes_per_checkpoint"] is None


def test_reading_leaves_the_database_as_it_was(run, run_json, db_path: Path):
    before = json.dumps([run_json("log", "trip-7", "--stat"), run_json("threads")])
    for args in (
        ["show", "trip-7"],
        ["threads"],
        ["usage"],
        ["log", "trip-7"],
        ["prune", "--keep-last", "1", "--dry-run"],
    ):
        run(*args)
    assert json.dumps([run_json("log", "trip-7", "--stat"), run_json("threads")]) == before


@pytest.mark.parametrize(
    ("ago", "text"),
    [(0, "just now"), (42, "42 s ago"), (150, "2 min ago"), (3 * 3600 + 5, "3 h ago"), (86400, "1 day ago")],
)
def test_ages(ago, text):
    now = datetime(2026, 11, 18, tzinfo=UTC)
    assert age(now - timedelta(seconds=ago), now) == text


def test_an_age_of_long_ago_or_of_the_future_is_a_date():
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    assert age(now - timedelta(days=100), now) == "2026-08-10"
    assert age(now + timedelta(days=2), now) == "2026-11-20"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1200, "1.2 KB"), (999_960, "1.0 MB")])
def test_sizes(count, text):
    assert size(count) == text
