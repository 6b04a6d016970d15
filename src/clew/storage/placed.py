"""Placed checkpoints: those that a framework writes under ids of its own, and all of it that the backends share.

1. A checkpoint is named by (namespace, id). The greatest id of a namespace is its latest, whenever it was written.
2. Placing never compares heads. Whether a lane can go on is found out inside the transaction; if not, `LaneMoved` asks
   the caller to draft the checkpoint anew, on a lane of its own.
3. Placing an id again replaces the checkpoint. Its children keep what they saw, names that pointed at it follow, and
   its records stay.
4. The branch `main` follows the latest of the namespace "". A tip that it leaves keeps an automatic name until a child
   of it is placed.
5. The same placing sent twice is written once.
6. What tasks ask people are requests of the ledger (placed_requests.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from clew.errors import BadInput, Conflict
from clew.model import KINDS, Kind
from clew.storage.changes import Change
from clew.storage.ledger import Entry
from clew.storage.ledger_entries import write_entries
from clew.storage.placed_requests import Asking, ask, overtake, seat
from clew.storage.port import STEP_BITS, Committed, Lease, Row, Snapshot, Storage
from clew.storage.refusals import no_step
from clew.storage.relational import Relational, Run
from clew.storage.rows import full_rows, thread_key
from clew.storage.snapshots import STEPS, RelationalSnapshot

ROOT = ""
"""The namespace that the branch `main` follows."""
_KINDS = {kind: number for number, kind in enumerate(KINDS)}
LAST = "\U0010ffff"
"""Beyond every id."""


class Placing(NamedTuple):
    """A checkpoint to be placed. `base` is the step it stands on (None: a root), `lane` the lane it goes on with, or 0.

    With `expected`, an id, the parent was taken for the latest of the namespace: if another one is, `Done.raced` names
    it, and with `refuse` that is a `Conflict` instead. Under a `lease` that has passed on, it is `Fenced`.
    """

    thread_id: str
    ns: str
    id: str
    base: int | None
    lane: int
    kind: Kind
    label: str | None
    run: str | None
    next: bytes | None
    created: int
    metadata: bytes | None
    manifest: bytes
    crc: int
    payload: bytes | None
    blobs: Sequence[tuple[str, bytes]]
    control: bytes
    control_crc: int
    leans: bool
    expected: str | None = None
    refuse: bool = False
    changes: Sequence[Change] = ()
    lease: Lease | None = None
    entries: Sequence[Entry] = ()


class Done(NamedTuple):
    """`raced` is the id that was the latest where another one was expected."""

    committed: Committed
    raced: str | None


class PlacedRow(NamedTuple):
    """A placed checkpoint without its row."""

    ns: str
    id: str
    step: int
    leans: int
    control: bytes
    crc: int


class PlacedStep(NamedTuple):
    ns: str
    id: str
    step: int
    leans: int


class LaneMoved(Conflict):
    """The lane has grown meanwhile: draft the checkpoint anew."""

    code = "conflict"


class Placed:
    """The placed checkpoints of one tenant."""

    def __init__(self, storage: Storage) -> None:
        self._storage = cast("Relational", storage)

    def place(self, placing: Placing) -> Done:
        """Write one checkpoint, whole or not at all."""
        with self._storage.keeping(placing.blobs) as blobs:
            placing = placing._replace(blobs=blobs)
            if placing.lease is None and (written := self._storage._place_at_once(placing)) is not None:
                return Done(written, None)
            with self._storage._writing(placing.thread_id) as run:
                self._check(run, placing.thread_id, placing.lease)
                return self._place(run, placing)

    def _place(self, run: Run, placing: Placing) -> Done:
        ns, id_, base = placing.ns, placing.id, placing.base
        thread, last, last_lane, updated, newest, asks = self._thread(
            run, placing.thread_id, placing.created, place_of(ns, id_)
        )
        low = thread << STEP_BITS
        latest = run("latest_id", thread=thread, ns=ns)
        known = run("placed", thread=thread, ns=ns, id=id_)
        old = known[0][2] if known else None
        if old is not None and (found := run("row_crc", key=low | old)) and found[0][0] == placing.crc:
            return Done(Committed(thread, old, found[0][1], 0, replayed=True), None)
        raced = None
        if placing.expected is not None and latest and latest[0][0] not in (placing.expected, id_):
            raced = latest[0][0]
            if placing.refuse:
                raise Conflict(f"{placing.expected!r} is no longer the latest checkpoint: {raced!r} is", head=raced)
        if base is not None and not run("row_exists", key=low | base):
            raise no_step(base, placing.thread_id)
        step = last + 1
        more = int(placing.payload is not None)
        lane = placing.lane
        if lane:
            grown = run("grow_lane", thread=thread, lane=lane, base=base, step=step, more=more)
            if not grown:
                raise LaneMoved(f"lane {lane} of thread {placing.thread_id!r} has grown since step {base}")
            unfolded = grown[0][0]
        else:
            lane = last_lane + 1
            run("open_lane", thread=thread, lane=lane, step=step, more=more)
            unfolded = more
        if lane > last_lane or updated < newest:
            at = max(placing.created, newest + 1) if updated < newest else updated
            run("count_thread", thread=thread, step=step, lane=max(lane, last_lane), updated=at)
        run(
            "place_checkpoint",
            key=low | step,
            id=id_,
            parent=base,
            lane=lane,
            kind=_KINDS[placing.kind],
            label=placing.label,
            run=placing.run,
            next=placing.next,
            created=placing.created,
            metadata=placing.metadata,
            crc=placing.crc,
            manifest=placing.manifest,
        )
        if placing.payload is not None:
            run("place_payload", key=low | step, lane=lane, data=placing.payload)
        control = {"leans": int(placing.leans), "control": placing.control, "crc": placing.control_crc}
        run("place", thread=thread, ns=ns, id=id_, step=step, **control)
        self._storage._use_blobs(run, thread, placing.blobs)
        if old is not None:
            self._replace(run, thread, old, step)
        if asks:
            seat(run, thread, step, ns, id_)
        if latest and latest[0][0] < id_ and (latest[0][2] or latest[0][1] != base):
            overtake(run, self._storage._tenant, thread, placing.thread_id, ns, id_)
        if ns == ROOT and (not latest or latest[0][0] <= id_):
            self._lead(run, thread, base, step)
        for change in placing.changes:
            run(change.name, thread=thread, step=step, **change.values)
        epoch = None if placing.lease is None else placing.lease.epoch
        write_entries(run, self._storage._tenant, thread, placing.thread_id, placing.entries, step=step, epoch=epoch)
        return Done(Committed(thread, step, lane, unfolded, replayed=False), raced)

    def record(
        self, thread_id: str, changes: Sequence[Change], asking: Asking, lease: Lease | None = None
    ) -> list[Any]:
        """Write records, and what they ask or answer, in one transaction; the answer of each change.

        The thread is made when it is new.
        """
        with self._storage._writing(thread_id) as run:
            thread = self._thread(run, thread_id, now(), "")[0]
            self._check(run, thread_id, lease)
            answers = [run(change.name, thread=thread, step=None, **change.values) for change in changes]
            ask(run, self._storage._tenant, thread, thread_id, asking)
        return [found[0][0] if found else None for found in answers]

    def _check(self, run: Run, thread_id: str, lease: Lease | None) -> None:
        if lease is not None:
            self._storage._branch(run, thread_id, lease.branch, lease.epoch)

    @staticmethod
    def _thread(run: Run, thread_id: str, created: int, place: str) -> tuple[Any, ...]:
        found = run("place_thread", thread_id=thread_id, place=place)
        if not found:
            thread = run("create_thread", thread_id=thread_id, created=created)[0][0]
            run("create_ref", thread=thread, name="main", kind="branch", step=None)
            found = run("place_thread", thread_id=thread_id, place=place)
        return found[0]

    @staticmethod
    def _replace(run: Run, thread: int, old: int, step: int) -> None:
        """The checkpoint at `old` has been placed again, at `step`."""
        low = thread << STEP_BITS
        run("adopt_children", low=low, high=low | STEPS, old=old, step=step)
        run("move_refs", thread=thread, old=old, step=step)
        run("unplace_checkpoint", key=low | old)

    @staticmethod
    def _lead(run: Run, thread: int, base: int | None, step: int) -> None:
        """Let `main` follow."""
        found = run("ref", thread=thread, name="main")
        if not found:
            run("create_ref", thread=thread, name="main", kind="branch", step=step)
            return
        kind, tip = found[0][:2]
        if kind != "branch":
            return  # somebody's tag: LangGraph's latest does not need a branch
        run("move_ref", thread=thread, name="main", step=step)
        if tip is not None and tip not in (base, step):
            run("create_ref", thread=thread, name=f"main.was.{tip}", kind="auto", step=tip)
            if base is not None:
                run("forget_tip", thread=thread, step=base)

    def of_runs(self, runs: Sequence[str]) -> dict[str, set[int]]:
        """The placed checkpoints of these runs: the steps of each thread."""
        found: dict[str, set[int]] = {}
        if runs:
            with self._storage._reading() as run:
                for thread_id, step in run("placed_of_runs", runs=list(runs)):
                    found.setdefault(thread_id, set()).add(step)
        return found

    def leave(self, thread_id: str, doomed: set[int]) -> None:
        """If `main` points at one of the doomed, point it at the latest checkpoint that stays."""
        with self._storage._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            ref = found and run("ref", thread=found[0][0], name="main")
            if not ref or ref[0][0] != "branch" or ref[0][1] not in doomed:
                return
            left = [row for row in run("placed_steps", thread=found[0][0]) if row[0] == ROOT and row[2] not in doomed]
            step = max(left, key=lambda row: row[1])[2] if left else None
            run("move_ref", thread=found[0][0], name="main", step=step)


class PlacedView:
    """Reading placed checkpoints, within a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._run = cast("RelationalSnapshot", snapshot)._run

    def latest(self, thread_id: str, ns: str) -> tuple[int, PlacedRow, Row | None] | None:
        """The key of a thread, the latest of a namespace of it, and its checkpoint if that is there."""
        found = self._run("latest_found", thread_id=thread_id, ns=ns)
        if not found:
            return None
        thread, *columns = found[0]
        placed, row = columns[: len(PlacedRow._fields)], columns[len(PlacedRow._fields) :]
        return thread_key(thread), PlacedRow._make(placed), None if row[0] is None else full_rows([row])[0]

    def one(self, thread: int, ns: str, id_: str | None) -> PlacedRow | None:
        """A placed checkpoint, or the latest of its namespace."""
        if id_ is None:
            found = self._run("placed_latest", thread=thread, ns=ns)
        else:
            found = self._run("placed", thread=thread, ns=ns, id=id_)
        return PlacedRow._make(found[0]) if found else None

    def page(self, thread: int, ns: str | None, before: tuple[str, str], limit: int) -> list[PlacedRow]:
        """Up to `limit` of them, the greatest ids first, from beyond `before` (an id and its namespace)."""
        id_, of = before
        if ns is None and (self._run("placed_within", thread=thread) or of not in (ROOT, LAST)):
            found = self._run("placed_page", thread=thread, before=id_, before_ns=of, limit=limit)
        else:
            found = self._run("placed_page_of", thread=thread, ns=ns or ROOT, before=id_, limit=limit)
        return [PlacedRow._make(row) for row in found]

    def steps(self, thread: int) -> list[PlacedStep]:
        """All of a thread, in no order."""
        return [PlacedStep._make(row) for row in self._run("placed_steps", thread=thread)]

    def at(self, thread: int, ns: str, steps: Sequence[int]) -> list[PlacedRow]:
        """Those of the steps that are in the namespace."""
        return [PlacedRow._make(row) for row in self._at("placed_whole", thread, ns, steps)]

    def ids(self, thread: int, ns: str, steps: Sequence[int]) -> dict[int, str]:
        """The ids of those of the steps that are in the namespace."""
        if not steps:
            return {}
        return {row[2]: row[1] for row in self._at("placed_at", thread, ns, steps)}

    def _at(self, query: str, thread: int, ns: str, steps: Sequence[int]) -> list[Any]:
        return self._run(query, low=thread << STEP_BITS, thread=thread, ns=ns, steps=list(steps))

    def rows(self, thread: int, steps: Sequence[int]) -> dict[int, Row]:
        """The checkpoints at these steps, with manifests."""
        if not steps:
            return {}
        found = self._run("rows_at", low=thread << STEP_BITS, steps=list(steps))
        return {row.step: row for row in full_rows(found)}


def place_of(ns: str, id_: str) -> str:
    """What names a placed checkpoint in its records. SQL computes the same (placed.sql)."""
    return f"{len(ns)}:{ns}{id_}"


def check_id(text: object, what: str) -> str:
    """Text that both backends keep as it is."""
    if type(text) is not str:
        raise BadInput(f"a {what} is a str, not {text!r:.80}")
    if "\0" in text or not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"the {what} {text!r:.80} is not valid Unicode") from None
        if "\0" in text:
            raise BadInput(f"the {what} {text!r:.80} contains a NUL character")
    return text


def now() -> int:
    return time.time_ns() // 1000
