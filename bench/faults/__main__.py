"""Kill the same agent under each library: `scripts/bench faults [--quick] [--only NAME]… [--output FILE]`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import machine
from bench.faults.agent import POINTS
from bench.faults.table import Column, page, totals
from bench.faults.trial import Contender, Trial, Verdict
from clew.testing.outside import Fault

RESULTS = Path(__file__).resolve().parents[1] / "FAULTS.md"
QUICK = ("call:plan", "got:plan", "do:flight", "waiting", "calling:charge", "do:charge", "answered:charge")
BETWEEN, LATE, STOPPED = "between", "late", "stopped"
LABELS = {
    **POINTS,
    BETWEEN: "flight is finished and noted, hotel has begun",
    LATE: "the charge's answer is lost (timeout), not the process; retries are on",
    STOPPED: "SIGSTOP before the charge, another process takes over, SIGCONT",
}


def _clew() -> Contender:
    from bench.faults.ours import Clew

    return Clew()


def _langgraph() -> Contender:
    from bench.faults.peer_langgraph import LangGraph

    return LangGraph(tasks=False)


def _langgraph_tasks() -> Contender:
    from bench.faults.peer_langgraph import LangGraph

    return LangGraph(tasks=True)


def _dbos() -> Contender:
    from bench.faults.peer_dbos import Dbos

    return Dbos()


CONTENDERS: dict[str, tuple[str, Callable[[], Contender]]] = {
    "clew": ("clew", _clew),
    "langgraph": ("langgraph", _langgraph),
    "langgraph-task": ("langgraph", _langgraph_tasks),
    "dbos": ("dbos", _dbos),
}


def fault(key: str, contender: Contender) -> Fault:
    """The fault of a row."""
    if key == BETWEEN:
        return Fault("stored", contender.notes, after="answered:flight")
    if key == LATE:
        return Fault("do:charge", signal=None)
    if key == STOPPED:
        return Fault("calling:charge", signal=signal.SIGSTOP)
    return Fault(key)


def examine(name: str, *, quick: bool, every: int) -> Column:
    """All trials of one contender."""
    package, make = CONTENDERS[name]
    contender = make()
    calm = Trial(contender, None)
    column = Column(contender.name, contender.finds, f"{package} {metadata.version(package)}", calm.run())
    expected: Any = calm.final
    for key in QUICK if quick else LABELS:
        verdict = Trial(contender, fault(key, contender), expected, retry=key == LATE).run()
        column.rows[key] = verdict
        _show(column, verdict, LABELS[key])
    for when in ("storing", "stored"):
        for number in range(1, 1000, every):
            verdict = Trial(contender, Fault(when, number), expected).run()
            if not verdict.struck:
                break
            column.sweep.append(verdict)
            _show(column, verdict, f"{when} #{number}")
    return column


def _show(column: Column, verdict: Verdict, what: str) -> None:
    print(f"  {column.cell(verdict) or 'fine':<40} {what}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench faults", description="Who loses, repeats or doubles what.")
    parser.add_argument("--quick", action="store_true", help="a few points and every tenth commit")
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument("--output", type=Path, help="where the page goes (a whole, full run: bench/FAULTS.md)")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    told = machine.describe(Path(tempfile.gettempdir()))
    columns = []
    for name in options.only or CONTENDERS:
        print(f"{name} …", file=sys.stderr, flush=True)
        columns.append(examine(name, quick=options.quick, every=10 if options.quick else 1))
    print(totals(columns))
    output = options.output or (None if options.quick or options.only else RESULTS)
    if output is not None:
        chosen = ["--quick"] * options.quick + [f"--only {name}" for name in options.only or ()]
        command = " ".join(["scripts/bench faults", *chosen])
        minutes = (time.monotonic() - begun) / 60
        head = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "command": command, "minutes": minutes}
        shown = {name: told[name] for name in ("cores", "kernel", "file system", "Python", "SQLite")}
        output.write_text(page(columns, LABELS, shown, head), encoding="utf-8")
        print(f"written: {output.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
