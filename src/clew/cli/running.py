"""A run as people see it, and how people name one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
from rich.text import Text

import clew
from clew.cli.asked import WIDE, headline, short
from clew.cli.output import age, clip, console, is_terminal, print_json, table, until
from clew.cli.place import Place, find_place, is_thread
from clew.cli.settings import settings
from clew.cli.tree import chop_words, escape, inline
from clew.errors import RunNotFound

WAITING_FOR_A_HUMAN = 15
STYLES = {
    "running": "bold green",
    "waiting": "bold yellow",
    "sleeping": "cyan",
    "queued": "cyan",
    "paused": "magenta",
    "done": "green",
    "failed": "bold red",
    "dead": "bold red",
    "cancelled": "dim",
}
_MARGIN = 8
HOLDING = ("running", "waiting", "sleeping", "paused")
_ID = re.compile(r"run-[0-9a-f]{16}\Z")


def find_branch(db: clew.Database, text: str) -> Place:
    """A branch to run on: a run's own, THREAD's main one, or THREAD@BRANCH. A ref that is no branch is kept."""
    if _ID.match(text):
        try:
            return Place(db.run(text).thread, None)
        except RunNotFound:
            if not is_thread(db, text):
                raise
    found = find_place(db, text)
    if found.ref is not None and found.ref in found.thread.branches:
        return Place(db.thread(found.thread.id, branch=found.ref), None)
    return found


def find_run(db: clew.Database, text: str) -> clew.Run:
    """By its id; else the run that has the branch of THREAD[@BRANCH], or was the last there."""
    if _ID.match(text) and not is_thread(db, text):
        return db.run(text)
    thread, ref = find_branch(db, text)
    if ref is not None:
        raise click.UsageError(f"{text} names no branch: runs are named by their id, by THREAD, or by THREAD@BRANCH")
    last = None
    cursor: str | None = None
    while True:
        page = db.runs(thread=thread, cursor=cursor)
        own = [run for run in page if run.info.branch == thread.branch]
        holding = next((run for run in own if run.info.status in HOLDING), None)
        if holding is not None:
            return holding
        last = last or next(iter(own), None)
        cursor = page.cursor
        if cursor is None:
            break
    if last is None:
        raise RunNotFound(f"no agent has run on branch {thread.branch!r} of thread {thread.id!r}")
    return last


def list_lines(runs: list[clew.Run]) -> Iterator[Text]:
    """A line for each, with what it waits for or has failed of at its end; below it, where that does not fit."""
    out = console()
    remarks = [remark(run) for run in runs]
    clipped = None if not is_terminal() else (20, 24) if out.width >= WIDE else (12, 20)
    heads: list[Text | str] = [Text(name, "dim") for name in ("run", "status", "agent", "thread", "changed")]
    rows: list[list[Text | str]] = [heads, *(_cells(run.info, clipped) for run in runs)]
    if is_terminal() and max(map(len, remarks), default=0) > out.width - max(line.cell_len for line in table(rows)) - 2:
        for line, told in zip(table(rows), ["", *remarks], strict=True):
            for shown in [line, *([Text(f"  {told}")] if told else [])]:
                shown.truncate(out.width, overflow="ellipsis")
                yield shown
        return
    yield from table([[*row, told] for row, told in zip(rows, ["", *remarks], strict=True)])


def _cells(info: clew.RunInfo, clipped: tuple[int, int] | None) -> list[Text | str]:
    agent, thread = clipped or (None, None)
    return [
        info.id,
        Text(info.status, STYLES[info.status]),
        clip(info.agent, agent),
        clip(place_of(info), thread),
        Text(age(info.updated_at), "dim"),
    ]


def place_of(info: clew.RunInfo) -> str:
    """Its branch, as other commands take it."""
    return info.thread_id if info.branch == "main" else f"{info.thread_id}@{info.branch}"


def remark(run: clew.Run) -> str:
    """Where a run is, what it waits for, or what it has failed of."""
    info = run.info
    if info.wanted is not None:
        return f"is to {info.wanted}"
    if info.status in ("waiting", "sleeping") and info.due_at is not None:
        when = until(info.due_at)
        if when == "now":
            return "may go on now"
        if info.status == "sleeping":
            return f"goes on {when}"
    if info.status == "waiting":
        asked = run.requests
        if asked:
            more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
            return f"{asked[0].id}{more}: {headline(asked[0].question)}"
        return "for a signal"
    if info.status == "running" and (head := run.thread.head) is not None and head.run == info.id:
        return f"at step {head.step}" + (f": {', '.join(head.next)}" if head.next else "")
    if info.error is not None and info.status in ("failed", "dead"):
        return short(str(info.error))
    return ""


def show_run(run: clew.Run) -> None:
    """All that is known of it, without its state."""
    info = run.info
    requests = run.requests if info.status == "waiting" else []
    if settings().json:
        print_json({**info.as_json(), "requests": [request.id for request in requests]})
        return
    out = console()
    out.print(Text(info.id, "bold").append("  ").append(info.status, STYLES[info.status]))
    rows = [[Text(name, "dim"), value] for name, value in _facts(info, run.step)]
    rows += [[Text("asks", "dim"), f"{request.id}  {headline(request.question)}"] for request in requests]
    for line in table(rows):
        out.print(line)
    if info.error is not None:
        told = [(line, "red") for line in _chopped(str(info.error), out.width - _MARGIN)]
        told += [(line, "dim") for note in info.error.notes for line in _chopped(note, out.width - _MARGIN)]
        for at, (row, style) in enumerate(told):
            out.print(Text(("" if at else "error").ljust(_MARGIN), "dim").append(row, style))


def _chopped(text: str, room: int) -> list[str]:
    return [row for line in text.splitlines() for row in chop_words(escape(line), room)]


def _facts(info: clew.RunInfo, step: int | None) -> Iterator[tuple[str, Text | str]]:
    yield "agent", info.agent
    yield "thread", place_of(info) + ("" if step is None else f", at step {step}")
    if info.key is not None:
        yield "key", inline(info.key, 200) or "…"
    if info.parent is not None:
        yield "from", f"{info.parent}, at step {info.parent_step}"
    yield "began", f"{info.created_at:%Y-%m-%d %H:%M:%S} UTC, {age(info.created_at)}"
    yield "changed", age(info.updated_at)
    crashes = f", {info.crashes} of them ended in a crash" if info.crashes else ""
    yield "attempts", f"{info.attempts}{crashes}"
    if info.due_at is not None and info.status in ("waiting", "sleeping", "queued"):
        yield "due", until(info.due_at)
    if info.wanted is not None:
        yield "wanted", info.wanted


def how_to_resume(info: clew.RunInfo) -> str:
    return f"clew resume MODULE:{info.agent} {shlex.quote(place_of(info))}"


def tell_outcome(run: clew.Run) -> bool:
    """Print where a run stands now; whether it waits for a human."""
    info = run.info
    asked = run.requests if info.status == "waiting" else []
    if settings().json:
        print_json({**info.as_json(), "requests": [request.id for request in asked]})
        return bool(asked)
    step = "" if (at := run.step) is None else f" at step {at}"
    text = Text(info.id, "bold").append(" is ").append(info.status, STYLES[info.status])
    console().print(text.append(f": {info.agent} on {place_of(info)}{step}"))
    for request in asked:
        console().print(Text("  ").append(request.id, "bold").append(f"  {headline(request.question)}"))
    return bool(asked)
