"""`clew rewind`: point a branch at an earlier checkpoint."""

from __future__ import annotations

import shlex

import click

from clew.cli.output import print_json
from clew.cli.place import complete_place, find_place
from clew.cli.settings import database_options, note, open_database, settings
from clew.errors import BadReference


@click.command()
@click.argument("place", metavar="THREAD@REF", shell_complete=complete_place)
@click.option("-b", "--branch", metavar="NAME", default="main", show_default=True, help="The branch to move.")
@database_options()
def rewind(place: str, branch: str) -> None:
    """Point a branch at an earlier (or any) checkpoint. Nothing is erased."""
    with open_database() as db:
        found = find_place(db, place, branch=branch)
        if found.ref is None:
            raise BadReference(f"{place!r} does not say where to rewind to", hint=f"for example {place}@~1")
        before = found.thread.head
        now = found.thread.rewind(found.ref)
    old = None if before is None else before.step
    if settings().json:
        print_json({"thread": now.thread_id, "branch": branch, "head": now.step, "was": old})
        return
    click.echo(f"{branch} is at step {now.step}" + (f" {now.label}" if now.label else ""))
    if old not in (None, now.step):
        back = shlex.quote(f"{now.thread_id}@{old}") + _branch_option(branch)
        note(f"it was at step {old}; to go back: clew rewind {back}")


def _branch_option(branch: str) -> str:
    return "" if branch == "main" else f" --branch {shlex.quote(branch)}"
