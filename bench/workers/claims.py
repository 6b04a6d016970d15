"""What a claim costs, behind 1, 10,000 and 1,000,000 runs that are over, with 10,000 in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

import psycopg

import clew
from bench.timing import percentile
from clew.storage.ledger import ledger_of

QUEUED = 10_000
_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
_THREADS = """INSERT INTO thread (tenant, id, created, updated) {numbers}SELECT {tenant}, 't' || n.i, n.i, n.i FROM n"""
_OVER = """INSERT INTO run (tenant, id, thread, branch, agent, status, attempts, created, updated)
{numbers}SELECT {tenant}, 'over-' || n.i, (SELECT min(thread) FROM thread), 'main', 'noop', 'done', 1, n.i, n.i
FROM n"""
_QUEUE = """INSERT INTO run (tenant, id, thread, branch, agent, status, created, updated, wake, grace)
SELECT {tenant}, 'queued-' || t.thread, t.thread, 'main', 'noop', 'queued', t.thread, t.thread, t.thread, 1
FROM thread t"""


class Claims(NamedTuple):
    where: str
    history: int
    p50: float
    p99: float
    """In milliseconds."""


def measure(url: str, admin: str | None, where: str, histories: tuple[int, ...], count: int) -> Iterator[Claims]:
    """Claims behind longer and longer histories, in one database."""
    with clew.open(url) as db:
        tenant = db._storage._tenant  # type: ignore[attr-defined]
        fill(db, admin, _THREADS.format(numbers=_numbers(admin, QUEUED), tenant=tenant))
        fill(db, admin, _QUEUE.format(tenant=tenant))
        there = 0
        for history in histories:
            more = _OVER.format(numbers=_numbers(admin, history - there), tenant=tenant)
            fill(db, admin, more.replace("'over-' || n.i", f"'over-{history}-' || n.i"))
            there = history
            ledger = ledger_of(db._storage)
            times = []
            for _ in range(count):
                began = perf_counter_ns()
                claimed = ledger.claim_runs(["noop"])
                times.append(perf_counter_ns() - began)
                assert len(claimed) == 1
            yield Claims(where, history, percentile(times, 0.5) / 1000, percentile(times, 0.99) / 1000)


def _numbers(admin: str | None, count: int) -> str:
    # PostgreSQL counts to a million faster than it recurses.
    if admin is not None:
        return f"WITH n (i) AS (SELECT * FROM generate_series(1, {count})) "
    return _NUMBERS.format(count=count)


def fill(db: clew.Database, admin: str | None, statement: str) -> None:
    """Rows behind Clew's back."""
    engine: Any = db._engine
    if admin is None:
        with engine.transaction() as execute:
            execute(statement)
        return
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(b"SET search_path = clew")
        connection.execute(statement.encode())
        connection.execute(b"VACUUM ANALYZE clew.run, clew.thread")
