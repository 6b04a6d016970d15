"""Looking at runs: pages, what is known of one, what somebody may have to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import clew
from clew.errors import BadInput, BadName, RunNotFound


def agents() -> tuple[clew.Agent, clew.Agent]:
    trip, broken = clew.Agent("trip"), clew.Agent("broken")

    @trip.node(start=True, then="ask")
    def plan(state: Any) -> Any:
        return {"plan": "three days"}

    @trip.node
    def ask(state: Any) -> Any:
        return {"paid": clew.ask("Book?", schema=bool)}

    @broken.node
    def look(state: Any) -> Any:
        if "flight" not in state:
            raise LookupError("no such flight")

    return trip, broken


@pytest.fixture
def three(db: clew.Database) -> list[clew.Run]:
    """One that is done, one that has failed, one that waits; the oldest first."""
    trip, broken = agents()
    done = trip.run(db.thread("a"))
    done.requests[0].answer(True, by="alice")
    trip.resume(db.thread("a"))
    with pytest.raises(LookupError):
        broken.run(db.thread("b"))
    return [done, db.runs(thread="b")[0], trip.run(db.thread("c"), key="order-7")]


def test_the_newest_is_first(db: clew.Database, three: list[clew.Run]) -> None:
    assert list(db.runs()) == three[::-1]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"status": "failed"}, [1]),
        ({"status": "sleeping"}, []),
        ({"thread": "a"}, [0]),
        ({"agent": "trip"}, [2, 0]),
        ({"agent": "trip", "status": "done"}, [0]),
        ({"agent": "nobody"}, []),
    ],
)
def test_filters(db: clew.Database, three: list[clew.Run], filters: dict[str, Any], found: list[int]) -> None:
    assert list(db.runs(**filters)) == [three[place] for place in found]


@pytest.mark.parametrize("filters", [{}, {"agent": "trip"}, {"thread": "c"}, {"status": "waiting"}])
def test_pages_are_the_whole_in_pieces(db: clew.Database, three: list[clew.Run], filters: dict[str, Any]) -> None:
    whole = list(db.runs(**filters))
    found: list[clew.Run] = []
    cursor = None
    while True:
        page = db.runs(**filters, limit=1, cursor=cursor)
        assert len(page) <= 1
        found += page
        cursor = page.cursor
        if cursor is None:
            break
    assert found == whole


def test_a_page_goes_on_from_where_it_ended(db: clew.Database, three: list[clew.Run]) -> None:
    first = db.runs(limit=1)
    newer = agents()[0].run(db.thread("d"))
    assert list(db.runs(cursor=first.cursor)) == three[1::-1]
    db.delete(first[0].thread)
    with pytest.raises(BadInput, match="is gone"):
        db.runs(cursor=first.cursor)
    assert newer in list(db.runs())


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ({"status": "finished"}, BadInput),
        ({"limit": 0}, BadInput),
        ({"cursor": "nonsense"}, BadInput),
        ({"cursor": "WyJyZXF1ZXN0cyIsIDFd"}, BadInput),
        ({"thread": ""}, BadName),
    ],
)
def test_what_makes_no_sense_is_refused(db: clew.Database, filters: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        db.runs(**filters)


@pytest.mark.parametrize("name", ["run-none", "", "\0", "x" * 10_000])
def test_there_is_no_such_run(db: clew.Database, name: str) -> None:
    with pytest.raises(RunNotFound, match="there is no run"):
        db.run(name)


def test_what_is_known_of_a_run(db: clew.Database, three: list[clew.Run]) -> None:
    done, failed, waiting = (db.run(run.id).info for run in three)
    assert (done.agent, done.thread_id, done.branch, done.status) == ("trip", "a", "main", "done")
    assert (done.input_step, done.step, done.attempts, done.crashes) == (1, 3, 2, 0)
    assert (str(failed.error), waiting.error) == ("LookupError: no such flight", None)
    assert (waiting.key, waiting.due_at, waiting.wanted) == ("order-7", None, None)
    assert done.created_at <= done.updated_at <= datetime.now(UTC)
    told = failed.as_json()
    assert told["thread"] == "b"
    assert told["error"]["type_name"] == "LookupError"
    assert told["created_at"] == failed.created_at.isoformat()


def test_what_was_listed_is_not_read_again_but_the_rest_is(db: clew.Database, three: list[clew.Run]) -> None:
    (listed,) = db.runs(status="waiting")
    db.run(listed.id).cancel()
    assert listed.info.status == "waiting"
    assert listed.status == "cancelled"
    assert listed.info.status == "cancelled"


def test_where_a_run_stands_while_it_waits(db: clew.Database, three: list[clew.Run]) -> None:
    waiting = three[2]
    assert waiting.step == 2
    assert waiting.state == {"plan": "three days"}


def test_an_overview_counts_what_is_to_be_looked_at(
    db: clew.Database, three: list[clew.Run], let_pass: Callable[[int], None]
) -> None:
    assert db.overview() == clew.Overview({"failed": 1, "waiting": 1}, due=0, left=0, requests=1)
    three[2].requests[0].answer(True, by="alice")
    assert db.overview() == clew.Overview({"failed": 1, "waiting": 1}, due=1, left=0, requests=0)

    @clew.agent
    def late(state: Any) -> Any:
        return {"seat": clew.ask("Seat?", schema=str, expires=60, default="aisle")}

    late.run(db.thread("d"))
    assert db.overview().requests == 1
    let_pass(61)
    assert db.overview() == clew.Overview({"failed": 1, "waiting": 2}, due=2, left=0, requests=0)
    assert db.tenant("bob").overview() == clew.Overview({}, due=0, left=0, requests=0)


def test_the_same_awaited() -> None:
    async def work() -> None:
        async with clew.aio.open("memory:") as db:
            agent = clew.aio.Agent.of(agents()[0])
            run = await agent.run(db.thread("a"))
            assert list(await db.runs(thread=db.thread("a"), agent="trip")) == [run]
            assert run.info.status == "waiting"
            assert (await db.overview()).requests == 1

    asyncio.run(work())
