"""Runs that wait for a place in their group: whoever frees one calls the next, whatever happens at the same time."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from crews import until

import clew
from clew.runtime.executor import Terms, execute, held_of
from clew.storage.ledger import RunRow, ledger_of
from clew.storage.queue import Limits
from clew.testing.postgres import TestDatabase

ONE = Limits(group=1)


def agent() -> clew.Agent:
    made = clew.Agent("trip")
    made.node(lambda _: {"done": True}, name="only")
    return made


def claimed(db: clew.Database) -> list[RunRow]:
    return ledger_of(db._storage).claim_runs(["trip"], count=9, limits=ONE)


def drive(db: clew.Database, row: RunRow) -> None:
    held = held_of(db, agent(), row, terms=Terms())
    assert held is not None
    assert execute(held) == "done"


def drive_all(db: clew.Database) -> list[str]:
    """One after the other, until nothing can be claimed; their ids."""
    driven = []
    while rows := claimed(db):
        for row in rows:
            drive(db, row)
            driven.append(row.id)
    return driven


def test_one_of_greater_priority_comes_while_the_first_of_a_line_waits_for_its_group(db: Any) -> None:
    db.submit(agent(), "elsewhere", group="g")
    (first,) = claimed(db)
    waits = db.submit(agent(), "t", group="g")
    assert claimed(db) == []
    urgent = db.submit(agent(), "t", priority=5)
    drive(db, first)
    assert drive_all(db) == [urgent.id, waits.id]


def test_one_of_greater_priority_is_behind_it_already(db: Any) -> None:
    db.submit(agent(), "elsewhere", group="g")
    (first,) = claimed(db)
    waits = db.submit(agent(), "t", group="g")
    urgent = db.submit(agent(), "t", priority=5)
    rows = claimed(db)
    drive(db, first)
    for row in rows:
        drive(db, row)
    assert [row.id for row in rows] + drive_all(db) == [urgent.id, waits.id]


def test_the_first_of_a_line_is_cancelled_while_it_waits_for_its_group(db: Any) -> None:
    db.submit(agent(), "elsewhere", group="g")
    (first,) = claimed(db)
    waits = db.submit(agent(), "t", group="g")
    assert claimed(db) == []
    behind = db.submit(agent(), "t")
    waits.cancel()
    assert drive_all(db) == [behind.id]
    drive(db, first)


def test_the_thread_of_one_that_was_left_is_deleted(shared_url: str) -> None:
    with clew.open(shared_url) as db:
        db.submit(agent(), "elsewhere", group="g")
        other = clew.open(shared_url)
        assert len(claimed(other)) == 1
        waits = db.submit(agent(), "t", group="g")
        assert claimed(db) == []
        other.close()  # it leaves as if it had been killed
        db.delete("elsewhere")
        assert drive_all(db) == [waits.id]


def test_the_place_is_freed_while_somebody_finds_it_taken(postgres: TestDatabase) -> None:
    with clew.open(postgres.url) as db, clew.open(postgres.url) as other, psycopg.connect(postgres.admin_url) as slow:
        db.submit(agent(), "elsewhere", group="g")
        (first,) = claimed(db)
        waits = db.submit(agent(), "t", group="g")
        # The end of the first one, as a commit whose disk is slow.
        slow.execute("SELECT clew.enter(%s, false)", (db._storage._tenant,))
        slow.execute(
            "SELECT clew.end_run(t.tenant, t.thread, NULL, %s, 0) FROM clew.thread t WHERE t.id = 'elsewhere'",
            (first.id,),
        )
        found: list[RunRow] = []
        claims = threading.Thread(target=lambda: found.extend(claimed(other)))
        claims.start()

        def over_or_waiting() -> bool:
            with psycopg.connect(postgres.admin_url) as asks:
                waiting = asks.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            return waiting != (0,) or not claims.is_alive()

        until(over_or_waiting)
        slow.commit()
        claims.join()
        assert [row.id for row in found or claimed(other)] == [waits.id]
