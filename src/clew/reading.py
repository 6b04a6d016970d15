"""From rows to checkpoints and states, within one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from clew import references
from clew.errors import BadInput, Corrupt, RefNotFound, ThreadNotFound
from clew.model import Checkpoint, from_microseconds
from clew.state.codec import decode
from clew.state.layout import Tree
from clew.state.many import Items, Many
from clew.state.reader import Reader, Scan
from clew.state.seal import row_crc, seal_of
from clew.storage.port import Head, Row, Snapshot, Storage, Want

_NOTHING: dict[str, Any] = {}
_KEY_AND_STEP = itemgetter(0, 1)
_LANE = attrgetter("lane")


class Base(NamedTuple):
    """What a handle builds its next checkpoint on. `step` None: the branch is empty.

    `lane` is the lane that the next commit continues (0: it opens one). `tree` is the shadow of the state; `loaded`
    tells whether it knows the values or only where they lie. `of` is the identity of the dict that was read or saved;
    0 when nobody holds this state, because it was told.
    """

    step: int | None
    lane: int
    tree: Tree
    loaded: bool
    checkpoint: Checkpoint | None
    of: int = 0


def verified(row: Row, seal: int) -> Row:
    """The row, if its checksum holds."""
    if row.crc != row_crc(
        seal, row.id, row.kind, row.label, row.run, row.next, row.created, row.metadata, row.manifest
    ):
        raise Corrupt(f"checkpoint {row.step} ({row.id}) does not match its checksum")
    return row


def next_names(packed: bytes | None) -> tuple[str, ...]:
    """The nodes that run next, of a checkpoint's stored plan: names, or what a runtime keeps under "tasks"."""
    if packed is None:
        return ()
    plan = decode(packed)
    return tuple(task[0] for task in plan["tasks"]) if type(plan) is dict else tuple(plan)


def to_checkpoint(row: Row, thread_id: str, load: Callable[[int], dict[str, Any]]) -> Checkpoint:
    """The row as people see it."""
    return Checkpoint(
        row.id,
        row.step,
        row.parent,
        row.kind,
        row.label,
        row.run,
        next_names(row.next),
        from_microseconds(row.created),
        dict(_NOTHING) if row.metadata is None else decode(row.metadata),
        thread_id,
        load,
    )


def reader(
    snapshot: Snapshot, thread: int, row: Row, seal: int, *, own: bool, open_blob: Callable[[str], bytes]
) -> Reader:
    """A reader that has been fed everything the row's state needs."""
    verified(row, seal)
    reading = Reader(row.manifest, row.lane, seal, own=own, open_blob=open_blob)
    _feed(snapshot, thread, reading, row.step, set())
    return reading


class States:
    """Reads the states of many checkpoints of a thread within a snapshot. What `items` know is not read again."""

    def __init__(
        self, snapshot: Snapshot, thread: int, seal: int, items: Items, open_blob: Callable[[str], bytes]
    ) -> None:
        self._snapshot = snapshot
        self._thread = thread
        self._seal = seal
        self._reading = Many(seal, items.of(thread), open_blob)
        self._seen: set[tuple[int, int]] = set()

    def of(self, rows: Sequence[Row]) -> list[Any]:
        """Their states; objects in their lists may be those of another one's, containers are fresh."""
        for row in rows:
            verified(row, self._seal)
        # What the newest one needs is most of what the others do: they are read together.
        states = list(map(self._one, rows[:1]))
        for lane, of_lane in groupby(rows[1:], key=_LANE):
            together = list(of_lane)
            try:
                states += self._reading.states_of([row.manifest for row in together], lane)
            except Corrupt:  # most likely, what one of them refers to has not been fetched yet
                states += map(self._one, together)
        return states

    def _one(self, row: Row) -> Any:
        self._reading.add_manifest(row.manifest, row.lane)
        _feed(self._snapshot, self._thread, self._reading, row.step, self._seen)
        return self._reading.states_of([row.manifest], row.lane)[0]


def _feed(snapshot: Snapshot, thread: int, reading: Scan, step: int, seen: set[tuple[int, int]]) -> None:
    """Fetch what the checkpoint at a step needs, level by level; nothing of it came later. What was `seen` is fed."""
    while (needs := reading.needs()) is not None:
        if needs.stretches:
            pieces = snapshot.payload(thread, [Want(*stretch) for stretch in needs.stretches], step)
            if seen:  # most states are read in one go; then nothing can come twice
                pieces = [piece for piece in pieces if piece[:2] not in seen]
            seen.update(map(_KEY_AND_STEP, pieces))
            for _, _, lane, data in pieces:
                reading.add(lane, data)
        for digest in needs.blobs:
            value = snapshot.blob(digest)
            if value is None:
                raise Corrupt(f"the blob {digest[:12]}… of checkpoint {step} is missing")
            reading.blobs[digest] = value


class Source:
    """Where the states of one thread come from, as seen from one of its branches.

    It remembers nothing. So a checkpoint may hold it, and a handle its checkpoints, without holding each other alive.
    """

    __slots__ = ("_branch", "_storage", "_thread_id", "seal")

    def __init__(self, storage: Storage, tenant: str, thread_id: str, branch: str) -> None:
        self._storage = storage
        self._thread_id = thread_id
        self._branch = branch
        self.seal = seal_of(tenant, thread_id)

    def at(self, ref: str | int | Checkpoint) -> dict[str, Any]:
        """The state at a checkpoint, as no base of anything."""
        with self._storage.snapshot() as snapshot:
            thread, row = find_row(snapshot, self._thread_id, self._branch, ref)
            reading = self.reader(snapshot, thread, row, own=False)
        return checked(reading.state())

    def reader(self, snapshot: Snapshot, thread: int, row: Row, *, own: bool) -> Reader:
        """A reader that has been fed everything the row's state needs."""
        return reader(snapshot, thread, row, self.seal, own=own, open_blob=self.open_blob)

    def open_blob(self, digest: str) -> bytes:
        with self._storage.snapshot() as snapshot:
            data = snapshot.blob(digest)
        if data is None:
            raise BadInput(f"the blob {digest[:12]}… is gone: no checkpoint refers to it any more")
        return data

    def checkpoint(self, row: Row) -> Checkpoint:
        return to_checkpoint(row, self._thread_id, self.at)


def checked(state: Any) -> dict[str, Any]:
    if type(state) is not dict:
        raise BadInput("this checkpoint holds no state")
    return state


def find_row(snapshot: Snapshot, thread_id: str, branch: str, ref: str | int | Checkpoint) -> tuple[int, Row]:
    """The thread's key and the row that a reference names, with its manifest."""
    reference = references.parse(ref)
    head = snapshot.head(thread_id, branch)
    if head is None:
        if snapshot.find_thread(thread_id) is None:
            raise ThreadNotFound(f"there is no thread {thread_id!r}")
        raise RefNotFound(f"thread {thread_id!r} has no branch {branch!r}")
    step = reference.step
    if step is None and reference.name is None:
        if head.row is None:
            raise RefNotFound(f"nothing has been saved on branch {branch!r} of {thread_id!r}, so it has no head")
        step = head.row.step
        if not reference.back:
            return head.thread, head.row
    if step is None:
        step = _named(snapshot, head, thread_id, str(reference.name), reference.text)
    if reference.back:
        step = _back(snapshot, head.thread, step, reference)
    row = snapshot.row(head.thread, step)
    if row is None:
        raise RefNotFound(f"thread {thread_id!r} has no step {step}", candidates=_near_steps(snapshot, head, step))
    return head.thread, row


def _named(snapshot: Snapshot, head: Head, thread_id: str, name: str, text: str) -> int:
    """The step that a branch, a tag or the beginning of an id means."""
    refs = {ref.name: ref for ref in snapshot.refs(head.thread)}
    found = refs.get(name)
    if found is not None:
        if found.step is None:
            raise RefNotFound(f"nothing has been saved on branch {name!r} of {thread_id!r}")
        return found.step
    if len(name) >= references.SHORTEST_PREFIX:
        rows = snapshot.rows_by_id(head.thread, name, 3)
        if len(rows) == 1 or (rows and rows[0].id == name):
            return rows[0].step
        if rows:
            raise RefNotFound(f"{text!r} is the beginning of several ids", candidates=tuple(row.id for row in rows))
    raise RefNotFound(
        f"{text!r} names no checkpoint of thread {thread_id!r}", candidates=references.near(name, [*refs, "head"])
    )


def _back(snapshot: Snapshot, thread: int, step: int, reference: references.Reference) -> int:
    rows = snapshot.history(thread, step, reference.back + 1)
    if not rows:
        return step
    if len(rows) <= reference.back:
        raise RefNotFound(
            f"{reference.text!r} goes back {reference.back} checkpoints, but there are only {len(rows) - 1} before it",
            candidates=(str(rows[-1].step),),
        )
    return rows[-1].step


def _near_steps(snapshot: Snapshot, head: Head, step: int) -> tuple[str, ...]:
    before = snapshot.rows(head.thread, max(0, step - 50), 100, manifests=False)
    steps = sorted((row.step for row in before), key=lambda known: abs(known - step))[:2]
    if not steps and head.row is not None:
        steps = [head.row.step]
    return tuple(str(known) for known in sorted(steps))
