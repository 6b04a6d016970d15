"""Workers on PostgreSQL are told of what they may not know of, and not of every run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from crews import until

import clew
from clew.storage.queue import Beside
from clew.submitting import submit
from clew.testing.postgres import TestDatabase

LONG = 20.0


def agent(name: str) -> clew.Agent:
    made = clew.Agent(name)
    made.node(lambda _: {"done": True}, name="only")
    return made


@pytest.fixture
def db(postgres: TestDatabase) -> Iterator[clew.Database]:
    with clew.open(postgres.url) as database:
        yield database


class Ear:
    """Listens as a worker does."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("LISTEN clew_due")

    def heard(self) -> int:
        """How often it was told since it was asked last. Its own word comes after all that was sent before."""
        self._connection.execute("SELECT pg_notify('clew_due', 'enough')")
        count = 0
        for notice in self._connection.notifies():
            if notice.payload == "enough":
                break
            count += not notice.payload.startswith("hello")  # what a worker sends itself
        return count


@pytest.fixture
def ear(postgres: TestDatabase) -> Ear:
    return Ear(postgres.url)


def test_only_the_first_that_is_due_is_told_of(db: clew.Database, ear: Ear) -> None:
    trip, chat = agent("trip"), agent("chat")
    for number in range(5):
        db.submit(trip, f"t{number}")
    assert ear.heard() == 1
    db.submit(chat, "c")
    assert ear.heard() == 1  # whoever serves only that agent has heard of none
    db.submit(trip, "urgent", priority=7)
    assert ear.heard() == 1  # who has places for one more only, takes it first
    db.submit(trip, "t0")
    assert ear.heard() == 0  # it stands in line
    clew.Worker(db, [trip, chat]).run(until_idle=True)
    ear.heard()
    db.submit(trip, "again")
    assert ear.heard() == 1


def test_one_that_nobody_has_taken_for_long_keeps_nobody_from_being_told(
    db: clew.Database, ear: Ear, postgres: TestDatabase
) -> None:
    trip = agent("trip")
    db.submit(trip, "left")
    with psycopg.connect(postgres.admin_url) as admin:
        admin.execute("UPDATE clew.run SET wake = wake - 60000000")
    ear.heard()
    db.submit(trip, "new")
    assert ear.heard() == 1


def test_what_nobody_was_told_of_is_found(db: clew.Database, ear: Ear, postgres: TestDatabase) -> None:
    """It is admitted while another one is due, and can be seen only after that was taken."""
    trip = agent("trip")
    first = db.submit(trip, "first")
    admitted, go_on = threading.Event(), threading.Event()

    def slowly(_: Any) -> None:
        admitted.set()
        assert go_on.wait(LONG)

    def late() -> None:
        with clew.open(postgres.url) as other:
            submit(other, other._room.ledger, trip, "late", beside=lambda _: Beside(slowly))

    thread = threading.Thread(target=late)
    thread.start()
    assert admitted.wait(LONG)
    ear.heard()
    worker = clew.Worker(db, [trip]).start()
    try:
        until(lambda: first.status == "done")
        go_on.set()
        thread.join(LONG)
        assert ear.heard() == 0
        (run,) = db.runs(thread="late")
        until(lambda: run.status == "done")
    finally:
        go_on.set()
        worker.stop()
