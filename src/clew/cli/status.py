"""`clew status`: what goes on in a database, and what somebody should look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import click
from rich.text import Text

import clew
from clew.cli.asked import list_lines as request_lines
from clew.cli.output import age, console, counted, print_json, table
from clew.cli.running import HOLDING, STYLES
from clew.cli.running import list_lines as run_lines
from clew.cli.settings import database_options, note, open_database, settings

_SHOWN = 5
_BAD: tuple[Literal["failed", "dead"], ...] = ("failed", "dead")
_ORDER = (*HOLDING, "queued", *_BAD)


@click.command(short_help="Show what goes on, and what waits for you.")
@database_options()
def status() -> None:
    """Show what goes on: runs, open requests, and what has failed or was left."""
    with open_database() as db:
        overview = db.overview()
        last = next(iter(db.threads(limit=1)), None)
        if settings().json:
            told = dataclasses.asdict(overview)
            print_json({"database": settings().url, "tenant": db.tenant_name, "durability": db.durability, **told})
            return
        out = console()
        for line in table([[Text(name, "dim"), value] for name, value in _facts(db, overview, last)]):
            out.print(line)
        if overview.requests:
            _print(request_lines(list(db.requests(limit=_SHOWN)), with_status=False))
            if overview.requests > _SHOWN:
                note("all of them: clew inbox")
        bad = [run for which in _BAD if overview.runs.get(which) for run in db.runs(status=which, limit=_SHOWN)]
        if bad:
            _print(run_lines(bad))
            if sum(overview.runs.get(which, 0) for which in _BAD) > len(bad):
                note("all of them: clew runs --status failed")


def _facts(
    db: clew.Database, overview: clew.Overview, last: clew.ThreadInfo | None
) -> Iterator[tuple[str, Text | str]]:
    yield "database", f"{_without_password(settings().url)}, {db.durability}, tenant {db.tenant_name}"
    yield "thread", "none yet" if last is None else f"{last.id} changed last, {age(last.updated_at)}"
    counts = Text()
    for name in _ORDER:
        if number := overview.runs.get(name):
            counts.append(", " if counts else "").append(f"{number:,} {name}", STYLES[name])
    yield "runs", counts or "none that is not over"
    if overview.due:
        yield "due", f"{counted(overview.due, 'run')} may go on now"
    if overview.left:
        yield "left", f"{counted(overview.left, 'run')} by a process that is gone; to go on: clew resume, or run again"
    yield "inbox", Text(f"{overview.requests:,} open", "bold yellow") if overview.requests else "empty"


def _print(lines: Iterator[Text]) -> None:
    out = console()
    out.print()
    for line in lines:
        out.print(line)


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}@{tail}" if at and slashes else url
