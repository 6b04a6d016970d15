"""`clew move`: a run whose agent or node has another name by now."""

from __future__ import annotations

import click

from clew.cli.running import find_run, tell_outcome
from clew.cli.settings import database_options, open_database


@click.command(short_help="Hand a run to another agent, or to other nodes.")
@click.argument("place", metavar="RUN | THREAD[@BRANCH]")
@click.option("--agent", metavar="NAME", help="The agent that it belongs to from now on.")
@click.option("--node", "nodes", metavar="OLD=NEW", multiple=True, help="It goes on at NEW where it stood before OLD.")
@database_options()
def move(place: str, agent: str | None, nodes: tuple[str, ...]) -> None:
    """Let a run go on whose agent or node a deploy has renamed or taken away.

    A run that stands before a node which its agent does not have is paused. This gives it other names, and it is due
    then. One that is driven, or is over, cannot be moved.
    """
    if agent is None and not nodes:
        raise click.UsageError("nothing to move: give --agent NAME, --node OLD=NEW, or both")
    pairs = [node.partition("=") for node in nodes]
    if any(not (old and new) for old, _, new in pairs):
        raise click.UsageError("a node is moved by --node OLD=NEW")
    with open_database() as db:
        run = find_run(db, place)
        run.move(agent=agent, nodes={old: new for old, _, new in pairs})
        run.status  # noqa: B018 - reads it anew
        tell_outcome(run)
