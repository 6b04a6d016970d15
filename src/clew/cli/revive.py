"""`clew revive`: let a run go on that has killed whoever drove it."""

from __future__ import annotations

import click

from clew.cli.running import find_run, tell_outcome
from clew.cli.settings import database_options, open_database


@click.command(short_help="Let a dead run go on, once what killed it is mended.")
@click.argument("place", metavar="RUN | THREAD[@BRANCH]")
@database_options()
def revive(place: str) -> None:
    """Let a run go on that is dead: the process that drove it died, again and again.

    It is due now, and a worker takes it up. Mend what killed it before.
    """
    with open_database() as db:
        run = find_run(db, place)
        run.revive()
        run.status  # noqa: B018 - reads it anew
        tell_outcome(run)
