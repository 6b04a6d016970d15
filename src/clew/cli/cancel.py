"""`clew cancel`: end a run."""

from __future__ import annotations

import click

from clew.cli.output import print_json
from clew.cli.running import find_run, how_to_resume, place_of
from clew.cli.settings import database_options, open_database, settings


@click.command(short_help="End a run; the rounds that it had finished are kept.")
@click.argument("place", metavar="RUN | THREAD[@BRANCH]")
@click.option("--compensate", is_flag=True, help="Have what it has done undone first, by a worker or `clew resume`.")
@database_options()
def cancel(place: str, compensate: bool) -> None:
    """End a run: at once, if nobody drives it; else whoever does stops at its next call of Clew.

    The rounds that it had finished are kept, its open requests are withdrawn, and the thread takes the next input. No
    code of the agent is needed, and none is run: so where a run waits in the middle of a round, what some of its nodes
    have returned is not taken into the state. (agent.cancel takes it in; so does whoever drives the run.) With
    --compensate, whoever has the code undoes its effects, the newest first, and then it ends.
    """
    with open_database() as db:
        run = find_run(db, place)
        run.cancel(compensate=compensate)
        status = run.status
        info = run.info
    if settings().json:
        print_json(info.as_json())
    elif status == "cancelled":
        click.echo(f"{info.id} is cancelled: {info.agent} on {place_of(info)}")
    elif compensate:
        click.echo(f"{info.id} is to be undone: {info.agent} on {place_of(info)} is {status}")
        if status != "running":
            click.echo(f"  {how_to_resume(info)}   does that, or any worker", err=True)
    else:
        click.echo(f"{info.id} is asked to stop: {info.agent} on {place_of(info)} is {status}")
