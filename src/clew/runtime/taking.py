"""Taking runs of an agent up: a new one with its input, one that was left, one that goes on from any checkpoint.

Whoever takes a run up holds the lease of its branch from then on, and either drives it or gives the lease back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clew import observing
from clew.errors import BadInput, Busy, Conflict, NotFound, RunExists
from clew.reading import Base, find_row
from clew.runs import new_run_id
from clew.runtime.drive import Drive, Listener
from clew.runtime.executor import Held, claim, execute
from clew.runtime.forks import Origin
from clew.runtime.journal import unpack_update
from clew.runtime.machine import Position, unpack
from clew.runtime.reducers import Changes
from clew.runtime.standing import GRACE, its_turn
from clew.runtime.undoing import STOPPING
from clew.state.codec import encode
from clew.state.private import Lender
from clew.storage.ledger import HOLDING, Ledger, Move, NewRun, RunRow, RunStatus, Start, Want, ledger_of
from clew.storage.port import Lease
from clew.storage.queue import IfBusy
from clew.submitting import submit
from clew.thread import Thread
from clew.writing import EMPTY_BASE, check_key

if TYPE_CHECKING:
    import asyncio

    from clew.runtime.agent import Agent

_RECOVERIES = 3


def take_up(agent: Agent, held: Held, given: Thread | None = None, listener: Listener | None = None) -> Drive:
    """A held run as an agent drives it. `given` is the caller's handle, which may have kept the head's state."""
    state, lender = _load(held, given)
    base = held.thread._memory.base
    held.stands_on(None if base is None else base.step)
    if held.begins:
        return _begun(agent, held, state, lender, listener)
    position = _position(held.thread, base, held.row.step)
    if held.row.wanted not in STOPPING and (missing := agent.graph.missing(position)):
        held.end("paused")
        raise BadInput(
            f"run {held.row.id} stands before node {missing[0]!r}, which agent {agent.name!r} does not have",
            hint="the run is paused: bring the node back, or resume from an earlier checkpoint",
        )
    origin = _origin(held, held.row.parent_step)
    drive = Drive(agent, held, state=state, position=position, lender=lender, origin=origin, listener=listener)
    drive.journal.load()
    return drive


def _begun(agent: Agent, held: Held, state: dict[str, Any], lender: Lender | None, listener: Listener | None) -> Drive:
    """The run's input becomes a checkpoint."""
    changes = Changes(state, agent.schema.reducers, agent.schema.empties)
    given = held.given[0] if held.new is not None else unpack_update(held.row.input or b"")
    changes.take(agent.schema.update_of(given, "the input"), "the input")
    position = agent.graph.begin()
    comes = _comes_from(held)
    origin = _origin(held, comes.get("parent_step"))
    drive = Drive(agent, held, state=state, position=position, lender=lender, origin=origin, listener=listener)
    drive.write("input", None, changes.told, position, held.entered(**comes))
    drive.stand_on(changes)
    return drive


def _origin(held: Held, step: int | None) -> Origin | None:
    if step is None:
        return None
    return Origin(held.thread._storage, held.ledger, held.thread.id, held.row.id, step)


def _comes_from(held: Held) -> dict[str, Any]:
    """Where a new run comes from that does not simply follow the last one of its thread: a fork, or a rewind."""
    base = held.thread._memory.base
    head = None if base is None else base.checkpoint
    if base is None or head is None:
        return {}
    begins = base.lane == 0 or head.kind == "fork"
    if not begins and held.thread.branch == "main":
        return {}  # the common case: nothing is looked up
    earlier = None if head.run is None else held.ledger.run(head.run)
    if not begins and earlier is not None and earlier.branch == held.thread.branch:
        return {"parent": earlier.parent, "parent_step": earlier.parent_step}
    return {"parent": None if earlier is None else earlier.id, "parent_step": head.step}


def _load(held: Held, given: Thread | None) -> tuple[dict[str, Any], Lender | None]:
    """The head's state: the one that the caller's handle kept from its last run, if that is still the head."""
    thread, memory = held.thread, held.thread._memory
    if held.on_nothing:
        memory.base = EMPTY_BASE
        return {}, None
    kept = None
    if given is not None:
        kept, given._memory.kept = given._memory.kept, None
    if kept is not None and kept[0].step is not None:
        with thread._storage.snapshot() as snapshot:
            head = snapshot.head(thread.id, thread.branch)
        at = kept[0]
        if head is not None and head.row is not None and (head.row.step, head.ref.lane) == (at.step, at.lane):
            memory.base, state, lender = kept
            return state, lender
    state, memory.base = thread._load_head()
    return state, None


def _position(thread: Thread, base: Base | None, step: int | None) -> Position:
    """Where a run stands: what the head says, or its step."""
    head = None if base is None else base.step
    for at in dict.fromkeys((head, step)):
        if at is not None:
            with thread._storage.snapshot() as snapshot:
                row = find_row(snapshot, thread.id, thread.branch, at)[1]
            if row.next is not None:
                return unpack(row.next)
    return unpack(None)


class Taking:
    """Takes runs of an agent up here and now, for a caller that waits. `thread` is the caller's handle."""

    def __init__(
        self, agent: Agent, thread: Thread, *, listener: Listener | None, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        if not isinstance(thread, Thread):
            raise BadInput(
                f"an agent runs on a thread of a database, not on {thread!r:.60}", hint="db.thread(…) gives one"
            )
        self._agent = agent
        self._thread = thread
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
        self._agent.schema.update_of(given, "the input")
        packed = None if context is None else encode(context, path="context")
        run = NewRun(new_run_id(), self._thread.branch, self._agent.name, key=key, context=packed)
        for _ in range(_RECOVERIES):
            lease = self._take()
            try:
                with self._starting(run) as span:
                    return self._begin(lease, run._replace(trace=span.trace), (given, context))
            except RunExists as exists:
                return self.go_on(self._row(exists.run))
            except Busy:
                held = self.ledger.run_holding(self._thread.id, self._thread.branch)
                if held is None or held.status != "running" or not self._agent.answers_to(held.agent):
                    raise
                self._recover(held)
        raise Busy(f"branch {self._thread.branch!r} of thread {self._thread.id!r} is taken again and again")

    def stand(
        self, given: Any, *, key: str | None, if_busy: IfBusy, context: Any, unwanted: Callable[[], bool]
    ) -> Drive | RunRow:
        """A new run that stands in line for the branch, and does what `if_busy` says about those before it."""
        run = submit(
            self._thread._db, self.ledger, self._agent, self._thread, given,
            key=key, if_busy=if_busy, context=context, grace=GRACE,
        )  # fmt: skip
        row = self._row(run.id)
        if row.status not in ("queued", "running"):
            return self.go_on(row)  # the key's run
        found = its_turn(self._thread._db, self._agent, row.id, loop=self._loop, unwanted=unwanted)
        return found if isinstance(found, RunRow) else self._taken_up(found)

    def _recover(self, row: RunRow) -> None:
        """A run was left by a process that is gone: it goes on first. Its own errors are its own."""
        held = claim(self._thread._db, [self._agent], run=row.id, loop=self._loop)
        if held is not None:
            execute(held)

    # -- runs that exist

    def go_on(self, row: RunRow) -> Drive | RunRow:
        """Drive a run further, if there is anything to do for it; else the row as it is."""
        if row.status in ("done", "cancelled", "dead") or (row.status in ("waiting", "sleeping") and row.wake is None):
            return row
        if not self._agent.answers_to(row.agent):
            raise BadInput(
                f"run {row.id} belongs to agent {row.agent!r}, not to {self._agent.name!r}",
                hint=f"resume it with that agent, or give this one aliases=({row.agent!r},)",
            )
        if row.status == "failed":
            return self._retried(row)
        held = claim(self._thread._db, [self._agent], run=row.id, loop=self._loop)
        if held is not None:
            return self._taken_up(held)
        now = self._row(row.id)
        if now.status in HOLDING and now.status != "running":
            raise Busy(f"somebody works on branch {now.branch!r} of thread {now.thread_id!r}")
        return now  # it stands in line, somebody alive drives it, or it is over

    def cancel(self, row: RunRow, word: str) -> Drive | RunRow:
        """Cancel a run, as the word says: here, or by whoever drives it."""
        if row.status == "failed":
            return self._retried(row, word)
        with suppress(Conflict):  # it has ended meanwhile
            self.ledger.apply(row.thread_id, [Want(row.id, word)])
        held = claim(self._thread._db, [self._agent], run=row.id, loop=self._loop)
        return self._row(row.id) if held is None else self._taken_up(held)

    def _retried(self, row: RunRow, word: str | None = None) -> Drive | RunRow:
        lease = self._take()
        try:
            row = self._row(row.id)
            was: tuple[RunStatus, ...] = ("failed",)
            self.ledger.apply(row.thread_id, [Move(row.id, "running", was)], lease=lease)
            row = self._row(row.id)._replace(wanted=word)
        except BaseException:
            self._thread._storage.release(lease)
            raise
        return self._taken_up(Held(self._thread._db, self._agent, row, loop=self._loop))

    def unfinished(self) -> RunRow | None:
        """The run that has the branch; or the last one, if it has failed."""
        held = self.ledger.run_holding(self._thread.id, self._thread.branch)
        if held is not None:
            return held
        last = self._last()
        return last if last is not None and last.status == "failed" else None

    def resume(self) -> Drive | RunRow:
        """Go on with the branch's run; or with a new one, where the head says that nodes were to run."""
        unfinished = self.unfinished()
        if unfinished is not None:
            return self.go_on(unfinished)
        lease = self._take()
        try:
            base = self._thread._load_head()[1]
            position = _position(self._thread, base, None)
            if position.tasks:
                return self._resumed(lease, position, base)
        except BaseException:
            self._thread._storage.release(lease)
            raise
        self._thread._storage.release(lease)
        return self._ended(self._last())

    def _ended(self, last: RunRow | None) -> RunRow:
        if last is None:
            raise NotFound(
                f"nothing is to be resumed on branch {self._thread.branch!r} of thread {self._thread.id!r}",
                hint="agent.run(thread, input) begins a run",
            )
        return last

    def _resumed(self, lease: Lease, position: Position, base: Base) -> Drive:
        if missing := self._agent.graph.missing(position):
            raise BadInput(
                f"the head stands before node {missing[0]!r}, which agent {self._agent.name!r} does not have"
            )
        head = base.checkpoint
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
        return self._taken_up(Held(self._thread._db, self._agent, self._row(run.id), loop=self._loop))

    def _starting(self, run: NewRun) -> observing.Span:
        at = observing.Where(self._thread._tenant, self._thread.id, run.branch, run.id, run.agent)
        return observing.span("start", run.agent, at, trace=run.trace)

    # -- what both need

    def _begin(self, lease: Lease, run: NewRun, given: tuple[Any, Any]) -> Drive:
        held = Held(self._thread._db, self._agent, _row_of(run, lease), new=run, loop=self._loop, given=given)
        return self._taken_up(held)

    def _taken_up(self, held: Held) -> Drive:
        try:
            return take_up(self._agent, held, self._thread, self._listener)
        except BaseException:
            held.close()
            raise

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
        return self._thread._storage.acquire(self._thread.id, self._thread.branch)


def _row_of(new: NewRun, lease: Lease) -> RunRow:
    """A run that is about to be begun here, as it will stand in the ledger."""
    return RunRow.of(new, lease.thread_id, epoch=lease.epoch, attempts=1)


def drive_here(drive: Drive, given: Thread) -> RunRow:
    """Drive for a caller who waits: the run's error is raised, and the caller's handle keeps what it has read."""
    held = drive.held
    held.taken_by(drive)
    try:
        drive.drive()
    finally:
        held.close()
        memory = drive.thread._memory
        if memory.base is not None and drive.agent.checkpoint == "round" and held.error is None:
            given._memory.kept = (memory.base, drive.state, drive.lender)
    if held.error is not None:
        raise held.error
    row = drive.ledger.run(drive.run)
    assert row is not None  # noqa: S101 - runs go with their threads, and this one was ours
    return row
