"""`clew import`: bring over what another library has stored."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clew.cli.output import counted, print_json
from clew.cli.settings import database_options, note, open_database, settings

if TYPE_CHECKING:
    from clew.adapters.langgraph import Imported

_SHOWN = 10


@click.group("import")
def import_() -> None:
    """Bring over what another library has stored."""


@import_.command(short_help="Bring over a LangGraph database: SqliteSaver's or PostgresSaver's.")
@click.argument("source", metavar="FILE|URL")
@click.option("--allow", metavar="MODULE:CLASS", multiple=True, help="Also build values of this class. Repeatable.")
@click.option("-n", "--dry-run", is_flag=True, help="Read everything, write nothing.")
@database_options()
@click.pass_context
def langgraph(ctx: click.Context, source: str, allow: tuple[str, ...], dry_run: bool) -> None:
    """Bring over a LangGraph database: SqliteSaver's file or PostgresSaver's URL.

    All threads, namespaces, checkpoints, writes and metadata; the source is only read. What is there already stays
    as it is, so it can be run again after a kill, or when the source has grown.

    No name found in the data is imported. Values of classes that are neither LangGraph's nor LangChain's nor allowed
    stay as bytes (Opaque) and are counted: --dry-run tells which, before anything is written.
    """
    from clew.adapters.langgraph import import_database

    if allow and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with nullcontext() if dry_run else open_database(make=True) as db, _bar() as progress:
        report = import_database(db, source, allow=allow, dry_run=dry_run, progress=progress)
    if settings().json:
        skipped = [one._asdict() for one in report.skipped]
        print_json({**dataclasses.asdict(report), "skipped": skipped})
    else:
        _print(report)
    if report.skipped:
        ctx.exit(1)


class _Shown:
    """Moves the bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("checkpoints", total=None)

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)


@contextmanager
def _bar() -> Iterator[_Shown]:
    """On a terminal, and only on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(file=sys.stderr, no_color=settings().no_color)
    with Progress(*columns, console=out, transient=True, disable=not sys.stderr.isatty()) as bar:
        yield _Shown(bar)


def _print(report: Imported) -> None:
    verb = "would bring" if report.dry_run else "brought"
    checkpoints, threads = counted(report.checkpoints, "checkpoint"), counted(report.threads, "thread")
    click.echo(f"{verb} over {checkpoints} of {threads}, and {counted(report.writes, 'write')}")
    if report.present:
        click.echo(f"{counted(report.present, 'checkpoint')} were there already")
    if report.opaque:
        total = counted(sum(report.opaque.values()), "value")
        click.echo(f"{total} of classes that are not known stay as bytes (Opaque):")
        for name, count in list(report.opaque.items())[:_SHOWN]:
            click.echo(f"  {count:>8,}  {_printable(name)}")
        named = next((name for name in report.opaque if ":" in name), None)
        if named is not None:
            note(f"to build them, import into a new database with --allow {_printable(named)} …")
    for one in report.skipped[:_SHOWN]:
        where = " ".join(filter(None, (one.thread_id, one.ns, one.id)))
        note(f"left out: {_printable(where)}: {_printable(one.reason)}")
    if len(report.skipped) > _SHOWN:
        note(f"left out: {len(report.skipped) - _SHOWN:,} more; --json lists all")
    if report.store_items:
        note(f"LangGraph's store there has {counted(report.store_items, 'item')}, which this does not bring over")


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)
