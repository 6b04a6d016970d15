"""SQLite, in a file or in memory.

Invariants:

1. One connection writes, under one lock that is held from BEGIN to COMMIT or ROLLBACK. Whatever is raised in between
   rolls back before the lock is let go.
2. Snapshots of a file read on connections of their own and never take that lock. In memory there is one connection.
3. Nothing is open between calls: no transaction, no statement. So nothing holds up the write-ahead log.
4. The lost-reply check needs no index: a checkpoint is newer than its base, so only steps given after the base can be
   it, and while the base is the thread's last step there is none.
5. Leases are written without waiting for the disk. They may be lost with the power, but then every owner is dead; and a
   strict commit syncs the whole log, also what was written to it before.
6. At a fork no connection is open: SQLite's record of the locks is per process and would be wrong in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from clew.errors import BadInput, Closed, StorageError
from clew.model import Durability
from clew.storage import sqlite_file
from clew.storage.holding import Holding
from clew.storage.ownership import EXPIRY
from clew.storage.sqlite_file import MEMORY, open_reader, translate
from clew.storage.sqlite_fork import watch_forks
from clew.storage.sqlite_storage import Execute, SqliteStorage
from clew.storage.waking import Bell, FileBell

_IDLE_READERS = 8


class SqliteEngine(Holding):
    """One database file, or one database in memory, shared by the tenants that live in it.

    `durability` is "strict" or "relaxed" for a file (strict when not given); memory is "volatile" whatever is asked.
    """

    def __init__(
        self, path: str | os.PathLike[str], durability: Durability | None = None, *, expiry: float = EXPIRY
    ) -> None:
        name = os.fspath(path)
        self.memory = name in (MEMORY, "memory:")
        self.name = "memory:" if self.memory else name
        """What the database was opened as, for people."""
        self.path = MEMORY if self.memory else str(Path(name).absolute())
        self.durability = _level(name, durability, memory=self.memory)
        self.expiry = int(expiry * 1e9)
        self.lock = threading.RLock()
        self.gate = threading.Lock()
        """Held while a snapshot begins, and all through a fork."""
        self.reading: dict[apsw.Connection, int] = {}
        """Connections with a snapshot open on them, and the threads that read."""
        self._idle: list[apsw.Connection] = []
        self._closed: str | None = None
        self.writer: apsw.Connection | None = None
        self._leaser: apsw.Connection | None = None
        self.execute: Execute = self._first_execute
        self.read_only = False
        """Whether this process may only read the file."""
        self._forget_self()
        with self.lock:
            self.open_writer()
        watch_forks(self)

    def __repr__(self) -> str:
        return f"SqliteEngine({self.path!r}, {self.durability!r})"

    def tenant(self, name: str) -> SqliteStorage:
        """The rows of one tenant, which is created when it is new."""
        select = "SELECT tenant FROM tenant WHERE name = ?"
        with self.reader() as execute:
            found = execute(select, (name,)).fetchall()
        if not found and not self.read_only:
            with self.transaction() as execute:
                execute("INSERT INTO tenant (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
                found = execute(select, (name,)).fetchall()
        return SqliteStorage(self, found[0][0] if found else 0)

    def _bell(self) -> Bell:
        return Bell() if self.memory else FileBell(self.path)

    # Connections.

    def open_writer(self) -> apsw.Connection:
        if self._closed is not None:
            raise Closed(self._closed)
        if self.writer is None:
            try:
                self.writer = sqlite_file.open_writer(self.path, self.durability)
            except apsw.Error as error:
                raise translate(error, self.path) from error
            self.read_only = self.writer.readonly("main")
            # SQLite itself would refuse only the first changed row: not the commit that is a conflict or a replay.
            self.execute = self._refuse if self.read_only else self.writer.cursor().execute
        return self.writer

    def _first_execute(self, *arguments: Any) -> Any:
        """Stands in for the writer's `execute` until there is a writer: after a fork, or a close."""
        self.open_writer()
        return self.execute(*arguments)

    def _refuse(self, *_: Any) -> Any:
        raise translate(apsw.ReadOnlyError(), self.path)

    def _next_reader(self) -> apsw.Connection:
        if self._closed is not None:
            raise Closed(self._closed)
        return self._idle.pop() if self._idle else open_reader(self.path)

    def _give_reader(self, reader: apsw.Connection) -> None:
        if self._closed is None and len(self._idle) < _IDLE_READERS and not reader.in_transaction:
            self._idle.append(reader)
        else:
            reader.close()
        self.reading.pop(reader, None)

    @contextmanager
    def reader(self) -> Iterator[Execute]:
        """A read transaction: what it sees is fixed by its first statement."""
        if self.memory:
            with self.transaction(begin="BEGIN") as execute:
                yield execute
            return
        reader: apsw.Connection | None = None
        try:
            with self.gate:
                reader = self._next_reader()
                self.reading[reader] = threading.get_ident()
            execute = reader.cursor().execute
            execute("BEGIN")
            yield execute
        except apsw.Error as error:
            raise translate(error, self.path) from error
        finally:
            if reader is not None:
                if reader.in_transaction:
                    reader.execute("ROLLBACK")
                self._give_reader(reader)

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE", *, leasing: bool = False) -> Iterator[Execute]:
        """A write transaction. With `leasing` its end does not wait for the disk."""
        with self.lock:
            yield from self._transaction(begin, leasing=leasing)

    def _transaction(self, begin: str, *, leasing: bool) -> Iterator[Execute]:
        connection = self.open_writer()
        if leasing and self.durability == "strict":
            connection = self._open_leaser()
        self.refuse_nesting(connection)
        execute = self._refuse if self.read_only else connection.cursor().execute
        try:
            execute(begin)
            yield execute
            execute("COMMIT")
        except BaseException as error:
            self.undo(connection)
            if isinstance(error, apsw.Error):
                raise translate(error, self.path) from error
            raise

    def _open_leaser(self) -> apsw.Connection:
        if self._leaser is None:
            try:
                self._leaser = sqlite_file.open_writer(self.path, "relaxed")
            except apsw.Error as error:
                raise translate(error, self.path) from error
        return self._leaser

    def refuse_nesting(self, connection: apsw.Connection) -> None:
        """The lock admits its own thread again, so that this can be told instead of hanging."""
        if connection.in_transaction:
            raise StorageError("this thread is in a transaction of this database already", hint="leave it first")

    def undo(self, connection: apsw.Connection | None = None) -> None:
        """Leave the transaction, whatever has happened to it. The caller holds the lock."""
        connection = connection or self.writer
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.cursor().execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot even roll back is given up; closing it rolls back.
            self._discard(connection)

    def _discard(self, connection: apsw.Connection) -> None:
        if self.memory:
            return
        if connection is self.writer:
            self.writer, self.execute = None, self._first_execute
        elif connection is self._leaser:
            self._leaser = None
        connection.close(force=True)

    def _rows(self, tenant: int) -> SqliteStorage:
        return SqliteStorage(self, tenant)

    # Ends.

    def disconnect(self) -> None:
        """Close every idle connection; the next use opens them again. The caller holds the lock and the gate."""
        if self.memory:
            return
        while self._idle:
            self._idle.pop().close()
        for connection in (self._leaser, self.writer):
            if connection is not None and not connection.in_transaction:
                self._discard(connection)

    def open_connections(self) -> list[apsw.Connection]:
        """The connections to a file that are open now."""
        if self.memory:
            return []
        one = [connection for connection in (self._leaser, self.writer) if connection is not None]
        return [*one, *self._idle, *self.reading]

    def begin_child(self, *, usable: bool) -> None:
        """In the child of a fork: nothing of the parent's locks, leases or identity is ours."""
        self.lock = threading.RLock()
        self.gate = threading.Lock()
        self.reading = {}
        self._forget_self()
        if not usable:
            self._closed = f"{self.path}: this process was forked inside a snapshot or a transaction of it"

    def close(self) -> None:
        """Release this process's leases and close the database. Closing again does nothing."""
        if self._closed is not None:
            return
        self._release_all()
        with self.lock, self.gate:
            self._closed = f"{self.path} is closed"
            while self._idle:
                self._idle.pop().close()
            for connection in (self._leaser, self.writer):
                if connection is not None:
                    connection.close(force=True)
            self._leaser = self.writer = None
            self.execute = self._first_execute


def _level(name: str, asked: Durability | None, *, memory: bool) -> Durability:
    if memory:
        return "volatile"
    if asked not in (None, "strict", "relaxed"):
        raise BadInput(f"{name}: durability is 'strict' or 'relaxed', not {asked!r}")
    return asked or "strict"
