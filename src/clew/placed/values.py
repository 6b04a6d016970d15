"""What placed checkpoints are made of, and small readings of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from clew.errors import Corrupt
from clew.model import Kind
from clew.state.codec import decode, decode_list
from clew.state.registry import registry
from clew.state.seal import record_crc
from clew.storage.changes import Record
from clew.storage.ledger import NewRequest
from clew.storage.placed import PlacedRow, PlacedView, place_of
from clew.storage.port import Row, Snapshot

_T = TypeVar("_T")

TOOK = "took"
"""In control data: what the checkpoint took of the records beside its parent, each as [task, idx]; and as the five
fields of a `Write` those that are not there, since others stand in their place. Without it, it took all of them."""


class Place(NamedTuple):
    """What names a placed checkpoint. An `id` of None means the latest of the namespace."""

    thread_id: str
    ns: str
    id: str | None


class Write(NamedTuple):
    """A record, with its value. `idx` below 0 replaces what is there; from 0 on the first one stays."""

    task: str
    idx: int
    path: str
    name: str
    value: Any


class Question(NamedTuple):
    """What a task asks people. `id` is unique in its thread. `terms`, if there are any, say more of it."""

    id: str
    value: Any
    terms: NewRequest | None = None


class Found(NamedTuple):
    """A placed checkpoint as read. `parent` is the id of the one it stands on, if that is there."""

    thread_id: str
    ns: str
    id: str
    step: int
    parent: str | None
    state: dict[str, Any]
    control: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[Write]


class Trail(NamedTuple):
    """What led to a value: records, and the value they began from, if one was `found`."""

    writes: list[Write]
    found: bool
    value: Any


class New(NamedTuple):
    """What is to be placed. `leans`: it cannot be read without its parent's records. `expected`: see `put`.

    `created` is in microseconds since 1970; None means now.
    """

    state: dict[str, Any]
    control: dict[str, Any]
    metadata: Mapping[str, Any]
    kind: Kind = "step"
    label: str | None = None
    run: str | None = None
    next: Sequence[str] = ()
    leans: bool = False
    expected: str | None = None
    refuse: bool = False
    created: int | None = None


def meet(cls: type) -> bool:
    """Let instances of a class be built from stored bytes, if the class says by itself how; whether it is known now."""
    return registry.meet(cls) is not None


def control_crc(seal: int, ns: str, id_: str, control: bytes) -> int:
    return record_crc(seal, place_of(ns, id_), "", 0, "", "control", control)


def checked(page: Sequence[PlacedRow], seal: int, thread_id: str) -> None:
    """`Corrupt` unless the control data of each is what was written."""
    for at in page:
        if at.crc != control_crc(seal, at.ns, at.id, at.control):
            raise Corrupt(
                f"the control data of checkpoint {at.id!r} of thread {thread_id!r} does not match its checksum"
            )


def row_of(snapshot: Snapshot, thread: int, at: PlacedRow) -> Row:
    return in_place(snapshot.row(thread, at.step), at)


def present(rows: dict[int, Row], at: PlacedRow) -> Row:
    return in_place(rows.get(at.step), at)


def in_place(row: Row | None, at: PlacedRow) -> Row:
    """The row of a placed checkpoint; `Corrupt` if that is missing."""
    if row is None:
        raise Corrupt(f"checkpoint {at.id!r} should be step {at.step}, which is missing")
    return row


def parents_of(
    snapshot: Snapshot, thread: int, page: Sequence[PlacedRow], rows: Sequence[Row]
) -> dict[tuple[str, int], str]:
    """The ids of the parents of some checkpoints, by namespace and step."""
    ids = {(at.ns, at.step): at.id for at in page}
    missing: dict[str, set[int]] = {}
    for at, row in zip(page, rows, strict=True):
        if row.parent is not None and (at.ns, row.parent) not in ids:
            missing.setdefault(at.ns, set()).add(row.parent)
    for ns, steps in missing.items():
        ids.update(((ns, step), id_) for step, id_ in PlacedView(snapshot).ids(thread, ns, sorted(steps)).items())
    return ids


def metadata_of(row: Row) -> dict[str, Any]:
    metadata: dict[str, Any] = {} if row.metadata is None else decode(row.metadata)
    if type(metadata) is not dict:
        raise Corrupt(f"the metadata of checkpoint {row.id} is a {type(metadata).__name__}")
    return metadata


def by_place(records: Sequence[Record], of: Sequence[_T]) -> dict[str, list[_T]]:
    """What belongs to each of the records, by the place that they are recorded at."""
    found: dict[str, list[_T]] = {}
    for record, one in zip(records, of, strict=True):
        found.setdefault(record.place, []).append(one)
    return found


def read_writes(records: Sequence[Record], seal: int, thread_id: str) -> list[Write]:
    for place, task, idx, path, name, value, _, crc in records:
        if crc != record_crc(seal, place, task, idx, path, name, value):
            raise Corrupt(f"a record of task {task!r} of thread {thread_id!r} does not match its checksum")
    values = decode_list(len(records), [record.value for record in records])
    return [
        Write(record.task, record.idx, record.path, record.name, value)
        for record, value in zip(records, values, strict=True)
    ]


def taken_of(writes: list[Write], took: Any) -> list[Write]:
    """Of the writes beside a checkpoint those that a child `took`, in the order in which they are applied."""
    if took is None:
        return writes
    try:
        keys = {(one[0], one[1]) for one in took if len(one) == 2}
        own = [Write._make(one) for one in took if len(one) != 2]
        taken = [write for write in writes if (write.task, write.idx) in keys] + own
        return sorted(taken, key=lambda write: (write.path, write.task, write.idx))
    except TypeError as error:
        raise Corrupt(f"a checkpoint does not say what it was made from: {error}") from None
