"""One SQLite file and several processes: races, forks, dead and silent owners."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from clew.errors import Busy, Closed, Fenced
from clew.storage.sqlite import SqliteEngine
from clew.testing.storage_steps import change, grow, steps, thread_key

WRITER = """
    import sys
    from clew.errors import Conflict
    from clew.storage.sqlite import SqliteEngine
    from clew.testing.storage_steps import change
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    storage = SqliteEngine(path, "relaxed").tenant("a")
    sys.stdin.readline()
    base = 1
    for number in range(count):
        while True:
            try:
                base = storage.commit(change(base, 1, id=f"{name}-{number}", manifest=f"{name}-{number}".encode())).step
                break
            except Conflict as conflict:
                base = conflict.head
        print(f"{name}-{number}", base, flush=True)
"""

HOLDER = """
    import sys
    from clew.errors import Fenced
    from clew.storage.sqlite import SqliteEngine
    from clew.testing.storage_steps import change
    storage = SqliteEngine(sys.argv[1], "strict", expiry=float(sys.argv[2])).tenant("a")
    lease = storage.acquire("trip", "main")
    print(lease.epoch, flush=True)
    sys.stdin.readline()
    try:
        storage.commit(change(1, 1, epoch=lease.epoch))
        print("committed", flush=True)
    except Fenced:
        print("fenced", flush=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clew.db"


@pytest.fixture
def storage(path):
    engine = SqliteEngine(path, "relaxed")
    storage = engine.tenant("a")
    grow(storage, 1)
    yield storage
    engine.close()


def healthy(storage):
    with storage._engine.reader() as execute:
        return execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_processes_lose_nothing_and_double_nothing(path, storage):
    writers = [start(WRITER, path, name, 40) for name in "abc"]
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    acked = {}
    for writer in writers:
        output, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        acked.update((line.split()[0], int(line.split()[1])) for line in output.splitlines())
    assert len(acked) == 120
    assert steps(storage) == list(range(121, 0, -1))
    with storage.snapshot() as snapshot:
        rows = snapshot.rows(thread_key(snapshot), 1, 1000, manifests=True)
    assert {row.manifest.decode(): row.step for row in rows} == acked
    assert healthy(storage)


def test_killed_writers_lose_nothing_acknowledged(path, storage):
    for attempt in range(5):
        writer = start(WRITER, path, f"k{attempt}", 10_000)
        writer.stdin.write("\n")
        writer.stdin.flush()
        acked = [writer.stdout.readline().split() for _ in range(5 + attempt * 7)]
        writer.kill()
        rest, _ = writer.communicate(timeout=60)
        acked += [line.split() for line in rest.splitlines() if len(line.split()) == 2]
        with storage.snapshot() as snapshot:
            rows = {row.id: row.step for row in snapshot.rows(thread_key(snapshot), 0, 100_000, manifests=False)}
        # The last line may have been cut short by the kill.
        assert all(rows[id_] == int(step) for id_, step in acked[:-1])
        assert len(rows) == len(steps(storage))
    assert healthy(storage)


def in_a_fork(work):
    """Run `work` in a child made by fork(); what it raised comes back as text."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            sender.send(work() or "done")
        except BaseException as error:
            sender.send(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    sender.close()
    try:
        return receiver.recv()
    finally:
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_parent_and_child_both_go_on_after_a_fork_in_mid_use(storage):
    """Other threads write and read all the while, so that a fork meets every state of the engine."""
    stop = threading.Event()
    failures = []

    def work(name):
        base, lane, count = None, 0, 0
        try:
            while not stop.is_set():
                done = storage.commit(change(base, lane, thread_id=name))
                base, lane, count = done.step, done.lane, count + 1
                assert len(steps(storage, name)) == count
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(2)]
    for worker in workers:
        worker.start()
    try:
        for number in range(8):

            def child(number=number):
                done = storage.commit(change(thread_id=f"child-{number}"))
                storage.commit(change(done.step, done.lane, thread_id=f"child-{number}"))
                assert steps(storage, f"child-{number}") == [2, 1]
                lease = storage.acquire(f"child-{number}", "main")
                assert storage.check_lease(lease)
                storage.release(lease)

            assert in_a_fork(child) == "done"
            storage.commit(change(thread_id=f"parent-{number}"))
            assert steps(storage, f"child-{number}") == [2, 1]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not failures
    assert healthy(storage)


def test_a_childs_locks_are_its_own(path, storage):
    """The parent's last connection closes while the child reads: it must not delete the log under the child."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    answer, ask = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            storage.commit(change(1, 1))
            sender.send("ready")
            answer.recv()
            storage.commit(change(2, 1))
            sender.send(steps(storage))
        except BaseException as error:
            sender.send(repr(error))
        finally:
            os._exit(0)
    assert receiver.recv() == "ready"
    storage._engine.close()
    assert path.with_name("clew.db-wal").exists(), "the child's connection keeps the log"
    ask.send("go on")
    assert receiver.recv() == [3, 2, 1]
    os.waitpid(child, 0)
    engine = SqliteEngine(path)
    assert steps(engine.tenant("a")) == [3, 2, 1]
    engine.close()


def test_a_fork_inside_a_snapshot_stops_the_child_only(storage):
    with storage.snapshot() as snapshot:
        thread = thread_key(snapshot)
        told = in_a_fork(lambda: str(storage.commit(change(1, 1))))
        assert told.startswith(Closed.__name__)
        assert "forked" in told
        assert snapshot.row(thread, 1) is not None
    assert storage.commit(change(1, 1)).step == 2


def test_memory_is_copied_by_a_fork():
    engine = SqliteEngine("memory:")
    storage = engine.tenant("a")
    grow(storage, 1)
    assert in_a_fork(lambda: f"{storage.commit(change(1, 1)).step} {steps(storage)}") == "2 [2, 1]"
    assert steps(storage) == [1]
    engine.close()


def test_a_childs_leases_are_not_its_parents(storage):
    lease = storage.acquire("trip", "main")

    def child():
        assert not storage.check_lease(lease)
        with pytest.raises(Busy):
            storage.acquire("trip", "main")
        with pytest.raises(Fenced):
            storage.commit(change(1, 1, epoch=lease.epoch))

    assert in_a_fork(child) == "done"
    assert storage.commit(change(1, 1, epoch=lease.epoch)).step == 2


def test_a_dead_owners_lease_is_taken_at_once(path, storage):
    holder = start(HOLDER, path, 3600)
    epoch = int(holder.stdout.readline())
    with pytest.raises(Busy) as caught:
        storage.acquire("trip", "main")
    assert str(holder.pid) in caught.value.owner
    holder.kill()
    holder.wait()
    lease = storage.acquire("trip", "main")
    assert lease.epoch > epoch
    storage.release(lease)
    holder.communicate()


def test_a_dead_owner_does_not_stop_a_commit_without_lease(path, storage):
    holder = start(HOLDER, path, 3600)
    epoch = int(holder.stdout.readline())
    with pytest.raises(Busy):
        storage.commit(change(1, 1))
    holder.kill()
    holder.wait()
    storage.commit(change(1, 1))
    with storage.snapshot() as snapshot:
        head = snapshot.head("trip", "main")
    assert head.ref.epoch > epoch
    assert head.ref.owner is None
    holder.communicate()


def test_a_silent_owner_is_fenced_when_it_wakes(path, storage):
    holder = start(HOLDER, path, 0.3)
    epoch = int(holder.stdout.readline())
    os.kill(holder.pid, signal.SIGSTOP)
    tries = threading.Event()
    lease = None
    for _ in range(2000):
        try:
            lease = storage.acquire("trip", "main")
            break
        except Busy:
            tries.wait(0.005)
    assert lease is not None
    assert lease.epoch > epoch
    os.kill(holder.pid, signal.SIGCONT)
    output, _ = holder.communicate("\n", timeout=30)
    assert output == "fenced\n"
    assert steps(storage) == [1]
    assert storage.commit(change(1, 1, epoch=lease.epoch)).step == 2


def test_a_living_owner_keeps_its_lease_past_the_expiry(path, storage):
    holder = start(HOLDER, path, 0.6)
    epoch = int(holder.stdout.readline())

    def expires():
        with storage._engine.reader() as execute:
            return execute("SELECT max(expires) FROM owner").fetchall()[0][0]

    first = expires()
    waiting = threading.Event()
    while expires() < first + 0.7e9:  # more than one whole expiry later it still says that it lives
        with pytest.raises(Busy):
            storage.acquire("trip", "main")
        waiting.wait(0.02)
    output, _ = holder.communicate("\n", timeout=30)
    assert output == "committed\n"
    assert epoch == 1
