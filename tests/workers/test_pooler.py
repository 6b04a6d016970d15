"""Workers behind a pooler that gives out a session for each transaction: it forgets what was listened to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from crews import Crew, all_over, submit, until, verdict
from errands import Outside, errand
from test_worker import noting

import clew
from clew.testing.pooler import Pooler
from clew.testing.postgres import Databases, Server


@pytest.fixture(params=[False, True], ids=["last-used", "in-turns"])
def pooler(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[Pooler]:
    with Pooler(postgres_server.socket, in_turns=request.param) as pooler:
        yield pooler


@pytest.fixture
def direct(postgres_server: Server) -> str:
    return Databases(postgres_server.url()).make().url


@pytest.fixture
def pooled(pooler: Pooler, direct: str) -> str:
    return pooler.url(direct)


def test_a_worker_knows_whether_it_hears(pooled: str, direct: str) -> None:
    """Behind the pooler nothing comes. It polls, and sees in a second what somebody else has submitted."""
    for url, hears in ((direct, True), (pooled, False)):
        with clew.open(url) as db, clew.Worker(db, noting()) as worker:
            until(lambda: worker._bell is not None and worker._bell.hears is not None)
            assert worker._bell.hears is hears
            with clew.open(direct) as other:
                run = other.submit(noting(), f"t {hears}", {"log": []})
                until(lambda: run.status == "done", patience=1.9 if hears else 1.4)


def test_the_control_a_session_hears_itself(postgres_server: Server, direct: str) -> None:
    """So whoever sends the word over the connection that listens learns nothing."""
    with Pooler(postgres_server.socket) as pooler:
        connect = partial(psycopg.connect, pooler.url(direct), autocommit=True)
        with connect() as listener, connect() as another:
            listener.execute("LISTEN here")
            listener.execute("SELECT pg_notify('here', 'mine')")
            assert [notice.payload for notice in listener.notifies(timeout=2, stop_after=1)] == ["mine"]
            another.execute("SELECT pg_notify('here', 'another')")
            assert list(listener.notifies(timeout=0.5)) == []


def test_a_killed_crew_behind_it(pooled: str, pooler: Pooler, tmp_path: Path, long: bool) -> None:
    count, outside = 300 if long else 40, Outside(tmp_path / "outside")
    with clew.open(pooled, durability="relaxed") as db, Crew(3, pooled, tmp_path / "outside") as crew:
        runs = submit(db, errand(outside), count, count // 5)
        over = all_over(runs)
        while not over() or crew.kills < 3:
            time.sleep(0.5)
            crew.kill_one()
        assert verdict(db, runs, outside, count // 5) == {}
        assert pooler.served > 5 * count
