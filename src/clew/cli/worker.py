"""`clew worker`: take up what was submitted, what is due, and what was left."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

import clew
from clew.cli.code import find_agent, own_code
from clew.cli.output import console, is_terminal
from clew.cli.running import STYLES, list_lines
from clew.cli.settings import database_options, open_database, settings

_EVERY = 0.5


@click.command(short_help="Take up what was submitted, what is due, and what was left.")
@click.argument("agents", metavar="MODULE:AGENT…", nargs=-1, required=True)
@click.option("-c", "--concurrency", metavar="N", type=click.IntRange(1), default=10, help="So many runs at once: 10.")
@click.option("--attempts", metavar="N", type=click.IntRange(1), default=3, help="An error is tried again so often: 3.")
@click.option("--crashes", metavar="N", type=click.IntRange(0), default=3, help="Dead after more crashes than that: 3.")
@click.option(
    "--drain", metavar="SECONDS", type=float, default=25.0, help="For rounds under way, when told to stop: 25."
)
@click.option("--until-idle", is_flag=True, help="End when nothing is due and nothing is under way.")
@database_options()
@click.pass_context
def worker(
    ctx: click.Context,
    agents: tuple[str, ...],
    concurrency: int,
    attempts: int,
    crashes: int,
    drain: float,
    until_idle: bool,
) -> None:
    """Drive the runs of these agents, in as many processes as you like, until SIGTERM or Ctrl-C.

    Then it claims no more, and hands over what it drives: after the round under way, or as it stands when the time to
    drain is over or the signal comes again. On a terminal it shows what it does; elsewhere it logs to stderr.
    """
    with own_code(ctx):
        found = [find_agent(agent) for agent in agents]
    with open_database(make=True) as db:
        made = clew.Worker(
            db, found, concurrency=concurrency, retry=clew.Retry(attempts, delay=1.0), crashes=crashes, drain=drain
        )
        with shown(db, made):
            made.run(until_idle=until_idle)


@contextmanager
def shown(db: clew.Database, made: clew.Worker) -> Iterator[None]:
    """What it does: drawn again and again, or as lines."""
    if not is_terminal() or settings().json:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        yield
        return
    over = threading.Event()
    with Live(console=console(), auto_refresh=False) as live:

        def draw() -> None:
            while not over.wait(_EVERY):
                live.update(view(db, made), refresh=True)

        drawing = threading.Thread(target=draw, daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()
            live.update(view(db, made), refresh=True)


def view(db: clew.Database, made: clew.Worker) -> RenderableType:
    """The runs that it drives, and what has become of the others."""
    runs = []
    for run in made.active:
        try:
            runs.append(db.run(run))
        except clew.errors.NotFound:
            continue
    room = max(console().height - 3, 1)
    lines = list(list_lines(runs)) if runs else []
    if len(lines) > room:
        lines = [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} more", "dim")]
    line = Text(f"{len(runs)} under way", "bold")
    for status, count in sorted(made.outcomes.items()):
        line.append("  ").append(f"{count} {status}", STYLES.get(status, "dim"))
    return Group(*lines, line.append("  Ctrl-C ends", "dim"))
