"""Processes that run an agent on one database, and what a fault test does behind their backs."""

from __future__ import annotations

from typing import Any

import apsw
import psycopg

import clew


class Ground:
    """A database that other processes use: `url` opens it, `admin` (PostgreSQL) may look at everything."""

    def __init__(self, url: str, admin: str | None) -> None:
        self.url = url
        self._admin = admin

    @property
    def on_postgres(self) -> bool:
        return self._admin is not None

    def open(self) -> clew.Database:
        return clew.open(self.url, durability="relaxed")

    def execute(self, statement: str) -> list[Any]:
        """SQL behind Clew's back."""
        if self._admin is not None:
            with psycopg.connect(self._admin, autocommit=True) as connection:
                connection.execute(b"SET search_path = clew")
                cursor = connection.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []
        with self.open() as db, db._engine.transaction() as execute:  # type: ignore[union-attr]
            return list(execute(statement).fetchall())

    def silence(self) -> None:
        """Every process that holds a lease has been silent for too long."""
        self.execute("UPDATE owner SET expires = 0")

    def free(self) -> bool:
        """Whether nobody holds a lock on it."""
        if self._admin is not None:
            found = self.execute("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
            return bool(found[0][0] == 0)
        connection = apsw.Connection(self.url)
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
        except apsw.BusyError:
            return False
        finally:
            connection.close(force=True)
        return True
