"""SQLite, interrupted: whatever is raised in mid-call, nothing acknowledged is lost and nothing is half done."""

import sys
import threading
from linecache import getline

import pytest

from clew.errors import ClewError, Conflict, Corrupt
from clew.storage import relational, sqlite, sqlite_storage
from clew.storage.port import Chunk, Folding
from clew.storage.sqlite import SqliteEngine
from clew.testing.storage_steps import change, everything, grow, steps

OURS = {module.__file__ for module in (relational, sqlite, sqlite_storage)}


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt: no `except Exception` sees it."""


def interrupted_at(line, call):
    """Call with an interruption at the n-th line of ours that runs; False when it ended before that line.

    The end of a `with` block is traced as a second visit to its first line, before `__exit__` is called. No signal is
    handled there, so an exception there would prove nothing, and that visit is passed over.
    """
    count = 0
    entered = set()

    def local(frame, event, _):
        nonlocal count
        if event == "line":
            place = (frame, frame.f_lineno)
            if getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                if place in entered:
                    entered.discard(place)
                    return local
                entered.add(place)
            count += 1
            if count == line:
                raise Interrupted
        return local

    def trace(frame, event, _):
        return local if frame.f_code.co_filename in OURS else None

    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.fixture(params=["memory:", "clew.db"])
def storage(request, tmp_path):
    name = request.param
    engine = SqliteEngine(name if name == "memory:" else tmp_path / name, "relaxed")
    yield engine.tenant("a")
    engine.close()


def usable(storage):
    """No transaction is open, and nothing is locked: another thread can write, and does."""
    assert not storage._engine.writer or not storage._engine.writer.in_transaction
    done = []
    sent = change(thread_id="other", id="same", key="k")
    other = threading.Thread(target=lambda: done.append(storage.commit(sent)), daemon=True)
    other.start()
    other.join(5)
    assert done, "the lock was never let go"


def sweep(call):
    """Interrupt the call at its first line, its second line, and so on; yields after each interruption."""
    for line in range(1, 2000):
        if not interrupted_at(line, lambda line=line: call(line)):
            assert line > 10, "the sweep must meet lines of ours"
            return
        yield line
    raise AssertionError("the sweep did not come to an end")


def test_a_commit_interrupted_at_any_line_is_whole_or_absent(storage):
    acked = [storage.commit(change(id="root")).step]
    sent = {}

    def commit(line):
        sent[line] = change(acked[-1], 1, id=f"line-{line}", blobs=[("d", b"x")], key=f"key-{line}")
        storage.commit(sent[line])

    for line in sweep(commit):
        usable(storage)
        before = steps(storage)
        assert len(before) in (len(acked), len(acked) + 1)
        done = storage.commit(sent[line])  # the same commit again, as after any lost reply
        assert done.replayed == (len(before) > len(acked))
        acked.append(done.step)
        assert steps(storage) == acked[::-1]


def test_a_first_commit_interrupted_at_any_line(storage):
    for line in sweep(lambda line: storage.commit(change(thread_id=f"t{line}", id="first"))):
        usable(storage)
        storage.commit(change(thread_id=f"t{line}", id="first"))
        assert steps(storage, f"t{line}") == [1]


def test_a_lease_interrupted_at_any_line_hurts_nobody_else(storage):
    grow(storage, 1)

    def hold(line):
        storage.release(storage.acquire(f"t{line}", "main"))

    for _ in sweep(hold):
        usable(storage)
    assert storage.commit(change(1, 1)).step == 2


def test_a_fold_interrupted_at_any_line_changes_all_or_nothing(storage):
    key = grow(storage, 3)[-1].thread

    def merge(rows, _):
        return Folding([row.key for row in rows], [], [Chunk(1, 1, 0, 3, b"folded")])

    with storage.snapshot() as snapshot:
        length = len(snapshot.pieces(key, folded=False, after=0, limit=9))
    assert length == 3
    for _ in sweep(lambda _: storage.fold(key, 1, merge)):
        usable(storage)
        with storage.snapshot() as snapshot:
            rows = snapshot.pieces(key, folded=False, after=0, limit=9)
            chunks = snapshot.pieces(key, folded=True, after=0, limit=9)
        assert (len(rows), len(chunks)) in ((3, 0), (0, 1))
        if chunks:
            break


def test_a_snapshot_interrupted_at_any_line_leaves_no_reader_behind(storage):
    grow(storage, 2)
    for _ in sweep(lambda _: steps(storage)):
        usable(storage)
        if not storage._engine.memory:
            busy, *_ = storage._engine.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
            assert busy == 0
    assert steps(storage) == [2, 1]


def test_a_commit_that_the_database_refuses_is_not_there_later(storage):
    done = grow(storage, 2)[-1]
    before = everything(storage)
    storage._engine.writer.set_commit_hook(lambda: True)
    with pytest.raises(ClewError):
        storage.commit(change(done.step, 1, id="refused"))
    storage._engine.writer.set_commit_hook(None)
    assert everything(storage) == before
    assert not storage.commit(change(done.step, 1, id="refused")).replayed


def test_a_row_where_a_new_one_should_go_is_corrupt_and_kept(storage):
    done = grow(storage, 2)[-1]
    execute = storage._engine.execute
    execute("INSERT INTO payload VALUES (?, 1, 1, x'00')", (done.thread << 32 | 3,))
    before = everything(storage)
    with pytest.raises(Corrupt):
        storage.commit(change(2, 1))
    assert everything(storage) == before


def test_a_branch_that_points_nowhere_is_corrupt(storage):
    done = grow(storage, 2)[-1]
    storage._engine.execute("DELETE FROM checkpoint WHERE key = ?", (done.thread << 32 | 2,))
    with pytest.raises(Corrupt), storage.snapshot() as snapshot:
        snapshot.head("trip", "main")


def test_an_error_of_the_caller_inside_a_snapshot_passes_through(storage):
    grow(storage, 1)
    with pytest.raises(Conflict), storage.snapshot():
        raise Conflict("the caller's own")
    assert steps(storage) == [1]
