"""`clew runs`: what agents do, and have done."""

from __future__ import annotations

from typing import Any

import click

from clew.cli.live import watch as watch_runs
from clew.cli.output import console, print_json
from clew.cli.running import find_run, list_lines, show_run
from clew.cli.settings import database_options, note, open_database, settings

_STATUSES = ["running", "waiting", "sleeping", "paused", "queued", "done", "failed", "cancelled", "dead"]


@click.command(short_help="List the runs of agents, the newest first.")
@click.argument("run", required=False, metavar="[RUN | THREAD[@BRANCH]]")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those of this status.")
@click.option("--thread", metavar="ID", help="Only those of this thread.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended.")
@click.option("-w", "--watch", is_flag=True, help="Go on showing them as they change; one run, until it is over.")
@database_options()
def runs(
    run: str | None,
    status: Any,
    thread: str | None,
    agent: str | None,
    limit: int,
    cursor: str | None,
    watch: bool,
) -> None:
    """List the runs of agents, the newest first; or show one, by its id or by where it runs.

    With --watch, a terminal shows them as they are; elsewhere each change is a line (with --json, a JSON object).
    """
    with open_database() as db:
        if watch:
            one = None if run is None else find_run(db, run).id
            if one is not None:
                watch_runs(lambda: [db.run(one)], all_of_them=True)
                return
            watch_runs(lambda: db.runs(status=status, thread=thread, agent=agent, limit=limit, cursor=cursor))
        if run is not None:
            show_run(find_run(db, run))
            return
        page = db.runs(status=status, thread=thread, agent=agent, limit=limit, cursor=cursor)
        if settings().json:
            print_json({"runs": [one.info.as_json() for one in page], "cursor": page.cursor})
            return
        if page:
            out = console()
            for line in list_lines(list(page)):
                out.print(line)
    if not page:
        note("no runs" + (" like that" if status or thread or agent else ""))
    if page.cursor:
        note(f"there are more: add --cursor {page.cursor}")
