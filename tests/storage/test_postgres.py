"""PostgreSQL: opening, migrations, row-level security, and what errors say."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from postgres_steps import nonces, step

from clew.errors import BadInput, Busy, ClewError, Corrupt, Fenced, FormatTooNew, NotADatabase, StorageError
from clew.storage.port import Chunk, Folding, Piece, Want
from clew.storage.postgres import PostgresEngine, PostgresStorage, migrate
from clew.storage.postgres_queries import QUERIES
from clew.storage.postgres_schema import newest
from clew.storage.statements import migrations
from clew.testing.postgres import Databases, Server, TestDatabase

TABLES = {"thread", "ref", "checkpoint", "payload", "chunk", "blob", "blob_use", "owner"}
UNCONFINED = {"meta", "tenant"}  # one number; and names that no application role may read


@pytest.fixture
def engine(postgres: TestDatabase) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(postgres.url)
    yield engine
    engine.close()


@pytest.fixture
def storage(engine: PostgresEngine) -> PostgresStorage:
    return engine.tenant("acme")


def ask(url: str, query: str, *setup: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in setup:
            connection.execute(statement.encode())
        return connection.execute(query.encode()).fetchall()


class TestOpening:
    def test_an_owner_sets_up_an_empty_database_by_opening_it(self, empty_postgres: TestDatabase) -> None:
        engine = PostgresEngine(empty_postgres.owner_url)
        assert engine.tenant("acme").commit(step()).step == 1
        engine.close()
        assert ask(empty_postgres.owner_url, "SELECT format FROM clew.meta") == [(newest(),)]

    def test_migrating_again_does_nothing(self, empty_postgres: TestDatabase) -> None:
        assert migrate(empty_postgres.owner_url) == len(migrations("postgres"))
        assert migrate(empty_postgres.owner_url) == 0

    def test_racing_processes_migrate_once(self, empty_postgres: TestDatabase) -> None:
        with ThreadPoolExecutor(6) as pool:
            ran = list(pool.map(lambda _: migrate(empty_postgres.owner_url), range(6)))
        assert sum(ran) == len(migrations("postgres"))
        assert ask(empty_postgres.owner_url, "SELECT count(*) FROM clew.meta") == [(1,)]

    def test_a_role_that_may_not_migrate_is_told_who_must(self, empty_postgres: TestDatabase) -> None:
        with pytest.raises(StorageError, match="as its owner") as caught:
            PostgresEngine(empty_postgres.url)
        assert empty_postgres.databases.application in str(caught.value)
        assert not caught.value.retryable

    def test_a_role_without_grants_is_told_which(self, empty_postgres: TestDatabase) -> None:
        migrate(empty_postgres.owner_url)
        with pytest.raises(StorageError, match=r"clew\.grant_to"):
            PostgresEngine(empty_postgres.url)

    def test_an_outdated_schema_is_refused_to_who_may_not_migrate(self, postgres: TestDatabase) -> None:
        ask(postgres.owner_url, "SELECT 1", "UPDATE clew.meta SET format = 0")
        with pytest.raises(StorageError, match="as its owner"):
            PostgresEngine(postgres.url)

    def test_a_newer_format_is_refused(self, postgres: TestDatabase) -> None:
        ask(postgres.owner_url, "SELECT 1", f"UPDATE clew.meta SET format = {newest() + 1}")
        for url in (postgres.url, postgres.owner_url):
            with pytest.raises(FormatTooNew):
                PostgresEngine(url)

    def test_a_schema_of_somebody_else_is_left_alone(self, empty_postgres: TestDatabase) -> None:
        ask(empty_postgres.owner_url, "SELECT 1", "CREATE SCHEMA clew", "CREATE TABLE clew.theirs (a int)")
        with pytest.raises(NotADatabase):
            PostgresEngine(empty_postgres.owner_url)

    def test_the_application_role_owns_nothing_and_bypasses_nothing(self, postgres: TestDatabase) -> None:
        query = """
            SELECT rolsuper, rolbypassrls,
                   EXISTS (SELECT FROM pg_class WHERE relowner = r.oid)
                       OR EXISTS (SELECT FROM pg_proc WHERE proowner = r.oid)
            FROM pg_roles r WHERE rolname = current_user"""
        assert ask(postgres.url, query) == [(False, False, False)]


class TestTenants:
    def test_every_table_is_confined_and_begins_its_keys_with_the_tenant(self, postgres: TestDatabase) -> None:
        query = """
            SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
                   (SELECT bool_and(a.attname = 'tenant') FROM pg_index i
                    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
                    WHERE i.indrelid = c.oid AND i.indisunique)
            FROM pg_class c WHERE c.relnamespace = 'clew'::regnamespace AND c.relkind = 'r'"""
        found = {name: (confined, first) for name, confined, first in ask(postgres.url, query)}
        assert set(found) >= TABLES | UNCONFINED
        assert {name for name in found if found[name] != (True, True)} == UNCONFINED

    def test_raw_sql_sees_only_the_tenant_that_is_set(self, postgres: TestDatabase, engine: PostgresEngine) -> None:
        ours, theirs = engine.tenant("acme"), engine.tenant("rival")
        for storage in (ours, theirs):
            first = storage.commit(step(blobs=[("digest", b"blob")]))
            storage.commit(step(first, payload=None))
            storage.forget("t", [first.step], {})  # what it brought has a row of its own now
            storage.acquire("t", "main")
        for table in TABLES - {"chunk"}:
            count = f"SELECT count(*), coalesce(min(tenant), 0), coalesce(max(tenant), 0) FROM clew.{table}"
            assert ask(postgres.url, count) == [(0, 0, 0)]
            for storage in (ours, theirs):
                number = storage._tenant
                assert ask(postgres.url, count, f"SET clew.tenant = {number}") == [(1, number, number)]
                assert ask(postgres.owner_url, count, f"SET clew.tenant = {number}") == [(1, number, number)]

    def test_raw_sql_cannot_write_for_another_tenant(self, postgres: TestDatabase, engine: PostgresEngine) -> None:
        ours, theirs = engine.tenant("acme")._tenant, engine.tenant("rival")._tenant
        insert = f"INSERT INTO clew.thread (tenant, id, created, updated) VALUES ({theirs}, 'x', 1, 1)"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(postgres.url, "SELECT 1", f"SET clew.tenant = {ours}", insert)

    def test_names_of_tenants_cannot_be_read(self, postgres: TestDatabase, engine: PostgresEngine) -> None:
        engine.tenant("acme")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(postgres.url, "SELECT * FROM clew.tenant")

    def test_a_tenant_keeps_its_number(self, engine: PostgresEngine) -> None:
        with ThreadPoolExecutor(4) as pool:
            numbers = {pool.submit(engine.tenant, "new").result()._tenant for _ in range(8)}
        assert len(numbers) == 1
        assert engine.tenant("other")._tenant not in numbers


class TestErrors:
    def test_no_password_is_ever_shown(self, postgres: TestDatabase) -> None:
        secret = "hunter2s3cret"
        host = psycopg.conninfo.conninfo_to_dict(postgres.url)["host"]
        for url in (
            f"postgresql://nobody:{secret}@/none?host={host}",
            f"postgresql://nobody:{secret}@127.0.0.1:1/none",
            f"postgresql://nobody:x@{secret}@127.0.0.1/none",
            f"postgresql://nobody:{secret}@127.0.0.1:port/none",
            f"postgresql://nobody:{secret}%zz@127.0.0.1/none",
        ):
            with pytest.raises(ClewError) as caught:
                PostgresEngine(url)
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert secret not in shown
        user, place = postgres.url.removeprefix("postgresql://").split("@")
        engine = PostgresEngine(f"postgresql://{user.split(':')[0]}:{secret}@{place}")
        assert secret not in repr(engine) + engine.name
        engine.close()

    @pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/none", "postgresql://anna@127.0.0.1:1/none"])
    def test_errors_name_the_place_as_it_was_typed(self, url: str) -> None:
        with pytest.raises(StorageError) as caught:
            PostgresEngine(url)
        assert str(caught.value).startswith(f"{url}: ")

    def test_without_fsync_only_relaxed_opens(self, postgres_server: Server) -> None:
        database = Databases(postgres_server.url()).make()
        postgres_server.halt()
        postgres_server.run({"fsync": "off"})
        with pytest.raises(StorageError, match="fsync"):
            PostgresEngine(database.url)
        PostgresEngine(database.url, "relaxed").close()

    def test_text_that_cannot_be_stored_is_bad_input(self, storage: PostgresStorage) -> None:
        for label in ("a\0b", "a\ud800"):
            with pytest.raises(BadInput):
                storage.commit(step(label=label))
        assert nonces(storage) == []

    def test_a_schema_that_is_gone_is_not_a_database(self, postgres: TestDatabase, storage: PostgresStorage) -> None:
        ask(postgres.owner_url, "SELECT 1", "DROP SCHEMA clew CASCADE")
        with pytest.raises(NotADatabase), storage.snapshot() as snapshot:
            snapshot.find_thread("t")
        with pytest.raises(NotADatabase):
            storage.commit(step())

    def test_a_broken_ref_is_corrupt(self, postgres: TestDatabase, storage: PostgresStorage) -> None:
        first = storage.commit(step())
        ask(postgres.url, "SELECT 1", f"SET clew.tenant = {storage._tenant}", "DELETE FROM clew.checkpoint")
        with storage.snapshot() as snapshot, pytest.raises(Corrupt):
            snapshot.head("t", "main")
        with pytest.raises(Corrupt):
            storage.commit(step(first, lane=0))


class TestUpkeep:
    def test_space_is_reported_and_only_the_owner_gives_it_back(self, postgres: TestDatabase) -> None:
        given_back = {}
        for url in (postgres.url, postgres.owner_url):
            engine = PostgresEngine(url)
            storage = engine.tenant("acme")
            head = None
            for _ in range(20):
                head = storage.commit(step(head, payload=os.urandom(100_000)))
            with storage.snapshot() as snapshot:
                usage = snapshot.usage()
            assert usage.file_bytes > usage.payload_bytes == 2_000_000
            assert storage.delete_thread("t")
            given_back[url] = storage.shrink(1 << 40)
            engine.close()
        assert given_back[postgres.url] == 0
        assert given_back[postgres.owner_url] > 1_000_000

    def test_payload_outlives_its_checkpoint(self, storage: PostgresStorage) -> None:
        """It stands in the checkpoint's row, and apart from it when that row goes: both are found, folded, replaced."""
        one = storage.commit(step(payload=b"one"))
        two = storage.commit(step(one, payload=b"two"))
        three = storage.commit(step(two, payload=b"three"))
        assert storage.forget("t", [one.step, two.step], {}) == 2
        low = one.thread << 32
        kept = [Piece(low + n, n, one.lane, data) for n, data in ((1, b"one"), (2, b"two"), (3, b"three"))]
        with storage.snapshot() as snapshot:
            assert sorted(snapshot.payload(one.thread, [Want(one.lane, 1, 0, 3)], three.step)) == kept
            pages = [snapshot.pieces(one.thread, folded=False, after=low + after, limit=2) for after in (0, 2, 3)]
            assert pages == [kept[:2], kept[2:], []]
            assert snapshot.usage().payload_bytes == len(b"onetwothree")
        assert storage.rewrite("t", kept[0].key, kept[0], [Chunk(one.lane, 1, 0, 1, b"ONE")], folded=False)
        assert not storage.rewrite("t", kept[0].key, kept[0], [], folded=False)

        def merge(payload: Sequence[Piece], chunks: Sequence[Piece]) -> Folding:
            assert (list(payload), [piece.data for piece in chunks]) == (kept[1:], [b"ONE"])
            return Folding([piece.key for piece in payload], [], [Chunk(one.lane, 2, 0, 2, b"twothree")])

        storage.fold(one.thread, one.lane, merge)
        with storage.snapshot() as snapshot:
            assert snapshot.pieces(one.thread, folded=False, after=0, limit=9) == []
            found = snapshot.pieces(one.thread, folded=True, after=0, limit=9)
            assert [piece.data for piece in found] == [b"ONE", b"twothree"]

    def test_a_blob_that_a_commit_begins_to_use_is_not_collected(
        self, postgres: TestDatabase, engine: PostgresEngine
    ) -> None:
        storage = engine.tenant("acme")
        storage.commit(step(thread_id="old", blobs=[("digest", b"blob")]))
        later = step(thread_id="new", blobs=[("digest", b"blob")])
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        with psycopg.connect(postgres.url) as session, ThreadPoolExecutor(1) as pool:
            session.execute(*storage._call(later, None))
            collecting = pool.submit(storage.forget_blobs, "old", set(), 1)
            while not ask(postgres.admin_url, waiting):
                assert not collecting.done(), "it did not wait for the commit to end"
            session.commit()
            assert collecting.result() == 0
        with storage.snapshot() as snapshot:
            assert snapshot.blob("digest") == b"blob"
        assert storage.delete_thread("new")
        with storage.snapshot() as snapshot:
            assert snapshot.usage().blobs == 0, "the old thread's use was dropped"


class TestLeases:
    def test_time_is_the_servers(self, postgres: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        holder, other = PostgresEngine(postgres.url), PostgresEngine(postgres.url)
        lease = holder.tenant("acme").acquire("t", "main")
        for wrong in (0.0, 4e9):
            monkeypatch.setattr("time.time", lambda wrong=wrong: wrong)
            monkeypatch.setattr("time.time_ns", lambda wrong=wrong: int(wrong * 1e9))
            with pytest.raises(Busy):
                other.tenant("acme").commit(step())
            assert holder.tenant("acme").check_lease(lease)
        ask(postgres.url, "SELECT 1", "SET clew.tenant = 1", "UPDATE clew.owner SET expires = clew.now() - 1")
        taken = other.tenant("acme").acquire("t", "main")
        assert taken.epoch == lease.epoch + 1
        with pytest.raises(Fenced):
            holder.tenant("acme").commit(step(epoch=lease.epoch))
        holder.close()
        other.close()

    def test_an_owner_that_was_killed_is_replaced_at_once(
        self, postgres: TestDatabase, storage: PostgresStorage
    ) -> None:
        script = """
            import sys, os, signal
            from clew.storage.postgres import PostgresEngine
            PostgresEngine(sys.argv[1], expiry=3600).tenant("acme").acquire("t", "main")
            os.kill(os.getpid(), signal.SIGKILL)"""
        done = run_python(script, postgres.url)
        assert done.returncode == -9, done.stderr
        assert storage.commit(step()).step == 1


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=60)


class TestProcesses:
    def test_two_processes_append_to_one_thread(self, postgres: TestDatabase, storage: PostgresStorage) -> None:
        script = """
            import sys
            from clew.errors import Conflict
            from clew.storage.port import Committed
            from clew.storage.postgres import PostgresEngine
            from postgres_steps import step
            storage = PostgresEngine(sys.argv[1], "relaxed").tenant("acme")
            for _ in range(25):
                while True:
                    with storage.snapshot() as snapshot:
                        head = snapshot.head("t", "main")
                    ref = head.ref if head else None
                    base = Committed(0, ref.step, ref.lane, 0, False) if ref else None
                    attempt = step(base)
                    try:
                        storage.commit(attempt)
                    except Conflict:
                        continue
                    print(attempt.payload.hex())
                    break"""
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda _: run_python(script, postgres.url), range(2)))
        assert [one.returncode for one in done] == [0, 0], done[0].stderr + done[1].stderr
        acknowledged = [bytes.fromhex(line) for one in done for line in one.stdout.split()]
        assert len(acknowledged) == 50
        stored = nonces(storage)
        assert sorted(stored) == sorted(acknowledged)

    def test_parent_and_child_go_on_after_a_fork(self, postgres: TestDatabase, storage: PostgresStorage) -> None:
        script = """
            import os, sys
            from clew.errors import Busy, Fenced
            from clew.storage.postgres import PostgresEngine
            from postgres_steps import step
            engine = PostgresEngine(sys.argv[1])
            storage = engine.tenant("acme")
            head = storage.commit(step())
            lease = storage.acquire("leased", "main")
            child = os.fork()
            if child == 0:
                for refused, epoch in ((Fenced, lease.epoch), (Busy, None)):
                    try:
                        storage.commit(step(thread_id="leased", epoch=epoch))
                    except refused:
                        continue
                    os._exit(3)
                assert not storage.check_lease(lease)
                head = storage.commit(step(head))
                engine.close()
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            with storage.snapshot() as snapshot:
                assert snapshot.head("t", "main").ref.step == 2
            assert storage.check_lease(lease)
            storage.commit(step(thread_id="leased", epoch=lease.epoch))
            storage.commit(step(head._replace(step=2)))
            engine.close()"""
        done = run_python(script, postgres.url)
        assert done.returncode == 0, done.stderr
        assert len(nonces(storage)) == 3


def test_without_psycopg_the_error_names_the_extra() -> None:
    script = """
        import sys
        sys.modules["psycopg"] = None
        import clew
        from clew.errors import ClewError
        try:
            clew.open("postgresql://localhost/none")
        except ClewError as error:
            print(type(error).__name__, error)"""
    done = run_python(script)
    assert done.stdout.startswith("StorageError"), done.stderr
    assert 'pip install "clew[postgres]"' in done.stdout


class TestPlans:
    """Row-level security keeps conditions that might leak out of indexes; nothing that is read often may need one."""

    def test_reads_use_indexes_on_tables_nobody_analysed(
        self, postgres: TestDatabase, engine: PostgresEngine, storage: PostgresStorage
    ) -> None:
        head = storage.commit(step())
        thread, low = head.thread, head.thread << 32
        many = f"FROM generate_series(2, 3000) AS n, (SELECT {storage._tenant} AS tenant) AS t"
        ask(
            postgres.url,
            "SELECT 1",
            f"SET clew.tenant = {storage._tenant}",
            f"INSERT INTO clew.checkpoint (tenant, lane, key, created, crc, parent, kind, id, manifest)"
            f" SELECT tenant, 1, {low} + n, 1, 1, n - 1, 1, md5(n::text), 'm' {many}",
            f"INSERT INTO clew.payload (tenant, lane, key, data) SELECT tenant, 1, {low} + n, 'data' {many}",
            f"INSERT INTO clew.thread (tenant, id, created, updated) SELECT tenant, 't' || n, n, n * 1e9 {many}",
            f"INSERT INTO clew.ref (tenant, thread, name, kind) SELECT tenant, {thread} + n, 'main', 'branch' {many}",
            f"INSERT INTO clew.placed (tenant, thread, ns, id, step, leans, crc, control)"
            f" SELECT tenant, {thread}, '', md5(n::text), n, 0, 1, 'c' {many}",
            f"INSERT INTO clew.record (tenant, thread, step, idx, crc, place, task, path, name, value)"
            f" SELECT tenant, {thread}, n, 0, 1, '0:' || md5(n::text), 't', '', 'n', 'v' {many}",
        )
        reads = {
            "thread": {"thread_id": "t"},
            "row": {"key": low + 5},
            "ref": {"thread": thread, "name": "main"},
            "threads_updated": {"stamp": 1 << 62, "after": "", "limit": 5},
            "threads_id": {"after": "", "limit": 5},
            "forget": {"low": low, "thread": thread, "steps": [1, 2]},
            "delete_payload": {"keys": [low + 1, low + 2]},
            "lane_payload": {"low": low, "high": low + 99, "lane": 1},
            "payload_page": {"after": low + 5, "low": low, "high": low + 99, "limit": 10},
            "payload_data": {"key": low + 5, "low": low, "high": low + 99},
            "placed_at": {"low": low, "thread": thread, "ns": "", "steps": [5, 7]},
            "placed_whole": {"low": low, "thread": thread, "ns": "", "steps": [5, 7]},
            "rows_at": {"low": low, "steps": [5, 7]},
            "latest_found": {"thread_id": "t", "ns": ""},
            "records": {"thread": thread, "places": ["0:a", "0:b"]},
        }
        with storage.snapshot() as snapshot:
            assert len(snapshot.history(thread, 3000, 2000)) == 2000
            head_row = snapshot.head("t", "main")
            assert head_row is not None
            assert len(snapshot.payload(thread, [Want(1, 1, 0, 1)], 5)) == 5
        with storage._writing("t"), engine.transaction(*storage._read) as connection:
            for name, values in reads.items():
                explain = b"EXPLAIN (FORMAT TEXT) " + QUERIES[name]
                plan = "\n".join(row[0] for row in connection.execute(explain, {"tenant": storage._tenant, **values}))
                lines = plan.splitlines()
                for at, line in enumerate(lines):
                    if "Scan" in line and any(
                        f" on {name}" in line for name in ("checkpoint", "payload", "thread", "ref", "placed", "record")
                    ):
                        assert "Index" in line or "Bitmap" in line, f"{name}:\n{plan}"
                        condition = next(below for below in lines[at:] if "Index Cond" in below)
                        assert any(column in condition for column in ("key", "id", "thread", "active")), plan
                        assert " on placed" not in line or "id = " in condition or "Backward" in line, plan
                        assert " on record" not in line or "place = " in condition, plan
                        assert " on checkpoint" not in line or "key " in condition, plan
