"""Runs a second, and the time from submit to done, of four worker processes on one PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

import clew
from bench.timing import percentile
from bench.workers.contenders import QUEUE, VERSION, WORKFLOW, agent

WORKERS = 4
SUBMITTERS = 8
"""Threads that submit, so that submitting is not what is measured."""


class Through(NamedTuple):
    name: str
    each_second: float
    p50: float
    p99: float
    """From submit to done, in milliseconds, with runs submitted one by one, each after the last one was done."""


@contextmanager
def crew(*arguments: str, numbered: tuple[str, ...] = ()) -> Iterator[list[subprocess.Popen[str]]]:
    """Worker processes that are ready."""
    command = [sys.executable, "-m", "bench.workers.contenders", *arguments]
    extra = [[str(n), *numbered] if numbered else [] for n in range(WORKERS)]
    workers = [
        subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for more in extra
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def tell(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


def until(done: Callable[[], bool], every: float = 0.002) -> None:
    """Ask again and again: often for one run, seldom for many, so that asking is not what is measured."""
    deadline = time.monotonic() + 600
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError("it does not come to an end")
        time.sleep(every)


def of_clew(url: str, admin: str, runs: int, single: int) -> Through:
    with clew.open(url) as db, crew("clew", url) as workers:
        tell(workers)
        made = agent()
        for n in range(20):  # warm
            db.submit(made, f"warm{n}", {"n": 0})

        def counted(prefix: str) -> list[tuple[int, int]]:
            with psycopg.connect(admin, autocommit=True) as connection:
                return connection.execute(
                    "SELECT r.created, r.updated FROM clew.run r JOIN clew.thread t USING (tenant, thread)"
                    " WHERE r.status = 'done' AND t.id LIKE %s",
                    (f"{prefix}%",),
                ).fetchall()

        until(lambda: len(counted("warm")) == 20)
        times = []
        for n in range(single):
            began = time.perf_counter_ns()
            run = db.submit(made, f"single{n}", {"n": 0})
            until(lambda run=run: run.status == "done")
            times.append(time.perf_counter_ns() - began)
        with ThreadPoolExecutor(SUBMITTERS) as submitters:
            list(submitters.map(lambda n: db.submit(made, f"t{n}", {"n": 0}), range(runs)))
        with psycopg.connect(admin, autocommit=True) as connection:
            left = "SELECT EXISTS (SELECT FROM clew.run WHERE status = 'queued' OR status = 'running')"
            until(lambda: connection.execute(left).fetchone() == (False,), every=0.1)
        spans = counted("t")
        assert len(spans) == runs
        took = (max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e6
    return _through("Clew", runs / took, times)


def of_dbos(url: str, runs: int, single: int) -> Through:
    from dbos import DBOSClient

    with crew("dbos", url) as workers:
        tell(workers)
        client = DBOSClient(system_database_url=url.replace("postgresql://", "postgresql+psycopg://"))
        options: Any = {"queue_name": QUEUE, "workflow_name": WORKFLOW, "app_version": VERSION}
        for handle in [client.enqueue(options, 0) for _ in range(20)]:
            handle.get_result()
        times = []
        for _ in range(single):
            began = time.perf_counter_ns()
            handle = client.enqueue(options, 0)
            until(lambda handle=handle: handle.get_status().status == "SUCCESS")
            times.append(time.perf_counter_ns() - began)
        began = time.perf_counter()
        with ThreadPoolExecutor(SUBMITTERS) as submitters:
            handles = list(submitters.map(lambda n: client.enqueue(options, n), range(runs)))

        def left() -> bool:
            return not client.list_workflows(status=["PENDING", "ENQUEUED"], limit=1)

        until(left, every=0.1)
        took = time.perf_counter() - began
        assert handles[-1].get_result() == runs + 2
    return _through("DBOS", runs / took, times)


def of_langgraph(url: str, runs: int) -> Through:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    with crew("langgraph", url, numbered=(str(WORKERS), str(runs))) as workers:
        began = time.perf_counter()
        tell(workers)
        told = [worker.communicate()[0].split() for worker in workers]
        took = time.perf_counter() - began
    times = [int(float(second) * 1e9) for seconds in told for second in seconds]
    assert len(times) == runs
    return _through("LangGraph + PostgresSaver", runs / took, times)


def _through(name: str, each_second: float, times: list[int]) -> Through:
    return Through(name, each_second, percentile(times, 0.5) / 1000, percentile(times, 0.99) / 1000)
