"""PostgreSQL, behind a pooler or not.

Invariants:

1. Nothing depends on a session. Tenant, durability and time limits are set inside each transaction; no SET, LISTEN or
   session lock outlives one. Statements are prepared only where that lasts (postgres_prepared.py). Any connection will
   do for the next call, also one that a pooler lends.
2. A commit is one call of clew.commit in autocommit. When its reply is lost, the same commit is sent again: the id is
   recognised, so it is written once. Only when that fails as well is the outcome unknown, and the error says so.
3. Whatever changes a thread's history first locks the thread's row, and reads what it decides on after that.
4. The server's clock alone says when a lease expires. Only a process that shares our boot and PID namespace can be
   found dead before that; we look it up, and tell clew.commit.
5. Connections of a parent process are never used or closed by its child.
6. Leases are written as durably as the database can: after a crash the same epoch must not be given twice.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from clew.errors import BadInput, Closed, StorageError
from clew.model import KINDS, Durability
from clew.storage.changes import Change, postgres_call
from clew.storage.holding import Holding
from clew.storage.ledger import Entry, NewRun, RunRow
from clew.storage.ledger_entries import write_entries
from clew.storage.ownership import EXPIRY, Identity
from clew.storage.placed import Placing
from clew.storage.port import Commit, Committed, Lease
from clew.storage.queue import Beside
from clew.storage.refusals import busy, fenced
from clew.storage.relational import Relational, Run
from clew.storage.waking import Bell, ListeningBell

try:
    import psycopg
    import psycopg_pool
except ImportError as error:
    raise StorageError("PostgreSQL needs the package psycopg", hint='pip install "clew[postgres]"') from error

from clew.storage import postgres_schema
from clew.storage.postgres_admitting import admit_at_once
from clew.storage.postgres_claiming import PostgresClaims
from clew.storage.postgres_entries import Then, first_row, in_order, riding, split
from clew.storage.postgres_errors import clew_error, detail, is_lost, is_passing, refuse, translated
from clew.storage.postgres_link import parse
from clew.storage.postgres_listening import listen
from clew.storage.postgres_placed import place_at_once
from clew.storage.postgres_prepared import Connection, Prepared, Preparing, Row
from clew.storage.postgres_queries import QUERIES

_KINDS = {kind: number for number, kind in enumerate(KINDS)}
_COMMIT = b"SELECT clew.commit(" + b", ".join([b"%s"] * 23) + b")"
_COMMIT_AND = (
    b"SELECT c.thread, c.step, c.done{changes}"
    b" FROM (SELECT d.done[1] AS thread, d.done[2]::integer AS step, d.done FROM "
    + _COMMIT.removeprefix(b"SELECT ")
    + b" AS d (done)) AS c"
)
_APPLY = b"SELECT c.thread, c.step{changes} FROM clew.enter_thread(" + b", ".join([b"%s"] * 7) + b") AS c"
_COLLECT_BLOBS = b"SELECT pg_advisory_xact_lock(1129071960, %s)"
_COLLECTING = frozenset(("delete_thread_blobs", "drop_blob_uses"))
"""Queries that decide which blobs are unused: nobody may begin to use one meanwhile (see clew.keep_blobs)."""
_SPACE = QUERIES["space"]
_MAY_VACUUM = b"""
SELECT bool_and(pg_has_role(c.relowner, 'USAGE')) FROM pg_class c
WHERE c.relnamespace = 'clew'::regnamespace AND c.relkind = 'r'"""

CONNECTIONS = 8
ATTEMPTS = 6
PATIENCE = 15.0
"""Seconds within which a broken connection is replaced and a call is tried again."""
IDLE_CHECK = 30.0
"""A connection that was idle for so many seconds is tried before it is used."""
FOLD_AFTER = 1 << 31
"""Commits never fold here. Rows pack well into pages (tables and indexes: 1.4 times the payload for 1000 steps of
1 KB), while the rows that a fold replaces stay until a vacuum (2.6 to 2.9 times)."""
_LIMITS = """
SELECT set_config('search_path', 'clew, pg_temp', true), set_config('statement_timeout', '120s', true),
       set_config('idle_in_transaction_session_timeout', '60s', true), set_config('enable_seqscan', 'off', true)"""

_renewing = threading.Lock()
_abandoned: list[Any] = []
"""Pools of a parent process. Kept, so that nothing finalises them: that would end the parent's sessions."""


def _after_fork() -> None:
    global _renewing  # noqa: PLW0603  (the parent's may be held by a thread that does not exist here)
    _renewing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def migrate(url: str) -> int:
    """Bring the schema up to date, as the role that owns it; returns how many migrations ran."""
    link, safe = parse(url)
    with _connecting(safe), psycopg.connect(link, autocommit=True, prepare_threshold=None) as connection:
        return postgres_schema.migrate(connection)


@contextmanager
def _connecting(safe: str) -> Iterator[None]:
    try:
        with translated():
            yield
    except StorageError as error:
        if type(error) is StorageError and safe not in error.message:
            message = f"{safe}: {error.message}"
            raise StorageError(message, retryable=error.retryable, hint=error.hint) from error.__cause__
        raise


def begin_use(connection: Connection, preparing: Preparing) -> None:
    """A new connection."""
    connection.calls = Prepared(connection, preparing)  # type: ignore[attr-defined]
    _used_now(connection)


def _used_now(connection: Connection) -> None:
    connection.last_used = time.monotonic()  # type: ignore[attr-defined]


def _still_there(connection: Connection) -> bool:
    """Whether a connection answers; asked only after it was idle for long."""
    if time.monotonic() - connection.last_used < IDLE_CHECK:  # type: ignore[attr-defined]
        return True
    try:
        connection.execute(b"")
    except psycopg.OperationalError:
        return False
    return True


class PostgresEngine(Holding):
    """One PostgreSQL database, shared by the tenants that live in it.

    `durability` is "strict" (an answer means that the server has synced it) or "relaxed" (a crash of the server may
    lose the newest, up to three times wal_writer_delay).
    """

    def __init__(
        self, url: str, durability: Durability | None = None, *, expiry: float = EXPIRY, patience: float = PATIENCE
    ) -> None:
        if durability not in (None, "strict", "relaxed"):
            raise BadInput(f"durability on PostgreSQL is 'strict' or 'relaxed', not {durability!r}")
        self.durability: Durability = durability or "strict"
        self.expiry = int(expiry * 1e9)
        self._patience = patience
        self._preparing = Preparing()
        self._link, self.name = parse(url)
        self._closed = False
        with _connecting(self.name), psycopg.connect(self._link, autocommit=True, prepare_threshold=None) as first:
            self._check_server(first)
            postgres_schema.ready(first)
        self._begin()

    def __repr__(self) -> str:
        return f"PostgresEngine({self.name!r}, {self.durability!r})"

    def _check_server(self, connection: Connection) -> None:
        fsync = connection.execute(b"SELECT current_setting('fsync')").fetchone()
        if self.durability == "strict" and fsync != ("on",):
            raise StorageError(
                f"{self.name}: the server runs with fsync=off, so nothing that it acknowledges is safe",
                hint='set fsync=on, or open it with durability="relaxed"',
            )

    def _begin(self) -> None:
        """Everything that belongs to this process and to no other."""
        self._forget_self()
        self._pool = psycopg_pool.ConnectionPool(
            self._link,
            kwargs={"autocommit": True, "prepare_threshold": None},
            min_size=1,
            max_size=CONNECTIONS,
            configure=partial(begin_use, preparing=self._preparing),
            timeout=self._patience,
            num_workers=1,
            name="clew",
            open=True,
        )
        with translated():
            self._pool.wait(self._patience)
        self.pid = os.getpid()

    def _renew(self) -> None:
        """In the child of a fork: leave the parent's connections and leases alone, and begin anew."""
        with _renewing:
            if self.pid != os.getpid():
                _abandoned.append((self._pool, self.heartbeat))
                self._begin()

    def tenant(self, name: str) -> PostgresStorage:
        """The rows of one tenant, which is created when it is new."""
        with translated():
            found = self.call(b"SELECT clew.tenant_key(%s)", (name,))
        return PostgresStorage(self, int(found[0]))

    def _bell(self) -> Bell:
        return ListeningBell(partial(listen, self._link))

    # Connections.

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool, given back as it came or thrown away."""
        lent, pool = self._lend()
        try:
            yield lent
        finally:
            _used_now(lent)
            pool.putconn(lent)

    def _lend(self) -> tuple[Connection, psycopg_pool.ConnectionPool]:
        if self._closed:
            raise Closed(f"{self.name} is closed")
        if self.pid != os.getpid():
            self._renew()
        pool = self._pool
        lent = pool.getconn()
        while not _still_there(lent):
            pool.putconn(lent)
            lent = pool.getconn()
        return lent, pool

    def call(
        self, statement: bytes, values: Sequence[Any], then: Then | None = None, *, read: Callable[..., Row] = first_row
    ) -> Row:
        """Run one statement that is safe to repeat, in autocommit or with `then` behind it; its first row (or `read`).

        Repeats it when the reply is lost.
        """
        asked = 0
        in_full = False
        deadline = time.monotonic() + self._patience
        while True:
            asked += 1
            try:
                lent, pool = self._lend()
                try:
                    return read(lent, statement, values, _LIMITS.encode(), then)
                finally:
                    _used_now(lent)
                    pool.putconn(lent)
            except psycopg.Error as error:
                if self._preparing.refused(error) and not in_full:
                    in_full = True  # from now on; if it is refused again, that was a statement of `then`
                    continue
                if not (is_lost(error) or is_passing(error)) or asked >= ATTEMPTS or time.monotonic() > deadline:
                    raise
                self.mend(asked)

    def mend(self, attempt: int) -> None:
        """After a lost connection: wait a little, and let the pool look through the others."""
        time.sleep(random.uniform(0.5, 1.0) * min(0.02 * 2**attempt, 1.0))  # noqa: S311
        with suppress(psycopg.Error, psycopg_pool.PoolClosed):
            self._pool.check()

    @contextmanager
    def transaction(self, *begin: bytes) -> Iterator[Connection]:
        """A transaction on one connection. `begin` opens it, on another one if the first is gone."""
        attempt = 0
        with translated():
            while True:
                attempt += 1
                with self.connection() as connection:
                    try:
                        connection.execute(b";".join(begin))
                    except psycopg.Error as error:
                        if not is_lost(error) or attempt >= ATTEMPTS:
                            raise
                    else:
                        yield from _until_commit(connection)
                        return
                self.mend(attempt)

    def _rows(self, tenant: int) -> PostgresStorage:
        return PostgresStorage(self, tenant)

    def close(self) -> None:
        """Release this process's leases and close the connections. Closing again does nothing."""
        if self._closed:
            return
        if self.pid == os.getpid():
            self._release_all()
            self._pool.close()
        self._closed = True


def _until_commit(connection: Connection) -> Iterator[Connection]:
    try:
        yield connection
        connection.execute(b"COMMIT")
    except BaseException:
        with suppress(psycopg.Error):
            connection.execute(b"ROLLBACK")
        raise


class PostgresStorage(Relational):
    """The rows of one tenant."""

    _engine: PostgresEngine
    boot_clock = False
    embedded = False

    def __init__(self, engine: PostgresEngine, tenant: int) -> None:
        self._engine = engine
        self._tenant = tenant
        self.durability = engine.durability
        self.fold_after = FOLD_AFTER
        number = str(tenant).encode()
        self._read = (
            b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            _LIMITS.encode() + b", set_config('clew.tenant', '" + number + b"', true)",
        )
        self._write = b"SELECT clew.enter(" + number + b", %s)"

    # Transactions.

    def _run(self, connection: Connection) -> Run:
        tenant = self._tenant
        cursor = connection.cursor(binary=True)

        def run(query: str, /, **values: Any) -> list[tuple[Any, ...]]:
            if query in _COLLECTING:
                cursor.execute(_COLLECT_BLOBS, (tenant,))
            cursor.execute(QUERIES[query], {"tenant": tenant, **values})
            return cursor.fetchall() if cursor.description else []

        return run

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._engine.transaction(*self._read) as connection:
            yield self._run(connection)

    @contextmanager
    def _writing(self, thread_id: str | None, *, strict: bool | None = None) -> Iterator[Run]:
        level = b"true" if (self.durability == "strict" if strict is None else strict) else b"false"
        opening = (b"BEGIN ISOLATION LEVEL READ COMMITTED", _LIMITS.encode(), self._write.replace(b"%s", level))
        with self._engine.transaction(*opening) as connection:
            if thread_id is not None:
                connection.execute(b"SELECT clew.lock_thread(%s, %s)", (self._tenant, thread_id))
            yield self._run(connection)

    @contextmanager
    def _leasing(self, thread_id: str | None) -> Iterator[Run]:
        with self._writing(thread_id, strict=True) as run:
            yield run

    def _identity(self) -> Identity:
        return self._engine.identity

    def _owner_row(self, run: Run) -> int:
        return self._engine.owner_row(self._tenant, run)

    def _my_owner(self) -> int | None:
        if self._engine.pid != os.getpid():
            self._engine._renew()
        return self._engine.owners.get(self._tenant)

    def _space(self, run: Run) -> tuple[int, int]:
        return int(run("space")[0][0]), 0  # PostgreSQL keeps its free space to itself

    @property
    def _claims(self) -> PostgresClaims:
        return PostgresClaims(self._engine, self._tenant)

    # Commit.

    def commit(self, commit: Commit) -> Committed:
        """Write one step with one call of clew.commit. See the port."""
        dead: int | None = None
        then: Then | None = None
        if commit.changes:
            commit = commit._replace(changes=riding(commit.changes, commit.epoch))
            then = self._writer(commit.thread_id, split(commit.changes)[1], commit.epoch)
        while True:
            try:
                found = self._engine.call(*self._call(commit, dead), then)
            except psycopg.Error as error:
                code = error.sqlstate or ""
                if code == "KL001":
                    thread, step, lane, unfolded = map(int, detail(error).split())
                    return self._committed(commit, Committed(thread, step, lane, unfolded, replayed=True))
                if code == "KL003":
                    dead = self._dead_owner(commit)
                    continue
                refuse(commit, error)
            except (psycopg_pool.PoolTimeout, UnicodeError) as error:
                refuse(commit, error)
            else:
                thread, step, lane, unfolded = found[2 if commit.changes else 0]
                return self._committed(commit, Committed(thread, step, lane, unfolded, replayed=False))

    def _committed(self, commit: Commit, done: Committed) -> Committed:
        if commit.release and commit.epoch is not None:
            self._engine.hold(self._tenant, Lease(commit.thread_id, commit.branch, commit.epoch), held=False)
        return done

    def _call(self, commit: Commit, dead: int | None) -> tuple[bytes, Sequence[Any]]:
        """The statement of a commit, and its values."""
        (thread_id, branch, id_, base, lane, kind, label, run, next_, created, metadata, manifest, crc, payload, blobs,
         key, epoch, release, changes) = commit  # fmt: skip
        digests, data = [list(column) for column in zip(*blobs, strict=True)] if blobs else (None, None)
        values = (
            self._tenant, self.durability == "strict", thread_id, branch, id_, base, lane,
            _KINDS[kind], label, run, next_, created, metadata, manifest,
            crc, payload, key, epoch, None if epoch is None else self._my_owner(), release,
            dead, digests, data,
        )  # fmt: skip
        if not changes:
            return _COMMIT, values
        # The changes stand first in the statement, the arguments of clew.commit behind them.
        statement, of_changes = postgres_call(_COMMIT_AND, self._tenant, split(changes)[0])
        return statement, (*of_changes, *values)

    def apply(
        self, thread_id: str, changes: Sequence[Change | Entry], *, branch: str = "main", epoch: int | None = None
    ) -> list[Any]:
        calls, entries = split(changes)
        statement, values = postgres_call(_APPLY, self._tenant, calls)
        then = self._writer(thread_id, entries, epoch)
        mine = None if epoch is None else self._my_owner()
        strict = self.durability == "strict"
        try:
            now = time.time_ns() // 1000
            asked = (*values, self._tenant, strict, thread_id, now, branch, epoch, mine)
            return in_order(changes, self._engine.call(statement, asked, then)[2:])
        except psycopg.Error as error:
            if error.sqlstate == "KL004":
                raise fenced(branch, thread_id) from None
            raise clew_error(error) from error
        except (psycopg_pool.PoolTimeout, UnicodeError) as error:
            raise clew_error(error) from error

    def _place_at_once(self, placing: Placing) -> Committed | None:
        return place_at_once(self._engine, self._tenant, placing)

    def _admit_at_once(self, thread_id: str, new: NewRun, beside: Sequence[Beside]) -> RunRow | None:
        return admit_at_once(self._engine, self._tenant, thread_id, new, beside)

    def _writer(self, thread_id: str, entries: Sequence[Entry], epoch: int | None) -> Then | None:
        """Writes entries behind the statement that has locked the thread, whose row begins with (thread, step)."""
        if not entries:
            return None

        def then(connection: Connection, row: Row) -> None:
            thread, step = row[:2]
            run = self._run(connection)
            write_entries(run, self._tenant, thread, thread_id, entries, step=step, epoch=epoch, connection=connection)

        return then

    def _dead_owner(self, commit: Commit) -> int | None:
        """The owner of the branch, if it has one and that is dead before its time; `Busy` if it lives."""
        with self._reading() as run:
            thread = run("thread", thread_id=commit.thread_id)
            ref = thread and run("ref", thread=thread[0][0], name=commit.branch)
        owner = ref[0][4:] if ref else (None,)
        live = self._live(owner, Lease(commit.thread_id, commit.branch, ref[0][3]) if ref else None)
        if live is not None:
            raise busy(commit.branch, commit.thread_id, live)
        return None if owner[0] is None else int(owner[0])

    # Upkeep.

    def shrink(self, limit: int) -> int:
        """Plain VACUUM, which gives back free space at the end of tables. Only the owner of the tables may; else 0."""
        if limit <= 0:
            return 0
        with translated():
            if not self._engine.call(_MAY_VACUUM, ())[0]:
                return 0
            before = int(self._engine.call(_SPACE, ())[0])
            with self._engine.connection() as connection:
                connection.execute(
                    b"VACUUM clew.thread, clew.ref, clew.checkpoint, clew.payload, clew.chunk, clew.record,"
                    b" clew.blob, clew.blob_use"
                )
            return max(0, before - int(self._engine.call(_SPACE, ())[0]))

    def close(self) -> None:
        """Close the engine, for all of its tenants."""
        self._engine.close()
