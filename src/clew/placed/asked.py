"""What the tasks of a run have asked people, by the framework's own ids, and what was answered."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.asking import decision_of
from clew.storage.ledger import Ledger

_PAGE = 100


class Asked(NamedTuple):
    """The newest request with an id. `decided`: somebody has answered it with `value`."""

    number: int
    decided: bool
    value: Any


def asked_by(ledger: Ledger, thread_id: str, run: str) -> dict[str, Asked]:
    """What a run has asked, but for what was withdrawn. A rejection is False: interrupts know no other no."""
    found: dict[str, Asked] = {}
    after = None
    while rows := ledger.requests(thread_id=thread_id, run=run, after=after, limit=_PAGE):
        for row in rows:
            decision = decision_of(row) if row.status in ("answered", "expired") else None
            if row.status != "withdrawn":
                value = None if decision is None else (False if decision.rejected else decision.value)
                found[row.ask] = Asked(row.number, decision is not None, value)
        after = rows[-1].number
    return found
