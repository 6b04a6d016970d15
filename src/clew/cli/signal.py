"""`clew signal`: tell a run what it waits for."""

from __future__ import annotations

import click

from clew.cli.output import print_json
from clew.cli.settings import database_options, note, open_database, settings
from clew.cli.values import json_or_text


@click.command(short_help="Tell a run what it waits for.")
@click.argument("name")
@click.argument("value", required=False)
@click.option("--key", metavar="TEXT", help="Sent again with this key, it counts once.")
@database_options()
def signal(name: str, value: str | None, key: str | None) -> None:
    """Leave a value, JSON or text, for the one `clew.wait(NAME)` that takes it; it may begin to wait later."""
    with open_database() as db:
        fresh = db.signal(name, None if value is None else json_or_text(value), key=key)
    if settings().json:
        print_json({"name": name, "key": key, "new": fresh})
    elif fresh:
        click.echo(f"{name} is signalled")
    else:
        note(f"{name} was signalled with the key {key} before; nothing was changed")
