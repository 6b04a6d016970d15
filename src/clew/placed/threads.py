"""Writing, copying and removing placed checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from typing import Any, NamedTuple

from clew import observing, references
from clew.database import Database
from clew.errors import ClewError, RefNotFound
from clew.placed.reading import Known, PlacedReading, Stamps, no_stamps
from clew.placed.under import Under
from clew.placed.values import New, Place, Question, Write, control_crc, row_of
from clew.reading import Base
from clew.retention import ThreadRetention
from clew.state.codec import decode, encode
from clew.state.draft import Draft
from clew.state.seal import record_crc, row_crc, seal_of
from clew.storage.changes import Change, Record, put_record, set_record
from clew.storage.ledger import Entry, NewRequest
from clew.storage.placed import ROOT, Done, LaneMoved, Placed, PlacedStep, PlacedView, Placing, check_id, now, place_of
from clew.storage.placed_requests import Asking, activation_of
from clew.storage.port import Lease
from clew.writing import EMPTY_BASE, check_text, merged

_ATTEMPTS = 10
_IN_TURN = 30.0
"""Seconds that a question waits for what was asked or answered before it."""


_NOTHING = Known("", 0, EMPTY_BASE, {})


class Drafted(NamedTuple):
    """A checkpoint ready to be placed, and what it stands on."""

    on: Known
    draft: Draft
    placing: Placing


class Begun(NamedTuple):
    """A checkpoint on its way: drafted, if what its parent holds was remembered."""

    place: Place
    parent: str | None
    new: New
    drafted: Drafted | None
    under: Under | None = None


class Recording(NamedTuple):
    """Records on their way. Those that ask or answer go in the order in which they were made: `after` is set when the
    one before is written, `done` when this one is."""

    thread_id: str
    changes: list[Change]
    asking: Asking | None
    lease: Lease | None = None
    after: threading.Event | None = None
    done: threading.Event | None = None
    beside: Sequence[Change | Entry] = ()


def _request(activation: str, asked: Question, run: str | None) -> NewRequest:
    if asked.terms is not None:
        return asked.terms._replace(activation=activation, ask=check_id(asked.id, "question's id"), run=run, step=None)
    question = encode(asked.value, path="question")
    digest = sha256(question).digest()
    return NewRequest(activation, check_id(asked.id, "question's id"), digest, question, run=run)


class PlacedThreads(PlacedReading):
    """The placed checkpoints of one database. Safe to share between threads."""

    def __init__(self, db: Database, stamps: Callable[[Mapping[str, Any]], Stamps] = no_stamps) -> None:
        super().__init__(db, stamps)
        self._placed = Placed(db._storage)
        self._asking: dict[str, threading.Event] = {}

    # -- writing

    def put(self, place: Place, parent: str | None, new: New) -> str | None:
        """Write a checkpoint on a parent; a parent that is not there makes a root. Placing an id again replaces it.

        With `new.expected`, the id that the writer took for the latest: returns the id that is the latest instead, if
        another one is; with `new.refuse` that is a `Conflict`, and nothing is written.
        """
        return self.finish(self.begin(place, parent, new, here=True))

    def begin(
        self, place: Place, parent: str | None, new: New, *, here: bool = False, under: Under | None = None
    ) -> Begun:
        """The first half of `put`, which does not wait for the database: whatever becomes of the values afterwards,
        `finish` writes what they are now. (If it follows at once, `here`, that costs no copy.) `under` a run, it is
        that run's."""
        self._check(place)
        on = self._known(place.thread_id, place.ns, parent)
        if on is None:
            return Begun(place, parent, new if here else deepcopy(new), None, under)
        try:
            return Begun(place, parent, new, self._drafted(place, on, new, under), under)
        except BaseException:
            self._give_back(place, on)
            raise

    def finish(self, begun: Begun) -> str | None:
        """The second half of `put`."""
        place, parent, new, drafted, under = begun
        own = True
        for left in reversed(range(_ATTEMPTS)):
            on = self._base(place, parent, own=own) if drafted is None else drafted.on
            try:
                drafted = drafted or self._drafted(place, on, new, under)
                began = observing.began()
                done = self._placed.place(drafted.placing)
                observing.committed(began, drafted.placing, new.kind)
            except LaneMoved:
                own = False
                if not left:
                    raise
            except RefNotFound:
                own = True  # the parent went meanwhile: look again, and find none
                if not left:
                    raise
            except BaseException:
                self._give_back(place, on)
                raise
            else:
                if under is not None and drafted.placing.entries:
                    under.entries = ()
                self._written(place, new, drafted, done)
                return done.raced
            drafted = None
        raise AssertionError("unreachable")

    @staticmethod
    def _check(place: Place) -> None:
        references.check_thread_id(place.thread_id)
        check_id(place.id, "checkpoint id")
        check_id(place.ns, "checkpoint namespace")

    def _drafted(self, place: Place, on: Known, new: New, under: Under | None) -> Drafted:
        draft = Draft(on.base.tree)
        stamps = self._stamps(new.control)
        draft.put_state(new.state, same={key for key, stamp in on.stamps.items() if stamps.get(key) == stamp})
        placing = self._placing(place, on.base, draft, new._replace(run=under.run) if under is not None else new)
        if under is not None:
            placing = placing._replace(lease=under.lease, entries=under.entries if place.ns == ROOT else ())
        return Drafted(on, draft, placing)

    def _give_back(self, place: Place, on: Known) -> None:
        if on is not _NOTHING:
            self._remember(place.thread_id, place.ns, on)

    def _placing(self, place: Place, base: Base, draft: Draft, new: New) -> Placing:
        thread_id, ns, id_ = place.thread_id, place.ns, str(place.id)
        seal = seal_of(self._tenant, thread_id)
        created = now() if new.created is None else new.created
        metadata = encode(dict(new.metadata), path="metadata") if new.metadata else None
        next_ = encode(list(new.next)) if new.next else None
        control = encode(new.control, path="control")
        manifest = draft.manifest()
        label, run = check_text(new.label, "label"), new.run
        return Placing(
            thread_id,
            ns,
            id_,
            base.step,
            base.lane,
            new.kind,
            label,
            run,
            next_,
            created,
            metadata,
            manifest,
            row_crc(seal, id_, new.kind, label, run, next_, created, metadata, manifest),
            draft.payload(seal),
            tuple(draft.blobs.items()),
            control,
            control_crc(seal, ns, id_, control),
            new.leans,
            new.expected,
            new.refuse,
        )

    def _written(self, place: Place, new: New, drafted: Drafted, done: Done) -> None:
        at = done.committed
        if at.replayed:
            return
        tree = drafted.draft.accept()
        base = Base(at.step, at.lane, tree, True, None)
        known = Known(str(place.id), drafted.placing.crc, base, dict(self._stamps(new.control)))
        self._remember(place.thread_id, place.ns, known)
        if at.unfolded >= self._storage.fold_after:
            seal = seal_of(self._tenant, place.thread_id)
            with suppress(ClewError):  # it is written: the next one folds
                self._storage.fold(
                    at.thread, at.lane, lambda payload, chunks: merged(list(payload), list(chunks), seal)
                )

    def write(self, place: Place, writes: Sequence[Write]) -> list[bool]:
        """Write records beside a checkpoint, which may come later.

        Returns for each whether what is stored now is what was given.
        """
        return self.record(self.encoded(place, writes))

    def encoded(
        self,
        place: Place,
        writes: Sequence[Write],
        asks: Sequence[Question] = (),
        answered: str | None = None,
        under: Under | None = None,
        others: Sequence[Change | Entry] = (),
    ) -> Recording:
        """The first half of `write`, which does not wait for the database.

        What the task of these writes `asks` becomes open requests in the same commit. `answered` names a task whose
        requests are withdrawn in it, because they have been answered; "" are all tasks of this checkpoint. `others` are
        written with what asks and answers nothing.
        """
        thread_id = references.check_thread_id(place.thread_id)
        named = place_of(check_id(place.ns, "checkpoint namespace"), check_id(place.id, "checkpoint id"))
        seal = seal_of(self._tenant, thread_id)
        changes: list[Change] = []
        replaces = under is not None and under.takes_in
        for write in writes:
            value = encode(write.value, path=write.name)
            for text, what in ((write.task, "task id"), (write.path, "task path"), (write.name, "channel")):
                check_id(text, what)
            crc = record_crc(seal, named, write.task, write.idx, write.path, write.name, value)
            record = Record(named, write.task, write.idx, write.path, write.name, value, None, crc)
            changes.append(set_record(record) if write.idx < 0 or replaces else put_record(record))
        asking = None
        if asks or answered is not None:
            activation = activation_of(place.ns, str(place.id), writes[0].task)
            run = None if under is None else under.run
            asking = Asking(place.ns, str(place.id), [_request(activation, one, run) for one in asks], answered)
        lease = None if under is None else under.lease
        if asking is None:
            entries = () if under is None else under.beside()
            return Recording(thread_id, changes, None, lease, beside=[*entries, *others])
        done = threading.Event()
        with self._lock:
            after, self._asking[thread_id] = self._asking.get(thread_id), done
        return Recording(thread_id, changes, asking, lease, after, done)

    def record(self, recording: Recording) -> list[bool]:
        """The second half of `write`."""
        thread_id, changes, asking, lease, after, done, beside = recording
        if asking is None or done is None:
            branch, epoch = ("main", None) if lease is None else (lease.branch, lease.epoch)
            given = [*changes, *beside]
            found = self._storage.apply(thread_id, given, branch=branch, epoch=epoch) if given else []
            return [bool(answer) for answer in found[: len(changes)]]
        try:
            if after is not None:
                after.wait(_IN_TURN)  # an answer that overtook its question would leave it open, or close the next one
            return [bool(answer) for answer in self._placed.record(thread_id, changes, asking, lease)]
        finally:
            done.set()
            with self._lock:
                if self._asking.get(thread_id) is done:
                    del self._asking[thread_id]

    # -- what is remembered

    def _known(self, thread_id: str, ns: str, parent: str | None) -> Known | None:
        """What is remembered of the parent. It is taken: whoever fails to write gives it back."""
        if parent is None:
            return _NOTHING
        with self._lock:
            known = self._bases.pop((thread_id, ns), None)
        return known if known is not None and known.id == parent else None

    def _base(self, place: Place, parent: str | None, *, own: bool) -> Known:
        """What the next checkpoint stands on."""
        thread_id, ns, _ = place
        known = self._known(thread_id, ns, parent)
        if known is not None and (own or known is _NOTHING):
            return known
        assert parent is not None  # noqa: S101
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(thread_id)
            at = None if thread is None else PlacedView(snapshot).one(thread, ns, parent)
            if thread is None or at is None:
                return _NOTHING
            row = row_of(snapshot, thread, at)
            reading = self._reader(snapshot, thread, thread_id, row, own=own)
        _, tree = reading.state_and_tree()
        return Known(parent, row.crc, Base(row.step, row.lane if own else 0, tree, True, None), {})

    # -- removing

    def delete(self, thread_id: str) -> bool:
        """Erase a thread; whether there was one."""
        self._forget(thread_id)
        return self._storage.delete_thread(thread_id)

    def keep_latest(self, thread_id: str) -> int:
        """Delete all placed checkpoints of a thread but the latest of each namespace, and what these cannot be read
        without; returns how many went."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(thread_id)
            if thread is None:
                return 0
            placed = PlacedView(snapshot).steps(thread)
        latest: dict[str, PlacedStep] = {}
        for at in placed:
            if at.ns not in latest or at.id > latest[at.ns].id:
                latest[at.ns] = at
        return self._remove(thread_id, {at.step for at in placed} - {at.step for at in latest.values()})

    def remove_runs(self, runs: Sequence[str]) -> int:
        """Delete the placed checkpoints of these runs, but for those that others cannot be read without."""
        gone = 0
        for thread_id, steps in self._placed.of_runs(runs).items():
            gone += self._remove(thread_id, steps)
        return gone

    def copy(self, source: str, target: str) -> int:
        """Place all checkpoints of a thread in another one as well, with their records; returns how many."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(source)
            placed = [] if thread is None else sorted(PlacedView(snapshot).steps(thread), key=lambda at: at.step)
        copied = 0
        for at in placed:
            found = self.get(Place(source, at.ns, at.id))
            if found is None:
                continue  # deleted meanwhile
            with self._storage.snapshot() as snapshot:
                thread = snapshot.find_thread(source)
                row = None if thread is None else snapshot.row(thread, found.step)
            if row is None:
                continue
            next_ = () if row.next is None else tuple(decode(row.next))
            new = New(
                found.state, found.control, found.metadata, row.kind, row.label, row.run, next_, leans=bool(at.leans)
            )
            self.put(Place(target, at.ns, at.id), found.parent, new)
            self.write(Place(target, at.ns, at.id), found.writes)
            copied += 1
        return copied

    def _remove(self, thread_id: str, doomed: set[int]) -> int:
        self._forget(thread_id)
        retention = ThreadRetention(self._storage, self._tenant, thread_id)
        doomed = retention.spare(doomed)
        self._placed.leave(thread_id, doomed)
        return retention.remove(doomed)
