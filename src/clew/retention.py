"""Retention: which checkpoints go, and how the space that only they needed comes back.

1. Heads, branches, tags and whatever holds a live lease stay, and what open requests and unfinished runs stand on.
   What a kept checkpoint sees stays.
2. Checkpoints go first, in small transactions; their children are linked to the nearest kept ancestor.
3. Payload goes after that: what no checkpoint of the thread refers to is cut out of its rows. New commits cannot be
hurt:
   they refer to what their parent sees, which is kept, and to positions that no row read here holds.
4. Killed at any point, the database is consistent: at worst some payload is left for the next prune.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from clew import references
from clew.errors import BadInput, ThreadNotFound
from clew.model import Pruned
from clew.state.pieces import Bounds, Segment, cut, fold, length, unpack
from clew.state.reader import Scan
from clew.state.seal import seal_of
from clew.storage.placed import PlacedStep, PlacedView
from clew.storage.port import Chunk, Piece, Row, Snapshot, Storage

_ROWS = 500
_BATCH = 100
"""Checkpoints deleted in one transaction: few enough that a writer beside it does not notice."""

_SHRINK = 1 << 20
_ROUNDS = 3


class _Survey(NamedTuple):
    """One thread in one snapshot: its checkpoints, and the steps that names point at."""

    thread: int
    rows: list[Row]
    heads: list[int]
    named: set[int]
    leaning: set[int]
    """Steps that cannot be read without their parents' records."""


class _Stored(NamedTuple):
    piece: Piece
    folded: bool
    segments: list[Segment]


def prune(
    storage: Storage,
    tenant: str,
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    threads: Sequence[str] | None,
    dry_run: bool,
) -> Pruned:
    """See `Database.prune`."""
    if keep_last is None and older_than is None:
        raise BadInput("prune needs a rule", hint="give keep_last=…, older_than=…, or both")
    if keep_last is not None:
        keep_last = references.check_count(keep_last, "keep_last", 1)
    if threads is not None and (isinstance(threads, str) or not isinstance(threads, Sequence)):
        raise BadInput(f"threads is a list of ids, not {threads!r:.80}", hint='for example ["trip-7"]')
    if older_than is not None and (type(older_than) is not timedelta or older_than < timedelta(0)):
        raise BadInput(f"older_than is a timedelta, not {older_than!r}", hint="for example timedelta(days=30)")
    cutoff = None if older_than is None else time.time_ns() // 1000 - round(older_than.total_seconds() * 1_000_000)
    total = Pruned(0, 0, 0, 0, dry_run)
    for thread_id in _every_thread(storage) if threads is None else list(threads):
        gone, kept, freed = ThreadRetention(storage, tenant, thread_id).prune(keep_last, cutoff, dry_run=dry_run)
        total = Pruned(
            total.threads + (gone > 0), total.checkpoints + gone, total.kept + kept, total.bytes + freed, dry_run
        )
    if not dry_run:
        while storage.shrink(_SHRINK):
            pass
    return total


def _every_thread(storage: Storage) -> Iterable[str]:
    after: tuple[str, ...] | None = None
    while True:
        with storage.snapshot() as snapshot:
            page = snapshot.threads(order="id", after=after, limit=_ROWS)
        yield from (listed.id for listed in page)
        if len(page) < _ROWS:
            return
        after = (page[-1].id,)


class ThreadRetention:
    """Pruning one thread."""

    def __init__(self, storage: Storage, tenant: str, thread_id: str) -> None:
        self._storage = storage
        self._id = thread_id
        self._seal = seal_of(tenant, thread_id)

    def remove(self, steps: set[int]) -> int:
        """Delete these checkpoints, but for those that a branch or tag names, and their payload; returns how many."""
        with self._storage.snapshot() as snapshot:
            survey = self._survey(snapshot)
        doomed = [row.step for row in survey.rows if row.step in steps and row.step not in survey.named]
        gone = self._forget(survey, doomed)
        self._sweep()
        return gone

    def spare(self, steps: set[int]) -> set[int]:
        """Of these steps, those that can go: no checkpoint that stays cannot be read without them."""
        with self._storage.snapshot() as snapshot:
            survey = self._survey(snapshot)
        kept = {row.step for row in survey.rows} - steps | survey.named
        return steps - _leant_on(survey, kept)

    def prune(self, keep_last: int | None, cutoff: int | None, *, dry_run: bool) -> tuple[int, int, int]:
        """(checkpoints gone, checkpoints kept, bytes freed)."""
        with self._storage.snapshot() as snapshot:
            survey = self._survey(snapshot)
        doomed = _doomed(survey, keep_last, cutoff)
        kept = len(survey.rows) - len(doomed)
        if dry_run:
            return len(doomed), kept, self._measure(set(doomed))
        gone = self._forget(survey, doomed)
        going = set(doomed)
        freed = sum(_weight(row) for row in survey.rows if row.step in going) if gone else 0
        return gone, len(survey.rows) - gone, freed + self._sweep()

    def _survey(self, snapshot: Snapshot) -> _Survey:
        thread = snapshot.find_thread(self._id)
        if thread is None:
            raise ThreadNotFound(f"there is no thread {self._id!r}")
        refs = [ref for ref in snapshot.refs(thread) if ref.step is not None]
        heads = [ref.step for ref in refs if ref.kind == "branch" and ref.step is not None]
        named = {ref.step for ref in refs if ref.kind in ("branch", "tag") and ref.step is not None}
        named |= snapshot.held(thread)
        placed = PlacedView(snapshot).steps(thread)
        # What a namespace has come to is a head, as what a branch points at is.
        latest: dict[str, PlacedStep] = {}
        for at in placed:
            if at.ns not in latest or at.id > latest[at.ns].id:
                latest[at.ns] = at
        heads += sorted({at.step for at in latest.values()}.difference(heads))
        leaning = {at.step for at in placed if at.leans}
        return _Survey(thread, list(_rows(snapshot, thread, manifests=True)), heads, named, leaning)

    # -- checkpoints

    def _forget(self, survey: _Survey, doomed: list[int]) -> int:
        """Delete the doomed, the oldest first, so that a batch always hangs together."""
        parents = {row.step: row.parent for row in survey.rows}
        checksums = {row.step: row.crc for row in survey.rows}
        children: dict[int, set[int]] = {}
        for step, parent in parents.items():
            if parent is not None:
                children.setdefault(parent, set()).add(step)
        gone = 0
        for at in range(0, len(doomed), _BATCH):
            batch = set(doomed[at : at + _BATCH])
            relink: dict[int, tuple[int | None, int]] = {}
            for step in sorted(batch):
                ancestor = parents[step]
                for child in children.pop(step, set()):
                    parents[child] = ancestor
                    if ancestor is not None:
                        children.setdefault(ancestor, set()).add(child)
                    if child not in batch:
                        relink[child] = (ancestor, checksums[child])
            gone += self._storage.forget(self._id, sorted(batch), relink, thread=survey.thread)
        return gone

    # -- payload

    def _sweep(self) -> int:
        """Cut out of the thread's rows what no checkpoint refers to; returns the bytes."""
        freed = 0
        for _ in range(_ROUNDS):
            with self._storage.snapshot() as snapshot:
                thread = snapshot.find_thread(self._id)
                if thread is None:
                    return freed
                stored = self._stored(snapshot, thread)
                scan, last = self._mark(snapshot, thread, stored, set())
            missed = False
            for entry, live in _dead(stored, scan):
                chunks = [Chunk(entry.piece.lane, *bounds) for bounds in _repacked(live, self._seal)]
                if self._storage.rewrite(self._id, entry.piece.key, entry.piece, chunks, folded=entry.folded):
                    freed += len(entry.piece.data) - sum(len(chunk.data) for chunk in chunks)
                else:
                    missed = True  # folded meanwhile by a writer: look at what it has become
            freed += self._storage.forget_blobs(self._id, scan.digests, last, thread=thread)
            if not missed:
                break
        return freed

    def _measure(self, doomed: set[int]) -> int:
        """The bytes that only the doomed need."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(self._id)
            if thread is None:
                return 0
            stored = self._stored(snapshot, thread)
            scan, _ = self._mark(snapshot, thread, stored, doomed)
            rows = sum(_weight(row) for row in _rows(snapshot, thread, manifests=True) if row.step in doomed)
            blobs = sum(size for digest, size in snapshot.blob_sizes(thread) if digest not in scan.digests)
        payload = sum(
            len(entry.piece.data) - sum(len(bounds.data) for bounds in _repacked(live, self._seal))
            for entry, live in _dead(stored, scan)
        )
        return rows + payload + blobs

    def _stored(self, snapshot: Snapshot, thread: int) -> list[_Stored]:
        found: list[_Stored] = []
        for folded in (False, True):
            after = -1
            while page := snapshot.pieces(thread, folded=folded, after=after, limit=_ROWS):
                found.extend(_Stored(piece, folded, unpack(piece.data, self._seal)) for piece in page)
                after = page[-1].key
        return found

    def _mark(self, snapshot: Snapshot, thread: int, stored: list[_Stored], without: set[int]) -> tuple[Scan, int]:
        """Everything that the thread's checkpoints refer to, and the last step of the snapshot."""
        scan = Scan(self._seal)
        for entry in stored:
            scan.add(entry.piece.lane, entry.piece.data)
        last = 0
        for row in _rows(snapshot, thread, manifests=True):
            last = max(last, row.step)
            if row.step not in without:
                scan.add_manifest(row.manifest, row.lane)
        while scan.needs() is not None:
            pass  # every piece is here already; values in blobs refer to nothing further
        return scan, last


def _rows(snapshot: Snapshot, thread: int, *, manifests: bool) -> Iterable[Row]:
    after = 0
    while page := snapshot.rows(thread, after, _ROWS, manifests=manifests):
        yield from page
        after = page[-1].step


def _doomed(survey: _Survey, keep_last: int | None, cutoff: int | None) -> list[int]:
    """The steps that go, the oldest first. With both rules, a checkpoint goes only if both let it."""
    kept = set(survey.named)
    if keep_last is not None:
        parents = {row.step: row.parent for row in survey.rows}
        for head in survey.heads:
            step: int | None = head
            for _ in range(keep_last):
                if step is None or step not in parents:
                    break
                kept.add(step)
                step = parents[step]
    kept |= set(survey.heads)
    kept |= {row.step for row in survey.rows if cutoff is not None and row.created >= cutoff}
    kept |= _leant_on(survey, kept)
    return [row.step for row in survey.rows if row.step not in kept]


def _leant_on(survey: _Survey, kept: set[int]) -> set[int]:
    """The ancestors that the kept cannot be read without."""
    parents = {row.step: row.parent for row in survey.rows}
    found: set[int] = set()
    for start in kept & survey.leaning:
        step: int | None = start
        while step is not None and step in survey.leaning and (step := parents.get(step)) is not None:
            if step in found:
                break
            found.add(step)
    return found


def _weight(row: Row) -> int:
    """About what a checkpoint row takes without its payload."""
    return 64 + len(row.id) + len(row.manifest) + len(row.metadata or b"") + len(row.label or "")


def _dead(stored: list[_Stored], scan: Scan) -> Iterable[tuple[_Stored, list[Segment]]]:
    """The rows that hold something nobody refers to, with what is left of them."""
    live = _intervals(scan.stretches)
    for entry in stored:
        left: list[Segment] = []
        whole = True
        for segment in entry.segments:
            start, stop = segment[2], segment[2] + length(segment)
            parts = [
                (max(start, low), min(stop, high))
                for low, high in live.get((entry.piece.lane, segment[0]), ())
                if low < stop and high > start
            ]
            whole = whole and parts == [(start, stop)]
            left.extend(cut(segment, low, high) for low, high in parts)
        if not whole:
            yield entry, left


def _intervals(stretches: Iterable[tuple[int, int, int, int]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The union of all stretches, by (lane, log)."""
    merged: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lane, log, start, stop in sorted(stretches):
        runs = merged.setdefault((lane, log), [])
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], stop))
        else:
            runs.append((start, stop))
    return merged


def _repacked(segments: list[Segment], seal: int) -> list[Bounds]:
    return fold(segments, seal)
