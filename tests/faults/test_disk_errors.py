"""A full disk or an I/O error at any call: a clear error, nothing lost, nothing doubled, and the handle goes on."""

# ruff: noqa: PT017 - the errors are looked at where a loop goes on after them

from __future__ import annotations

import resource
import secrets
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import faulty_work as work
import pytest

import clew
from clew.errors import Busy, DiskFull, StorageError
from clew.testing.faults import Call, Disk, FailAt, in_child

ERRORS: dict[str, tuple[Callable[[], Exception], type[StorageError]]] = {
    "full": (lambda: apsw.FullError("no space"), DiskFull),
    "broken": (lambda: apsw.IOError("input/output error"), StorageError),
}
MOST = 200


class Bench:
    """A database on a disk that fails on demand, and what must be in it."""

    def __init__(self, path: Path, fails: FailAt) -> None:
        self.fails = fails
        self.db = clew.open(str(path), durability="strict")
        self.model = work.EMPTY
        self.worker = work.Worker(self.db)
        for _ in range(4):
            self.grow()

    def grow(self) -> None:
        nonce = secrets.token_hex(6)
        self.worker.do(work.Op("save"), nonce)
        self.model = work.after(self.model, work.Op("save"), nonce)

    def sweep(self, op: work.Op, error: type[StorageError], *, sticky: bool, every: int = 1) -> int:
        """Let the op fail at its first call, at its second …; each time it succeeds once the fault is lifted."""
        for number in range(1, MOST, every):
            if op.do in ("rewind", "prune"):
                self.grow()
            nonce = secrets.token_hex(6)
            now = op._replace(name=f"n{secrets.token_hex(4)}") if op.name else op
            self.fails.arm(number, sticky=sticky)
            raised = self.attempt(now, nonce)
            met = self.fails.met
            self.fails.lift()
            if raised is not None:
                assert type(raised) is error, raised
                assert raised.hint
                before, found = self.model, work.actual(self.db)
                assert work.agrees(found, before, now, nonce), f"{now.do} failed at call {number} and left a trace"
                again = self.attempt(now, nonce)
                assert again is None, again
            self.model = work.after(self.model, now, nonce)
            assert work.actual(self.db) == self.model, f"{now.do}, call {number}"
            if not met:
                return number
        raise AssertionError("the sweep did not come to an end")

    def attempt(self, op: work.Op, nonce: str) -> StorageError | None:
        try:
            self.worker.do(op, nonce)
        except StorageError as error:
            return error
        return None


def swept(
    path: Path, kind: str, sticky: bool, ops: list[work.Op], every: int = 1, fold_after: int | None = None
) -> Any:
    make, error = ERRORS[kind]

    def child(tell: Any) -> None:
        fails = FailAt(make)
        Disk(fails).install()
        bench = Bench(path, fails)
        if fold_after:
            bench.db._storage.fold_after = fold_after
        for op in ops:
            tell((op.do, bench.sweep(op, error, sticky=sticky, every=every)))
        assert work.is_whole(bench.db)
        bench.db.close()

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    assert outcome.killed_by is None
    return outcome.told


OPS = [
    work.Op("save"),
    work.Op("tell"),
    work.Op("fork", name="new", number=1),
    work.Op("tag", name="new", number=1),
    work.Op("rewind", number=1),
]


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
@pytest.mark.parametrize("kind", ERRORS)
def test_every_call_of_every_operation_may_fail(ram: Path, kind: str, sticky: bool) -> None:
    told = swept(ram / "a.db", kind, sticky, OPS)
    assert all(points > 2 for _, points in told), told


@pytest.mark.parametrize("kind", ERRORS)
def test_a_prune_may_fail_at_any_call(ram: Path, kind: str, long: bool) -> None:
    told = swept(ram / "a.db", kind, True, [work.Op("prune", number=2)], 1 if long else 3)
    assert told[0][1] > 5


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
def test_a_fold_that_fails_does_not_fail_the_save_before_it(ram: Path, sticky: bool) -> None:
    """The step is written by then: were it called a failure, the caller would write it again."""
    swept(ram / "a.db", "full", sticky, [work.Op("save")], every=3, fold_after=1)


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
def test_an_edit_may_fail_at_any_call_and_be_repeated(ram: Path, sticky: bool) -> None:
    told = swept(ram / "a.db", "full", sticky, [work.Op("edit")])
    assert told[0][1] > 4


def test_reading_may_fail_at_any_call(ram: Path) -> None:
    def child(tell: Any) -> None:
        fails = FailAt(ERRORS["broken"][0])
        Disk(fails, reads=True).install()
        bench = Bench(ram / "a.db", fails)
        db, trip = bench.db, bench.db.thread("trip")
        reads = [trip.state, trip.history, lambda: trip.state(1), lambda: trip.diff(1), db.threads, db.usage]
        for read in reads:
            wanted = str(read())
            met = failed = 0
            for number in range(1, MOST):
                db._engine.disconnect()  # a connection that is new has nothing in its cache
                fails.arm(number)
                try:
                    assert str(read()) == wanted
                except StorageError as error:
                    assert error.hint
                    failed += 1
                met = fails.met
                fails.lift()
                assert str(read()) == wanted
                if not met:
                    break
            assert not met
            assert failed > 2

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised


def test_a_file_that_may_not_grow_is_a_full_disk(ram: Path) -> None:
    """The system's own limit, with nothing of ours between."""

    def child(tell: Any) -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        db = clew.open(str(ram / "a.db"))
        worker, model = work.Worker(db), work.EMPTY
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        for _ in range(300):
            nonce = secrets.token_hex(6)
            try:
                worker.do(work.Op("save"), nonce)
            except StorageError as error:
                assert error.hint, error
                tell(type(error).__name__)
                break
            model = work.after(model, work.Op("save"), nonce)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert work.actual(db) == model
        worker.do(work.Op("save"), nonce)
        assert work.actual(db) == work.after(model, work.Op("save"), nonce)
        tell(work.is_whole(db))

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    assert outcome.told[0] in ("DiskFull", "StorageError")
    assert outcome.told[1] is True


class Room:
    """A disk of so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.files: dict[str, int] = {}

    def __call__(self, call: Call) -> None:
        if call.kind == "delete":
            self.files.pop(call.path, None)
        elif call.kind == "truncate":
            self.files[call.path] = call.offset
        elif call.kind == "write":
            grown = self.files | {call.path: max(self.files.get(call.path, 0), call.offset + len(call.data))}
            if sum(grown.values()) > self.size:
                raise apsw.FullError("no space")
            self.files = grown


def fill(path: Path, make_room: Callable[[], object]) -> None:
    """Save until the disk is full; after that nothing is missing, and with more room the same handle goes on."""
    with clew.open(str(path)) as db:
        worker, model = work.Worker(db), work.EMPTY
        for _ in range(5000):
            nonce = secrets.token_hex(6)
            try:
                worker.do(work.Op("save"), nonce)
            except DiskFull as error:
                assert "prune" in error.hint
                break
            model = work.after(model, work.Op("save"), nonce)
        else:
            raise AssertionError("the disk did not fill up")
        assert work.actual(db) == model
        make_room()
        worker.do(work.Op("save"), nonce)
        assert work.actual(db) == work.after(model, work.Op("save"), nonce)
        assert work.is_whole(db)


def test_a_small_disk_fills_up(tmp_path: Path) -> None:
    def child(tell: Any) -> None:
        room = Room(1 << 20)
        Disk(room).install()
        fill(tmp_path / "a.db", lambda: setattr(room, "size", 8 << 20))

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    # And a real file system of that size, where this user may mount one.
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode == 0:
        try:
            fill(small / "a.db", lambda: subprocess.run(["mount", "-o", "remount,size=8m", small], check=True))
        finally:
            subprocess.run(["umount", small], check=True)


def test_control_a_save_that_swallows_the_error_is_found_out(ram: Path) -> None:
    def child(tell: Any) -> None:
        fails = FailAt(ERRORS["full"][0])
        Disk(fails).install()
        bench = Bench(ram / "a.db", fails)
        attempt = bench.worker.do

        def careless(op: work.Op, nonce: str) -> None:
            with suppress(StorageError, Busy):
                attempt(op, nonce)

        bench.worker.do = careless  # type: ignore[method-assign]
        bench.sweep(work.Op("save"), DiskFull, sticky=False)

    assert "AssertionError" in str(in_child(child).raised)
