"""PostgreSQL: cut connections, killed backends, crashed servers, poolers. Nothing acknowledged is lost or doubled.

Each step carries a nonce, and what is stored is compared by it: a step that was lost and written again has the right
number, but not the right content.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from postgres_sessions import PassedAround
from postgres_steps import nonces, step

from clew.errors import StorageError
from clew.storage.port import Chunk, Committed, Folding, Want
from clew.storage.postgres import PostgresEngine, PostgresStorage
from clew.testing.postgres import Databases, Server, TestDatabase
from clew.testing.proxy import Direction, Proxy


def target(url: str) -> tuple[str, int]:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return str(parts["host"]), int(parts.get("port") or 5432)


@pytest.fixture
def proxy(postgres: TestDatabase) -> Iterator[Proxy]:
    with Proxy(target(postgres.url)) as proxy:
        yield proxy


@pytest.fixture
def direct(postgres: TestDatabase) -> Iterator[PostgresStorage]:
    engine = PostgresEngine(postgres.url)
    yield engine.tenant("acme")
    engine.close()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[PostgresStorage]:
    engine = PostgresEngine(url, **options)
    try:
        yield engine.tenant("acme")
    finally:
        engine.close()


def positions(length: int) -> list[int]:
    """Places in a message of this length: its ends, inside its first header, and spread over it."""
    spread = {length * part // 9 for part in range(1, 9)}
    return sorted({0, 1, 4, 5, 6, *spread, length - 6, length - 1, length} & set(range(length + 1)))


class TestCuts:
    @pytest.mark.parametrize("prepared", [False, True])
    def test_a_commit_survives_a_cut_at_any_place(
        self, postgres: TestDatabase, proxy: Proxy, direct: PostgresStorage, prepared: bool
    ) -> None:
        """Where commits are prepared, the prepared one is measured: all other calls are longer, and are cut as well."""
        acknowledged: list[bytes] = []
        with opened(proxy.url(postgres.url)) as storage:
            storage._engine._preparing.allowed = prepared
            head = None
            for _ in range(5):
                proxy.count()
                attempt = step(head)
                head = storage.commit(attempt)
                acknowledged.append(attempt.payload or b"")
            passed = proxy.count()
            directions: tuple[Direction, ...] = ("request", "reply")
            cuts = [(way, after) for way in directions for after in positions(passed[way])]
            written_before = 0
            for way, after in cuts:
                attempt = step(head)
                proxy.cut(way, after)
                head = storage.commit(attempt)
                assert not proxy.disarm()
                acknowledged.append(attempt.payload or b"")
                written_before += head.replayed
        assert proxy.cuts == len(cuts) > 25
        done = len(positions(passed["reply"])) // (3 if prepared else 1)  # else what was being prepared is cut
        assert written_before >= done - 1, "most lost replies were of commits that were done"
        assert nonces(direct) == acknowledged

    def test_control_without_the_id_a_retry_doubles(
        self, postgres: TestDatabase, proxy: Proxy, direct: PostgresStorage
    ) -> None:
        with opened(postgres.url) as storage:
            head = storage.commit(step())
        with opened(proxy.url(postgres.url)) as storage:
            attempt = step(head)
            proxy.cut("reply", 0)
            with storage._engine.connection() as connection, pytest.raises(psycopg.OperationalError):
                connection.execute(*storage._call(attempt, None))
            with storage.snapshot() as snapshot:
                found = snapshot.head("t", "main")
            assert found is not None
            now = Committed(found.thread, found.ref.step or 0, found.ref.lane, 0, replayed=False)
            storage.commit(step(now, payload=attempt.payload))
        assert nonces(direct).count(attempt.payload or b"") == 2

    def test_a_server_that_stays_away_leaves_an_honest_error(self, postgres: TestDatabase, proxy: Proxy) -> None:
        engine = PostgresEngine(proxy.url(postgres.url), patience=0.5)
        storage = engine.tenant("acme")
        head = storage.commit(step())
        proxy.close()
        with pytest.raises(StorageError) as caught:
            storage.commit(step(head))
        assert caught.value.retryable
        assert "save again" in str(caught.value)
        engine.close()

    def test_reads_and_branches_go_on_after_every_connection_broke(
        self, postgres: TestDatabase, proxy: Proxy, direct: PostgresStorage
    ) -> None:
        with opened(proxy.url(postgres.url)) as storage:
            storage.commit(step())
            for name in ("one", "two"):
                terminate(postgres)
                with storage.snapshot() as snapshot:
                    assert snapshot.find_thread("t") is not None
                terminate(postgres)
                storage.create_branch("t", name, 1)
        with direct.snapshot() as snapshot:
            thread = snapshot.find_thread("t")
            assert [ref.name for ref in snapshot.refs(thread or 0)] == ["main", "one", "two"]


def terminate(database: TestDatabase) -> None:
    """End every session of the application role in this database."""
    database.databases.execute(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database.name}'"
        f" AND usename = '{database.databases.application}' AND pid <> pg_backend_pid()"
    )


@contextmanager
def stopped_commit(storage: PostgresStorage, url: str, head: Committed) -> Iterator[tuple[int, list[Any], bytes]]:
    """A commit that waits in the middle for a row, in a thread; the pid of its backend, its outcome, and its nonce."""
    attempt = step(head)
    outcome: list[Any] = []

    def save() -> None:
        try:
            outcome.append(storage.commit(attempt))
        except Exception as error:
            outcome.append(error)

    with closing(psycopg.connect(url)) as blocker, closing(psycopg.connect(url, autocommit=True)) as watcher:
        blocker.execute(f"SET clew.tenant = {storage._tenant}")
        blocker.execute("SELECT FROM clew.ref WHERE name = 'main' FOR UPDATE")
        thread = threading.Thread(target=save)
        thread.start()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            waiting = watcher.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%clew.commit(%'"
            ).fetchone()
            if waiting:
                break
        assert waiting, "the commit did not reach the lock"
        yield waiting[0], outcome, attempt.payload or b""
    thread.join(30)  # the blocker's session has ended, by us or with its server
    assert not thread.is_alive()


class TestServers:
    def test_a_backend_terminated_in_the_middle_of_a_commit(
        self, postgres: TestDatabase, direct: PostgresStorage
    ) -> None:
        first = step()
        head = direct.commit(first)
        with stopped_commit(direct, postgres.url, head) as (pid, outcome, nonce):
            postgres.databases.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
        assert isinstance(outcome[0], Committed), outcome
        assert nonces(direct) == [first.payload, nonce]

    def test_a_backend_killed_in_the_middle_of_a_commit(self, postgres_server: Server) -> None:
        database = Databases(postgres_server.url()).make()
        with opened(database.url) as storage:
            first = step()
            head = storage.commit(first)
            with stopped_commit(storage, database.url, head) as (pid, outcome, nonce):
                os.kill(pid, signal.SIGKILL)
            assert isinstance(outcome[0], Committed), outcome
            assert nonces(storage) == [first.payload, nonce]

    def test_a_strict_commit_survives_a_crash_of_a_lax_server(self, postgres_server: Server) -> None:
        """The server's own setting would lose it: `relaxed`, which means that setting, is the control."""
        database = Databases(postgres_server.url()).make()
        postgres_server.execute("ALTER SYSTEM SET synchronous_commit = off")
        postgres_server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        postgres_server.restart()
        kept: list[bytes | None] = []
        with opened(database.url) as strict, opened(database.url, durability="relaxed") as relaxed:
            head = None
            for _ in range(5):
                kept.append((attempt := step(head)).payload)
                head = strict.commit(attempt)
            strict.set_tag("t", "kept", 5)
            relaxed.commit(step(head))
            postgres_server.restart()
            assert nonces(strict) == kept
            with strict.snapshot() as snapshot:
                assert [ref.name for ref in snapshot.refs(1)] == ["kept", "main"]

    def test_a_writer_goes_on_over_a_restart(self, postgres_server: Server) -> None:
        database = Databases(postgres_server.url()).make()
        acknowledged: list[bytes | None] = []
        restarted = threading.Event()

        def write(storage: PostgresStorage) -> None:
            head, after = None, 0
            while after < 20:
                after += restarted.is_set()
                attempt = step(head)
                head = storage.commit(attempt)
                acknowledged.append(attempt.payload)

        with opened(database.url) as storage, ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write, storage)
            while len(acknowledged) < 20 and not writer.done():
                pass
            postgres_server.restart()
            restarted.set()
            writer.result(30)
            assert len(acknowledged) >= 40
            assert nonces(storage) == acknowledged


def test_every_operation_is_at_home_on_any_session(postgres: TestDatabase) -> None:
    with opened(postgres.url) as storage:
        storage._engine._pool.close()
        sessions: Any = PassedAround(postgres.url, storage._engine)
        storage._engine._pool = sessions
        head = storage.commit(step(blobs=[("digest", b"blob")]))
        head = storage.commit(step(head, key="turn"))
        assert storage.commit(step(head, key="turn")).replayed
        storage.create_branch("t", "side", 1)
        storage.set_tag("t", "mark", 1)
        lease = storage.acquire("t", "main")
        assert storage.check_lease(lease)
        storage.release(lease)
        storage.move_branch("t", "main", 1, old_tip="old", epoch=None)
        head = storage.commit(step(head._replace(step=1, lane=0)))
        storage.fold(head.thread, 1, lambda rows, _: Folding([row.key for row in rows], [], [Chunk(1, 1, 0, 2, b"ab")]))
        with storage.snapshot() as snapshot:
            assert [ref.name for ref in snapshot.refs(head.thread)] == ["main", "mark", "old", "side"]
            assert [row.step for row in snapshot.history(head.thread, 3, 9)] == [3, 1]
            assert len(snapshot.payload(head.thread, [Want(1, 1, 0, 2), Want(2, 1, 0, 1)], 3)) == 2
            assert snapshot.blob("digest") == b"blob"
            assert len(snapshot.threads(order="updated", after=None, limit=5)) == 1
            assert snapshot.usage().checkpoints == 3
        assert storage.forget("t", [2], {}) == 1
        assert storage.forget_blobs("t", set(), 3) == 4
        storage.delete_tag("t", "mark")
        storage.delete_branch("t", "side", epoch=None)
        assert storage.delete_thread("t")
        assert sessions.served > 15
