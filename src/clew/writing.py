"""Writing to a branch: what a handle stands on, and the way from a draft to a checkpoint."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from clew import observing, references
from clew.errors import BadInput, Busy, ClewError, Conflict
from clew.model import Checkpoint, Kind, from_microseconds
from clew.reading import Base, Source, checked, find_row, next_names, verified
from clew.state.codec import decode, encode
from clew.state.draft import Draft
from clew.state.layout import EMPTY
from clew.state.pieces import fold, unpack
from clew.state.reader import Reader
from clew.state.seal import row_crc
from clew.storage.changes import Change
from clew.storage.ledger import Entry
from clew.storage.port import Chunk, Commit, Committed, Folding, Head, Lease, Piece, Row, Snapshot, Storage

Ref = str | int | Checkpoint
_LETTERS = str.maketrans("0123456789abcdef", "klmnopqrstuvwxyz")
_random = random.Random(os.urandom(32))  # noqa: S311 - ids must not repeat; nobody is kept from guessing them
os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    """A random checkpoint id. Its letters are no digits, so that no part of it reads as a step."""
    return f"{_random.getrandbits(64):016x}".translate(_LETTERS)


class Memory:
    """What a handle last read or wrote, and the lease it holds."""

    base: Base | None = None
    lease: Lease | None = None
    kept: tuple[Base, dict[str, Any], Any] | None = None
    """What a run left for the next one: the head's base, its state, which nobody else holds, and how that is lent."""


class _OfThread(threading.local):
    """What one thread of execution has. Defaults are the class's: without one, asking costs an exception."""

    base: Base | bool | None = False
    """False while it has read nothing itself."""
    lease: Lease | None = None


class SharedMemory(Memory):
    """The same, kept apart for each thread of execution that uses the handle.

    Two that share it must not take each other's checkpoints for their own base. One that has read nothing yet builds on
    what the first one, the handle's home, has read.
    """

    def __init__(self) -> None:
        self._local = _OfThread()
        self._home: int | None = None
        self._shared: Base | None = None

    @property
    def base(self) -> Base | None:
        base = self._local.base
        return self._shared if isinstance(base, bool) else base

    @base.setter
    def base(self, base: Base | None) -> None:
        me = threading.get_ident()
        if self._home is None:
            self._home = me
        if self._home == me:
            self._shared = base
        self._local.base = base

    @property
    def lease(self) -> Lease | None:
        return self._local.lease

    @lease.setter
    def lease(self, lease: Lease | None) -> None:
        self._local.lease = lease


class Writing:
    """The part of a handle that people do not see."""

    _db: Any = None
    """The database that the handle came from, for what a thread alone does not have."""

    def __init__(
        self, storage: Storage, tenant: str, thread_id: str, branch: str = "main", memory: Memory | None = None
    ) -> None:
        self._storage = storage
        self._tenant = tenant
        self._id = references.check_thread_id(thread_id)
        self._branch = references.check_name(branch)
        self._source = Source(storage, tenant, thread_id, branch)
        self._seal = self._source.seal
        self._memory = memory or SharedMemory()

    def _checkpoint(self, row: Row) -> Checkpoint:
        return self._source.checkpoint(row)

    def _head(self) -> Checkpoint | None:
        with self._storage.snapshot() as snapshot:
            head = snapshot.head(self._id, self._branch)
        return self._checkpoint(head.row) if head is not None and head.row is not None else None

    def _checkpoint_at(self, ref: Ref) -> Checkpoint:
        with self._storage.snapshot() as snapshot:
            row = find_row(snapshot, self._id, self._branch, ref)[1]
        return self._checkpoint(verified(row, self._seal))

    @staticmethod
    def _check_state(state: Mapping[str, Any]) -> None:
        if not isinstance(state, dict):
            raise BadInput(
                f"a state is a dict, not {type(state).__name__}", hint="put the value under a key: {'agent': value}"
            )
        for key in state:
            if type(key) is not str:
                raise BadInput(
                    f"a state's keys are str; {key!r} is {type(key).__name__}", hint="nested dicts may have others"
                )

    def _read_head(self) -> dict[str, Any]:
        state, base = self._load_head()
        self._memory.base = base._replace(of=id(state))
        return state

    def _load_head(self) -> tuple[dict[str, Any], Base]:
        with self._storage.snapshot() as snapshot:
            head = snapshot.head(self._id, self._branch)
            if head is None or head.row is None:
                return {}, EMPTY_BASE
            own = _own(head, head.row)
            reading = self._source.reader(snapshot, head.thread, head.row, own=own)
        state, tree = reading.state_and_tree()
        lane = head.row.lane if own else 0
        return checked(state), Base(head.row.step, lane, tree, True, self._checkpoint(head.row))

    def _load(self, step: int) -> Base:
        """A base with the values of a checkpoint; of its lane only if it is the head that the lane grows from."""
        with self._storage.snapshot() as snapshot:
            thread, row = find_row(snapshot, self._id, self._branch, step)
            head = snapshot.head(self._id, self._branch)
            own = head is not None and head.row is not None and head.row.step == step and _own(head, row)
            reading = self._source.reader(snapshot, thread, row, own=own)
        _, tree = reading.state_and_tree()
        return Base(step, row.lane if own else 0, tree, True, self._checkpoint(row))

    def _base(self, parent: Ref | None, *, loaded: bool) -> Base:
        """What the next checkpoint stands on."""
        base = self._memory.base
        if parent is not None:
            with self._storage.snapshot() as snapshot:
                step = find_row(snapshot, self._id, self._branch, parent)[1].step
            if base is None or base.step != step:
                return self._load(step)
        if base is None or (parent is None and loaded and not base.of):
            # Nothing was read. Or told since, and then a state that somebody holds would undo what was told.
            return EMPTY_BASE
        if loaded and not base.loaded and base.step is not None:
            return self._load(base.step)
        return base

    def _tell(
        self,
        changes: dict[str, Any],
        kind: Kind,
        label: str | None,
        metadata: Mapping[str, Any] | None,
        parent: Ref | None,
        key: str | None,
    ) -> Checkpoint:
        base = self._memory.base if parent is None else self._base(parent, loaded=False)
        for attempt in range(_MOST_RETRIES):
            base = base or self._layout()
            draft = Draft(base.tree)
            draft.tell_state(changes)
            try:
                return self._commit(draft, base, kind, label, metadata, key)
            except Conflict as conflict:
                if parent is not None and conflict.base != conflict.head:
                    raise
                if attempt == _MOST_RETRIES - 1:
                    raise
                # With a parent, its lane has been closed. Read it again, not the head: that may be another one by now.
                base = None if parent is None or conflict.head is None else self._load(conflict.head.step)
        raise AssertionError("unreachable")

    def _layout(self) -> Base:
        """The head as a base, without its values where the manifest alone tells where everything lies."""
        with self._storage.snapshot() as snapshot:
            head = snapshot.head(self._id, self._branch)
            if head is None or head.row is None:
                return EMPTY_BASE
            return self._laid_out(snapshot, head.thread, head.row, own=_own(head, head.row))

    def _layout_at(self, ref: Ref) -> Base:
        """Any checkpoint as the base of a fork."""
        with self._storage.snapshot() as snapshot:
            thread, row = find_row(snapshot, self._id, self._branch, ref)
            return self._laid_out(snapshot, thread, row, own=False)

    def _fork_at(self, ref: Ref) -> tuple[Base, bytes | None]:
        """Any checkpoint as the base of a fork, and what was to run next there: a fork goes on with that."""
        with self._storage.snapshot() as snapshot:
            thread, row = find_row(snapshot, self._id, self._branch, ref)
            return self._laid_out(snapshot, thread, row, own=False), row.next

    def _laid_out(self, snapshot: Snapshot, thread: int, row: Row, *, own: bool) -> Base:
        lane = row.lane if own else 0
        reading = Reader(verified(row, self._seal).manifest, row.lane, self._seal, own=own)
        tree = reading.layout()
        if tree is not None:
            return Base(row.step, lane, tree, False, self._checkpoint(row))
        reading = self._source.reader(snapshot, thread, row, own=own)
        return Base(row.step, lane, reading.state_and_tree()[1], True, self._checkpoint(row))

    def _commit(
        self,
        draft: Draft,
        base: Base,
        kind: Kind,
        label: str | None,
        metadata: Mapping[str, Any] | None,
        key: str | None,
        *,
        release: bool = False,
        of: int = 0,
        run: str | None = None,
        next: bytes | None = None,  # noqa: A002 - the word of the glossary
        changes: Sequence[Change | Entry] = (),
    ) -> Checkpoint:
        """Write the draft in one transaction, and make the result this handle's base. `of`: whose state it is."""
        id_ = new_id()
        created = time.time_ns() // 1000
        if metadata is not None and not isinstance(metadata, Mapping):
            raise BadInput(f"metadata is a dict, not {type(metadata).__name__}")
        packed = None if not metadata else encode(dict(metadata), path="metadata")
        manifest = draft.manifest()
        lease = self._memory.lease
        commit = Commit(
            self._id,
            self._branch,
            id_,
            base.step,
            base.lane,
            kind,
            check_text(label, "label"),
            run,
            next,
            created,
            packed,
            manifest,
            row_crc(self._seal, id_, kind, label, run, next, created, packed, manifest),
            draft.payload(self._seal),
            tuple(draft.blobs.items()),
            check_key(key),
            None if lease is None else lease.epoch,
            release,
            changes,
        )
        began = observing.began()
        try:
            done = self._storage.commit(commit)
        except Conflict as conflict:
            raise self._explained(conflict, base) from None
        observing.committed(began, commit, kind)
        told = {} if packed is None else decode(packed)
        at = from_microseconds(created)
        names = next_names(next)
        checkpoint = Checkpoint(id_, done.step, base.step, kind, label, run, names, at, told, self._id, self._source.at)
        if done.replayed and (written := self._checkpoint_at(done.step)).id != id_:
            # Whatever is written next stands on what was written then, not on this draft.
            self._memory.base = self._layout_at(done.step)._replace(of=of)
            return written
        self._memory.base = Base(done.step, done.lane, draft.accept(), of != 0, checkpoint, of)
        if done.unfolded >= self._storage.fold_after:
            # The step is written: an error here would make the caller write it again. The next step folds.
            with suppress(ClewError):
                self._fold(done)
        return checkpoint

    def _refuse_written(self, before: Base | None, state: dict[str, Any]) -> None:
        """Within an edit's block, the branch has moved, and not by saving this state: writing it would undo that."""
        base = self._memory.base
        if before is None or base is None or base.step == before.step or base.of == id(state):
            return
        raise Conflict(
            f"step {base.step} of {self._id!r} was written within this edit; saving the block's state would undo it",
            base=before.checkpoint,
            head=base.checkpoint,
            hint="change only the state that the block was given, or save that within it",
        )

    def _explained(self, conflict: Conflict, base: Base) -> Conflict:
        """The storage's conflict, with checkpoints instead of steps and in words."""
        head = self._head()
        stands = f"head is step {head.step}" if head is not None else "branch is empty"
        came = f"step {base.step}" if base.step is not None else "an empty branch"
        if base.step is None:
            text = (
                f"branch {self._branch!r} of {self._id!r} is not empty (its {stands}), and this handle has not read it"
            )
            hint = "call thread.state() first, change what it returns, and save that"
            return Conflict(text, base=None, head=head, hint=hint)
        text = f"branch {self._branch!r} of {self._id!r} has moved: the base is {came}, the {stands}"
        del conflict
        return Conflict(text, base=base.checkpoint, head=head)

    def _fold(self, done: Committed) -> None:
        """Replace the lane's many small payload rows by a few large ones."""

        def merge(payload: Any, chunks: Any) -> Folding:
            return merged(payload, chunks, self._seal)

        self._storage.fold(done.thread, done.lane, merge)

    def _acquire(self, wait: float) -> Lease:
        until = time.monotonic() + wait
        pause = 0.002
        while True:
            try:
                return self._storage.acquire(self._id, self._branch)
            except Busy:
                left = until - time.monotonic()
                if left <= 0:
                    raise
            # There is nothing to wait on across processes: look again, less and less often.
            time.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311 - not for secrets
            pause = min(pause * 2, 0.1)


EMPTY_BASE = Base(None, 0, EMPTY, True, None)
_MOST_RETRIES = 20


def _own(head: Head, row: Row) -> bool:
    """Does the branch go on growing this checkpoint's lane?"""
    return head.ref.lane != 0 and head.ref.lane == row.lane


def check_text(text: str | None, what: str) -> str | None:
    if text is None:
        return None
    if type(text) is not str or not text.isprintable() or len(text.encode()) > references.MAX_ID_BYTES:
        raise BadInput(f"a {what} is printable text of at most {references.MAX_ID_BYTES} bytes, not {text!r:.80}")
    return text


def check_key(key: str | None) -> str | None:
    """An idempotency key. An empty one is a mistake of the caller's: all calls that make it would be the same call."""
    if key == "":
        raise BadInput("a key cannot be empty", hint="leave out key=, or give one that tells two calls apart")
    return check_text(key, "key")


def merged(payload: list[Piece], chunks: list[Piece], seal: int) -> Folding:
    """What a fold makes of a lane's payload rows and of the last, still small, chunk of each log.

    A chunk is merged only with what follows it: its log must be among those in the payload rows.
    """
    segments = [segment for piece in payload for segment in unpack(piece.data, seal)]
    logs = {segment[0] for segment in segments}
    used = []
    for piece in chunks:
        found = unpack(piece.data, seal)
        if found[0][0] in logs:
            used.append(piece.key)
            segments.extend(found)
    lane = payload[0].lane if payload else 0
    bounds = fold(segments, seal)
    made = [Chunk(lane, bound.log, bound.start, bound.stop, bound.data) for bound in bounds]
    return Folding([piece.key for piece in payload], used, made)
