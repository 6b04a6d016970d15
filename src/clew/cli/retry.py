"""`clew retry`: let runs that have failed try again."""

from __future__ import annotations

import click

import clew
from clew.cli.code import find_agent, own_code
from clew.cli.running import WAITING_FOR_A_HUMAN, find_run, tell_outcome
from clew.cli.settings import database_options, open_database
from clew.errors import Conflict


@click.command(short_help="Let a run that has failed try again.")
@click.argument("names", nargs=-1, required=True, metavar="[MODULE:AGENT] RUN | THREAD[@BRANCH]")
@database_options()
@click.pass_context
def retry(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Run the node that a run has failed in again. What had finished is not run again.

    With MODULE:AGENT that happens here and now, and ends with 15 when the run waits for a human then. Without, the run
    is due, and a worker takes it up.
    """
    if len(names) > 2:
        raise click.UsageError("one run at a time: [MODULE:AGENT] RUN")
    if len(names) == 1:
        with open_database() as db:
            run = find_run(db, names[0])
            run.retry()
            run.status  # noqa: B018 - reads it anew
            tell_outcome(run)
        return
    with own_code(ctx):
        found = find_agent(names[0])
    with open_database() as db:
        run = find_run(db, names[1])
        _check_failed(db, run)
        with own_code(ctx):
            run = found.resume(run.thread)
        if tell_outcome(run):
            ctx.exit(WAITING_FOR_A_HUMAN)


def _check_failed(db: clew.Database, run: clew.Run) -> None:
    info = run.info
    if info.status != "failed":
        raise Conflict(
            f"run {info.id} is {info.status}; only one that has failed can be retried", hint="see `clew resume --help`"
        )
    last = find_run(db, f"{info.thread_id}@{info.branch}")
    if last != run:
        raise Conflict(f"run {info.id} is over: {last.id} has come after it on this branch", hint="retry that one")
