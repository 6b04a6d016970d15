"""kill -9 at any moment: what was acknowledged is there, at most one step more, and the database goes on."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_work as work
import pytest

import clew
from clew import thread as thread_module
from clew.state import draft, layout, pieces, shadow
from clew.storage import relational, sqlite, sqlite_storage
from clew.testing.faults import Call, Disk, Platter, at_line, in_child, kill_at, points, sources, write_image

OPS = work.everything()
WRITE_PATH = sources(thread_module, draft, layout, pieces, shadow, relational, sqlite, sqlite_storage)


def record(path: Path, keys: list[str], durability: Any = "strict", break_it: Any = None) -> list[Any]:
    """What a whole run asks of the disk, with what it acknowledged in between."""

    def child(tell: Any) -> None:
        Disk(lambda call: tell(("disk", call))).install()
        with clew.open(str(path), durability=durability) as db:
            if break_it is not None:
                break_it(db)
            work.run(db, OPS, keys, tell)

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    return outcome.told


def killed(path: Path, keys: list[str], number: int) -> list[Any]:
    def child(tell: Any) -> None:
        Disk(kill_at(number)).install()
        db = clew.open(str(path), durability="relaxed")
        work.run(db, OPS, keys, tell)
        tell(("end", 0))
        db.close()

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    assert outcome.killed_by in (signal.SIGKILL, None)
    return [item for item in outcome.told if item[0] != "end"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[Any]]:
    """A whole run: the file's path, its nonces, and what was told."""
    path, keys = tmp_path_factory.mktemp("recorded") / "a.db", work.nonces(len(OPS))
    return path, keys, record(path, keys, "relaxed")


def test_a_kill_at_any_call_to_the_disk_loses_nothing(ram: Path, recorded: Any, long: bool) -> None:
    calls = sum(sort == "disk" for sort, _ in recorded[2])
    assert calls > 300
    for number in range(1, calls + 1) if long else points(calls, 50):
        path, keys = ram / f"{number}.db", work.nonces(len(OPS))
        told = killed(path, keys, number)
        assert work.verdict(path, OPS, keys, told) == "", f"killed at call {number}"
        for file in ram.iterdir():
            file.unlink()


def after_each_call(path: Path, told: list[Any], every: int) -> Any:
    """The files as a kill leaves them (the system keeps what was written), and what was told until then."""
    platter = Platter()
    until: list[Any] = []
    number = itertools.count(1)
    for sort, value in told:
        if sort != "disk":
            until.append((sort, value))
            continue
        if next(number) % every == 0:
            yield platter.as_written(), until
        platter.feed(Call(*value))
    yield platter.as_written(), until


def verdicts(ram: Path, path: Path, keys: list[str], told: list[Any], every: int) -> Iterator[tuple[str, Any]]:
    """What is wrong after each n-th call, if anything, and when that was."""
    to = ram / "image.db"
    for image, until in after_each_call(path, told, every):
        write_image(image, str(path), to)
        yield work.verdict(to, OPS, keys, until), work.counts(until)


def test_what_each_call_leaves_behind_is_whole(ram: Path, recorded: Any, long: bool) -> None:
    """The same, from a recording: no process dies here, so more calls can be looked at."""
    for verdict, when in verdicts(ram, *recorded, 1 if long else 13):
        assert verdict == "", when


def test_control_a_save_that_is_no_transaction_is_found_out(ram: Path) -> None:
    def each_statement_for_itself(db: clew.Database) -> None:
        engine = db._engine
        execute = engine.execute

        def without(statement: str, *more: Any) -> Any:
            return None if statement in ("BEGIN IMMEDIATE", "COMMIT") else execute(statement, *more)

        engine.execute = without

    keys = work.nonces(len(OPS))
    told = record(ram / "a.db", keys, "relaxed", each_statement_for_itself)
    assert any(verdict for verdict, _ in verdicts(ram, ram / "a.db", keys, told, 13))


def test_control_an_acknowledgement_ahead_of_the_save_is_found_out(ram: Path, recorded: Any) -> None:
    path, keys, told = recorded
    early = [item for sort, value in told for item in ([(sort, value)] + [("done", value)] * (sort == "begun"))]
    assert any("lost" in verdict for verdict, _ in verdicts(ram, path, keys, early, 13))


SOME = [work.Op("save"), work.Op("edit"), work.Op("tell"), work.Op("rewind", number=1), work.Op("save")]


def test_a_kill_at_any_line_of_the_write_path_loses_nothing(ram: Path, long: bool) -> None:
    def lines() -> int:
        total = 0

        def child(tell: Any) -> None:
            count = itertools.count(1)

            def trace(frame: Any, event: str, _: Any) -> Any:
                if event == "line":
                    next(count)
                return trace if frame.f_code.co_filename in WRITE_PATH else None

            with clew.open(str(ram / "count.db"), durability="relaxed") as db:
                sys.settrace(trace)
                work.run(db, SOME, work.nonces(len(SOME)), lambda _: None)
                sys.settrace(None)
            tell(next(count))

        (total,) = in_child(child).told
        return total

    total = lines()
    assert total > 500
    for number in range(1, total) if long else points(total, 25):
        path, keys = ram / f"{number}.db", work.nonces(len(SOME))

        def child(tell: Any, path: Path = path, keys: list[str] = keys, number: int = number) -> None:
            db = clew.open(str(path), durability="relaxed")
            with at_line(number, WRITE_PATH, lambda: signal.raise_signal(signal.SIGKILL)):
                work.run(db, SOME, keys, tell)

        outcome = in_child(child)
        assert outcome.raised is None, outcome.raised
        assert work.verdict(path, SOME, keys, outcome.told) == "", f"killed at line {number}"
