"""`clew threads`: what is there."""

from __future__ import annotations

from typing import Literal

import click
from rich.text import Text

import clew
from clew.cli.output import age, clip, console, is_terminal, print_json, table
from clew.cli.settings import database_options, note, open_database, settings


@click.command()
@click.option(
    "--order",
    type=click.Choice(["updated", "created", "id"]),
    default="updated",
    show_default=True,
    help="By last change or creation, newest first, or by id.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended.")
@database_options()
def threads(order: Literal["updated", "created", "id"], limit: int, cursor: str | None) -> None:
    """List the threads, the last changed first."""
    with open_database() as db:
        page = db.threads(order=order, limit=limit, cursor=cursor)
    if settings().json:
        print_json({"threads": [_as_json(info) for info in page], "cursor": page.cursor})
        return
    if page:
        out = console()
        room = max(out.width - 55, 20) if is_terminal() else None
        head: list[list[Text | str]] = [
            [Text(name, "dim") for name in ("thread", "steps", "branches", "updated", "last")]
        ]
        for line in table(head + [_row(info, room) for info in page], right=frozenset({1, 2})):
            out.print(line)
    else:
        note(f"tenant {db.tenant_name!r} has no threads in this database")
    if page.cursor:
        note(f"there are more: clew threads --order {order} --cursor {page.cursor}")


def _row(info: clew.ThreadInfo, room: int | None) -> list[Text | str]:
    last = Text(clip(info.label or "", 24 if room else None))
    if info.busy:
        last.append(" " if last else "").append("busy", "bold yellow")
    return [
        Text(clip(info.id, room), "bold"),
        f"{info.steps:,}",
        str(info.branches),
        Text(age(info.updated_at), "dim"),
        last,
    ]


def _as_json(info: clew.ThreadInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "steps": info.steps,
        "branches": info.branches,
        "label": info.label,
        "metadata": clew.as_json(dict(info.metadata)),
        "busy": info.busy,
    }
