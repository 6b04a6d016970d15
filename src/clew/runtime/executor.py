"""What can be run from the queue, and a run that was claimed: the part that agents and adapters share.

An executor (an `Agent`, a LangGraph graph) says what its inputs are, and takes claimed runs up. Whoever drives one, a
worker or the caller of `agent.run`, goes through `claim` and `execute` (docs/design/workers.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clew import observing
from clew.errors import ClewError, Conflict, Corrupt, Fenced, StorageError
from clew.runtime.retry import ONCE, Retry
from clew.state.codec import decode, encode
from clew.state.values import summary_of
from clew.storage.ledger import HOLDING, Entry, Ledger, Move, NewRun, RunRow, RunStatus, Start, ledger_of
from clew.storage.port import Lease
from clew.storage.queue import Enter, Rewind
from clew.thread import Thread
from clew.writing import Memory

if TYPE_CHECKING:
    import asyncio

    from clew.database import Database

_PATIENCE = 30.0
"""Seconds for which a run is tried to be given back to a database that does not answer."""
_SOON = 1_000_000
"""A run that the database has failed is due again after so many microseconds."""


class Executor(Protocol):
    """What can be submitted and run by workers: an `Agent`, a LangGraph graph."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]:
        """Names that it had before: their runs are its own."""
        ...

    def pack(self, given: Any) -> bytes:
        """Check and encode an input; `BadInput` when it is none. Called before a run is admitted."""
        ...

    def take_up(self, held: Held) -> Driving:
        """Read what the run stands on, and write its input down if it has one to begin with (`held.begins`)."""
        ...


class Driving(Protocol):
    """A run under way. `want` and `halt` are called from other threads."""

    def drive(self) -> RunStatus:
        """Go on until the run is over or has to wait, and it is written which."""
        ...

    def want(self, word: str) -> None:
        """Word was left for the run: "cancel", "interrupt", "rollback", "inject", "pause"."""
        ...

    def halt(self) -> None:
        """Go no further than this round; then `held.hand_over()`."""
        ...


class Terms(NamedTuple):
    """How often a run is tried: `retry` counts errors, `crashes` processes that died, both since the last checkpoint.

    One that has failed for good is `failed`, one that has crashed more often than `crashes` is `dead`.
    """

    retry: Retry = ONCE
    crashes: int | None = None


class Held:
    """A run that this process has claimed: it is `running`, and its branch's lease is here.

    `thread` is a handle that holds the lease. Each of `end`, `fail`, `hand_over` and `roll_back` writes what becomes of
    the run, under the lease; entries of `entered()` and `ending()` ride on a checkpoint of its own instead.
    """

    def __init__(
        self,
        db: Database,
        executor: Executor,
        row: RunRow,
        *,
        new: NewRun | None = None,
        terms: Terms = Terms(),  # noqa: B008 - a constant
        loop: asyncio.AbstractEventLoop | None = None,
        given: tuple[Any, Any] = (None, None),
    ) -> None:
        self.db = db
        self.executor = executor
        self.row = row
        self.new = new
        self.terms = terms
        self.loop = loop
        self.lease = Lease(row.thread_id, row.branch, row.epoch)
        self.thread: Thread = db._thread_with_memory(row.thread_id, row.branch, Memory())
        self.thread._memory.lease = self.lease
        self.ledger: Ledger = db._room.ledger
        self.status: RunStatus = "running"
        self.error: BaseException | None = None
        self.given = given
        """Input and context of a `new` one, as the caller gave them."""
        self.on_nothing = False
        """Whether its branch is known to have no checkpoint: nothing need be read, then."""
        self.watched = False
        """Whether somebody tells it of word; else it has to look for itself."""
        self._words: list[str] = [] if row.wanted is None else [row.wanted]
        self._halted = False
        self._driving: Driving | None = None
        self._lock = threading.RLock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Held {self.row.id} {self.row.agent} on {self.row.thread_id}>"

    # -- what it begins with

    @property
    def begins(self) -> bool:
        """Whether its input is still to become a checkpoint."""
        return self.new is not None or self.row.input is not None

    @property
    def context(self) -> Any:
        """What it was submitted or begun with as `context=`."""
        if self.new is not None:
            return self.given[1]
        return unpack_value(self.row.context)

    def entered(self, *, parent: str | None = None, parent_step: int | None = None) -> list[Entry]:
        """Entries that ride on the checkpoint of its input. `parent…`: where a run on a fork comes from."""
        if self.new is not None:
            return [Start(self.new._replace(parent=parent, parent_step=parent_step))]
        return [Enter(self.row.id, parent, parent_step)]

    # -- word from outside

    def want(self, word: str) -> None:
        """Pass on what somebody wants of the run."""
        with self._lock:
            if self._driving is None:
                self._words.append(word)
                return
            driving = self._driving
        driving.want(word)

    def halt(self) -> None:
        """Let it go no further than its round."""
        with self._lock:
            self._halted = True
            driving = self._driving
        if driving is not None:
            driving.halt()

    def taken_by(self, driving: Driving) -> None:
        """From now on, word goes there."""
        with self._lock:
            self._driving = driving
            live[self.row.id] = self
            words, self._words = self._words, []
            halted = self._halted
        for word in words:
            driving.want(word)
        if halted:
            driving.halt()

    # -- ends

    def ending(
        self,
        status: RunStatus,
        *,
        requests: Sequence[int] = (),
        delay: int | None = None,
        error: BaseException | None = None,
        step: int | None = None,
    ) -> Move:
        """The entry that gives it another status. After the commit that this rides on, call `ended`."""
        stored = None if error is None else encode(summary_of(error))
        return Move(self.row.id, status, ("running",), delay, requests, stored, step)

    def ended(self, status: RunStatus, *, released: bool = False) -> RunStatus:
        """What becomes of it is written; `released`: and the lease went back with that."""
        with self._lock:
            self.status = status
            self._closed = self._closed or released
            if self._closed:
                live.pop(self.row.id, None)
        return status

    def end(
        self,
        status: RunStatus,
        *,
        requests: Sequence[int] = (),
        delay: int | None = None,
        error: BaseException | None = None,
        entries: Sequence[Entry] = (),
    ) -> RunStatus:
        """Write what becomes of it: "done", "waiting" (for `requests`, and its open waits), "sleeping" (`delay`) …

        The lease goes back with that.
        """
        with self._lock:
            if self._closed:
                raise Fenced(f"run {self.row.id} was given back: somebody else goes on with it")
            move = self.ending(status, requests=requests, delay=delay, error=error, step=self._step())
            try:
                self.ledger.apply(self.row.thread_id, [*entries, move], lease=self.lease, release=True)
            except (Fenced, Conflict):
                row = self.ledger.run(self.row.id)
                if row is None or (row.epoch, row.status) != (self.row.epoch, status):
                    raise
                self.close()  # it was written before; that answer was lost
            return self.ended(status, released=True)

    def _step(self) -> int | None:
        base = self.thread._memory.base
        return None if base is None else base.step

    def fail(self, error: BaseException) -> RunStatus:
        """It has failed of an error: it is due again after a while, or `failed`, as its terms say.

        Errors of the database are not the run's: it is due again soon. `Fenced` is raised: nothing may be written.
        """
        if isinstance(error, Fenced):
            raise error
        self.error = error
        if isinstance(error, StorageError) and error.retryable:
            return self.hand_over(delay=_SOON)
        failures = self.row.failures if self._step() in (None, self._stood) else 0
        pause = self.terms.retry.pause(failures + 1, error)
        if pause is None:
            return self.end("failed", error=error)
        return self.end("sleeping", delay=int(pause * 1e6), error=error)

    _stood: int | None = None

    def stands_on(self, step: int | None) -> None:
        """It was taken up at this step: failures count since then."""
        self._stood = step

    def hand_over(self, *, delay: int = 0) -> RunStatus:
        """Give it to whoever claims it next, as it stands. Safe to call while it is driven: that is fenced then.

        Tried again for a while when the database does not answer.
        """
        deadline = time.monotonic() + _PATIENCE
        pause = 0.05
        while True:
            with self._lock:
                if self._closed or self.status != "running":
                    return self.status
                try:
                    status = self.end("sleeping", delay=delay)
                except Conflict:
                    row = self.ledger.run(self.row.id)  # it has just ended
                    return self.ended("cancelled" if row is None else row.status)
                except StorageError as error:
                    if not error.retryable or time.monotonic() > deadline:
                        raise
                else:
                    return status
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def roll_back(self) -> RunStatus:
        """Cancel it, and point the branch at what was before its input. The tip that it leaves keeps a name."""
        row = self.row
        tip = self._step()
        entries: list[Entry] = []
        before = self._before()
        if before != tip and tip is not None:
            entries.append(Rewind(row.branch, before, f"{row.branch}.was.{tip}"))
        return self.end("cancelled", entries=entries)

    def _before(self) -> int | None:
        """The step that the branch stood on before the run's input."""
        row = self.ledger.run(self.row.id) or self.row
        if row.input_step is None:
            return row.parent_step if row.input is None else self._step()
        with self.thread._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(row.thread_id)
            found = [] if thread is None else snapshot.history(thread, row.input_step, 2)
        return found[1].step if len(found) > 1 else None

    def close(self) -> None:
        """Give the lease back, if that has not happened."""
        with self._lock:
            if self._closed:
                return
            live.pop(self.row.id, None)
            self._closed = True  # the handle keeps its lease: what a node still writes through it is fenced
        self.thread._storage.release(self.lease)


live: dict[str, Held] = {}
"""Runs that this process drives."""


def pack_value(value: Any, what: str) -> bytes:
    """What an executor may store an input as; `Unserialisable` tells where in it is what cannot be stored."""
    return encode(value, path=what)


def unpack_value(stored: bytes | None) -> Any:
    return None if stored is None else decode(stored)


def names_of(executors: Sequence[Executor]) -> dict[str, Executor]:
    """Who runs what: by name; an own name counts for more than another's alias."""
    by_alias = {alias: executor for executor in executors for alias in executor.aliases}
    return by_alias | {executor.name: executor for executor in executors}


def claim(
    db: Database,
    executors: Sequence[Executor],
    *,
    run: str,
    due: bool = False,
    terms: Terms = Terms(),  # noqa: B008 - a constant
    loop: asyncio.AbstractEventLoop | None = None,
) -> Held | None:
    """Claim one run by its id, due or not; None when it is not its turn, somebody has it, it is over or unknown here.

    What a queue of somebody else's calls: `if held := claim(db, agents, run=id, due=True): execute(held)`. With `due`,
    a run is left alone that sleeps or waits still, however often it is asked for.
    """
    ledger = ledger_of(db._storage)
    names = names_of(executors)
    row = ledger.run(run)
    if row is None or row.agent not in names:
        return None
    claimed = ledger.claim_run(run, forced=not due)
    if claimed is None and row.status in HOLDING:
        ledger.look([row.agent])  # whoever has the branch may be dead, and it is known then
        claimed = ledger.claim_run(run, forced=not due)
    return None if claimed is None else held_of(db, names[row.agent], claimed, terms=terms, loop=loop)


def held_of(
    db: Database,
    executor: Executor,
    row: RunRow,
    *,
    terms: Terms,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Held | None:
    """A claimed row as a held run; None when it is dead by now: it has killed whoever drove it too often."""
    held = Held(db, executor, row, terms=terms, loop=loop)
    held.on_nothing = row.stood is None
    if terms.crashes is None or row.crashes <= terms.crashes:
        return held
    try:
        held.end("dead", error=RuntimeError(f"whoever drove it died: {row.crashes} crashes since its last checkpoint"))
        observing.log.error("run %s is dead: its process died %d times", row.id, row.crashes)
    finally:
        held.close()
    return None


def execute(held: Held) -> RunStatus:
    """Take a held run up and drive it; what has become of it. Its errors are written, not raised (`held.error`).

    When the lease has passed on, whoever has it says what becomes of the run: that is "running" here.
    """
    try:
        try:
            if held.begins and held.row.wanted == "cancel":
                return held.end("cancelled")
            driving = held.executor.take_up(held)
            held.taken_by(driving)
            return driving.drive()
        except (Fenced, Corrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever its code raises
            return held.status if held.status != "running" else held.fail(error)
    except Fenced as error:
        observing.log.warning("run %s has passed on: %s", held.row.id, error)
        return held.status
    except Corrupt as error:
        return held.end("dead", error=error)
    finally:
        try:
            held.close()
        except ClewError as error:
            observing.log.warning("run %s: its lease goes back later: %s", held.row.id, error)
