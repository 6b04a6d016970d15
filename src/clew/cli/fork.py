"""`clew fork`: a new branch from a checkpoint."""

from __future__ import annotations

import click

from clew.cli.output import print_json
from clew.cli.place import complete_place, find_place
from clew.cli.settings import database_options, open_database, settings
from clew.cli.values import key_values


@click.command()
@click.argument("place", metavar="THREAD[@REF]", shell_complete=complete_place)
@click.option("--as", "name", metavar="BRANCH", required=True, help="The new branch's name.")
@click.option(
    "--set", "settings_", metavar="KEY=VALUE", multiple=True, help="Change a key of the state there. JSON, else text."
)
@database_options()
def fork(place: str, name: str, settings_: tuple[str, ...]) -> None:
    """Start a new branch at a checkpoint; nothing is copied.

    With --set, its first checkpoint changes these keys of the state: --set city=Osaka --set 'days=[1, 2]'.
    """
    update = key_values(settings_)
    with open_database() as db:
        found = find_place(db, place)
        start = found.checkpoint
        head = found.thread.fork(start, branch=name, update=update or None).head
    step = start.step if head is None else head.step
    if settings().json:
        print_json({"thread": start.thread_id, "branch": name, "from": start.step, "head": step})
    else:
        click.echo(
            f"branch {name} starts at step {start.step}" + (f"; step {step} sets {', '.join(update)}" if update else "")
        )
