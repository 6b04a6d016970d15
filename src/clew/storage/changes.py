"""The open end of a commit: rows of other kinds that are written in the transaction of a checkpoint, or in one of their
own (`Storage.apply`).

A *change* is the name of a statement and its values. On SQLite the statement is a named query that also gets `thread`
and `step` (the checkpoint's, or None); on PostgreSQL it is a function `clew.<name>(p_tenant, p_thread, p_step, …)`,
whose other parameters are the values' names after `p_`. All changes of a commit are one statement there, in one trip.

1. A change that raises undoes the whole transaction.
2. A change is the same when it is done twice: a commit whose reply was lost is sent again.
3. When a commit was written before, its changes were as well, and are not applied again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A row to be written, changed or removed. The names are those of our statements, never data."""

    name: str
    values: Mapping[str, Any]


class Record(NamedTuple):
    """What a task has finished with, beside a checkpoint.

    `place` names the checkpoint, which may be written later; `beside` is its step where that is known: the record then
    goes when the checkpoint goes. `idx` counts within the task; `name` is a channel, or the key of a call.
    """

    place: str
    task: str
    idx: int
    path: str
    name: str
    value: bytes
    beside: int | None
    crc: int


def put_record(record: Record) -> Change:
    """Write a record, unless one of its place, task and index is there."""
    return Change("put_record", record._asdict())


def set_record(record: Record) -> Change:
    """Write a record, in place of the one that has its place, task and index."""
    return Change("set_record", record._asdict())


def drop_records(place: str) -> Change:
    """Remove all records of a place."""
    return Change("drop_records", {"place": place})


def postgres_call(head: bytes, tenant: int, changes: Sequence[Change]) -> tuple[bytes, list[Any]]:
    """The statement that runs `head` and then the changes; and the changes' values.

    The head is a call that gives (thread, step, …) as `c`; its text has `{changes}` where the calls of the changes go.
    """
    values: list[Any] = []
    for change in changes:
        values.append(tenant)
        values.extend(change.values.values())
    return _statement(head, tuple((change.name, tuple(change.values)) for change in changes)), values


@cache
def _statement(head: bytes, shapes: tuple[tuple[str, tuple[str, ...]], ...]) -> bytes:
    calls = [
        f", clew.{name}(%s, c.thread, c.step{''.join(f', p_{key} => %s' for key in keys)})" for name, keys in shapes
    ]
    return head.replace(b"{changes}", "".join(calls).encode())
