"""`clew log`: a thread's history, with its branches as lanes."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import click
from rich.text import Text

import clew
from clew.cli.graph import Drawn, Lanes
from clew.cli.output import age, checkpoint_json, clip, console, decoration, is_terminal, names_at, pad, print_json
from clew.cli.place import complete_place, find_place
from clew.cli.settings import database_options, is_utf8, note, open_database, settings

_PAGE = 200
_WIDEST_LABEL = 60
_KEPT_STATES = 16


class _Names(NamedTuple):
    branches: Mapping[str, int | None]
    tags: Mapping[str, int | None]
    tips: Mapping[str, int | None]


@click.command(short_help="Show a thread's history, with branches as lanes.")
@click.argument("place", metavar="THREAD[@REF]", shell_complete=complete_place)
@click.option("-n", "--limit", type=click.IntRange(min=0), default=30, show_default=True, help="How many; 0 for all.")
@click.option("-b", "--branch", metavar="NAME", help="Only what this branch stands on.")
@click.option("--stat", is_flag=True, help="Also what each checkpoint changed. Reads every state shown.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw the lanes in ASCII.")
@database_options()
def log(place: str, limit: int, branch: str | None, stat: bool, ascii_only: bool) -> None:
    """Show a thread's checkpoints, newest first, with all branches as lanes.

    With a REF or --branch: only that checkpoint and those before it on its path.
    """
    with open_database() as db:
        found = find_place(db, place, branch=branch or "main")
        thread = found.thread
        names = _Names(thread.branches, thread.tags, thread.tips)
        paths = [_path(thread, found.checkpoint)] if found.ref is not None or branch else _all_paths(db, thread)
        newest = _merged(paths)
        shown = list(islice(newest, limit or None))
        more = next(newest, None) is not None
        stats = _changes(thread, shown) if stat else {}
    if settings().json:
        _print_json(thread, names, shown, stats, more=more)
        return
    first = names.branches.get("main")
    is_graph = found.ref is None and not branch and first in {checkpoint.step for checkpoint in shown}
    _print(names, shown, stats, Lanes(first if is_graph else None, ascii_only=ascii_only or not is_utf8()))
    if not shown:
        note("nothing has been saved there yet")
    elif more:
        note(f"there are older ones: clew log {shlex.quote(place)} -n {2 * limit}, or -n 0 for all")


def _all_paths(db: clew.Database, thread: clew.Thread) -> list[Iterator[clew.Checkpoint]]:
    branches = [db.thread(thread.id, branch=name) for name, step in thread.branches.items() if step is not None]
    left = [thread.checkpoint(step) for step in thread.tips.values() if step is not None]
    return [_path(branch, branch.checkpoint()) for branch in branches] + [_path(thread, tip) for tip in left]


def _path(thread: clew.Thread, tip: clew.Checkpoint) -> Iterator[clew.Checkpoint]:
    """A checkpoint and those before it, read in pages as they are asked for."""
    yield tip
    while page := thread.history(before=tip, limit=_PAGE):
        yield from page
        tip = page[-1]


def _merged(paths: list[Iterator[clew.Checkpoint]]) -> Iterator[clew.Checkpoint]:
    """All checkpoints once, the highest step first. Where paths meet, one of them goes on."""
    heap = [
        (-checkpoint.step, number, checkpoint) for number, path in enumerate(paths) for checkpoint in islice(path, 1)
    ]
    heapq.heapify(heap)
    last = None
    while heap:
        _, number, checkpoint = heapq.heappop(heap)
        if checkpoint.step == last:
            continue
        last = checkpoint.step
        yield checkpoint
        for following in islice(paths[number], 1):
            heapq.heappush(heap, (-following.step, number, following))


def _changes(thread: clew.Thread, checkpoints: list[clew.Checkpoint]) -> dict[int, list[dict[str, Any]]]:
    """For each checkpoint's step what it changed, by key of the state."""
    states: dict[int, dict[str, Any]] = {}

    def state(step: int | None) -> dict[str, Any]:
        if step is None:
            return {}
        if step not in states:
            while len(states) >= _KEPT_STATES:
                del states[max(states)]  # newest first: the highest step is not asked for again
            states[step] = thread.state(step)
        return states[step]

    return {
        checkpoint.step: _by_key(clew.diff(state(checkpoint.parent), state(checkpoint.step)))
        for checkpoint in checkpoints
    }


def _by_key(diff: clew.Diff) -> list[dict[str, Any]]:
    """Items that came and went, for the lists of the state; else added, removed or changed as a whole or in parts."""
    counts: dict[str, dict[str, Any]] = {}
    for change in diff:
        key = str(change.path[0])
        found = counts.setdefault(key, {"key": key, "whole": None, "added": 0, "removed": 0, "changed": 0})
        if len(change.path) == 1:
            found["whole"] = change.kind
        elif len(change.path) == 2 and isinstance(change.path[1], int):
            found[change.kind] += 1
        else:
            found["changed"] += 1
    return list(counts.values())


def _stat_text(stat: list[dict[str, Any]]) -> Text:
    signs = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
    text = Text()
    for found in stat:
        name = clip(found["key"] if found["key"].isprintable() else repr(found["key"]), 30)
        if found["whole"] is not None:
            sign, style = signs[found["whole"]]
            text.append("  " if text else "").append(sign + name, style)
            continue
        for kind in ("added", "removed"):
            if found[kind]:
                sign, style = signs[kind]
                text.append("  " if text else "").append(f"{sign}{found[kind]} {name}", style)
        if found["changed"]:
            text.append("  " if text else "").append(f"~{name}", "yellow")
    return text or Text("no change", "dim")


def _print(
    names: _Names, checkpoints: list[clew.Checkpoint], stats: Mapping[int, list[dict[str, Any]]], lanes: Lanes
) -> None:
    if not checkpoints:
        return
    out = console()
    drawn = [lanes.draw(checkpoint.step, checkpoint.parent) for checkpoint in checkpoints]
    graph = max(len(one.node) for one in drawn)
    digits = len(str(checkpoints[0].step))
    room = max(out.width - graph - digits - 17, 20) if is_terminal() else None
    titles = [_title(names, checkpoint, room) for checkpoint in checkpoints]
    column = min(max(title.cell_len for title in titles), room or _WIDEST_LABEL)
    for one, checkpoint, title in zip(drawn, checkpoints, titles, strict=True):
        if one.meeting:
            out.print(Text(one.meeting, "dim"))
        line = _graph(one, graph).append(f"  {checkpoint.step:>{digits}}  ", "bold")
        line.append_text(title).append(" " * max(column - title.cell_len, 0))
        out.print(line.append(f"  {age(checkpoint.created_at)}", "dim"))
        if checkpoint.step in stats:
            below = (
                Text()
                .append(pad(one.below, graph), "dim")
                .append(" " * (digits + 4))
                .append_text(_stat_text(stats[checkpoint.step]))
            )
            if is_terminal():
                below.truncate(out.width, overflow="ellipsis")
            out.print(below)


def _graph(drawn: Drawn, width: int) -> Text:
    text = Text().append(pad(drawn.node, width), "dim")
    node = next(place for place, sign in enumerate(drawn.node) if sign in "●*")
    text.stylize("not dim bold", node, node + 1)
    return text


def _title(names: _Names, checkpoint: clew.Checkpoint, room: int | None) -> Text:
    """The label, the kind unless it is an ordinary step, and what points here."""
    tags = names_at(names.tags, checkpoint.step) + names_at(names.tips, checkpoint.step)
    marks = decoration(names_at(names.branches, checkpoint.step), tags)
    text = Text()
    if checkpoint.label:
        text.append(checkpoint.label)
    if checkpoint.kind != "step":
        text.append(" " if text else "").append(checkpoint.kind, "magenta")
    if marks:
        if room is not None:
            text.truncate(max(room - marks.cell_len - 1, 8), overflow="ellipsis")
        text.append(" " if text else "").append_text(marks)
    if room is not None:
        text.truncate(room, overflow="ellipsis")
    return text


def _print_json(
    thread: clew.Thread,
    names: _Names,
    checkpoints: list[clew.Checkpoint],
    stats: Mapping[int, list[dict[str, Any]]],
    *,
    more: bool,
) -> None:
    listed = []
    for checkpoint in checkpoints:
        one = checkpoint_json(checkpoint)
        one["branches"] = names_at(names.branches, checkpoint.step)
        one["tags"] = names_at(names.tags, checkpoint.step)
        if checkpoint.step in stats:
            one["changes"] = stats[checkpoint.step]
        listed.append(one)
    print_json(
        {
            "thread": thread.id,
            "branches": dict(names.branches),
            "tags": dict(names.tags),
            "tips": dict(names.tips),
            "checkpoints": listed,
            "more": more,
        }
    )
