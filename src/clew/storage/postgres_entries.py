"""Entries of the ledger that ride on a statement: the same transaction, on PostgreSQL with a few round trips more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clew.errors import Corrupt
from clew.storage.changes import Change
from clew.storage.ledger import Entry, Move, Withdraw
from clew.storage.postgres_prepared import Connection, Prepared, Row
from clew.storage.queue import Enter

Then = Callable[[Connection, Row], None]
"""What is done in the transaction of a statement, after it: given the connection, and the statement's row."""


def split(changes: Sequence[Change | Entry]) -> tuple[list[Change], list[Entry]]:
    """Those that are calls within the statement, and those that come after it."""
    calls = [change for change in changes if isinstance(change, Change)]
    return calls, [change for change in changes if not isinstance(change, Change)]


def riding(changes: Sequence[Change | Entry], epoch: int | None) -> list[Change | Entry]:
    """With the two entries that commits of every run bring as calls within the statement (postgres_011_rides.sql)."""
    found: list[Change | Entry] = []
    ended = {change.run for change in changes if isinstance(change, Move) and _is_plain_end(change)}
    for change in changes:
        match change:
            case Enter():
                found.append(Change("enter_run", change._asdict()))
            case Move() if _is_plain_end(change):
                found.append(Change("end_run", {"run": change.run, "epoch": epoch or 0}))
            case Withdraw((), str(run), None) if run in ended:
                continue  # its end withdraws them as well
            case _:
                found.append(change)
    return found


def _is_plain_end(move: Move) -> bool:
    return move == Move(move.run, "done", ("running",))


def in_order(changes: Sequence[Change | Entry], answers: Sequence[Any]) -> list[Any]:
    """The answers of the calls, each at the place of its change. Entries give none."""
    rest = iter(answers)
    return [next(rest) if isinstance(change, Change) else None for change in changes]


def first_row(
    connection: Connection, statement: bytes, values: Sequence[Any], begin: bytes = b"", then: Then | None = None
) -> Row:
    """Run a statement alone, or in a transaction with what follows it; its first row."""
    calls: Prepared = connection.calls  # type: ignore[attr-defined]
    if then is None:
        rows = calls.rows(statement, values)
    else:
        with connection.transaction():
            connection.execute(begin)
            rows = calls.rows(statement, values)
            if rows:
                then(connection, rows[0])
    if not rows:
        raise Corrupt("PostgreSQL answered without a row")
    return rows[0]


def all_rows(
    connection: Connection, statement: bytes, values: Sequence[Any], begin: bytes = b"", then: Then | None = None
) -> tuple[Row, ...]:
    """Run a statement alone; all of its rows."""
    del begin, then
    calls: Prepared = connection.calls  # type: ignore[attr-defined]
    return tuple(calls.rows(statement, values))
