"""SQLite files: what is opened and what is refused, formats, rights, and the size on disk."""

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import apsw
import pytest

from clew.errors import BadInput, Closed, DiskFull, FormatTooNew, NotADatabase, StorageError
from clew.storage import sqlite_file
from clew.storage.sqlite import SqliteEngine
from clew.storage.statements import queries
from clew.testing.storage_steps import change, grow, steps


def python(code: str, *arguments: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip


def pragma(path, name):
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(f"PRAGMA {name}").fetchall()[0][0]
    finally:
        connection.close()


def test_what_a_new_file_is(tmp_path):
    path = tmp_path / "clew.db"
    SqliteEngine(path).close()
    assert pragma(path, "application_id") == 0x434C4557
    assert pragma(path, "user_version") >= 1
    assert pragma(path, "auto_vacuum") == 2
    assert pragma(path, "journal_mode") == "wal"
    assert path.stat().st_size <= 55 * 4096  # a page for each table and index
    assert list(tmp_path.iterdir()) == [path], "closing leaves the log empty, and so deletes it"


@pytest.mark.parametrize(("durability", "level"), [("strict", 2), ("relaxed", 1)])
def test_the_level_asked_for_is_the_level_given(tmp_path, durability, level):
    engine = SqliteEngine(tmp_path / "clew.db", durability)
    assert engine.durability == engine.tenant("a").durability == durability
    assert engine.writer.execute("PRAGMA synchronous").fetchall() == [(level,)]
    engine.close()


def test_memory_is_volatile_whatever_is_asked():
    assert SqliteEngine(":memory:", "strict").durability == "volatile"
    with pytest.raises(BadInput):
        SqliteEngine("file.db", "volatile")


def test_a_newer_format_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "clew.db"
    SqliteEngine(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99").fetchall()
    connection.close()
    with pytest.raises(FormatTooNew):
        SqliteEngine(path)
    assert pragma(path, "user_version") == 99


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase):
        SqliteEngine(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello world\n" * 1000, b"x", b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotADatabase):
        SqliteEngine(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_database(tmp_path):
    path = tmp_path / "clew.db"
    path.touch()
    engine = SqliteEngine(path)
    grow(engine.tenant("a"), 1)
    engine.close()


def test_places_that_cannot_be(tmp_path):
    with pytest.raises(StorageError, match="mkdir"):
        SqliteEngine(tmp_path / "no" / "clew.db")
    with pytest.raises(StorageError, match="directory"):
        SqliteEngine(tmp_path)


def test_odd_names_are_just_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("file:x.db?mode=memory", "a b%20.db", "ü.db"):
        engine = SqliteEngine(name)
        grow(engine.tenant("a"), 1)
        engine.close()
        assert (tmp_path / name).stat().st_size > 0


UNWRITABLE = """
    import os, sys
    from clew.errors import ReadOnly
    from clew.storage.sqlite import SqliteEngine
    from clew.testing.storage_steps import change, grow, steps
    path = sys.argv[1]
    grow(SqliteEngine("memory:").tenant("a"), 1)  # whatever is imported late is imported now
    if os.geteuid() == 0:
        os.seteuid(65534)
    engine = SqliteEngine(path)
    for tenant in ("a", "unknown"):
        storage = engine.tenant(tenant)
        for call in (lambda: storage.commit(change()), lambda: storage.acquire("trip", "main")):
            try:
                call()
            except ReadOnly:
                pass
            else:
                sys.exit("it was written to")
    print(steps(engine.tenant("a")), steps(engine.tenant("unknown")))
    engine.close()
"""


@pytest.fixture
def open_place():
    """A directory that every user of the machine may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("writable_directory", [True, False])
def test_a_file_that_may_only_be_read(open_place, writable_directory):
    place = open_place / "place"
    place.mkdir()
    path = place / "clew.db"
    engine = SqliteEngine(path)
    grow(engine.tenant("a"), 2)
    engine.close()
    before = path.read_bytes()
    path.chmod(0o444)
    place.chmod(0o777 if writable_directory else 0o555)
    ran = python(UNWRITABLE, path)
    place.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[2, 1] []\n"
    assert path.read_bytes() == before


UNREACHABLE = """
    import os, sys
    from clew.errors import StorageError
    from clew.storage.sqlite import SqliteEngine
    from clew.testing.storage_steps import grow
    grow(SqliteEngine("memory:").tenant("a"), 1)  # whatever is imported late is imported now
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        SqliteEngine(sys.argv[1])
    except StorageError as error:
        print(error)
"""


def test_a_directory_that_may_not_be_entered(open_place):
    place = open_place / "closed"
    place.mkdir()
    SqliteEngine(place / "clew.db").close()
    place.chmod(0)
    ran = python(UNREACHABLE, place / "clew.db")
    place.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{place}/clew.db: Permission denied (give this user the rights")


def test_processes_race_to_create(tmp_path):
    path = tmp_path / "clew.db"
    code = """
        import sys
        from clew.storage.sqlite import SqliteEngine
        from clew.testing.storage_steps import change
        sys.stdin.readline()
        engine = SqliteEngine(sys.argv[1])
        engine.tenant("a").commit(change(thread_id=sys.argv[2]))
        engine.close()
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(path), str(number)],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(4)
    ]  # fmt: skip
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    engine = SqliteEngine(path)
    with engine.tenant("a").snapshot() as snapshot:
        assert [entry.id for entry in snapshot.threads(order="id", after=None, limit=9)] == ["0", "1", "2", "3"]
    engine.close()


def test_threads_race_to_create(tmp_path):
    path = tmp_path / "clew.db"
    barrier = threading.Barrier(4)
    failures = []

    def create(number):
        try:
            barrier.wait()
            engine = SqliteEngine(path)
            engine.tenant("a").commit(change(thread_id=str(number)))
            engine.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_file_that_becomes_a_database_while_it_is_looked_at(tmp_path):
    path = tmp_path / "clew.db"
    connection = apsw.Connection(str(path))

    def created_meanwhile(_cursor, statement, _values):
        if "sqlite_schema" in statement:
            SqliteEngine(path).close()
        return True

    connection.exec_trace = created_meanwhile
    sqlite_file._check_format(connection, str(path))
    connection.close()


def test_a_closed_engine_says_so(tmp_path):
    for path in ("memory:", tmp_path / "clew.db"):
        engine = SqliteEngine(path)
        storage = engine.tenant("a")
        grow(storage, 1)
        engine.close()
        engine.close()
        for call in (
            lambda s=storage: s.commit(change(1, 1)),
            lambda s=storage: s.acquire("trip", "main"),
            lambda s=storage: steps(s),
            lambda e=engine: e.tenant("b"),
        ):
            with pytest.raises(Closed):
                call()


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path):
    """`max_page_count` makes SQLite itself report a full disk."""
    path = tmp_path / "clew.db"
    engine = SqliteEngine(path)
    storage = engine.tenant("a")
    done = grow(storage, 3)[-1]
    engine.writer.execute("PRAGMA max_page_count = 40").fetchall()
    with pytest.raises(DiskFull):
        storage.commit(change(done.step, 1, payload=bytes(1_000_000)))
    assert steps(storage) == [3, 2, 1]
    assert storage.commit(change(done.step, 1)).step == 4
    engine.close()


def test_a_checkpoint_row_is_small_and_space_comes_back(tmp_path):
    path = tmp_path / "clew.db"
    engine = SqliteEngine(path, "relaxed")
    storage = engine.tenant("a")
    base, lane = None, 0
    for _ in range(1000):
        done = storage.commit(
            change(base, lane, id=os.urandom(10).hex(), label="reply", manifest=bytes(20), crc=2**31 + 1, payload=None)
        )
        base, lane = done.step, done.lane
    pages = engine.writer.execute("SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'checkpoint%'").fetchall()[0][0]
    assert pages / 1000 <= 100
    grow(storage, 1, thread_id="tour", payload=bytes(4_000_000))
    storage.delete_thread("tour")
    freed = storage.shrink(1 << 30)
    assert freed >= 3_900_000
    engine.close()
    assert path.stat().st_size < 500_000


def test_a_write_inside_a_snapshot_of_memory_is_told_not_hung():
    engine = SqliteEngine("memory:")
    storage = engine.tenant("a")
    grow(storage, 1)
    with pytest.raises(StorageError, match="transaction"), storage.snapshot():
        storage.commit(change(1, 1))
    assert storage.commit(change(1, 1)).step == 2


def test_no_snapshot_holds_up_the_log(tmp_path):
    engine = SqliteEngine(tmp_path / "clew.db", "relaxed")
    storage = engine.tenant("a")
    grow(storage, 50)
    steps(storage)
    busy, in_log, moved = engine.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    assert (busy, in_log, moved) == (0, 0, 0)
    engine.close()


@pytest.mark.parametrize("name", ["placed_at", "placed_whole", "latest_found"])
def test_placed_checkpoints_are_found_without_walking_the_thread(tmp_path, name):
    SqliteEngine(tmp_path / "clew.db").close()
    connection = apsw.Connection(str(tmp_path / "clew.db"))
    values = {"tenant": 1, "low": 1 << 32, "thread": 1, "ns": "", "steps": "[5, 7]", "thread_id": "t"}
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + queries("sqlite")[name], values)]
    connection.close()
    assert "SEARCH p USING PRIMARY KEY (thread=? AND ns=? AND id=?)" in plan, plan
