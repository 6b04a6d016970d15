"""Runs driven by procrastinate: its jobs may be lost, late or there twice, and every run is done, once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from crews import Crew, all_over, submit, verdict
from errands import Outside, errand

import clew
from clew.errors import BadInput, Busy, StorageError
from clew.testing.faults import in_child
from clew.testing.postgres import TestDatabase


@pytest.fixture
def queue_url(postgres: TestDatabase) -> str:
    """A database with procrastinate's tables in it, which Clew's role may use."""
    from procrastinate.schema import SchemaManager

    with psycopg.connect(postgres.admin_url, autocommit=True) as connection:
        connection.execute("SET search_path = public")
        connection.execute(SchemaManager.get_schema().encode())
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC")
        connection.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO PUBLIC")
    return postgres.url


DUE = "SELECT 1 FROM procrastinate_jobs WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())"


class Shop:
    """A program: its database, an agent that counts how often it runs, and procrastinate's app."""

    def __init__(self, url: str) -> None:
        import procrastinate

        from clew.adapters.procrastinate import RunQueue

        self.db = clew.open(url, durability="relaxed")
        self.ran: list[str] = []
        self.broken: list[str] = []
        self.agent = clew.Agent("shop")

        @self.agent.node(start=True)
        def buy(state: Any) -> Any:
            self.ran.append(state["what"])
            if state["what"] in self.broken:
                raise ValueError("sold out")
            return {"log": [*state.get("log", []), state["what"]]}

        connector = procrastinate.PsycopgConnector(conninfo=url)
        self.app = procrastinate.App(connector=connector)
        # The sweep is due once a year: tests that want one ask for it.
        self.queue = RunQueue(
            self.app, self.db, [self.agent], sweep="0 0 1 1 *", retry=clew.Retry(attempts=2, delay=600)
        )

    def work(self, *, sweeps: bool = False) -> None:
        """Work until procrastinate has no more jobs."""

        async def main() -> None:
            async with self.app.open_async():
                if sweeps:
                    await self.app.configure_task("clew.sweep").defer_async(timestamp=0)
                # It ends once there is no job to begin with: those that are under way may make another.
                while await self.app.connector.execute_query_all_async(DUE):
                    await self.app.run_worker_async(wait=False, install_signal_handlers=False, concurrency=4)

        asyncio.run(main())

    def submit(self, what: str, thread: str = "t", **options: Any) -> clew.Run:
        return self.queue.submit(self.agent, thread, {"what": what}, **options)


@pytest.fixture
def shop(queue_url: str) -> Any:
    made = Shop(queue_url)
    yield made
    made.db.close()


def jobs(
    postgres: TestDatabase, statement: str = "SELECT args ->> 'run' FROM procrastinate_jobs WHERE status = 'todo'"
) -> list[Any]:
    with psycopg.connect(postgres.admin_url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def test_the_run_and_its_job_are_one_transaction(shop: Any, postgres: TestDatabase) -> None:
    run = shop.submit("tea", key="order-1")
    assert (run.status, jobs(postgres)) == ("queued", [run.id])
    assert jobs(postgres, "SELECT args::text FROM procrastinate_jobs") == [f'{{"run": "{run.id}"}}']
    assert shop.submit("tea", key="order-1").id == run.id
    with pytest.raises(Busy):
        shop.submit("more", if_busy="reject")
    assert jobs(postgres) == [run.id]
    jobs(postgres, "ALTER TABLE procrastinate_jobs ADD CONSTRAINT none CHECK (id < 0) NOT VALID")
    with pytest.raises((StorageError, psycopg.Error)):
        shop.submit("cake", "u")
    assert [one.id for one in shop.db.runs()] == [run.id]


def test_it_is_driven(shop: Any, postgres: TestDatabase) -> None:
    run = shop.submit("tea")
    shop.work()
    assert (run.status, run.state["log"], shop.ran) == ("done", ["tea"], ["tea"])
    assert jobs(postgres) == []


def test_a_line_goes_on_by_itself(shop: Any) -> None:
    """Jobs of runs whose turn it was not yet have done nothing: whoever ends a run makes new ones."""
    runs = [shop.submit(what) for what in ("tea", "milk", "sugar")]
    shop.work()
    assert [run.status for run in runs] == ["done", "done", "done"]
    assert shop.ran == ["tea", "milk", "sugar"]


def test_a_lost_job_costs_latency(shop: Any, postgres: TestDatabase) -> None:
    run = shop.submit("tea")
    jobs(postgres, "DELETE FROM procrastinate_jobs")
    shop.work()
    assert run.status == "queued"
    shop.work(sweeps=True)
    assert (run.status, shop.ran) == ("done", ["tea"])


def test_sweeps_make_one_job_for_each_run(shop: Any, postgres: TestDatabase) -> None:
    runs = [shop.submit("tea", f"t{number}") for number in range(3)]
    jobs(postgres, "DELETE FROM procrastinate_jobs WHERE id = (SELECT min(id) FROM procrastinate_jobs)")

    async def sweep() -> None:
        async with shop.app.open_async():
            for _ in range(3):
                await shop.queue._sweep(0)

    asyncio.run(sweep())
    assert sorted(jobs(postgres)) == sorted(run.id for run in runs)


def test_a_job_that_is_there_twice_runs_nothing_twice(shop: Any, postgres: TestDatabase) -> None:
    shop.broken.append("wine")
    columns = "queue_name, task_name, args"
    double = f"INSERT INTO procrastinate_jobs ({columns}) SELECT {columns} FROM procrastinate_jobs"
    run, failing = shop.submit("tea"), shop.submit("wine", "u")
    jobs(postgres, double)
    shop.work()
    jobs(postgres, double)
    shop.work()
    assert (run.status, shop.ran.count("tea")) == ("done", 1)
    # It pauses for ten minutes before its second attempt. No job shortens that.
    assert (failing.status, shop.ran.count("wine")) == ("sleeping", 1)


def test_a_run_at_a_time_to_come(shop: Any, postgres: TestDatabase) -> None:
    run = shop.submit("tea", at=timedelta(hours=1))
    shop.work()
    assert run.status == "queued"
    (due,) = jobs(
        postgres, "SELECT extract(epoch FROM scheduled_at - now())::int FROM procrastinate_jobs WHERE status = 'todo'"
    )
    assert 3500 < due <= 3600
    jobs(postgres, "UPDATE procrastinate_jobs SET scheduled_at = now()")  # a clock that is ahead
    shop.work()
    assert (run.status, shop.ran) == ("queued", [])


def test_a_run_that_was_left_comes_back(shop: Any, queue_url: str) -> None:
    run = shop.submit("tea")
    shop.db.close()

    def die(tell: Any) -> None:
        other = Shop(queue_url)
        other.broken = type("Dies", (list,), {"__contains__": lambda *_: os.kill(os.getpid(), signal.SIGKILL)})()
        other.work()

    assert in_child(die).killed_by == signal.SIGKILL
    after = Shop(queue_url)
    with after.db:
        after.work(sweeps=True)
        again = after.db.run(run.id)
        assert (again.status, again.info.attempts, after.ran) == ("done", 2, ["tea"])


def test_what_it_does_not_serve(shop: Any, tmp_path: Path) -> None:
    from clew.adapters.procrastinate import RunQueue

    with pytest.raises(BadInput, match="serves no agent"):
        shop.queue.submit(clew.Agent("other"), "t", {})
    with clew.open(str(tmp_path / "file.db")) as db, pytest.raises(BadInput, match="PostgreSQL"):
        RunQueue(shop.app, db, [shop.agent])


def test_killed_every_half_second(queue_url: str, tmp_path: Path, long: bool) -> None:
    """Three procrastinate workers, a random one killed each half second."""
    from procrastinate import App, PsycopgConnector

    from clew.adapters.procrastinate import RunQueue

    count = 300 if long else 40
    outside = Outside(tmp_path / "outside")
    script = Path(__file__).with_name("queue_errands.py")
    with clew.open(queue_url, durability="relaxed") as db:
        queue = RunQueue(App(connector=PsycopgConnector(conninfo=queue_url)), db, [errand(outside)])
        with Crew(3, queue_url, tmp_path / "outside", script=script) as crew:
            runs = submit(queue, errand(outside), count, count // 5)
            over = all_over(runs)
            while not over() or crew.kills < 3:
                time.sleep(0.5)
                crew.kill_one()
        assert verdict(db, runs, outside, count // 5) == {}
