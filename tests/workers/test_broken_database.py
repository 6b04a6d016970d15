"""PostgreSQL restarts, loses its connections, and is cut off, while workers drive: nothing is lost, nothing doubled."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import procrastinate
import psycopg
import pytest
from crews import ERRANDS, Crew, until, verdict
from errands import Outside, errand
from procrastinate.schema import SchemaManager

import clew
from clew.adapters.procrastinate import RunQueue
from clew.errors import StorageError
from clew.testing.postgres import Server
from clew.testing.proxy import Proxy

QUEUE_ERRANDS = Path(__file__).with_name("queue_errands.py")


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


class Ground(NamedTuple):
    """A server behind a proxy, workers, and whoever submits to them."""

    server: Server
    proxy: Proxy
    outside: Outside
    crew: Crew
    db: clew.Database
    submit: Callable[..., clew.Run]

    def go(self, count: int, wanted: int) -> tuple[list[clew.Run], list[str]]:
        """Submit so many runs and let so many faults happen, until all runs are over; what was acknowledged."""
        faults = Faults(self.server, self.proxy)
        acknowledged: list[clew.Run] = []
        for n in range(count):
            acknowledged.append(self.one(n, count // 5))
            if n % 5 == 4 and len(faults.done) < wanted:
                faults.next()
        while len(faults.done) < wanted:
            time.sleep(random.uniform(0, 0.2))
            faults.next()
            self.crew.tend()
        self.proxy.disarm()
        left = list(acknowledged)

        def over() -> bool:
            self.crew.tend()
            while left and persistent(lambda: left[-1].status) in ("done", "failed", "cancelled", "dead"):
                left.pop()
            return not left

        until(over)
        return acknowledged, faults.done

    def one(self, n: int, threads: int) -> clew.Run:
        given = f"thread-{n % threads}", {"name": f"e{n}"}
        submitted: clew.Run = persistent(lambda: self.submit(*given, key=f"k{n}"))
        return submitted


@contextmanager
def broken(server: Server, path: Path, kind: str, how: str = "mixed") -> Iterator[Ground]:
    """The runs are of an agent or of a graph, or driven by procrastinate.

    Of the workers, some call again when a connection is lost, and some let the run go: another stretch begins then.
    """
    outside = Outside(path)
    agent, script = errand(outside, graph=kind == "graph"), ERRANDS
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.socket))
        url = proxy.url(server.url())
        clew.open(server.url()).close()
        db = stack.enter_context(clew.open(url))
        submit = partial(db.submit, agent)
        if kind == "procrastinate":
            app = make_queue(server.url(), url)
            submit, script = partial(RunQueue(app, db, [agent]).submit, agent), QUEUE_ERRANDS
        crew = stack.enter_context(Crew(3, url, path, f"strict {how} {kind}", script=script).ready())
        yield Ground(server, proxy, outside, crew, db, submit)


def make_queue(owner_url: str, url: str) -> procrastinate.App:
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(SchemaManager.get_schema().encode())
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))


@pytest.mark.parametrize("kind", ["agent", "graph", "procrastinate"])
def test_a_hundred_faults_under_load(postgres_server, tmp_path, long, kind):
    """In the short form, a dozen."""
    count, wanted = (600, 100) if long else (60, 12)
    with broken(postgres_server, tmp_path / "outside", kind) as ground:
        runs, faults = ground.go(count, wanted)
        told = persistent(lambda: verdict(ground.db, runs, ground.outside, count // 5))
        assert told == {}, (told, faults)
        assert len({run.id for run in runs}) == count


def test_the_control_does_things_twice(postgres_server, tmp_path):
    """Effects that are plain calls: what was done when the connection went is done again."""
    with broken(postgres_server, tmp_path / "outside", "agent", "careless impatient") as ground:
        faults, names = Faults(postgres_server, ground.proxy), itertools.count()

        def twice() -> bool:
            for name in itertools.islice(names, 5):
                ground.one(name, 12)
            faults.next()
            until(lambda: len(set(ground.outside.done())) == 2 * (name + 1))
            return len(ground.outside.done()) > 2 * (name + 1)

        until(twice)


def test_the_control_loses_what_is_not_synced(postgres_server):
    """Without synchronous commits, a run that was acknowledged is gone after a crash."""
    agent = errand(Outside("unused"))
    for durability, left in (("strict", 1), ("relaxed", 0)):
        postgres_server.halt()
        postgres_server.run({"wal_writer_delay": "10s"})
        with clew.open(postgres_server.url(), durability=durability) as db:
            run = persistent(lambda db=db: db.submit(agent, "t", {"name": "e"}))
            postgres_server.restart()
            assert len([one for one in persistent(db.runs) if one.id == run.id]) == left
