"""PostgreSQL restarts, loses its connections, and is cut off, while workers drive: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from crews import Crew, until, verdict
from errands import Outside, errand

import clew
from clew.errors import StorageError
from clew.testing.postgres import Server
from clew.testing.proxy import Proxy


def persistent(call: Callable[[], Any]) -> Any:
    """As a caller does it: again, while the database says that it may be tried again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except StorageError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Faults:
    """One fault after the other."""

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self._server = server
        self._proxy = proxy
        self.done: list[str] = []

    def next(self) -> None:
        name = random.choice(["restart", "terminate", "terminate", "cut", "cut", "cut"])
        getattr(self, name)()
        self.done.append(name)

    def restart(self) -> None:
        self._server.restart()

    def terminate(self) -> None:
        """All connections but this one."""
        with suppress(psycopg.OperationalError), psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(
                b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                b" AND backend_type = 'client backend'"
            )

    def cut(self) -> None:
        self._proxy.cut(random.choice(["request", "reply"]), random.randrange(4000))


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


def test_a_hundred_faults_under_load(postgres_server, outside, tmp_path, long):
    """In the short form, a dozen."""
    count, faults_wanted = (600, 100) if long else (60, 12)
    agent, threads = errand(outside), count // 5
    with Proxy(postgres_server.socket) as proxy:
        url = proxy.url(postgres_server.url())
        with (
            clew.open(postgres_server.url()),
            clew.open(url) as db,
            Crew(3, url, tmp_path / "outside", "strict").ready(),
        ):
            faults = Faults(postgres_server, proxy)
            acknowledged: list[clew.Run] = []
            for n in range(count):
                given = {"name": f"e{n}"}
                submit = lambda n=n, given=given: db.submit(agent, f"thread-{n % threads}", given, key=f"k{n}")  # noqa: E731
                acknowledged.append(persistent(submit))
                if n % 5 == 4 and len(faults.done) < faults_wanted:
                    faults.next()
            while len(faults.done) < faults_wanted:
                time.sleep(random.uniform(0, 0.2))
                faults.next()
            proxy.disarm()
            left = list(acknowledged)

            def over() -> bool:
                while left and persistent(lambda: left[-1].status) in ("done", "failed", "cancelled", "dead"):
                    left.pop()
                return not left

            until(over)
            told = persistent(lambda: verdict(db, acknowledged, outside, threads))
            assert told == {}, (told, faults.done)
            assert len({run.id for run in acknowledged}) == count
