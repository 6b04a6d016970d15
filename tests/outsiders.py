"""Processes that run an agent on one database, and what a fault test does behind their backs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import apsw
import psycopg

import clew
from clew.errors import Fenced


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


def pull_down(storage: Any) -> None:
    """A negative control: what this storage refuses because the lease has passed on is written without one."""
    branch, commit, apply = storage._branch, storage.commit, storage.apply

    def branch_anyway(run: Any, thread_id: str, name: str, epoch: int | None) -> Any:
        return _anyway(lambda epoch: branch(run, thread_id, name, epoch), epoch)

    def commit_anyway(given: Any) -> Any:
        return _anyway(lambda epoch: commit(given._replace(epoch=epoch)), given.epoch)

    def apply_anyway(*given: Any, branch: str = "main", epoch: int | None = None) -> Any:
        return _anyway(lambda epoch: apply(*given, branch=branch, epoch=epoch), epoch)

    storage._branch, storage.commit, storage.apply = branch_anyway, commit_anyway, apply_anyway


def _anyway(write: Callable[[int | None], Any], epoch: int | None) -> Any:
    try:
        return write(epoch)
    except Fenced:
        logging.warning("written without its lease")
        return write(None)
