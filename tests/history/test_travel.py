"""Forks, copies, names and references, and what each of them costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import clew
from clew.errors import (
    BadInput,
    BadName,
    BadReference,
    Closed,
    Conflict,
    NameTaken,
    RefNotFound,
    ThreadNotFound,
    TooLarge,
    Unserialisable,
)

LARGE = {"messages": [{"role": "user", "content": f"{number} " + "x" * 1000} for number in range(300)]}


TABLES = ("thread", "checkpoint", "payload", "chunk", "ref", "record", "blob", "blob_use")


@pytest.fixture
def rows(db: clew.Database, url: str, request: pytest.FixtureRequest) -> Callable[[], dict[str, int]]:
    """How many rows each table has."""
    if url.startswith("postgresql"):
        admin = request.getfixturevalue("postgres").admin_url

        def count() -> dict[str, int]:
            with psycopg.connect(admin) as connection:
                found = [
                    connection.execute(f"SELECT count(*) FROM clew.{table}".encode()).fetchone() for table in TABLES
                ]
            return {table: row[0] for table, row in zip(TABLES, found, strict=True) if row}

        return count

    def count_here() -> dict[str, int]:
        with db._engine.transaction() as execute:
            return {table: execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in TABLES}

    return count_here


@pytest.fixture
def thread(db: clew.Database) -> clew.Thread:
    thread = db.thread("trip")
    for city in ("Tokyo", "Osaka", "Kyoto"):
        thread.save({"city": city}, label=city)
    return thread


@pytest.mark.parametrize("state", [{"small": 1}, LARGE], ids=["small", "large"])
def test_a_fork_is_one_row_whatever_the_state_weighs(db: clew.Database, rows: Any, state: dict[str, Any]) -> None:
    thread = db.thread("trip")
    thread.save(state)
    before = rows()
    forked = thread.fork("head", branch="other")
    assert {table: count - before[table] for table, count in rows().items() if count != before[table]} == {"ref": 1}
    assert forked.state() == state


def test_a_fork_with_a_change_is_one_checkpoint_that_costs_the_change(db: clew.Database) -> None:
    thread = db.thread("trip")
    thread.save(LARGE)
    before = db.usage()
    forked = thread.fork("head", branch="other", update={"city": "Osaka"})
    after = db.usage()
    assert after.payload_bytes + after.checkpoint_bytes - before.payload_bytes - before.checkpoint_bytes < 2000
    assert forked.state() == {**LARGE, "city": "Osaka"}
    assert thread.state() == LARGE
    assert forked.head is not None
    assert (forked.head.kind, forked.head.parent) == ("fork", 1)


def test_a_copy_is_apart_from_its_source(db: clew.Database, thread: clew.Thread) -> None:
    copied = thread.copy("~1", to="other")
    db.delete("trip")
    assert copied.state() == {"city": "Osaka"}
    assert copied.checkpoint().metadata == {"copied_from": "trip@2"}
    with pytest.raises(Conflict):
        copied.copy("head", to="other")


def test_references_in_their_order(thread: clew.Thread) -> None:
    thread.fork("~1", branch="osaka")
    thread.tag("first", 1)
    head = thread.checkpoint()
    found = {
        "head": 3, "~0": 3, "~": 2, "~2": 1, "2": 2, "osaka": 2, "osaka~1": 1, "first": 1, "main": 3, head.id[:8]: 3,
        head.id: 3,
    }  # fmt: skip
    assert {ref: thread.checkpoint(ref).step for ref in found} == found
    assert thread.checkpoint(2).step == 2
    assert thread.checkpoint(head).step == 3


@pytest.mark.parametrize(
    ("ref", "error", "told"),
    [
        ("osak", RefNotFound, "'osaka'"),
        ("frist", RefNotFound, "'first'"),
        ("haed", RefNotFound, "'head'"),
        (9, RefNotFound, "'2' or '3'"),
        ("~7", RefNotFound, "only 2 before it"),
        (0, BadReference, "steps count from 1"),
        ("a@b", BadReference, "a reference is"),
        ("", BadReference, "a reference is"),
        (None, BadReference, "NoneType"),
        (1.0, BadReference, "float"),
        ("x" * 600, BadReference, "a reference is"),
        ("a\0b", BadReference, "a reference is"),
    ],
)
def test_a_wrong_reference_names_the_nearest(thread: clew.Thread, ref: Any, error: Any, told: str) -> None:
    thread.fork("~1", branch="osaka")
    thread.tag("first", 1)
    for read in (thread.state, thread.checkpoint, thread.rewind, thread.diff, lambda at: thread.fork(at, branch="b")):
        with pytest.raises(error) as caught:
            read(ref)
        assert told in str(caught.value)
    assert thread.branches == {"main": 3, "osaka": 2}


def test_a_thread_that_is_not_there(db: clew.Database) -> None:
    thread = db.thread("none")
    assert thread.state() == {}
    assert thread.head is None
    assert thread.history() == []
    for read in (lambda: thread.state(1), lambda: thread.fork("head", branch="b"), lambda: thread.branches):
        with pytest.raises(ThreadNotFound):
            read()
    assert list(db.threads()) == []


def test_names_that_are_taken_or_cannot_be(thread: clew.Thread) -> None:
    thread.tag("first", 1)
    for taken in ("main", "first"):
        with pytest.raises(NameTaken):
            thread.fork("head", branch=taken)
        with pytest.raises(NameTaken):
            thread.tag(taken, 2)
    for bad in ("7", "head", "a~1", "a@b", "a:b", "", " a", "a\n", "x" * 300):
        with pytest.raises(BadName):
            thread.fork("head", branch=bad)
        with pytest.raises(BadName):
            thread.tag(bad)
    assert thread.tags == {"first": 1}
    assert thread.branches == {"main": 3}


class Socket:
    """Of no known type."""


@pytest.mark.parametrize(
    ("state", "error", "told"),
    [
        ({"messages": [{"args": {"when": Socket()}}]}, Unserialisable, "messages[0].args.when"),
        ({"a": lambda: None}, Unserialisable, "a"),
        ({"a": [1, {"b": object()}]}, Unserialisable, "a[1].b"),
        ({"a": (item for item in ())}, Unserialisable, "generator"),
        (["not a dict"], BadInput, "dict"),
        (None, BadInput, "dict"),
        ({1: "key"}, BadInput, "1"),
    ],
    ids=["an object", "a function", "deeper", "a generator", "a list", "nothing", "a number as key"],
)
def test_what_cannot_be_saved_says_where_it_is_and_loses_nothing(
    thread: clew.Thread, state: Any, error: Any, told: str
) -> None:
    with pytest.raises(error) as caught:
        thread.save(state, parent="head")
    assert told in str(caught.value)
    assert thread.state() == {"city": "Kyoto"}
    assert thread.save({"city": "Nara"}).step == 4


def test_a_state_that_refers_to_itself_is_refused(thread: clew.Thread) -> None:
    loop: dict[str, Any] = {"city": "Nara"}
    loop["again"] = [loop]
    with pytest.raises((Unserialisable, TooLarge)) as caught:
        thread.save(loop, parent="head")
    assert "again" in str(caught.value)
    assert thread.state() == {"city": "Kyoto"}


def test_a_closed_database_says_so(db: clew.Database, thread: clew.Thread) -> None:
    db.close()
    for call in (thread.state, thread.history, lambda: thread.save({}, parent="head"), lambda: db.threads()):
        with pytest.raises(Closed, match="open it again"):
            call()


def test_what_is_said_with_a_checkpoint_is_checked(thread: clew.Thread) -> None:
    for bad in ({"label": 7}, {"label": "x" * 70_000}, {"metadata": ["no"]}, {"key": ""}, {"key": 3}):
        with pytest.raises(BadInput):
            thread.save({"city": "Nara"}, parent="head", **bad)  # type: ignore[arg-type]
    assert thread.checkpoint().step == 3


def test_a_key_is_one_checkpoint(db: clew.Database, thread: clew.Thread) -> None:
    first = thread.save({"city": "Nara"}, key="event-1")
    again = db.thread("trip").save({"city": "Nara"}, key="event-1", parent=3)
    assert again.id == first.id
    assert [checkpoint.step for checkpoint in thread.history()] == [4, 3, 2, 1]


def test_a_rewind_erases_nothing(thread: clew.Thread) -> None:
    thread.rewind(1)
    thread.save({"city": "Nara"}, parent="head")
    assert thread.state(3) == {"city": "Kyoto"}
    assert thread.tips == {"main.was.3": 3}
    assert [checkpoint.step for checkpoint in thread.history()] == [4, 1]


def test_pages_of_a_history_meet(thread: clew.Thread) -> None:
    for number in range(20):
        thread.save({"number": number})
    whole = [checkpoint.step for checkpoint in thread.history()]
    pages, before = [], None
    while page := thread.history(limit=6, before=before):
        pages += [checkpoint.step for checkpoint in page]
        before = page[-1]
    assert pages == whole == list(range(23, 0, -1))
