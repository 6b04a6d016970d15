"""Reading placed checkpoints: one, a page, or what was recorded on the way to one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.database import Database
from clew.errors import Corrupt
from clew.placed.values import (
    TOOK,
    Found,
    Place,
    Trail,
    by_place,
    checked,
    in_place,
    metadata_of,
    parents_of,
    present,
    read_writes,
    row_of,
    taken_of,
)
from clew.reading import Base, States, reader, verified
from clew.state.codec import decode_list, encode
from clew.state.many import Items
from clew.state.reader import Reader, root_keys
from clew.state.recall import recalled
from clew.state.seal import seal_of
from clew.storage.changes import Record
from clew.storage.placed import LAST, PlacedRow, PlacedView, place_of
from clew.storage.port import Row, Snapshot

_REMEMBERED = 64
"""Namespaces whose last checkpoint is remembered."""
_TRAIL = 100
"""Ancestors read at once."""
_STEPS_BACK = 1_000_000
"""Ancestors that a value may have come from."""
_NOTHING = encode({})
_DICTS = frozenset({dict})
Stamps = Mapping[str, object]
"""For keys of a state what changes whenever their values do. Equal ones of parent and child: the value is the same."""


class Known(NamedTuple):
    """What is remembered of a checkpoint; `crc` is its row's."""

    id: str
    crc: int
    base: Base
    stamps: Stamps


def no_stamps(_control: Mapping[str, Any]) -> Stamps:
    return {}


def same_place(one: Database, other: Database) -> bool:
    """Whether two handles may be of the same tenant of one database. One server has several addresses: not compared."""
    if one.tenant_name != other.tenant_name:
        return False
    places = []
    for engine in (one._engine, other._engine):
        if getattr(engine, "memory", False):
            places.append(str(id(engine)))
        elif hasattr(engine, "path"):
            places.append(str(Path(engine.path).resolve()))
        else:
            places.append(engine.name.rpartition("/")[2])
    return places[0] == places[1]


class PlacedReading:
    """The reading half of `PlacedThreads`."""

    def __init__(self, db: Database, stamps: Callable[[Mapping[str, Any]], Stamps] = no_stamps) -> None:
        """`stamps`: from control data, what changes whenever a key's value does."""
        self._stamps = stamps
        # This room stands beside database and writing, and shares their storage.
        self._storage = db._storage
        self._tenant = db.tenant_name
        self._bases: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._lock = threading.Lock()

    # -- reading

    def get(self, place: Place) -> Found | None:
        """A checkpoint, or the latest of its namespace, with its records. The next `put` on it compares with this."""
        thread_id, ns, id_ = place
        with self._storage.snapshot() as snapshot:
            begun = self._latest(snapshot, thread_id, ns) if id_ is None else self._at(snapshot, thread_id, ns, id_)
            if begun is None:
                return None
            thread, at, row = begun
            state = self._recall(thread_id, ns, at.id, row)
            reading = None if state is not None else self._reader(snapshot, thread, thread_id, row, own=True)
            parents = parents_of(snapshot, thread, [at], [row])
            records = snapshot.records(thread, [place_of(ns, at.id)])
        if reading is None:
            return self._found(thread_id, [at], [row], parents, [state], records)[0]
        state, tree = reading.state_and_tree()
        (found,) = self._found(thread_id, [at], [row], parents, [state], records)
        base = Base(row.step, row.lane, tree, True, None)
        self._remember(thread_id, ns, Known(at.id, row.crc, base, dict(self._stamps(found.control))))
        return found

    @staticmethod
    def _latest(snapshot: Snapshot, thread_id: str, ns: str) -> tuple[int, PlacedRow, Row] | None:
        found = PlacedView(snapshot).latest(thread_id, ns)
        return None if found is None else (found[0], found[1], in_place(found[2], found[1]))

    @staticmethod
    def _at(snapshot: Snapshot, thread_id: str, ns: str, id_: str) -> tuple[int, PlacedRow, Row] | None:
        thread = snapshot.find_thread(thread_id)
        at = None if thread is None else PlacedView(snapshot).one(thread, ns, id_)
        return None if thread is None or at is None else (thread, at, row_of(snapshot, thread, at))

    def _recall(self, thread_id: str, ns: str, id_: str, row: Row) -> Any:
        """The state of a checkpoint, from what is remembered of it; None if that is nothing or not all."""
        with self._lock:
            known = self._bases.pop((thread_id, ns), None)
        if known is None or known.id != id_:
            return None
        verified(row, seal_of(self._tenant, thread_id))
        if (known.crc, known.base.step, known.base.lane) != (row.crc, row.step, row.lane):
            return None
        state = recalled(known.base.tree)
        if state is not None:
            self._remember(thread_id, ns, known)
        return state

    def page(
        self,
        thread_id: str,
        ns: str | None,
        *,
        id: str | None = None,  # noqa: A002 - the word of the glossary
        before: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
        items: Items | None = None,
        fits: Callable[[dict[str, Any]], bool] | None = None,
    ) -> tuple[list[Found], tuple[str, str] | None]:
        """A page of checkpoints, the greatest ids first, and what to give as `after` for the next one.

        In all namespaces, if `ns` is None; with ids below `before`; with this `id` alone; whose metadata `fits`.
        What `items` know from earlier pages is not read again.
        """
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(thread_id)
            if thread is None:
                return [], None
            view = PlacedView(snapshot)
            start = after or ((LAST, LAST) if before is None else (before, ""))
            if id is not None:
                # From just beyond the id: \0 is in none.
                start = after or min(start, (id + "\1", ""))
            page = view.page(thread, ns, start, limit)
            more = (page[-1].id, page[-1].ns) if len(page) == limit else None
            if id is not None:
                more = more if page and page[-1].id >= id else None
                page = [at for at in page if at.id == id]
            rows = view.rows(thread, [at.step for at in page])
            if fits is not None:
                page = [at for at in page if fits(metadata_of(present(rows, at)))]
            kept = [present(rows, at) for at in page]
            known = Items() if items is None else items
            states = States(snapshot, thread, seal_of(self._tenant, thread_id), known, self._open_blob)
            read = states.of(kept)
            parents = parents_of(snapshot, thread, page, kept)
            records = snapshot.records(thread, [place_of(at.ns, at.id) for at in page])
        return self._found(thread_id, page, kept, parents, read, records), more

    def _found(
        self,
        thread_id: str,
        page: Sequence[PlacedRow],
        rows: Sequence[Row],
        parents: Mapping[tuple[str, int], str],
        states: Sequence[Any],
        records: Sequence[Record],
    ) -> list[Found]:
        """Checkpoints, from all that was read of them."""
        seal = seal_of(self._tenant, thread_id)
        checked(page, seal, thread_id)
        controls = decode_list(len(page), [at.control for at in page])
        metadata = decode_list(len(page), [_NOTHING if row.metadata is None else row.metadata for row in rows])
        for at, *parts in zip(page, states, controls, metadata, strict=True):
            if not _DICTS.issuperset(map(type, parts)):
                raise Corrupt(f"checkpoint {at.id!r} of thread {thread_id!r} holds something that is no checkpoint")
        writes = by_place(records, read_writes(records, seal, thread_id))
        return [
            Found(
                thread_id,
                at.ns,
                at.id,
                at.step,
                None if row.parent is None else parents.get((at.ns, row.parent)),
                state,
                control,
                told,
                writes.get(place_of(at.ns, at.id), []),
            )
            for at, row, state, control, told in zip(page, rows, states, controls, metadata, strict=True)
        ]

    def _reader(self, snapshot: Snapshot, thread: int, thread_id: str, row: Row, *, own: bool) -> Reader:
        return reader(snapshot, thread, row, seal_of(self._tenant, thread_id), own=own, open_blob=self._open_blob)

    def _open_blob(self, digest: str) -> bytes:
        with self._storage.snapshot() as snapshot:
            data = snapshot.blob(digest)
        if data is None:
            raise Corrupt(f"the blob {digest[:12]}… is gone")
        return data

    def thread_ids(self) -> Iterator[str]:
        """The ids of all threads, read in pages."""
        after: tuple[str, ...] | None = None
        while True:
            with self._storage.snapshot() as snapshot:
                page = snapshot.threads(order="id", after=after, limit=500)
            yield from (listed.id for listed in page)
            if len(page) < 500:
                return
            after = (page[-1].id,)

    def ids(self, thread_id: str) -> set[tuple[str, str]]:
        """The namespaces and ids of all placed checkpoints of a thread."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(thread_id)
            return set() if thread is None else {(at.ns, at.id) for at in PlacedView(snapshot).steps(thread)}

    def grown(self, thread_id: str, step: int) -> dict[str, str | None]:
        """The namespaces whose latest checkpoint came after a step; of each, the one that was the latest until then."""
        latest: dict[str, tuple[str, int]] = {}
        before: dict[str, str] = {}
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(thread_id)
            for at in () if thread is None else PlacedView(snapshot).steps(thread):
                latest[at.ns] = max(latest.get(at.ns, ("", 0)), (at.id, at.step))
                if at.step < step:
                    before[at.ns] = max(before.get(at.ns, ""), at.id)
        return {ns: before.get(ns) for ns, (_, last) in latest.items() if last > step}

    def recorded(self, place: Place) -> set[tuple[str, int]]:
        """The tasks and indexes of what is recorded beside a checkpoint, which need not be there."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(place.thread_id)
            if thread is None or place.id is None:
                return set()
            return {(record.task, record.idx) for record in snapshot.records(thread, [place_of(place.ns, place.id)])}

    # -- following parents

    def trail(self, place: Place, names: Sequence[str]) -> dict[str, Trail]:
        """For each name: what was recorded under it on the way from a checkpoint's parent up to the nearest ancestor
        whose state has that name, the oldest first, and the value there."""
        trails = {name: Trail([], False, None) for name in names}
        left = set(names)
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(place.thread_id)
            at = None if thread is None else PlacedView(snapshot).one(thread, place.ns, place.id)
            if thread is None or at is None or not left:
                return trails
            row = row_of(snapshot, thread, at)
            step, took = row.parent, self._took([at], place)[0]
            passed = 0
            while step is not None and left:
                rows = snapshot.history(thread, step, _TRAIL)
                passed += len(rows)
                if passed > _STEPS_BACK or len({row.step for row in rows}) < len(rows):
                    raise Corrupt(f"the parents of checkpoint {at.id!r} of thread {place.thread_id!r} go in a circle")
                step = rows[-1].parent if len(rows) == _TRAIL else None
                took = self._follow(snapshot, thread, place, rows, took, trails, left)
        return {name: trail._replace(writes=trail.writes[::-1]) for name, trail in trails.items()}

    def _took(self, page: Sequence[PlacedRow], place: Place) -> list[Any]:
        """What each of these took of the records beside its parent."""
        checked(page, seal_of(self._tenant, place.thread_id), place.thread_id)
        controls = decode_list(len(page), [at.control for at in page])
        return [control.get(TOOK) if type(control) is dict else None for control in controls]

    def _follow(
        self,
        snapshot: Snapshot,
        thread: int,
        place: Place,
        rows: Sequence[Row],
        took: Any,
        trails: dict[str, Trail],
        left: set[str],
    ) -> Any:
        """Go up some rows, the newest first; `took` is what the child of the first one took of its records."""
        view = PlacedView(snapshot)
        seal = seal_of(self._tenant, place.thread_id)
        steps = [row.step for row in rows]
        page = {at.step: at for at in view.at(thread, place.ns, steps)}
        taken = dict(zip(page, self._took(list(page.values()), place), strict=True))
        places = {step: place_of(place.ns, at.id) for step, at in page.items()}
        found = snapshot.records(thread, list(places.values()))
        records = by_place(found, found)
        full = view.rows(thread, steps)
        for row in rows:
            beside = [record for record in records.get(places.get(row.step, ""), []) if record.name in left]
            for write in reversed(taken_of(read_writes(beside, seal, place.thread_id), took)):
                if write.name in left:
                    trails[write.name].writes.append(write)
            took = taken.get(row.step)
            here = left.intersection(root_keys(full[row.step].manifest))
            if not here and row.step in full:
                continue
            state = self._reader(snapshot, thread, place.thread_id, full[row.step], own=False).state()
            for name in here:
                trails[name] = trails[name]._replace(found=True, value=state[name])
            left -= here
            if not left:
                break
        return took

    # -- what is remembered

    def _remember(self, thread_id: str, ns: str, known: Known) -> None:
        with self._lock:
            self._bases[thread_id, ns] = known
            self._bases.move_to_end((thread_id, ns))
            while len(self._bases) > _REMEMBERED:
                self._bases.popitem(last=False)

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            for key in [key for key in self._bases if key[0] == thread_id]:
                del self._bases[key]
