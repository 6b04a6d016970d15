"""`clew diff`: what changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.cells import cell_len
from rich.text import Text

import clew
from clew.cli.output import checkpoint_json, console, is_terminal, pad, print_json
from clew.cli.place import Place, complete_place, find_place
from clew.cli.settings import database_options, note, open_database, settings

_STYLES = {"+": "green", "-": "red", "~": "yellow"}
_PIPED_WIDTH = 160


@click.command(short_help="Show what changed between two checkpoints.")
@click.argument("old", metavar="THREAD@A", shell_complete=complete_place)
@click.argument("new", metavar="[B | THREAD@B]", required=False, shell_complete=complete_place)
@database_options()
@click.pass_context
def diff(ctx: click.Context, old: str, new: str | None) -> None:
    """Show what changed from checkpoint A to checkpoint B; without B, to the head.

    B may be a reference on the same thread, or THREAD@REF. Ends with 1 when they differ, 0 when not.
    """
    with open_database() as db:
        before = find_place(db, old)
        after = find_place(db, new) if new and "@" in new else Place(before.thread, new)
        a, b = before.checkpoint, after.checkpoint
        found = clew.diff(a.state(), b.state())
    if settings().json:
        sides = {
            "old": {"thread": a.thread_id, **checkpoint_json(a)},
            "new": {"thread": b.thread_id, **checkpoint_json(b)},
        }
        print_json({**sides, "same": not found, "changes": found.as_json()})
    else:
        if not found:
            note(f"{_title(a)} and {_title(b)} are the same")
        else:
            _print(found, f"{_title(a)} → {_title(b)}")
    ctx.exit(1 if found else 0)


def _title(checkpoint: clew.Checkpoint) -> str:
    return f"{checkpoint.thread_id}@{checkpoint.step}" + (f" {checkpoint.label}" if checkpoint.label else "")


def _print(found: clew.Diff, title: str) -> None:
    out = console()
    out.print(Text(title, "dim"))
    for line in change_lines(found, out.width if is_terminal() else None):
        out.print(line)


def change_lines(found: clew.Diff, width: int | None) -> Iterator[Text]:
    """A line for each change, in colours; without a width, as wide as a file may be."""
    lines = list(found.lines(width or _PIPED_WIDTH))
    column = max((cell_len(where) for _, where, _ in lines), default=0)
    for sign, where, text in lines:
        line = Text().append(f"{sign or ' '} ", _STYLES.get(sign, ""))
        line.append(pad(where, column), "cyan").append("  ")
        yield line.append(text, _STYLES.get(text[:1], "") if not sign and text[1:2] == " " else "")
