"""Watching runs: on a terminal a list that is drawn again, elsewhere a line for each change."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

import clew
from clew.cli.output import console, is_terminal
from clew.cli.running import STYLES, list_lines, place_of, remark
from clew.cli.settings import settings

ENDED = ("done", "failed", "cancelled", "dead")
_EVERY = 0.5
"""Seconds between two looks."""

Read = Callable[[], Sequence[clew.Run]]
Show = Callable[[Sequence[clew.Run]], None]


def watch(read: Read, *, all_of_them: bool = False) -> None:
    """Look again and again, until Ctrl-C; or until all of these runs are over."""
    with shown() as show:
        while True:
            runs = read()
            show(runs)
            if all_of_them and all(run.info.status in ENDED for run in runs):
                return
            time.sleep(_EVERY)


@contextmanager
def shown() -> Iterator[Show]:
    """A function that shows runs as they are now."""
    if not is_terminal() or settings().json:
        yield Changes().show
        return
    with Live(console=console(), auto_refresh=False) as live:
        yield lambda runs: live.update(view(runs), refresh=True)


def view(runs: Sequence[clew.Run]) -> RenderableType:
    """What stands on the terminal: as many runs as it has lines for."""
    out = console()
    lines = list(list_lines(list(runs))) if runs else [Text("no runs yet", "dim")]
    room = max(out.height - 2, 2)
    if len(lines) > room:
        lines = [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} lines more", "dim")]
    return Group(*lines, Text(f"{datetime.now(UTC).astimezone():%H:%M:%S}, Ctrl-C ends", "dim"))


class Changes:
    """Tells what has changed since the last look: a line of text, or of JSON, for each run."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, str]] = {}

    def show(self, runs: Sequence[clew.Run]) -> None:
        """Print those that are new or have changed, the oldest first."""
        for run in reversed(runs):
            now = run.info.status, remark(run)
            if self._seen.get(run.id) != now:
                self._seen[run.id] = now
                self._tell(run, now[1])
        sys.stdout.flush()

    def _tell(self, run: clew.Run, told: str) -> None:
        info = run.info
        if settings().json:
            click.echo(json.dumps({**info.as_json(), "remark": told}))
            return
        line = Text(f"{datetime.now(UTC).astimezone():%H:%M:%S}  ", "dim").append(f"{info.id}  ")
        line.append(f"{info.status:9}", STYLES[info.status]).append(f"  {info.agent} on {place_of(info)}")
        console().print(line.append(f"  {told}" if told else ""))
