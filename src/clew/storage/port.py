"""The port: what the layers above ask of a database. Bytes, names and numbers only.

Promises, which the contract tests hold against each backend:

1. `commit` is atomic and compare-and-set: checkpoint, payload, blobs and the head's move, or nothing.
2. A commit whose id the thread already holds is a lost reply: it returns what was written, and writes nothing.
3. Steps are given here: 1, 2, 3 … per thread, without gap or double, never reused.
4. A commit under a lease whose epoch has passed is `Fenced`; without one, beside a live lease, it is `Busy`.
5. A snapshot reads one state of the database, whatever is written meanwhile, and blocks no writer.
6. No method returns, changes or counts what belongs to another tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from clew.model import Durability, Kind, Usage
from clew.storage.changes import Change, Record
from clew.storage.ledger import Entry

STEP_BITS = 32
"""Row keys are `thread << STEP_BITS | step`: clustered by thread, then by step, on both backends."""

RefKind = Literal["branch", "tag", "auto"]


class Row(NamedTuple):
    """One checkpoint as stored. `manifest` is empty in listings."""

    step: int
    id: str
    parent: int | None
    lane: int
    kind: Kind
    label: str | None
    run: str | None
    next: bytes | None
    created: int
    metadata: bytes | None
    manifest: bytes
    crc: int


class Ref(NamedTuple):
    """A branch, a tag, or the automatic name of a tip that a rewind left behind.

    `lane` is the lane that this branch grows; 0 when its next commit must open one (after a fork or a rewind).
    """

    name: str
    kind: RefKind
    step: int | None
    lane: int
    owner: str | None
    epoch: int


class Head(NamedTuple):
    """A branch together with the checkpoint it points at. `thread` is the row key."""

    thread: int
    ref: Ref
    row: Row | None


class Commit(NamedTuple):
    """One step to be written. `base` None means that the branch is empty; `lane` 0 opens a lane.

    With the kind "fork" and a base, the branch is made in the same transaction, and must not exist yet. `changes` are
    rows of other kinds that the same transaction writes.
    """

    thread_id: str
    branch: str
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
    key: str | None
    epoch: int | None
    release: bool
    changes: Sequence[Change | Entry] = ()


class Committed(NamedTuple):
    """`unfolded` counts the lane's payload rows since the last fold; `replayed` says that nothing new was written."""

    thread: int
    step: int
    lane: int
    unfolded: int
    replayed: bool


class Want(NamedTuple):
    """A stretch of a log: positions `start` up to and not including `stop`."""

    lane: int
    log: int
    start: int
    stop: int


class Piece(NamedTuple):
    """A stored run of payload; `key` names the row, `step` is the commit that brought it (0 for a folded chunk)."""

    key: int
    step: int
    lane: int
    data: bytes


class Chunk(NamedTuple):
    """A folded run of one log, ready to be stored."""

    lane: int
    log: int
    start: int
    stop: int
    data: bytes


class Folding(NamedTuple):
    """What a fold replaces: payload rows and chunks by their keys, and the chunks that take their place."""

    payload_keys: Sequence[int]
    chunk_keys: Sequence[int]
    chunks: Sequence[Chunk]


class Listed(NamedTuple):
    """One thread in a listing, with the metadata of its newest checkpoint.

    `updated` is what the order goes by; `active` is when the thread was last written to.
    """

    thread: int
    id: str
    created: int
    updated: int
    steps: int
    branches: int
    label: str | None
    metadata: bytes | None
    busy: bool
    active: int


class Lease(NamedTuple):
    """The right to write to a branch until it is released, or its owner is dead or silent too long."""

    thread_id: str
    branch: str
    epoch: int


class Snapshot(Protocol):
    """A consistent view for reading. `thread` is a row key, as found by `head` or `find_thread`."""

    def find_thread(self, thread_id: str) -> int | None: ...
    def head(self, thread_id: str, branch: str) -> Head | None: ...
    def row(self, thread: int, step: int) -> Row | None: ...
    def rows_by_id(self, thread: int, prefix: str, limit: int) -> list[Row]:
        """The checkpoints whose id starts with the prefix; one that equals it comes first."""
        ...

    def history(self, thread: int, step: int, limit: int) -> list[Row]:
        """The path from `step` towards the root, newest first, without manifests."""
        ...

    def rows(self, thread: int, after: int, limit: int, *, manifests: bool) -> list[Row]:
        """All checkpoints of the thread with a step greater than `after`, by step."""
        ...

    def refs(self, thread: int) -> list[Ref]: ...
    def held(self, thread: int) -> set[int]:
        """The steps that open requests and unfinished runs stand on."""
        ...

    def payload(self, thread: int, wants: Sequence[Want], upto: int) -> list[Piece]:
        """Every stored run that may hold one of the wanted stretches, as written by steps up to `upto`."""
        ...

    def records(self, thread: int, places: Sequence[str]) -> list[Record]:
        """The records of these places, by place, then by (path, task, idx)."""
        ...

    def blob(self, digest: str) -> bytes | None: ...
    def blob_sizes(self, thread: int) -> list[tuple[str, int]]:
        """The digests and sizes of every blob that the thread uses."""
        ...

    def threads(self, *, order: str, after: tuple[Any, ...] | None, limit: int) -> list[Listed]: ...
    def pieces(self, thread: int, *, folded: bool, after: int, limit: int) -> list[Piece]:
        """The thread's payload rows (or chunks) by key, for upkeep."""
        ...

    def usage(self) -> Usage: ...


class Storage(Protocol):
    """The rows of one tenant in one database."""

    durability: Durability
    fold_after: int
    """A lane is folded when this many of its payload rows are unfolded."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...
    def commit(self, commit: Commit) -> Committed: ...
    def apply(
        self, thread_id: str, changes: Sequence[Change | Entry], *, branch: str = "main", epoch: int | None = None
    ) -> list[Any]:
        """Write changes without a checkpoint, in one transaction, under a lease if one is named; returns the answer of
        each (None: it gives none).

        The thread is made when it is new; `branch` is then its first, still empty.
        """
        ...

    def create_branch(self, thread_id: str, name: str, step: int) -> None: ...
    def move_branch(self, thread_id: str, name: str, step: int, *, old_tip: str, epoch: int | None) -> None:
        """Point a branch at another checkpoint; the tip it leaves keeps the automatic name `old_tip`."""
        ...

    def delete_branch(self, thread_id: str, name: str, *, epoch: int | None) -> None: ...
    def set_tag(self, thread_id: str, name: str, step: int) -> None: ...
    def delete_tag(self, thread_id: str, name: str) -> None: ...
    def delete_thread(self, thread_id: str) -> bool: ...

    def acquire(self, thread_id: str, branch: str) -> Lease:
        """Take the lease, or raise `Busy`. The branch is created when the thread has none of that name and is new."""
        ...

    def release(self, lease: Lease) -> None: ...
    def check_lease(self, lease: Lease) -> bool: ...

    def fold(self, thread: int, lane: int, merge: Callable[[Sequence[Piece], Sequence[Piece]], Folding]) -> None:
        """Give the lane's payload rows and each log's last chunk to `merge`, and store what it makes of them."""
        ...

    def forget(
        self,
        thread_id: str,
        doomed: Iterable[int],
        relink: dict[int, tuple[int | None, int]],
        *,
        thread: int | None = None,
    ) -> int:
        """Delete checkpoints that no branch or tag names, and nothing of the ledger stands on (checked here again);
        returns how many went.

        `relink` gives kept children of a deleted checkpoint their new parent. `thread` is the key of the thread that
        was read: nothing happens to another one that has its name by now.
        """
        ...

    def rewrite(self, thread_id: str, key: int, old: Piece, chunks: Sequence[Chunk], *, folded: bool) -> bool:
        """Replace one payload row or chunk by smaller ones, if it is still what it was."""
        ...

    def forget_blobs(self, thread_id: str, live: set[str], last: int, *, thread: int | None = None) -> int:
        """Give up the thread's blobs that are not live, unless it has grown past step `last`; returns the bytes.

        `thread` as in `forget`.
        """
        ...

    def shrink(self, limit: int) -> int:
        """Give up to `limit` bytes of free space back to the file system; returns how many went."""
        ...

    def close(self) -> None: ...
