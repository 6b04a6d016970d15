"""`clew usage`: how much is stored."""

from __future__ import annotations

import dataclasses

import click
from rich.text import Text

import clew
from clew.cli.output import console, counted, print_json, size, table
from clew.cli.settings import database_options, open_database, settings


@click.command(short_help="Show how much is stored.")
@database_options()
def usage() -> None:
    """Show how much is stored: this tenant's threads, and the database as a whole."""
    with open_database() as db:
        found = db.usage()
    per_checkpoint = round(_stored(found) / found.checkpoints) if found.checkpoints else None
    if settings().json:
        print_json({**dataclasses.asdict(found), "bytes_per_checkpoint": per_checkpoint})
        return
    rows: list[list[Text | str]] = [
        ["threads", "", counted(found.threads, "thread")],
        ["checkpoints", size(found.checkpoint_bytes), counted(found.checkpoints, "checkpoint")],
        ["payload", size(found.payload_bytes), ""],
        ["blobs", size(found.blob_bytes), counted(found.blobs, "blob")],
        ["items", size(found.item_bytes), counted(found.items, "item")],
        ["runs", size(found.ledger_bytes), _ledger(found)],
    ]
    if per_checkpoint is not None:
        rows.append(["a checkpoint", size(per_checkpoint), "on average, with its payload"])
    rows.append(["database", size(found.file_bytes), f"{size(found.free_bytes)} of it free"])
    out = console()
    for line in table([[Text(str(row[0]), "dim"), *row[1:]] for row in rows], right=frozenset({1})):
        out.print(line)


def _ledger(found: clew.Usage) -> str:
    parts = [(found.runs, "run"), (found.effects, "effect"), (found.requests, "request")]
    return ", ".join(counted(number, what) for number, what in parts)


def _stored(found: clew.Usage) -> int:
    return found.checkpoint_bytes + found.payload_bytes + found.blob_bytes
