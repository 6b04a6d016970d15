"""`clew inbox`: what agents ask of people."""

from __future__ import annotations

from typing import Any

import click

from clew.cli.asked import list_lines, show_request
from clew.cli.output import console, print_json
from clew.cli.settings import database_options, note, open_database, settings

_STATUSES = ["open", "answered", "expired", "withdrawn", "all"]


@click.command(short_help="List what agents ask of people.")
@click.argument("request", required=False, metavar="[R-12]")
@click.option("--thread", metavar="ID", help="Only what this thread asks.")
@click.option("--for", "assignee", metavar="NAME", help="Only what this person is asked.")
@click.option("--status", type=click.Choice(_STATUSES), default="open", show_default=True, help="Which.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended.")
@click.option("--full", is_flag=True, help="Cut nothing short.")
@database_options()
def inbox(
    request: str | None,
    thread: str | None,
    assignee: str | None,
    status: Any,
    limit: int,
    cursor: str | None,
    full: bool,
) -> None:
    """List the open requests of all threads, the oldest first; or show one.

    One is shown with its question, what may be answered, the state it was asked in, and what that step changed. The
    commands approve, reject and answer decide it.
    """
    with open_database() as db:
        if request is not None:
            show_request(db.request(request), full=full)
            return
        page = db.requests(
            status=None if status == "all" else status, assignee=assignee, thread=thread, limit=limit, cursor=cursor
        )
    if settings().json:
        print_json({"requests": [one.as_json() for one in page], "cursor": page.cursor})
        return
    if page:
        out = console()
        for line in list_lines(list(page), with_status=status != "open"):
            out.print(line)
    else:
        note(f"no {'' if status == 'all' else status + ' '}requests{' like that' if thread or assignee else ''}")
    if page.cursor:
        note(f"there are more: add --cursor {page.cursor}")
