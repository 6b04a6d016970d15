"""Running a graph here and now, for a caller that waits: admitted like any other run, and claimed by its caller."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import clew
from clew.errors import BadInput, Busy, NotFound, RunNotFound
from clew.runs import new_run_id
from clew.runtime.executor import Held, claim, execute, live
from clew.storage.ledger import ENDED, Move, NewRun, RunRow, Start, ledger_of
from clew.storage.queue import IfBusy
from clew.submitting import submit

if TYPE_CHECKING:
    from clew.adapters.langgraph.agent import LangGraphAgent
    from clew.adapters.langgraph.driving import GraphDriving, Listening

_RECOVERIES = 3
_GRACE = 5.0
"""Seconds that a run is left to its caller once it is its turn. Then any worker takes it."""
_LOOK = 0.5
"""Seconds between two looks at whoever has the thread."""


class Calling:
    """One call of an agent. `loop` is the caller's, where the graph is to be awaited."""

    def __init__(
        self,
        agent: LangGraphAgent,
        thread: Any,
        *,
        loop: asyncio.AbstractEventLoop | None,
        listening: Listening | None,
    ) -> None:
        self._agent = agent
        self._given = thread
        self._thread: clew.Thread = getattr(thread, "_handle", thread)
        if not isinstance(self._thread, clew.Thread):
            raise BadInput(f"a graph runs on a thread, not on {thread!r:.80}", hint='db.thread("trip-7")')
        self._db: clew.Database = self._thread._db
        self._ledger = ledger_of(self._db._storage)
        self._loop = loop
        self._listening = listening
        self._held: Held | None = None
        self._word: str | None = None
        self._lock = threading.Lock()
        agent._graph_on(self._db)  # whether it can be run here at all

    # -- admitting

    def admit(self, given: Any, *, key: str | None, if_busy: IfBusy, context: Any) -> str:
        """Admit a run; its id. One that a dead process has left on the thread goes on first."""
        for _ in range(_RECOVERIES):
            try:
                return submit(
                    self._db,
                    self._ledger,
                    self._agent,
                    self._thread,
                    given,
                    key=key,
                    if_busy=if_busy,
                    context=context,
                    grace=_GRACE,
                ).id
            except Busy:
                if not self._help():
                    raise
        raise Busy(f"thread {self._thread.id!r} is taken again and again")

    def to_resume(self) -> str | Held:
        """What there is to go on with: a run's id, or a run that is taken up here."""
        row = self._ledger.run_holding(self._thread.id, self._thread.branch)
        if row is not None:
            return row.id
        last = self._last()
        if last is not None and last.status == "queued":
            return last.id
        graph = self._agent._graph_on(self._db)
        lease = self._thread._storage.acquire(self._thread.id, self._thread.branch)
        try:
            if last is not None and last.status == "failed":
                self._ledger.apply(last.thread_id, [Move(last.id, "running", ("failed",))], lease=lease)
                return self._hold(last.id)
            if graph.get_state({"configurable": {"thread_id": self._thread.id}}).next:
                context = None if last is None else last.context
                run = NewRun(new_run_id(), self._thread.branch, self._agent.name, context=context)
                self._ledger.apply(self._thread.id, [Start(run)], lease=lease)
                return self._hold(run.id)
        except BaseException:
            self._thread._storage.release(lease)
            raise
        self._thread._storage.release(lease)
        if last is None:
            raise NotFound(
                f"nothing is to be resumed on thread {self._thread.id!r}", hint="agent.run(thread, input) begins a run"
            )
        return last.id

    def _hold(self, run: str) -> Held:
        return Held(self._db, self._agent, self._row(run), loop=self._loop)

    def _last(self) -> RunRow | None:
        after = None
        while rows := self._ledger.runs(thread_id=self._thread.id, after=after):
            for row in rows:
                if row.branch == self._thread.branch:
                    return row
            after = rows[-1].id
        return None

    def _row(self, run: str) -> RunRow:
        row = self._ledger.run(run)
        if row is None:
            raise RunNotFound(f"run {run!r} is gone, with its thread")
        return row

    # -- driving

    def drive(self, what: str | Held) -> clew.Run:
        """Drive it here, once it is its turn, or wait until somebody else has. Its error is raised."""
        if isinstance(what, Held):
            return self._driven(what)
        pause, looked = 0.005, 0.0
        while True:
            row = self._row(what)
            if not self._agent.answers_to(row.agent):
                raise BadInput(
                    f"run {row.id} belongs to agent {row.agent!r}, not to {self._agent.name!r}",
                    hint=f"resume it with that agent, or give this one aliases=({row.agent!r},)",
                )
            if row.status in ENDED or (row.status in ("waiting", "sleeping") and row.wake is None):
                return clew.Run(self._db, row)
            if self._word is not None and row.status == "queued":
                clew.Run(self._db, row).cancel()
                continue
            held = claim(self._db, [self._agent], run=row.id, loop=self._loop)
            if held is not None:
                return self._driven(held)
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                self._help()
            # There is nothing to wait on across processes: look again, less and less often.
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - not for secrets
            pause = min(2 * pause, 0.2)

    def _driven(self, held: Held) -> clew.Run:
        try:
            awaited = self._agent._awaited if self._loop is None else True
            driving: GraphDriving = self._agent._take_up(held, awaited=awaited, listening=self._listening)
            held.taken_by(driving)
            with self._lock:
                self._held = held
                word = self._word
            if word is not None:
                held.want(word)
            driving.drive()
        except BaseException as error:
            if held.status == "running":
                held.fail(error)
            raise
        finally:
            with self._lock:
                self._held = None
            held.close()
        if held.error is not None:
            raise held.error
        return clew.Run(self._db, self._row(held.row.id))

    def _help(self) -> bool:
        """Go on with the run that has the thread, if it was left, or nobody does what is wanted of it."""
        row = self._ledger.run_holding(self._thread.id, self._thread.branch)
        if row is None:
            return True
        left = row.status == "running" or (row.wanted is not None and row.wake is not None)
        held = claim(self._db, [self._agent], run=row.id, loop=self._loop) if left else None
        if held is None:
            return False
        execute(held)  # its errors are its own
        return True

    # -- from outside

    def want(self, word: str) -> None:
        """Stop what this call has begun."""
        with self._lock:
            self._word = word
            held = self._held
        if held is not None:
            held.want(word)

    def cancel(self, *, compensate: bool = False) -> Any:
        row = self._ledger.run_holding(self._thread.id, self._thread.branch)
        if row is None and compensate and (last := self._last()) is not None and last.status == "failed":
            row = last
        if row is None:
            raise RunNotFound(f"thread {self._thread.id!r} has no run to cancel")
        run = clew.Run(self._db, row)
        if (held := live.get(row.id)) is not None:
            held.want("compensate" if compensate else "cancel")
            return run
        run.cancel(compensate=compensate)
        if compensate and (held := claim(self._db, [self._agent], run=row.id, loop=self._loop)) is not None:
            return self._driven(held)
        return run

    async def awaited(self, work: Callable[[], Any]) -> Any:
        """Do it on a thread of its own. Cancelling the await cancels the run, and waits for what becomes of it."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def on_thread() -> None:
            try:
                found = work()
            except BaseException as error:  # noqa: BLE001 - whoever awaits gets it
                loop.call_soon_threadsafe(outcome.set_exception, error)
            else:
                loop.call_soon_threadsafe(outcome.set_result, found)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(on_thread,), name=f"clew-{self._agent.name}", daemon=True).start()
        try:
            found = await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self.want("cancel")
            while not outcome.done():
                try:
                    await asyncio.wait([outcome])
                except asyncio.CancelledError:
                    continue
            outcome.exception()  # looked at, so that nobody is warned of it
            raise
        if self._given is self._thread:
            return found
        from clew import aio

        return aio.Run(found, self._given, self._given._hop)
