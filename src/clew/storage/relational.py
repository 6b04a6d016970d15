"""What SQLite and PostgreSQL share: plain write transactions, as named queries.

A backend supplies `_reading()` and `_writing(thread_id)`: context managers that yield a `Run` inside a transaction,
which commits when the block ends and rolls back when it raises anything. `_writing` holds whatever keeps other writers
away from that thread (the one write lock on SQLite, the thread's row on PostgreSQL). It also supplies `commit`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from clew.errors import Corrupt, NameTaken
from clew.model import Durability
from clew.storage.ledger import Move
from clew.storage.ledger_entries import Writer
from clew.storage.ledger_rows import delete_ledger, stamped
from clew.storage.ownership import Identity, OwnerRow, is_live
from clew.storage.port import STEP_BITS, Chunk, Committed, Folding, Lease, Piece
from clew.storage.refusals import busy, fenced, no_ref, no_step, no_thread
from clew.storage.snapshots import STEPS, RelationalSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.storage.claiming import Claims
    from clew.storage.holding import Holding
    from clew.storage.ledger import NewRun, RunRow
    from clew.storage.placed import Placing
    from clew.storage.queue import Beside

SEALED = 24 * 1024
"""A chunk of this many bytes is left alone by later folds."""


class Run(Protocol):
    """Runs a named query inside the transaction. The tenant (and on SQLite the clock) are bound by the backend."""

    def __call__(self, query: str, /, **values: Any) -> list[tuple[Any, ...]]: ...


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

    def _admit_at_once(self, thread_id: str, new: NewRun, beside: Sequence[Beside]) -> RunRow | None:  # noqa: ARG002
        """Admit a run in fewer round trips than entries take; None if it has to take them."""
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
            self._end_run(run, thread, thread_id, name)
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
                self._end_run(run, thread, thread_id, name)

    def _end_run(self, run: Run, thread: int, thread_id: str, branch: str) -> None:
        """The run that has a branch, and that nobody drives, does not go on there: its requests are withdrawn."""
        held = stamped(run)("run_holding", thread_id=thread_id, branch=branch)
        if held:
            Writer(run, self._tenant, thread, thread_id).move(Move(held[0][0], "cancelled"))

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
            groups = run("groups_of_running", thread=thread)
            delete_ledger(run, thread)
            for (group,) in groups:  # it was left by a process that is gone, and had a place
                stamped(run)("call_group", group=group)
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

    def forget(
        self,
        thread_id: str,
        doomed: Iterable[int],
        relink: dict[int, tuple[int | None, int]],
        *,
        thread: int | None = None,
    ) -> int:
        steps = sorted(set(doomed))
        with self._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            if not found or not steps or thread not in (None, found[0][0]):
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

    def forget_blobs(self, thread_id: str, live: set[str], last: int, *, thread: int | None = None) -> int:
        with self._writing(thread_id) as run:
            found = run("thread_counters", thread_id=thread_id)
            if not found or found[0][1] != last or thread not in (None, found[0][0]):
                return 0
            digests = sorted(row[0] for row in run("blob_sizes", thread=found[0][0]) if row[0] not in live)
            if not digests:
                return 0
            dropped = [row[0] for row in run("drop_blob_uses", thread=found[0][0], digests=digests)]
            freed = run("drop_unused_blobs", blobs=dropped) if dropped else []
        return sum(row[0] for row in freed)
