"""What SQLite and PostgreSQL share: snapshots and plain write transactions, as named queries.

A backend supplies `_reading()` and `_writing(thread_id)`: context managers that yield a `Run` inside a transaction,
which commits when the block ends and rolls back when it raises anything. `_writing` holds whatever keeps other writers
away from that thread (the one write lock on SQLite, the thread's row on PostgreSQL). It also supplies `commit`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from clew.errors import BadInput, Corrupt, NameTaken
from clew.model import Durability, Usage
from clew.storage.changes import Record
from clew.storage.ledger_rows import delete_ledger, stamped
from clew.storage.ownership import Identity, OwnerRow, is_live
from clew.storage.port import STEP_BITS, Chunk, Committed, Folding, Head, Lease, Listed, Piece, Ref, Row, Want
from clew.storage.refusals import busy, fenced, no_ref, no_step, no_thread
from clew.storage.rows import full_rows, listed_rows, thread_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.storage.claiming import Claims
    from clew.storage.holding import Holding
    from clew.storage.placed import Placing

STEPS = (1 << STEP_BITS) - 1
SEALED = 24 * 1024
"""A chunk of this many bytes is left alone by later folds."""
_LAST_STAMP = 1 << 62
NO_BYTES = blake2b(b"", digest_size=32).hexdigest()
"""The one blob whose data is empty. Another row with empty data says that the blob is kept outside (blobs.py)."""


class Run(Protocol):
    """Runs a named query inside the transaction. The tenant (and on SQLite the clock) are bound by the backend."""

    def __call__(self, query: str, /, **values: Any) -> list[tuple[Any, ...]]: ...


class RelationalSnapshot:
    """A `Snapshot` over a `Run` within one read transaction."""

    __slots__ = ("_run", "_storage")

    def __init__(self, storage: Relational, run: Run) -> None:
        self._storage = storage
        self._run = run

    def find_thread(self, thread_id: str) -> int | None:
        found = self._run("thread", thread_id=thread_id)
        return thread_key(found[0][0]) if found else None

    def head(self, thread_id: str, branch: str) -> Head | None:
        found = self._run("head", thread_id=thread_id, branch=branch)
        if not found:
            return None
        thread, name, kind, step, lane, epoch = found[0][:6]
        ref = Ref(name, kind, step, lane, self._storage._holder(found[0][6:14], Lease(thread_id, branch, epoch)), epoch)
        columns = found[0][14:]
        if step is not None and columns[1] is None:
            raise Corrupt(f"branch {branch!r} of thread {thread_id!r} points at step {step}, which is missing")
        return Head(thread_key(thread), ref, None if step is None else full_rows([columns])[0])

    def row(self, thread: int, step: int) -> Row | None:
        if not 0 < step <= STEPS:
            return None
        found = self._run("row", key=thread << STEP_BITS | step)
        return full_rows(found)[0] if found else None

    def rows_by_id(self, thread: int, prefix: str, limit: int) -> list[Row]:
        low = thread << STEP_BITS
        beyond = prefix + "\U0010ffff"
        return full_rows(self._run("rows_by_id", low=low, high=low | STEPS, prefix=prefix, beyond=beyond, limit=limit))

    def history(self, thread: int, step: int, limit: int) -> list[Row]:
        if limit < 1 or not 0 < step <= STEPS:
            return []
        return listed_rows(self._run("history", low=thread << STEP_BITS, step=step, limit=limit))

    def rows(self, thread: int, after: int, limit: int, *, manifests: bool) -> list[Row]:
        low = thread << STEP_BITS
        values = {"low": low, "after": min(max(after, 0), STEPS), "high": low | STEPS, "limit": limit}
        if manifests:
            return full_rows(self._run("rows_with_manifests", **values))
        return listed_rows(self._run("rows", **values))

    def refs(self, thread: int) -> list[Ref]:
        holder = self._storage._holder
        found = self._run("refs", thread=thread)
        return [Ref(row[0], row[1], row[2], row[3], holder(row[5:], None), row[4]) for row in found]

    def payload(self, thread: int, wants: Sequence[Want], upto: int) -> list[Piece]:
        if not wants:
            return []
        lanes = sorted({want.lane for want in wants})
        low = thread << STEP_BITS
        found = self._run("payload", low=low, upto=min(upto, STEPS), lanes=lanes)
        pieces = [Piece(key, key & STEPS, lane, data) for key, lane, data in found]
        pieces.extend(self.chunks(thread, wants))
        return pieces

    def chunks(self, thread: int, wants: Sequence[Want]) -> list[Piece]:
        """The folded runs that overlap a wanted stretch, each once."""
        found: dict[int, Piece] = {}
        for lane, log, start, stop in wants:
            rows = self._run("chunks", thread=thread, lane=lane, log=log, start=start, stop=stop)
            for key, of_lane, data in rows:
                found[key] = Piece(key, 0, of_lane, data)
        return list(found.values())

    def records(self, thread: int, places: Sequence[str]) -> list[Record]:
        return [Record._make(row) for row in self._run("records", thread=thread, places=list(places))]

    def held(self, thread: int) -> set[int]:
        return {step for (step,) in stamped(self._run)("held", thread=thread)}

    def blob(self, digest: str) -> bytes | None:
        data = self.blob_row(digest)
        if data == b"" and digest != NO_BYTES:
            hint = "name the folder it was saved with: clew.open(…, blobs=…), or --blobs on the command line"
            raise BadInput(f"the blob {digest[:12]}… is kept outside the database", hint=hint)
        return data

    def blob_row(self, digest: str) -> bytes | None:
        """What the row holds: nothing, if the blob is kept outside. `Corrupt` unless it has this digest."""
        found = self._run("blob", digest=digest)
        if not found:
            return None
        data = bytes(found[0][0])
        if data and len(digest) == len(NO_BYTES) and blake2b(data, digest_size=32).hexdigest() != digest:
            raise Corrupt(f"the blob {digest[:12]}… does not match its digest")
        return data

    def known_blobs(self, digests: Sequence[str]) -> set[str]:
        return {row[0] for row in self._run("known_blobs", digests=list(digests))}

    def outside_blobs(self) -> list[str]:
        return [row[0] for row in self._run("outside_blobs")]

    def blob_sizes(self, thread: int) -> list[tuple[str, int]]:
        return [(digest, size) for digest, size in self._run("blob_sizes", thread=thread)]

    def threads(self, *, order: str, after: tuple[Any, ...] | None, limit: int) -> list[Listed]:
        if order == "id":
            found = self._run("threads_id", after=after[0] if after else "", limit=limit)
        elif order in ("updated", "created"):
            stamp, last = after or (_LAST_STAMP, "")
            found = self._run(f"threads_{order}", stamp=stamp, after=last, limit=limit)
        else:
            raise ValueError(f"order is 'updated', 'created' or 'id', not {order!r}")
        return [Listed._make((*row[:8], bool(row[8]), row[9])) for row in found]

    def pieces(self, thread: int, *, folded: bool, after: int, limit: int) -> list[Piece]:
        low = thread << STEP_BITS
        if folded:
            found = self._run("chunk_page", thread=thread, after=after, limit=limit)
            return [Piece(key, 0, lane, data) for key, lane, data in found]
        found = self._run("payload_page", low=low, high=low | STEPS, after=after, limit=limit)
        return [Piece(key, key & STEPS, lane, data) for key, lane, data in found]

    def usage(self) -> Usage:
        threads, checkpoints, rows, payload, chunks, blobs, blob_bytes, items, item_bytes = self._run("usage")[0]
        runs, effects, requests, ledger_bytes = self._run("ledger_usage")[0]
        file_bytes, free_bytes = self._storage._space(self._run)
        return Usage(
            threads=threads,
            checkpoints=checkpoints,
            checkpoint_bytes=int(rows),
            payload_bytes=int(payload) + int(chunks),
            blobs=blobs,
            blob_bytes=int(blob_bytes),
            items=items,
            item_bytes=int(item_bytes),
            runs=runs,
            effects=effects,
            requests=requests,
            ledger_bytes=int(ledger_bytes),
            file_bytes=file_bytes,
            free_bytes=free_bytes,
        )


class Relational(ABC):
    """A `Storage` of one tenant, except for `commit`, `shrink` and `close`."""

    _engine: Holding
    _tenant: int
    durability: Durability
    fold_after: int
    boot_clock: bool
    """Whether leases expire by this machine's clock, which means nothing in another boot."""
    embedded: bool
    """Whether the database runs inside its processes, so that no commit outlives the one that asked for it."""

    # What a backend supplies.

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Run]: ...
    @abstractmethod
    def _writing(self, thread_id: str | None) -> AbstractContextManager[Run]: ...
    @abstractmethod
    def _identity(self) -> Identity:
        """This process; another one after a fork."""

    @abstractmethod
    def _owner_row(self, run: Run) -> int:
        """The key of this process's owner row, created when missing, with a fresh expiry."""

    @abstractmethod
    def _my_owner(self) -> int | None:
        """The key of this process's owner row, if it has one."""

    @abstractmethod
    def _space(self, run: Run) -> tuple[int, int]:
        """Bytes of the whole database, and of them the free ones."""

    @property
    @abstractmethod
    def _claims(self) -> Claims:
        """How this backend claims runs."""

    @contextmanager
    def keeping(self, blobs: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
        """Around a transaction that stores these blobs: yields what it is to store."""
        yield blobs

    def _place_at_once(self, placing: Placing) -> Committed | None:  # noqa: ARG002
        """Write a placed checkpoint in fewer round trips than `Placed` takes; None if it has to take them."""
        return None

    def _use_blobs(self, run: Run, thread: int, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Keep blobs, and say that the thread refers to them."""
        for digest, data in blobs:
            run("create_blob", digest=digest, data=data)
            run("use_blob", thread=thread, digest=digest)

    def _leasing(self, thread_id: str | None) -> AbstractContextManager[Run]:
        """Like `_writing`, for leases: they may be lost with the power, for then their owners are dead as well."""
        return self._writing(thread_id)

    # Owners.

    def _live(self, columns: Sequence[Any], lease: Lease | None) -> OwnerRow | None:
        """The owner in these columns, if there is one, it lives, and it still holds the lease."""
        if columns[0] is None:
            return None
        if lease and columns[0] == self._my_owner() and (self._tenant, lease) not in self._engine.leases:
            return None  # it was let go of, though the database could not be told (holding.py)
        owner = OwnerRow._make(columns)
        return owner if is_live(owner, self._identity(), boot_clock=self.boot_clock) else None

    def _holder(self, columns: Sequence[Any], lease: Lease | None) -> str | None:
        owner = self._live(columns, lease)
        return str(owner) if owner else None

    # Reading.

    @contextmanager
    def snapshot(self) -> Iterator[RelationalSnapshot]:
        with self._reading() as run:
            yield RelationalSnapshot(self, run)

    def check_lease(self, lease: Lease) -> bool:
        with self._reading() as run:
            found = run("thread", thread_id=lease.thread_id)
            ref = found and run("ref", thread=found[0][0], name=lease.branch)
        mine = self._my_owner()
        return bool(ref) and mine is not None and ref[0][3] == lease.epoch and ref[0][4] == mine

    # Names.

    def create_branch(self, thread_id: str, name: str, step: int) -> None:
        with self._writing(thread_id) as run:
            thread = self._existing(run, thread_id, step)
            if not run("create_ref", thread=thread, name=name, kind="branch", step=step):
                raise NameTaken(f"thread {thread_id!r} has a branch or tag {name!r} already")

    def set_tag(self, thread_id: str, name: str, step: int) -> None:
        with self._writing(thread_id) as run:
            thread = self._existing(run, thread_id, step)
            if run("create_ref", thread=thread, name=name, kind="tag", step=step):
                return
            kind, at = run("ref", thread=thread, name=name)[0][:2]
            if kind != "tag" or at != step:
                what = "a branch" if kind == "branch" else f"a name for step {at}"
                raise NameTaken(f"{name!r} is {what} of thread {thread_id!r} already; a tag does not move")

    def delete_tag(self, thread_id: str, name: str) -> None:
        with self._writing(thread_id) as run:
            thread, ref = self._ref(run, thread_id, name)
            if ref[0] == "branch":
                raise no_ref(name, thread_id)
            run("delete_ref", thread=thread, name=name)

    def delete_branch(self, thread_id: str, name: str, *, epoch: int | None) -> None:
        with self._writing(thread_id) as run:
            thread = self._branch(run, thread_id, name, epoch)[0]
            run("delete_ref", thread=thread, name=name)
        if epoch is not None:
            self._engine.hold(self._tenant, Lease(thread_id, name, epoch), held=False)

    def move_branch(self, thread_id: str, name: str, step: int, *, old_tip: str, epoch: int | None) -> None:
        with self._writing(thread_id) as run:
            thread, tip = self._branch(run, thread_id, name, epoch)
            self._existing(run, thread_id, step)
            run("move_ref", thread=thread, name=name, step=step)
            if tip is not None and tip != step:
                run("create_ref", thread=thread, name=old_tip, kind="auto", step=tip)

    def _existing(self, run: Run, thread_id: str, step: int) -> int:
        """The thread's key, given that the thread has this step."""
        found = run("thread", thread_id=thread_id)
        if not found:
            raise no_thread(thread_id)
        thread: int = found[0][0]
        if not 0 < step <= STEPS or not run("row_exists", key=thread << STEP_BITS | step):
            raise no_step(step, thread_id)
        return thread

    def _ref(self, run: Run, thread_id: str, name: str) -> tuple[int, tuple[Any, ...]]:
        found = run("thread", thread_id=thread_id)
        if not found:
            raise no_thread(thread_id)
        thread: int = found[0][0]
        ref = run("ref", thread=thread, name=name)
        if not ref:
            raise no_ref(name, thread_id, [row[0] for row in run("refs", thread=thread)])
        return thread, ref[0]

    def _branch(self, run: Run, thread_id: str, name: str, epoch: int | None) -> tuple[int, int | None]:
        """The thread's key and the branch's head, given that the caller may change the branch."""
        thread, (kind, step, _lane, at, *owner) = self._ref(run, thread_id, name)
        if kind != "branch":
            raise no_ref(name, thread_id)
        live = self._live(owner, Lease(thread_id, name, at))
        if epoch is not None:
            if at != epoch or owner[0] is None or owner[0] != self._my_owner():
                raise fenced(name, thread_id, live)
        elif live:
            raise busy(name, thread_id, live)
        elif owner[0] is not None:
            run("clear_ref", thread=thread, name=name)
        return thread, step

    # Leases.

    def acquire(self, thread_id: str, branch: str) -> Lease:
        taken: Lease | None = None
        try:
            with self._leasing(thread_id) as run:
                taken = self._take(run, thread_id, branch)
                # Within the transaction: no thread of this process sees the lease as taken and not held.
                self._engine.hold(self._tenant, taken, held=True)
        except BaseException:
            if taken is not None:
                self._engine.leave(self._tenant, taken)
            raise
        return taken

    def _take(self, run: Run, thread_id: str, branch: str) -> Lease:
        found = run("thread", thread_id=thread_id)
        if found:
            thread, ref = self._ref(run, thread_id, branch)
            if ref[0] != "branch":
                raise no_ref(branch, thread_id)
            owner = self._live(ref[4:], Lease(thread_id, branch, ref[3]))
            if owner:
                raise busy(branch, thread_id, owner)
        else:
            created = run("create_thread", thread_id=thread_id, created=time.time_ns() // 1000)
            thread = created[0][0]
            run("create_ref", thread=thread, name=branch, kind="branch", step=None)
        mine = self._owner_row(run)
        return Lease(thread_id, branch, run("take_ref", thread=thread, name=branch, owner=mine)[0][0])

    def release(self, lease: Lease) -> None:
        try:
            with self._leasing(lease.thread_id) as run:
                found = run("thread", thread_id=lease.thread_id)
                if found:
                    values = {"thread": found[0][0], "name": lease.branch, "epoch": lease.epoch}
                    run("release_ref", **values, owner=self._my_owner())
        except BaseException:
            self._engine.leave(self._tenant, lease)
            raise
        self._engine.hold(self._tenant, lease, held=False)

    # Upkeep.

    def delete_thread(self, thread_id: str) -> bool:
        with self._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            if not found:
                return False
            thread = found[0][0]
            for name, epoch, *owner in run("leased_refs", thread=thread):
                live = self._live(owner, Lease(thread_id, name, epoch))
                if live:
                    raise busy(name, thread_id, live)
            low = thread << STEP_BITS
            delete_ledger(run, thread)
            run("delete_thread_blobs", thread=thread)
            run("delete_thread_blob_uses", thread=thread)
            run("delete_thread_chunks", thread=thread)
            for rows in ("records", "placed", "lanes"):
                run(f"delete_thread_{rows}", thread=thread)
            run("delete_thread_payload", low=low, high=low | STEPS)
            run("delete_thread_checkpoints", low=low, high=low | STEPS)
            run("delete_thread_refs", thread=thread)
            run("delete_thread", thread=thread)
        return True

    def fold(self, thread: int, lane: int, merge: Callable[[Sequence[Piece], Sequence[Piece]], Folding]) -> None:
        low = thread << STEP_BITS
        with self._writing(None) as run:
            if not run("lock_thread", thread=thread):
                return
            rows = run("lane_payload", low=low, high=low | STEPS, lane=lane)
            tails = run("lane_tails", thread=thread, lane=lane, small=SEALED)
            folding = merge(
                [Piece(key, key & STEPS, of, data) for key, of, data in rows],
                [Piece(key, 0, of, data) for key, of, data in tails],
            )
            self._replace(run, "delete_payload", folding.payload_keys, {row[0] for row in rows})
            self._replace(run, "delete_chunks", folding.chunk_keys, {row[0] for row in tails})
            self._store(run, thread, folding.chunks)
            run("folded", thread=thread, lane=lane)
            run("folded_lane", thread=thread, lane=lane)

    @staticmethod
    def _replace(run: Run, query: str, keys: Sequence[int], offered: set[int]) -> None:
        if not offered.issuperset(keys):
            raise ValueError("a fold may replace only the rows that it was given")
        if keys and len(run(query, keys=list(keys))) != len(set(keys)):
            raise Corrupt("a fold found fewer rows than it had read")

    @staticmethod
    def _store(run: Run, thread: int, chunks: Iterable[Chunk]) -> None:
        for lane, log, start, stop, data in chunks:
            run("create_chunk", thread=thread, lane=lane, log=log, start=start, stop=stop, data=data)

    def forget(self, thread_id: str, doomed: Iterable[int], relink: dict[int, tuple[int | None, int]]) -> int:
        steps = sorted(set(doomed))
        with self._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            if not found or not steps:
                return 0
            thread = found[0][0]
            low = thread << STEP_BITS
            self._keep_last_step(run, thread)
            gone = [row[0] for row in stamped(run)("forget", thread=thread, low=low, steps=steps)]
            if gone:
                run("forget_auto_refs", thread=thread, steps=gone)
                for rows in ("records", "placed_records", "placed"):
                    run(f"forget_{rows}", thread=thread, steps=gone)
            for step, (parent, crc) in relink.items():
                if parent is None or run("row_exists", key=low | parent):
                    run("relink", key=low | step, parent=parent, crc=crc)
        return len(gone)

    def _keep_last_step(self, run: Run, thread: int) -> None:
        """Before checkpoints go: see to it that no step is given again where the rows themselves tell which is next."""
        # Nothing to do where a counter is kept anyway.
        del run, thread

    def rewrite(self, thread_id: str, key: int, old: Piece, chunks: Sequence[Chunk], *, folded: bool) -> bool:
        with self._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            if not found:
                return False
            thread = found[0][0]
            low = thread << STEP_BITS
            if folded:
                data = run("chunk_data", thread=thread, key=key)
            else:
                data = run("payload_data", key=key, low=low, high=low | STEPS)
            if not data or bytes(data[0][0]) != old.data:
                return False
            run("delete_chunks" if folded else "delete_payload", keys=[key])
            self._store(run, thread, chunks)
        return True

    def forget_blobs(self, thread_id: str, live: set[str], last: int) -> int:
        with self._writing(thread_id) as run:
            found = run("thread_counters", thread_id=thread_id)
            if not found or found[0][1] != last:
                return 0
            digests = sorted(row[0] for row in run("blob_sizes", thread=found[0][0]) if row[0] not in live)
            if not digests:
                return 0
            dropped = [row[0] for row in run("drop_blob_uses", thread=found[0][0], digests=digests)]
            freed = run("drop_unused_blobs", blobs=dropped) if dropped else []
        return sum(row[0] for row in freed)
