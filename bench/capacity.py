"""What one machine gets done: runs of three nodes that do nothing, submitted here and driven by worker processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import clew
from bench.ground import Ground
from bench.rows import Row, shown, spent
from bench.working import agent

BENCH = "capacity"
ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 600.0
ENDED = ("done", "failed", "cancelled", "dead")


def capacity(ground: Ground) -> Iterator[Row]:
    """Throughput of a burst by the number of workers, and how long a lone run takes from its submit to its end."""
    burst, lone = (40, 10) if ground.sizes.quick else (2000, 300)
    for workers in (1, 2) if ground.sizes.quick else (1, 2, 4):
        yield from _measured(ground, "SQLite", str(ground.file()), workers, burst, lone)
        place = ground.postgres.database()
        yield from _measured(ground, "PostgreSQL", place.application, workers, burst, lone)
        if workers == 1:
            weight = ground.postgres.weigh(place) - ground.postgres.weigh(ground.postgres.database())
            yield Row(BENCH, "PostgreSQL: bytes of a run with its thread", weight / (burst + lone) / 1000, "KB")
        ground.postgres.drop(place)


def _measured(ground: Ground, backend: str, url: str, workers: int, burst: int, lone: int) -> Iterator[Row]:
    with clew.open(url) as db, _crew(url, workers):
        begun = time.perf_counter()
        runs = [db.submit(agent(), f"burst-{number}", {"count": 0}) for number in range(burst)]
        accepted = time.perf_counter() - begun
        _until_done(runs)
        done = time.perf_counter() - begun
        crew = f"{workers} worker{'s' * (workers > 1)}"
        detail = f"{burst} runs on as many threads; accepted in {accepted:.2f} s, all done after {done:.2f} s"
        yield Row(BENCH, f"{backend}, strict: {crew}", burst / done, "runs/s", detail=detail)
        times = []
        for number in range(lone):
            run = db.submit(agent(), f"lone-{number}", {"count": 0})
            _until_done([run])
            took = run.info.updated_at - run.info.created_at
            times.append(round(took.total_seconds() * 1e9))
        yield Row(
            BENCH,
            f"{backend}, strict: {crew}, from the submit of a lone run to its end",
            spent(times)["p50_us"] / 1000,
            "ms",
            detail=f"{shown(times)} (p50 / p99 / mean), by the database's clock",
            numbers=spent(times),
        )
    if backend == "SQLite":
        size = ground.discard(Path(url))
        if workers == 1:
            yield Row(BENCH, "SQLite: bytes of a run with its thread", size / (burst + lone) / 1000, "KB")


@contextmanager
def _crew(url: str, size: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.working", url]
    crew = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(size)]
    try:
        for worker in crew:
            assert worker.stdout is not None
            worker.stdout.readline()
        yield
    finally:
        for worker in crew:
            worker.terminate()
        for worker in crew:
            worker.wait()


def _until_done(runs: Sequence[clew.Run]) -> None:
    left = list(runs)
    deadline = time.monotonic() + PATIENCE
    while left:
        if left[-1].status in ENDED:
            left.pop()
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} runs are not done")
        else:
            time.sleep(0.002)
