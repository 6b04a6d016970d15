"""Where the tests of items run: a database per backend, and a way to let time pass without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import clew
from clew.testing.postgres import TestDatabase

_NEXT = count()
AGE = "UPDATE item SET expires = expires - ?"


@dataclass
class Place:
    """One database. `url` opens it; `admin_url` (PostgreSQL) is that of a role which no policy confines."""

    url: str
    admin_url: str | None = None
    memory: clew.Database | None = None

    def open(self, tenant: str = "default") -> clew.Database:
        if self.url == "memory:":
            self.memory = self.memory or clew.open("memory:")
            return self.memory.tenant(tenant)
        return clew.open(self.url, tenant=tenant, durability="relaxed")

    def new_tenant(self) -> str:
        """A name that nobody has used."""
        return f"tenant-{next(_NEXT)}"

    def execute(self, db: clew.Database, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run SQL behind the store's back."""
        if self.admin_url is not None:
            with psycopg.connect(self.admin_url, autocommit=True) as connection:
                connection.execute("SET search_path = clew")
                cursor = connection.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        with db._engine.transaction() as execute:
            return list(execute(statement, values).fetchall())

    def let_pass(self, db: clew.Database, seconds: float) -> None:
        """Time passes: whatever expires does so this much earlier."""
        self.execute(db, AGE, int(seconds * 1_000_000))


def make(backend: str, tmp_path: Path, postgres: TestDatabase | None) -> Place:
    if backend == "memory":
        return Place("memory:")
    if backend == "file":
        return Place(str(tmp_path / "items.db"))
    assert postgres is not None
    return Place(postgres.url, postgres.admin_url)
