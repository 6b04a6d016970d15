"""How things are printed: the console, sizes, ages, decorations, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

import clew
from clew.cli.settings import is_utf8, settings

_PIPED_WIDTH = 120


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # rich would exit with 1, which means something here


def console() -> Console:
    """Of stdout as it is now. It never wraps: lines are made to fit where that is wanted."""
    plain = settings().no_color or bool(os.environ.get("NO_COLOR"))
    width = None if is_terminal() else int(os.environ.get("COLUMNS") or 0) or _PIPED_WIDTH
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return _Console(
        color_system=None if plain else "auto", width=width, highlight=False, markup=False, emoji=False, soft_wrap=True
    )


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """One document, indented for people, whatever the terminal's encoding."""
    text = json.dumps(value, indent=2, ensure_ascii=not is_utf8()) + "\n"
    try:
        data = text.encode()
    except UnicodeEncodeError:  # lone surrogates
        data = json.dumps(value, indent=2).encode() + b"\n"
    write_bytes(data)


def write_bytes(data: bytes | bytearray) -> None:
    """Write all of it to stdout. Python's own `write` may stop in the middle, and say so only by its result, when it is
    told not to buffer."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def checkpoint_json(checkpoint: clew.Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "step": checkpoint.step,
        "parent": checkpoint.parent,
        "kind": checkpoint.kind,
        "label": checkpoint.label,
        "run": checkpoint.run,
        "next": list(checkpoint.next),
        "created_at": checkpoint.created_at.isoformat(),
        "metadata": clew.as_json(dict(checkpoint.metadata)),
    }


def size(count: int) -> str:
    """Bytes for people: `340 B`, `1.2 KB` (1 KB is 1000 B)."""
    amount, units = float(count), ["B", "KB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        del units[0]
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 thread`, `1,200 threads`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in a few letters; a date when that is long."""
    seconds = int(((now or datetime.now(UTC)) - moment).total_seconds())
    if -60 < seconds < 5:
        return "just now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if 0 < seconds < limit:
            return f"{seconds // unit} {name} ago"
    days = seconds // 86400
    return f"{counted(days, 'day')} ago" if 0 < days < 14 else moment.astimezone().date().isoformat()


def until(moment: datetime, now: datetime | None = None) -> str:
    """How long still, in a few letters: `in 3 h`."""
    seconds = int((moment - (now or datetime.now(UTC))).total_seconds())
    if seconds <= 0:
        return "now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"in {round(seconds / unit)} {name}"
    days = round(seconds / 86400)
    return f"in {counted(days, 'day')}" if days < 14 else f"on {moment.astimezone().date().isoformat()}"


def clip(text: str, width: int | None) -> str:
    """The text in at most so many columns, with `…` where it was cut."""
    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def names_at(refs: Mapping[str, int | None], step: int) -> list[str]:
    return [name for name, at in refs.items() if at == step]


def decoration(branches: Iterable[str], tags: Iterable[str]) -> Text:
    """`(main, osaka) [before-payment]`: the branches whose head this is, and the tags."""
    text = Text()
    if heads := ", ".join(branches):
        text.append(f"({heads})", "bold green")
    if named := ", ".join(tags):
        text.append(" " if text else "").append(f"[{named}]", "yellow")
    return text


def table(rows: list[list[Text | str]], *, right: frozenset[int] = frozenset()) -> Iterable[Text]:
    """Columns with two spaces between them; the last one is not padded."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        line = Text()
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell.cell_len)
            last = place == len(row) - 1
            line.append("  " if place else "")
            line.append(space if place in right else "").append_text(cell)
            line.append("" if last or place in right else space)
        line.rstrip()
        yield line
