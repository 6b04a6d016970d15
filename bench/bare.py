"""The least that any program must do to keep the same bytes: what our times are compared with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import psycopg

WAL_PAGES = 2000
Bytes = tuple[bytes, bytes]
"""What one step stores: the checkpoint's row beside its payload, and the payload."""


class BareSqlite:
    """One transaction, two rows, two integer keys; our settings. Nothing is encoded, looked up or checked."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.connection = apsw.Connection(str(path))
        for setting in ("page_size = 4096", "auto_vacuum = INCREMENTAL", "journal_mode = WAL"):
            self.connection.execute(f"PRAGMA {setting}").fetchall()
        self.connection.execute(f"PRAGMA synchronous = {synchronous}").fetchall()
        self.connection.wal_autocheckpoint(WAL_PAGES)
        self.connection.execute(
            "CREATE TABLE checkpoint (key INTEGER PRIMARY KEY, manifest BLOB NOT NULL);"
            "CREATE TABLE payload (key INTEGER PRIMARY KEY, data BLOB NOT NULL)"
        )
        self.execute = self.connection.cursor().execute
        self._key = 0

    def write(self, rows: Bytes) -> None:
        self._key += 1
        execute = self.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO checkpoint VALUES (?, ?)", (self._key, rows[0]))
        execute("INSERT INTO payload VALUES (?, ?)", (self._key, rows[1]))
        execute("COMMIT")

    def close(self) -> None:
        self.connection.close()


class BarePostgres:
    """One prepared insert of one row, in autocommit, into a table without row-level security."""

    def __init__(self, url: str, *, synchronous: bool) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.connection.execute(f"SET synchronous_commit = {'on' if synchronous else 'off'}".encode())
        self._execute = self.connection.cursor(binary=True).execute

    def write(self, rows: Bytes) -> None:
        self._execute("INSERT INTO bare.step (data) VALUES (%b)", (rows[0] + rows[1],))

    def close(self) -> None:
        self.connection.close()


CREATE_BARE = (
    "CREATE SCHEMA bare",
    "CREATE TABLE bare.step (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea NOT NULL)",
    "ALTER TABLE bare.step ALTER COLUMN data SET STORAGE EXTERNAL",
    "GRANT USAGE ON SCHEMA bare TO {}",
    "GRANT INSERT ON bare.step TO {}",
)


def sqlite_row_bytes(path: Path) -> tuple[int, int]:
    """The bytes of the values of the newest checkpoint row (keys and counters included) and of its payload row."""
    found = _one(
        path,
        "SELECT 36 + octet_length(id) + octet_length(manifest) + coalesce(octet_length(metadata), 0), "
        "(SELECT octet_length(data) FROM payload ORDER BY key DESC LIMIT 1) FROM checkpoint ORDER BY key DESC LIMIT 1",
    )
    return int(found[0]), int(found[1])


def _one(path: Path, query: str) -> tuple[Any, ...]:
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    try:
        return tuple(connection.execute(query).fetchall()[0])
    finally:
        connection.close()


def filler(sizes: tuple[int, int]) -> Bytes:
    """Rows of these sizes that no page can be shared for."""
    return os.urandom(sizes[0]), os.urandom(sizes[1])
