"""Where the tests of the ledger run: a database per backend, processes on it, and time that passes without waiting."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import clew
from clew.storage.ledger import Ask, Move, NewEffect, NewRequest, NewRun, Start
from clew.storage.ledger_relational import RelationalLedger
from clew.storage.port import Storage
from clew.testing.postgres import TestDatabase
from clew.testing.storage_steps import change

TIMES = (("run", "wake"), ("request", "expires"), ("wait", "expires"), ("notice", "due"))
"""What the database's clock is compared with."""
_NEXT = count(1)
DAY = 86_400_000_000


@dataclass
class Place:
    """One database. `url` opens it; `admin_url` (PostgreSQL) is that of a role which no policy confines."""

    url: str
    admin_url: str | None = None

    def open(self, tenant: str = "default") -> clew.Database:
        return clew.open(self.url, tenant=tenant, durability="relaxed")

    def execute(self, db: clew.Database, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run SQL behind the ledger's back."""
        if self.admin_url is not None:
            with psycopg.connect(self.admin_url, autocommit=True) as connection:
                connection.execute("SET search_path = clew")
                cursor = connection.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        with db._engine.transaction() as execute:
            return list(execute(statement, values).fetchall())

    def let_pass(self, db: clew.Database, microseconds: int) -> None:
        """Time passes: whatever is due or expires does so this much earlier."""
        for table, column in TIMES:
            self.execute(db, f"UPDATE {table} SET {column} = {column} - ?", microseconds)


def make(backend: str, tmp_path: Path, postgres: TestDatabase | None) -> Place:
    if backend == "memory":
        return Place("memory:")
    if backend == "file":
        return Place(str(tmp_path / "ledger.db"))
    assert postgres is not None
    return Place(postgres.url, postgres.admin_url)


def ledger_of(db: clew.Database) -> RelationalLedger:
    return RelationalLedger(db._storage)  # type: ignore[arg-type]


def new_run(name: str | None = None, **other: Any) -> NewRun:
    return NewRun(**{"id": name or f"run-{next(_NEXT)}", "branch": "main", "agent": "trip", **other})


def new_effect(key: str = "charge", **other: Any) -> NewEffect:
    return NewEffect(**{"key": key, "name": "charge", "args": b"420", "token": f"token-{next(_NEXT)}", **other})


def new_request(ask: str = "book", **other: Any) -> NewRequest:
    given = {"activation": "a1", "ask": ask, "digest": b"digest", "question": b"Book?", "run": None, "step": 1}
    return NewRequest(**{**given, **other})


def grown(storage: Storage, thread_id: str = "trip") -> None:
    """A thread of one step."""
    storage.commit(change(thread_id=thread_id))


def waiting(ledger: RelationalLedger, run: str = "r1", thread_id: str = "trip", **request: Any) -> int:
    """A run that waits for one request; the request's number."""
    ledger.apply(thread_id, [Start(new_run(run)), Ask(new_request(run=run, **request))])
    number = ledger.requests(thread_id=thread_id)[-1].number
    ledger.apply(thread_id, [Move(run, "waiting", requests=[number])])
    return number


def start(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """Another process, which begins when it is told a line."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def race(code: str, times: int, *arguments: Any) -> list[str]:
    """What so many processes print that run the same code at once."""
    racers = [start(code, number, *arguments) for number in range(times)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [racer.communicate(timeout=60)[0] for racer in racers]


def pages(read: Any, key: Any, limit: int = 2) -> Iterator[Any]:
    """All rows that `read(after, limit)` gives, page by page."""
    after = None
    while page := read(after, limit):
        assert len(page) <= limit
        yield from page
        after = key(page[-1])
