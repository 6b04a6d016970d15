"""Run the benchmarks: `scripts/bench [--quick] [--page NAME] [--only NAME]… [--json] [--output FILE]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
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
    if len(chosen) == 1 or options.quick:
        told, rows = _here(options, chosen)
    else:
        told, rows = _apart(options, chosen)
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
    return 1 if any(row.problem for row in rows) else 0


def _here(options: argparse.Namespace, chosen: list[str]) -> tuple[dict[str, str], list[Row]]:
    """The machine, and the rows."""
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
                traceback.print_exc()
                rows.append(_stopped(name, f"{type(error).__name__}: {error}"))
        if "postgres" in ground.__dict__:
            told["PostgreSQL"] = machine.postgres(ground.postgres.version)
    return told, rows


def _apart(options: argparse.Namespace, chosen: list[str]) -> tuple[dict[str, str], list[Row]]:
    """Each in a process of its own: what one leaves in the allocator and in caches is not the next one's."""
    told: dict[str, str] = {}
    rows: list[Row] = []
    for name in chosen:
        command = [sys.executable, "-m", "bench", "--only", name, "--json"]
        command += ["--directory", str(options.directory)] if options.directory else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=_HERE.parent, check=False)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            rows.append(_stopped(name, f"its process ended with {done.returncode}"))
            continue
        told = {**found["machine"], **told}
        kept = [field.name for field in fields(Row)]
        rows += [Row(**{key: row[key] for key in kept}) for row in found["rows"]]
    return told, rows


def _stopped(name: str, why: str) -> Row:
    return Row(name, f"{name}: stopped", None, problem=why)


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
