"""Taking a run up: a new one with its input, one that was left, one that goes on from any checkpoint.

Whoever takes a run up holds the lease of its branch from then on, and either drives it or gives the lease back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clew import observing
from clew.errors import BadInput, Busy, NotFound, RunExists
from clew.reading import Base, find_row
from clew.runtime.drive import Drive, Listener
from clew.runtime.forks import Origin
from clew.runtime.machine import Position, unpack
from clew.runtime.reducers import Changes
from clew.state.codec import decode, encode
from clew.state.private import Lender
from clew.storage.ledger import HOLDING, Ledger, Move, NewRun, RunRow, RunStatus, Start, ledger_of
from clew.storage.port import Lease
from clew.thread import Thread
from clew.writing import Memory, check_key

if TYPE_CHECKING:
    import asyncio

    from clew.runtime.agent import Agent

_RECOVERIES = 3


class Taking:
    """Takes runs of an agent up on one branch of a thread. `thread` is the caller's handle; the drive gets its own."""

    def __init__(
        self, agent: Agent, thread: Thread, *, listener: Listener | None, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._agent = agent
        self._given = thread
        self._thread = Thread(thread._storage, thread._tenant, thread.id, thread.branch, Memory())
        self._thread._db = thread._db
        self.ledger: Ledger = ledger_of(thread._storage)
        self._listener = listener
        self._loop = loop

    # -- new runs

    def start(self, given: Any, *, key: str | None, context: Any) -> Drive | RunRow:
        """A new run on the head with an input; or what the run with this key has come to."""
        check_key(key)
        if key is not None:
            known = self.ledger.run_with_key(self._thread.id, self._agent.name, key)
            if known is not None:
                return self.go_on(known)
        update = self._agent.schema.update_of(given, "the input")
        packed = None if context is None else encode(context, path="context")
        for _ in range(_RECOVERIES):
            lease = self._take()
            try:
                return self._started(lease, update, key, packed, context)
            except RunExists as exists:
                self._give_back(lease)
                return self.go_on(self._row(exists.run))
            except Busy:
                held = self.ledger.run_holding(self._thread.id, self._thread.branch)
                if held is None or held.status != "running" or not self._agent.answers_to(held.agent):
                    self._give_back(lease)
                    raise
                self._recover(held, lease)
            except BaseException:
                self._give_back(lease)
                raise
        raise Busy(f"branch {self._thread.branch!r} of thread {self._thread.id!r} is taken again and again")

    def _started(self, lease: Lease, update: dict[str, Any], key: str | None, packed: Any, context: Any) -> Drive:
        state = self._load()
        changes = Changes(state, self._agent.schema.reducers, self._agent.schema.empties)
        changes.take(update, "the input")
        position = self._agent.graph.begin()
        run = NewRun(new_run_id(), self._thread.branch, self._agent.name, key=key, context=packed, **self._fork())
        with self._starting(run) as span:
            run = run._replace(trace=span.trace)
            drive = self._drive(lease, run, state, position, context)
            drive.write("input", None, changes.told, position, [Start(run)])
        drive.stand_on(changes)
        return drive

    def _fork(self) -> dict[str, Any]:
        """Where a new run comes from that does not simply follow the last one of its thread: a fork, or a rewind."""
        base = self._thread._memory.base
        head = None if base is None else base.checkpoint
        if base is None or head is None:
            return {}
        begins = base.lane == 0 or head.kind == "fork"
        if not begins and self._thread.branch == "main":
            return {}  # the common case: nothing is looked up
        earlier = None if head.run is None else self.ledger.run(head.run)
        if not begins and earlier is not None and earlier.branch == self._thread.branch:
            return {"parent": earlier.parent, "parent_step": earlier.parent_step}
        return {"parent": None if earlier is None else earlier.id, "parent_step": head.step}

    def _recover(self, held: RunRow, lease: Lease) -> None:
        """A run was left by a process that is gone: it goes on first. Its own errors are its own."""
        drive = self._taken_up(held, lease)
        try:
            drive.drive()
        except Exception as error:
            if drive.ledger.run(held.id) is None:
                raise error from None
        finally:
            finish(drive, self._given)

    # -- runs that exist

    def go_on(self, row: RunRow) -> Drive | RunRow:
        """Drive a run further, if there is anything to do for it; else the row as it is."""
        if row.status in ("done", "cancelled", "dead") or (row.status in ("waiting", "sleeping") and row.wake is None):
            return row
        try:
            lease = self._take()
        except Busy:
            if row.status == "running":
                return self._row(row.id)  # somebody alive drives it
            raise
        try:
            row = self._row(row.id)
            if row.status not in (*HOLDING, "queued", "failed"):
                self._give_back(lease)
                return row
            return self._taken_up(row, lease)
        except BaseException:
            self._give_back(lease)
            raise

    def _taken_up(self, row: RunRow, lease: Lease) -> Drive:
        if not self._agent.answers_to(row.agent):
            raise BadInput(
                f"run {row.id} belongs to agent {row.agent!r}, not to {self._agent.name!r}",
                hint=f"resume it with that agent, or give this one aliases=({row.agent!r},)",
            )
        state = self._load()
        position = self._position(row.step)
        if missing := self._agent.graph.missing(position):
            self._pause(row, lease)
            raise BadInput(
                f"run {row.id} stands before node {missing[0]!r}, which agent {self._agent.name!r} does not have",
                hint="the run is paused: bring the node back, or resume from an earlier checkpoint",
            )
        was: tuple[RunStatus, ...] = (row.status,)
        self.ledger.apply(self._thread.id, [Move(row.id, "running", was)], lease=lease)
        context = None if row.context is None else decode(row.context)
        drive = self._drive(lease, row, state, position, context)
        drive.journal.load()
        drive.taken_up = True
        return drive

    def _pause(self, row: RunRow, lease: Lease) -> None:
        if row.status in HOLDING and row.status != "paused":
            self.ledger.apply(self._thread.id, [Move(row.id, "paused", (row.status,))], lease=lease)

    def resume(self) -> Drive | RunRow:
        """Go on with the branch's run; or with a new one, where the head says that nodes were to run."""
        held = self.ledger.run_holding(self._thread.id, self._thread.branch)
        if held is not None:
            return self.go_on(held)
        last = self._last()
        if last is not None and last.status == "failed":
            return self.go_on(last)
        lease = self._take()
        try:
            state = self._load()
            base = self._thread._memory.base
            position = self._position(None if base is None else base.step)
            if not position.tasks:
                self._give_back(lease)
                return self._ended(last)
            return self._resumed(lease, state, position, base)
        except BaseException:
            self._give_back(lease)
            raise

    def _ended(self, last: RunRow | None) -> RunRow:
        if last is None:
            raise NotFound(
                f"nothing is to be resumed on branch {self._thread.branch!r} of thread {self._thread.id!r}",
                hint="agent.run(thread, input) begins a run",
            )
        return last

    def _resumed(self, lease: Lease, state: dict[str, Any], position: Position, base: Base | None) -> Drive:
        if missing := self._agent.graph.missing(position):
            raise BadInput(
                f"the head stands before node {missing[0]!r}, which agent {self._agent.name!r} does not have"
            )
        head = base.checkpoint if base is not None else None
        origin = self.ledger.run(head.run) if head is not None and head.run is not None else None
        run = NewRun(
            new_run_id(),
            self._thread.branch,
            self._agent.name,
            context=None if origin is None else origin.context,
            parent=None if origin is None else origin.id,
            parent_step=None if head is None else head.step,
            trace=None if origin is None else origin.trace,
        )
        with self._starting(run) as span:
            run = run._replace(trace=span.trace or run.trace)
            self.ledger.apply(self._thread.id, [Start(run)], lease=lease)
        context = None if run.context is None else decode(run.context)
        return self._drive(lease, run, state, position, context)

    def _starting(self, run: NewRun) -> observing.Span:
        at = observing.Where(self._thread._tenant, self._thread.id, run.branch, run.id, run.agent)
        return observing.span("start", run.agent, at, trace=run.trace)

    # -- what both need

    def _row(self, run: str) -> RunRow:
        row = self.ledger.run(run)
        if row is None:
            raise NotFound(f"there is no run {run!r}")
        return row

    def _last(self) -> RunRow | None:
        after = None
        while rows := self.ledger.runs(thread_id=self._thread.id, after=after):
            for row in rows:
                if row.branch == self._thread.branch:
                    return row
            after = rows[-1].id
        return None

    def _take(self) -> Lease:
        lease = self._thread._storage.acquire(self._thread.id, self._thread.branch)
        self._thread._memory.lease = lease
        return lease

    def _give_back(self, lease: Lease) -> None:
        if self._thread._memory.lease is not None:
            self._thread._memory.lease = None
            self._thread._storage.release(lease)

    _lender: Lender | None = None

    def _load(self) -> dict[str, Any]:
        """The head's state: the one that the caller's handle kept from its last run, if that is still the head."""
        kept, self._given._memory.kept = self._given._memory.kept, None
        memory = self._thread._memory
        if kept is not None and kept[0].step is not None:
            with self._thread._storage.snapshot() as snapshot:
                head = snapshot.head(self._thread.id, self._thread.branch)
            at = kept[0]
            if head is not None and head.row is not None and (head.row.step, head.ref.lane) == (at.step, at.lane):
                memory.base = at
                state: dict[str, Any] = kept[1]
                self._lender = kept[2]
                return state
        state, memory.base = self._thread._load_head()
        return state

    def _position(self, step: int | None) -> Position:
        """Where a run stands: what its step says, or the head."""
        base = self._thread._memory.base
        head = None if base is None else base.step
        for at in dict.fromkeys((head, step)):
            if at is not None:
                with self._thread._storage.snapshot() as snapshot:
                    row = find_row(snapshot, self._thread.id, self._thread.branch, at)[1]
                if row.next is not None:
                    return unpack(row.next)
        return unpack(None)

    def _drive(
        self, lease: Lease, run: NewRun | RunRow, state: dict[str, Any], position: Position, context: Any
    ) -> Drive:
        origin = None
        if run.parent_step is not None:
            origin = Origin(self._thread._storage, self.ledger, self._thread.id, run.id, run.parent_step)
        return Drive(
            self._agent,
            self._thread,
            self.ledger,
            lease,
            run.id,
            state=state,
            position=position,
            lender=self._lender,
            origin=origin,
            context=context,
            trace=run.trace,
            listener=self._listener,
            loop=self._loop,
        )


def finish(drive: Drive, given: Thread) -> None:
    """The drive is over: the lease goes back, and the caller's handle keeps what the next run would read again."""
    memory = drive.thread._memory
    lease, memory.lease = memory.lease, None
    if lease is not None and not drive.released:
        drive.thread._storage.release(lease)
    if memory.base is not None and drive.agent.checkpoint == "round" and not drive.failed:
        given._memory.kept = (memory.base, drive.state, drive.lender)


def new_run_id() -> str:
    return f"run-{os.urandom(8).hex()}"
