"""`scripts/bench workers [--quick] [--output FILE]`: claims, and workers beside DBOS and LangGraph."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import machine
from bench.workers import claims, contenders, throughput
from clew.testing.postgres import Databases, Server

_CLAIM_MS = 5.0
_TIMES = 2.0


def lines(*, quick: bool) -> Iterator[str]:
    yield "# Workers\n"
    with tempfile.TemporaryDirectory() as folder:
        told = machine.describe(Path(folder))
    yield "Written by `scripts/bench workers`. " + "; ".join(f"{name}: {what}" for name, what in told.items()) + ".\n"
    histories, count = ((1, 10_000), 100) if quick else ((1, 10_000, 1_000_000), 1000)
    runs, single, rounds = (200, 20, 1) if quick else (4000, 200, 5)
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, Server.start(memory) as server:
        made = Databases(server.url()).make()
        yield f"## A claim, with {claims.QUEUED:,} runs in the queue\n"
        yield f"Target: p99 at most {_CLAIM_MS:g} ms, whatever the history. Files in memory: a disk adds one sync.\n"
        yield "| database | runs that are over | p50 ms | p99 ms | met |\n|---|--:|--:|--:|---|"
        places = (("SQLite", str(Path(folder) / "claims.db"), None), ("PostgreSQL", made.url, made.admin_url))
        for where, url, admin in places:
            for found in claims.measure(url, admin, where, histories, count):
                met = "yes" if found.p99 <= _CLAIM_MS else "**no**"
                yield f"| {where} | {found.history:,} | {found.p50:.2f} | {found.p99:.2f} | {met} |"
    with Server.start() as server:
        databases = Databases(server.url())
        yield f"\n## An agent of three nodes that do nothing, {throughput.WORKERS} worker processes, PostgreSQL\n"
        yield (
            f"{runs:,} runs submitted at once, {contenders.CONCURRENCY} of them at once in each process; and the"
            f" latency of one at a time. The contenders take turns, on fresh databases; medians of {rounds}, and their"
            f" range. Target: {_TIMES:g} times both.\n"
        )
        yield "| | runs/s | p50 ms | p99 ms | Clew gets through |\n|---|--:|--:|--:|--:|"
        taken = [_turn(databases, runs, single) for _ in range(rounds)]
        for found in zip(*taken, strict=True):
            times = [ours.each_second / peer.each_second for (ours, *_), peer in zip(taken, found, strict=True)]
            ratio = "" if found[0].name == taken[0][0].name else f"{_range(times, '.1f')} times as many"
            p50, p99 = (f"{median(one[at] for one in found):.1f}" for at in (2, 3))
            each_second = _range([one.each_second for one in found], ".0f")
            yield f"| {found[0].name} | {each_second} | {p50} | {p99} | {ratio} |"
        yield "\nDBOS looks at its queue each 50 ms here (its default is a second). LangGraph has no queue: each of its"
        yield "processes invokes its share of the threads, and its times are those of an `invoke`."


def _turn(databases: Databases, runs: int, single: int) -> list[throughput.Through]:
    ours_at = databases.make()
    return [
        throughput.of_clew(ours_at.url, ours_at.admin_url, runs, single),
        throughput.of_dbos(server_database(databases), runs, single),
        throughput.of_langgraph(server_database(databases), runs),
    ]


def _range(figures: Sequence[float], form: str) -> str:
    low, middle, high = (format(figure, form) for figure in (min(figures), median(figures), max(figures)))
    return middle if low == high else f"{middle} ({low} to {high})"


def server_database(databases: Databases) -> str:
    """An empty database for somebody else's tables."""
    return databases.make(empty=True).admin_url


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench workers")
    parser.add_argument("--quick", action="store_true", help="little of everything: whether it works")
    parser.add_argument("--output", type=Path, help="also write the page to this file")
    given = parser.parse_args()
    told = []
    for line in lines(quick=given.quick):
        print(line, flush=True)
        told.append(line)
    if given.output:
        given.output.write_text("\n".join(told) + "\n", "utf-8")


main()
