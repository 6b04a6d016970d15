"""Run the benchmarks: `scripts/bench [--quick] [--page NAME] [--only NAME]… [--json] [--output FILE]`."""

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

Bench = Callable[[Ground], Iterator[Row]]
PAGES: dict[str, tuple[Bench, ...]] = {
    "results": (space, saves, growth, latest, history, prune, peers, langgraph),
    "runtime": (runtime,),
    "capacity": (capacity,),
}
"""Each is a file of its name in capitals, beside this one."""
BENCHES: dict[str, Bench] = {bench.__name__: bench for benches in PAGES.values() for bench in benches}
_HERE = Path(__file__).resolve().parent


def main() -> int:
    options = _options()
    if options.only or options.quick or options.output:
        chosen = options.only or [bench.__name__ for bench in PAGES.get(options.page, BENCHES.values())]
        return _run(options, chosen, options.page or "results", options.output)
    pages = [options.page] if options.page else list(PAGES)
    return max(
        _run(options, [bench.__name__ for bench in PAGES[page]], page, _HERE / f"{page.upper()}.md") for page in pages
    )


def _run(options: argparse.Namespace, chosen: list[str], page: str, output: Path | None) -> int:
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
    if options.json:
        print(json.dumps({"machine": told, "rows": [row.as_dict() for row in rows]}, indent=1, ensure_ascii=False))
    else:
        print(report.table(rows))
        print("\nWhere we lose:\n" + report.losses(rows))
    if output is not None:
        arguments = ["--quick"] * options.quick + [f"--only {name}" for name in options.only or ()]
        command = " ".join(["scripts/bench", *(arguments or [f"--page {page}"])])
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        text = report.results(page, rows, told, command, date, time.monotonic() - begun)
        output.write_text(text, encoding="utf-8")
        print(f"written: {output.name}", file=sys.stderr)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="What a step costs in time and bytes.")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run, do the bytes hold?")
    parser.add_argument("--page", choices=list(PAGES), help="only what belongs on this page")
    parser.add_argument("--only", action="append", choices=list(BENCHES), metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="rows as JSON on stdout")
    parser.add_argument(
        "--output",
        type=Path,
        help="where the page goes; else it is written beside bench/__main__.py, by full runs of whole pages",
    )
    parser.add_argument("--directory", type=Path, help="where the databases are made; its disk is what is measured")
    return parser.parse_args()


def _verdict(row: Row) -> str:
    return {True: "ok  ", False: "MISS", None: "    "}[row.met]


if __name__ == "__main__":
    sys.exit(main())
