"""Standing in line for a branch: a caller that waits for its run's turn, and helps whoever is before it.

There may be no worker. So whoever waits goes on with what nobody alive goes on with: the run that has the branch, and
those that were called before it and whose callers are gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clew.errors import Conflict, RunNotFound
from clew.runtime.executor import Executor, Held, claim, execute
from clew.storage.ledger import ENDED, Ledger, Move, RunRow, ledger_of

if TYPE_CHECKING:
    import asyncio

GRACE = 5.0
"""Seconds that a run is left to its caller, once it is its turn. Then anybody takes it."""
_PAUSE = (0.002, 0.2)
_HELP = 0.25


def its_turn(
    db: Any,
    executor: Executor,
    run: str,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    unwanted: Callable[[], bool] = lambda: False,
) -> Held | RunRow:
    """Claim a queued run once it is its turn; or what it has come to, if somebody else takes it.

    Its line is left when the wait is interrupted, or `unwanted` meanwhile.
    """
    ledger = ledger_of(db._storage)
    pause, helped = _PAUSE[0], 0.0
    try:
        while True:
            row = _row(ledger, run)
            if unwanted() and row.status == "queued":
                _leave(ledger, row)
                continue
            if row.status in ENDED or (row.status in ("waiting", "sleeping", "paused") and not ledger.is_due(run)):
                return row
            held = None if row.status == "running" else claim(db, [executor], run=run, loop=loop)
            if held is not None:
                return held
            if time.monotonic() - helped > _HELP:
                _help(db, executor, ledger, row, loop)
                helped = time.monotonic()
            # There is nothing to wait on across processes: look again, less and less often.
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - not for secrets
            pause = min(2 * pause, _PAUSE[1])
    except BaseException:
        left = ledger.run(run)
        if left is not None and left.status == "queued":
            _leave(ledger, left)
        raise


def _row(ledger: Ledger, run: str) -> RunRow:
    row = ledger.run(run)
    if row is None:
        raise RunNotFound(f"run {run!r} is gone, with its thread")
    return row


def _leave(ledger: Ledger, row: RunRow) -> None:
    try:
        ledger.apply(row.thread_id, [Move(row.id, "cancelled", ("queued",))])
    except Conflict:
        return  # somebody has just taken it


def _help(db: Any, executor: Executor, ledger: Ledger, row: RunRow, loop: asyncio.AbstractEventLoop | None) -> None:
    """Go on with what is before it and was left, or is due and nobody does."""
    before = ledger.run_holding(row.thread_id, row.branch)
    if before is None:
        queued = ledger.runs(thread_id=row.thread_id, status="queued", limit=1000)
        before = next((one for one in queued if one.branch == row.branch and one.wake is not None), None)
    if before is None or before.id == row.id:
        return
    if before.status == "running" or ledger.is_due(before.id):
        held = claim(db, [executor], run=before.id, loop=loop)
        if held is not None:
            execute(held)  # its errors are its own
