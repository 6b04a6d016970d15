"""`clew tag`: names that do not move."""

from __future__ import annotations

import click

import clew
from clew.cli.output import print_json
from clew.cli.place import Place, complete_place, find_place
from clew.cli.settings import database_options, note, open_database, settings
from clew.errors import RefNotFound


@click.command()
@click.argument("place", metavar="THREAD[@REF]", shell_complete=complete_place)
@click.argument("name", required=False)
@click.option("-d", "--delete", is_flag=True, help="Forget the tag; the checkpoint stays.")
@database_options(short_db=False)
def tag(place: str, name: str | None, delete: bool) -> None:
    """Give a checkpoint a name, or list a thread's tags."""
    if delete and name is None:
        raise click.UsageError("which tag? clew tag -d THREAD NAME")
    with open_database() as db:
        found = find_place(db, place)
        if name is None:
            _list(found)
        elif delete:
            _delete(found.thread, name)
        else:
            checkpoint = found.thread.tag(name, "head" if found.ref is None else found.ref)
            _say(found.thread, name, checkpoint.step, "names")


def _list(found: Place) -> None:
    tags = found.thread.tags
    if found.ref is not None:
        tags = {name: step for name, step in tags.items() if step == found.checkpoint.step}
    if settings().json:
        print_json({"thread": found.thread.id, "tags": dict(tags)})
        return
    for name, step in sorted(tags.items(), key=lambda one: (one[1] or 0, one[0])):
        click.echo(f"{name}  {step}")
    if not tags:
        note("no tags")


def _delete(thread: clew.Thread, name: str) -> None:
    step = thread.tags.get(name)
    if step is None:
        raise RefNotFound(f"thread {thread.id!r} has no tag {name!r}", candidates=tuple(sorted(thread.tags)[:3]))
    thread.delete_tag(name)
    _say(thread, name, step, "is no longer the name of")


def _say(thread: clew.Thread, name: str, step: int, verb: str) -> None:
    if settings().json:
        print_json({"thread": thread.id, "tag": name, "step": step, "deleted": verb != "names"})
    else:
        click.echo(f"{name} {verb} step {step}")
