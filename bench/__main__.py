"""Run the benchmarks: `scripts/bench [--quick] [--only NAME]… [--json] [--output FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import machine, report
from bench.capacity import capacity
from bench.ground import FULL, QUICK, Ground
from bench.langgraph_rows import langgraph
from bench.peers import peers
from bench.pruning import prune
from bench.reading import history, latest
from bench.rows import Row
from bench.runtime import runtime
from bench.space import space
from bench.writing import growth, saves

BENCHES: dict[str, Callable[[Ground], Iterator[Row]]] = {
    bench.__name__: bench
    for bench in (space, saves, growth, latest, history, prune, peers, langgraph, runtime, capacity)
}
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main() -> int:
    options = _options()
    chosen = options.only or list(BENCHES)
    begun = time.monotonic()
    broken = False
    rows: list[Row] = []
    with Ground(QUICK if options.quick else FULL, options.directory) as ground:
        told = machine.describe(ground.directory)
        for name in chosen:
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                for row in BENCHES[name](ground):
                    rows.append(row)
                    print(f"  {report.number(row):>12}  {_verdict(row)}  {row.what}", file=sys.stderr, flush=True)
            except Exception as error:
                broken = True
                traceback.print_exc()
                rows.append(Row(name, f"{name}: stopped", None, problem=f"{type(error).__name__}: {error}"))
        if "postgres" in ground.__dict__:
            told["PostgreSQL"] = machine.postgres(ground.postgres.version)
    _write(options, rows, told, time.monotonic() - begun)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="What a step costs in time and bytes.")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run, do the bytes hold?")
    parser.add_argument("--only", action="append", choices=list(BENCHES), metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="rows as JSON on stdout")
    parser.add_argument("--output", type=Path, help="where the page goes (a whole, full run: bench/RESULTS.md)")
    parser.add_argument("--directory", type=Path, help="where the databases are made; its disk is what is measured")
    return parser.parse_args()


def _verdict(row: Row) -> str:
    return {True: "ok  ", False: "MISS", None: "    "}[row.met]


def _write(options: argparse.Namespace, rows: list[Row], told: dict[str, str], seconds: float) -> None:
    if options.json:
        print(json.dumps({"machine": told, "rows": [row.as_dict() for row in rows]}, indent=1, ensure_ascii=False))
    whole = not options.quick and not options.only
    output = options.output or (RESULTS if whole else None)
    if output is not None:
        arguments = ["--quick"] * options.quick + [f"--only {name}" for name in options.only or ()]
        command = " ".join(["scripts/bench", *arguments])
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        output.write_text(report.results(rows, told, command, date, seconds), encoding="utf-8")
        print(f"written: {output.name}", file=sys.stderr)
    if not options.json:
        print(report.table(rows))
        print("\nWhere we lose:\n" + report.losses(rows))


if __name__ == "__main__":
    sys.exit(main())
