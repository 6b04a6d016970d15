"""The inbox: pages of requests in order, filters, and what a page costs when ten thousand wait."""

from __future__ import annotations

import json

import pytest
from ledgers import DAY, Place, ledger_of, new_run

import clew
from clew.errors import BadInput, BadName
from clew.state.codec import encode
from clew.storage.ledger import Start, Withdraw
from clew.storage.ledger_relational import RelationalLedger
from clew.storage.ledger_rows import Seal, request_place
from clew.storage.statements import queries

MANY = 10_000


def ids(page):
    return [request.id for request in page]


def everything(db, **which):
    """All pages, of two each."""
    found, cursor = [], None
    while True:
        page = db.requests(limit=2, cursor=cursor, **which)
        assert len(page) <= 2
        found += ids(page)
        if page.cursor is None:
            return found
        assert len(page) == 2
        cursor = page.cursor


def test_filters_and_pages(db, ask, place):
    ledger = ledger_of(db)
    ledger.apply("tour", [Start(new_run("r1")), Start(new_run("r2", branch="b"))])
    for number in range(1, 8):
        ask(
            ask=f"q{number}",
            thread="tour" if number % 2 else "trip",
            run="r1" if number % 2 else None,
            assignee="ann" if number < 5 else None,
        )
    db.request(2).approve(by="ann")
    ledger.apply("tour", [Withdraw([3])])
    ask(ask="late", expires=1)
    place.let_pass(db, DAY)
    assert everything(db) == ["R-1", "R-4", "R-5", "R-6", "R-7"]
    assert everything(db, status=None) == [f"R-{number}" for number in range(1, 9)]
    assert everything(db, status="answered") == ["R-2"]
    assert everything(db, status="withdrawn") == ["R-3"]
    assert everything(db, status="expired") == ["R-8"]
    assert everything(db, assignee="ann") == ["R-1", "R-4"]
    assert everything(db, assignee="ann", status=None) == ["R-1", "R-2", "R-3", "R-4"]
    assert everything(db, thread="tour") == everything(db, thread=db.thread("tour")) == ["R-1", "R-5", "R-7"]
    assert everything(db, run="r1") == everything(db, run="r1", thread="tour") == ["R-1", "R-5", "R-7"]
    assert everything(db, run="r1", assignee="ann") == ["R-1"]
    assert everything(db, run="r2") == everything(db, run="none") == everything(db, thread="none") == []


def test_a_page_goes_on_where_it_ended_whatever_happens_between(db, ask):
    for number in range(5):
        ask(ask=f"q{number}")
    page = db.requests(limit=2)
    page[1].approve(by="ann")
    db.request(3).approve(by="ann")
    assert ids(db.requests(limit=2, cursor=page.cursor)) == ["R-4", "R-5"]
    assert ids(db.requests(limit=5)) == ["R-1", "R-4", "R-5"]


def test_what_cannot_be_listed(db, ask):
    ask()
    for cursor in ("x", "", "WyJ1cGRhdGVkIiwgMV0=", 7, "W10="):
        with pytest.raises(BadInput, match="cursor"):
            db.requests(cursor=cursor)
    with pytest.raises(BadInput, match="status is one of open, answered"):
        db.requests(status="closed")
    for limit in (0, -1, True, "3"):
        with pytest.raises(BadInput, match="limit"):
            db.requests(limit=limit)
    with pytest.raises(BadName):
        db.requests(thread=7)


COPIED = "tenant, number, thread, branch, activation, ask, digest, assignee, approvals, created, status, question"
PERSON = "'p' || (n.number - n.number / 100 * 100)"
COPY = f"r.tenant, n.number, r.thread, r.branch, r.activation, 'a' || n.number, r.digest, {PERSON}, 1, 1"


@pytest.fixture
def crowded(db: clew.Database, ask, place: Place) -> clew.Database:
    """One that is asked first, as many that are answered, and as many that are open."""
    ask(schema=None)
    ((tenant,),) = place.execute(db, "SELECT tenant FROM request")
    numbers = [2 + MANY + n for n in range(MANY)]
    sealed = [Seal(tenant).close(request_place("trip", number), encode("Go on?")) for number in numbers]
    many = "WITH RECURSIVE n(number) AS (VALUES (2) UNION ALL SELECT number + 1 FROM n WHERE number <= ?)"
    insert = f"INSERT INTO request ({COPIED}) SELECT {COPY}"
    place.execute(db, f"{many} {insert}, 'answered', r.question FROM request r, n WHERE r.number = 1", MANY)
    if place.admin_url is None:
        rows = json.dumps([[number, data.hex()] for number, data in zip(numbers, sealed, strict=True)])
        read = "SELECT value ->> 0 AS number, unhex(value ->> 1) AS question FROM json_each(?)"
        place.execute(db, f"{insert}, 'open', n.question FROM request r, ({read}) n WHERE r.number = 1", rows)
    else:
        read = "unnest(?::bigint[], ?::bytea[]) AS n(number, question)"
        place.execute(db, f"{insert}, 'open', n.question FROM request r, {read} WHERE r.number = 1", numbers, sealed)
    place.execute(db, "ANALYZE request")
    return db


def plan(db: clew.Database, place: Place, name: str, **values: object) -> str:
    """How the database finds what a query asks for, as the tenant that asks."""
    storage = db._rows
    if place.admin_url is None:
        with db._engine.transaction() as execute:
            statement = "EXPLAIN QUERY PLAN " + queries("sqlite")[name]
            rows = execute(statement, {"tenant": storage._tenant, "stamp": 1, **values}).fetchall()
            return "\n".join(row[3] for row in rows)
    with storage._writing(None), db._engine.transaction(*storage._read) as connection:
        statement = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + queries("postgres")[name]
        return "\n".join(
            row[0] for row in connection.execute(statement.encode(), {"tenant": storage._tenant, **values})
        )


def test_a_page_of_ten_thousand_is_one_query_over_an_index(crowded, place, monkeypatch):
    asked: list[str] = []
    reading = RelationalLedger._reading

    def counted(ledger):
        asked.append("query")
        return reading(ledger)

    monkeypatch.setattr(RelationalLedger, "_reading", counted)
    first, last = MANY + 2, 2 * MANY + 1
    page = crowded.requests(limit=50)
    assert ids(page) == ["R-1", *(f"R-{n}" for n in range(first, first + 49))]
    near_the_end = crowded.requests(limit=MANY - 20).cursor
    assert ids(crowded.requests(limit=50, cursor=near_the_end)) == [f"R-{n}" for n in range(last - 20, last + 1)]
    assert ids(crowded.requests(assignee="p7", limit=2)) == [f"R-{MANY + 7}", f"R-{MANY + 107}"]
    assert len(asked) == 4, "one query each"
    values = {"status": "open", "thread_id": None, "run": None, "assignee": "p7", "limit": 51}
    for name, index in (("requests_open", "request_status"), ("requests_open_of_assignee", "request_assignee")):
        for after in (0, first + MANY // 2):
            found = plan(crowded, place, name, after=after, **values)
            assert index in found, found
            for slow in ("SCAN q", "TEMP B-TREE", "Seq Scan on request", "Sort", "Removed by Filter"):
                assert slow not in found, found
