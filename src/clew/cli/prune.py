"""`clew prune`: delete old checkpoints by rule."""

from __future__ import annotations

import dataclasses
import re
import sys
from datetime import timedelta
from functools import partial

import click

import clew
from clew.cli.output import counted, print_json, size
from clew.cli.settings import database_options, note, open_database, settings

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> timedelta | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6})([smhdw])", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a span of time like 30d, 12h or 90m (s, m, h, d, w)")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command()
@click.option("--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the newest N of each branch.")
@click.option("--older-than", callback=_span, metavar="SPAN", help="Delete only what is older: 30d, 12h.")
@click.option("--thread", "threads", metavar="ID", multiple=True, help="Only this thread. Can be repeated.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@database_options()
@click.pass_context
def prune(
    ctx: click.Context,
    keep_last: int | None,
    older_than: timedelta | None,
    threads: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete old checkpoints, and what only they needed.

    With both rules a checkpoint goes only if both let it. Heads, branches and tags always stay.
    """
    if keep_last is None and older_than is None:
        raise click.UsageError("say what may go: --keep-last N, --older-than SPAN, or both")
    with open_database() as db:
        apply = partial(db.prune, keep_last=keep_last, older_than=older_than, threads=threads or None)
        if not dry_run and not yes:
            _confirm(ctx, apply(dry_run=True))
        found = apply(dry_run=dry_run)
    if settings().json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo(_sentence(found))


def _confirm(ctx: click.Context, planned: clew.Pruned) -> None:
    if not planned.checkpoints:
        return
    note(_sentence(planned))
    click.echo("Delete them? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        note("")
        raise click.UsageError("nobody answered, so nothing was deleted; add --yes")
    if answer.strip().lower() not in ("y", "yes"):
        note("nothing was deleted")
        ctx.exit(1)


def _sentence(found: clew.Pruned) -> str:
    if not found.checkpoints:
        return f"nothing to delete; {counted(found.kept, 'checkpoint')} kept"
    verb = "would go" if found.dry_run else "deleted"
    went = f"{counted(found.checkpoints, 'checkpoint')} of {counted(found.threads, 'thread')}"
    return f"{went} {verb}, {size(found.bytes)}; {counted(found.kept, 'checkpoint')} kept"
