"""Asking, as an agent does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgers import ledger_of

import clew
from clew.asking import new_request

Asks = Callable[..., clew.Request]


def asking(db: clew.Database) -> Asks:
    """What asks on a thread `trip` of two steps: a question, a schema, and what else `new_request` takes."""
    thread = db.thread("trip")
    thread.save({"city": "Tokyo", "price": 400})
    thread.save({"city": "Tokyo", "price": 420})

    def ask(question: Any = "Book for 420 €?", schema: Any = bool, **other: Any) -> clew.Request:
        other = {"activation": "a1", "ask": "book", "step": 2, **other}
        thread_id = other.pop("thread", "trip")
        row = ledger_of(db).ask(thread_id, new_request(question, schema, **other))
        return db.request(row.number)

    return ask
