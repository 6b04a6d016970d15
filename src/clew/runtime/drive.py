"""Driving a run: rounds of nodes, and one checkpoint after each.

A drive holds the lease of the run's branch. It begins where the run stands (its position, the state, the journal of the
round under way) and ends when the run is over, or has to wait. Whatever it writes is one commit for each round:
the state, where the run stands now, and what the ledger has of it.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from clew import observing
from clew.errors import BadInput, Conflict, StorageError
from clew.model import Checkpoint
from clew.runtime import crew
from clew.runtime.forks import Origin
from clew.runtime.journal import Journal, unpack_update
from clew.runtime.machine import Position, Task
from clew.runtime.node_activation import NodeActivation
from clew.runtime.nodes import Done, Failed, Node, Outcome, Paused, Stopped, run_async, run_sync
from clew.runtime.reducers import Changes
from clew.runtime.undoing import STOPPING, undo
from clew.state.codec import encode
from clew.state.draft import Draft, Extend
from clew.state.private import Lender, Lent
from clew.state.values import summary_of
from clew.storage.changes import Change
from clew.storage.ledger import Entry, Move, RunStatus, Withdraw
from clew.storage.queue import TakeIn
from clew.storage.wanted import ROLL_BACK, STRENGTH, UNDO

if TYPE_CHECKING:
    import asyncio

    from clew.runtime.agent import Agent
    from clew.runtime.executor import Held

Listener = Callable[[str, str | None, Any], None]
"""Is told what happens: the kind of event, the node, a value."""

Ended = tuple[Task, Outcome | BaseException]
_LOOK = 0.5
"""Seconds between two looks at what others want of this run."""
_TRIES = 10


class Drive:
    """One stretch of a held run: what an `Agent` makes of it."""

    def __init__(
        self,
        agent: Agent,
        held: Held,
        *,
        state: dict[str, Any],
        position: Position,
        lender: Lender | None = None,
        origin: Origin | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.agent = agent
        self.held = held
        self.thread = held.thread
        self.ledger = held.ledger
        self.lease = held.lease
        self.run = held.row.id
        self.state = state
        self.position = position
        self.origin = origin
        self.context = held.context
        self.where = observing.Where(self.thread._tenant, self.thread.id, self.thread.branch, self.run, agent.name)
        self.journal = Journal(self.thread._storage, self.thread._tenant, self.thread.id, f"run {self.run}", self.lease)
        self.lender = lender or Lender()
        self._listener = listener
        self._stop = threading.Event()
        self._halt = threading.Event()
        self._word: str | None = None
        self._looked = time.monotonic()
        self._writing = threading.RLock()
        self._async: set[asyncio.Task[Any]] = set()
        self._asked = False
        self._unwritten = False
        self.taken_up = held.row.attempts > 1
        """Whether an earlier attempt may have asked what this one does not."""

    # -- from outside

    def want(self, word: str) -> None:
        """Carry out what somebody wants: nodes that can be interrupted are, the others at their next call of Clew."""
        if STRENGTH.get(word, 0) > STRENGTH.get(self._word, 0):
            self._word = word
        if word in STOPPING:
            self._stop.set()
            for task in list(self._async):
                task.get_loop().call_soon_threadsafe(task.cancel)

    def halt(self) -> None:
        """Go no further than the end of this round: somebody else goes on with the run."""
        self._halt.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        """Wait within a node's attempts; shorter when the run is cancelled."""
        self._stop.wait(seconds)

    def look(self) -> None:
        """Look, now and then, at what others want of this run, unless somebody tells."""
        now = time.monotonic()
        if self.held.watched or now - self._looked < _LOOK:
            return
        self._looked = now
        for _, word in self.ledger.wanted([self.run]):
            self.want(word)

    # -- for nodes

    def activation(self, task: Task) -> NodeActivation:
        return NodeActivation(self, task)

    def lend(self) -> tuple[dict[str, Any], dict[str, Lent]]:
        """The state for a node, and what is known of its long lists."""
        with self._writing:
            return self.lender.lend(self.state)

    def take_back(self, known: Mapping[str, Lent]) -> None:
        """A node has given back what it was lent, unchanged."""
        with self._writing:
            self.lender.take_back(self.state, known)

    def tell(self, kind: str, node: str | None = None, value: Any = None) -> None:
        if self._listener is not None:
            self._listener(kind, node, value)

    def opened(self) -> None:
        """A node of this round has asked somebody."""
        self._asked = True

    # -- rounds

    def drive(self) -> RunStatus:
        """Go on until the run is over, or has to wait."""
        token = observing.where.set(self.where)
        try:
            with observing.span("run", self.agent.name, self.where, trace=self.held.row.trace) as span:
                observing.log.debug("run %s goes on", self.run)
                status = self._rounds()
                span.ends(status, self.held.error)
                observing.log.info("run %s is %s", self.run, status)
            return status
        finally:
            observing.where.reset(token)

    def _rounds(self) -> RunStatus:
        while True:
            self.look()
            if (status := self._heed()) is not None:
                return status
            outcomes = self._round()
            self.look()
            if self._word == "rollback":
                return undo(self.held, self._word, ROLL_BACK) or self.held.roll_back()
            if any(isinstance(outcome, Failed) for _, outcome in outcomes):
                return self._failed(outcomes)
            if self.stopping or any(isinstance(outcome, Stopped) for _, outcome in outcomes):
                return self._cancelled(outcomes)
            if any(isinstance(outcome, Paused) for _, outcome in outcomes):
                return self._park(outcomes)
            if self._end_round(outcomes):
                return self.held.status

    def _heed(self) -> RunStatus | None:
        """Between two rounds: do what somebody wants. None: the run goes on."""
        match self._word:
            case "rollback" | "roll back":
                return undo(self.held, self._word, ROLL_BACK) or self.held.roll_back()
            case "cancel" | "interrupt" | "compensate" | "undo":
                return self._cancelled(self._finished())
            case "pause":
                return self.held.end("paused")
            case "inject":
                self._word = None
                self._take_in()
        return self.held.hand_over() if self._halt.is_set() else None

    def _round(self) -> list[tuple[Task, Outcome]]:
        """Run the tasks of a round that have not finished yet; outcomes in the order of the tasks."""
        if self.position.round >= self.agent.max_rounds:
            error = BadInput(
                f"agent {self.agent.name!r} has gone through {self.position.round} rounds without an end",
                hint="clew.Agent(…, max_rounds=…) allows more; then resume the run",
            )
            return [(self.position.tasks[0], Failed(error))]
        outcomes: dict[str, Outcome] = {task.name: outcome for task, outcome in self._finished()}
        left = [task for task in self.position.tasks if task.name not in outcomes]
        for task, outcome in self._run([(self.agent.node_named(task.node), task) for task in left]):
            outcomes[task.name] = outcome
        return [(task, outcomes[task.name]) for task in self.position.tasks]

    def _finished(self) -> list[tuple[Task, Outcome]]:
        """The tasks of this round that an earlier attempt has finished."""
        found: list[tuple[Task, Outcome]] = []
        for task in self.position.tasks:
            update = {} if task.name in self.position.done else self.journal.finished(self.key(task))
            if update is not None:
                found.append((task, Done(update)))
        return found

    def key(self, task: Task) -> str:
        """What names a task in the journal of its run."""
        return f"{self.position.round}/{task.name}"

    def _run(self, todo: Sequence[tuple[Node, Task]]) -> list[tuple[Task, Outcome]]:
        if len(todo) == 1 and not todo[0][0].is_async:
            node, task = todo[0]
            self.tell("node", task.name)
            return [(task, self._noted(task, run_sync(self, node, task)))]
        ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        for node, task in todo:
            self.tell("node", task.name)
            self._launch(node, task, ended)
        found: list[tuple[Task, Outcome]] = []
        while len(found) < len(todo):
            came = self._next_ended(ended)
            found += [(task, self._noted(task, one)) for task, one in came if not isinstance(one, BaseException)]
            if len(found) < len(todo) or not all(isinstance(one, Done) for _, one in found):
                for task, one in came:
                    if isinstance(one, Done):
                        self.journal.finish(self.key(task), one.update, one.beside)
            for _, one in came:
                if isinstance(one, BaseException):
                    self.want("cancel")
                    raise one
        return found

    def _next_ended(self, ended: queue.SimpleQueue[Ended]) -> list[Ended]:
        """The tasks that have ended since, all at once: what ends together need not be journaled one by one."""
        while True:
            try:
                came = [ended.get(timeout=_LOOK)]
                break
            except queue.Empty:
                self.look()
        while not ended.empty():
            came.append(ended.get())
        return came

    def _noted(self, task: Task, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Done):
            self.tell("update", task.name, outcome.update)
        return outcome

    def _launch(self, node: Node, task: Task, ended: queue.SimpleQueue[Ended]) -> None:
        if node.is_async:
            from clew.runtime.loops import own_loop, start

            async def main() -> None:
                import asyncio

                me = asyncio.current_task()
                assert me is not None  # noqa: S101
                self._async.add(me)
                try:
                    if self.stopping:
                        me.cancel()
                    ended.put((task, await run_async(self, node, task)))
                except BaseException as error:
                    ended.put((task, Stopped() if isinstance(error, asyncio.CancelledError) else error))
                    raise
                finally:
                    self._async.discard(me)

            start(main(), self.held.loop or own_loop())
            return

        def work() -> None:
            try:
                ended.put((task, run_sync(self, node, task)))
            except BaseException as error:  # noqa: BLE001 - whoever drives gets it
                ended.put((task, error))

        context = contextvars.copy_context()
        crew.call(partial(context.run, work))

    # -- ends of rounds

    def _end_round(self, outcomes: Sequence[tuple[Task, Outcome]]) -> bool:
        """One commit takes in what the tasks returned; whether the run is over."""
        try:
            changes = self._taken_in(outcomes)
            self._extend(changes)
            with self._viewed(changes.state) as view:
                following = self.agent.graph.advance(self.position, view)
        except Exception as error:  # noqa: BLE001 - the run fails of it
            self._keep_finished(outcomes)
            self._failed([(outcomes[0][0], Failed(error))])
            return True
        names = dict.fromkeys(task.node for task in self.position.tasks)
        over = not following.tasks
        if not over and self.agent.checkpoint == "run":
            self._keep_finished(outcomes)
            self.stand_on(changes)
            self.position = following
            self._unwritten = True
            return False
        entries = self._beside(outcomes)
        if self._asked or self.taken_up:
            entries.append(Withdraw(run=self.run))
        if over:
            entries.append(self.held.ending("done"))
        self.write("step", ", ".join(names), self._told(changes), following, entries, ended=True, release=over)
        self.stand_on(changes)
        if over:
            self.held.ended("done", released=True)
        return over

    def _told(self, changes: Changes) -> dict[str, Any]:
        """What a checkpoint has to bring: the changes; or all, where earlier rounds have not written theirs."""
        return changes.told if self.agent.checkpoint == "round" else changes.state

    def _take_in(self) -> None:
        """Take in the inputs that were sent to the run meanwhile: one checkpoint, before the next round."""
        for _ in range(_TRIES):
            taken: list[tuple[str, dict[str, Any]]] = []
            changes = self._changed_by(taken)
            for row in self.ledger.to_take_in(self.run):
                try:
                    update = self.agent.schema.update_of(unpack_update(row.input or b""), "the input")
                    changes = self._changed_by([*taken, (row.id, update)])
                    taken.append((row.id, update))
                except Exception as error:  # noqa: BLE001 - a reducer's; it is that input's, and not this run's
                    failed = Move(row.id, "failed", ("queued",), error=encode(summary_of(error)))
                    self.ledger.apply(self.thread.id, [failed], lease=self.lease)
            entry = TakeIn(self.run, [run for run, _ in taken])
            try:
                if taken:
                    self.write("input", None, self._told(changes), self.position, [entry])
                    self.stand_on(changes)
                else:
                    self.ledger.apply(self.thread.id, [entry], lease=self.lease)
            except Conflict:
                continue  # one of them was cancelled just now
            return

    def _changed_by(self, updates: Sequence[tuple[str, dict[str, Any]]]) -> Changes:
        changes = Changes(self.state, self.agent.schema.reducers, self.agent.schema.empties)
        for _, update in updates:
            changes.take(update, "the input")
        return changes

    def stand_on(self, changes: Changes) -> None:
        """The round is over: this is the state now."""
        self._extend(changes)
        self.state = changes.state

    def _extend(self, changes: Changes) -> None:
        """Let the lender know which lists have only grown."""
        for key, told in changes.told.items():
            if isinstance(told, Extend):
                self.lender.extended(key, self.state.get(key), changes.state[key])

    def _taken_in(self, outcomes: Sequence[tuple[Task, Outcome]]) -> Changes:
        schema = self.agent.schema
        changes = Changes(self.state, schema.reducers, schema.empties)
        for task, outcome in outcomes:
            if isinstance(outcome, Done):
                changes.take(outcome.update, task.name)
        return changes

    @contextmanager
    def _viewed(self, state: dict[str, Any]) -> Iterator[Callable[[], Any]]:
        """Gives the state after a round to functions that choose. Each may do with it what it likes."""
        given: list[tuple[dict[str, Any], dict[str, Lent]]] = []

        def view() -> Any:
            given.append(self.lender.lend(state))
            return self.agent.schema.view(given[-1][0])

        yield view
        for lent, known in given:
            self.lender.take_back(state, {key: kept for key, kept in known.items() if kept.same(lent.get(key))})

    def _beside(self, outcomes: Sequence[tuple[Task, Outcome]]) -> list[Entry]:
        """What goes with the updates that no record has brought yet."""
        new = [
            outcome
            for task, outcome in outcomes
            if isinstance(outcome, Done) and outcome.beside and self.journal.finished(self.key(task)) is None
        ]
        return [entry for outcome in new for entry in outcome.beside]

    def _keep_finished(self, outcomes: Sequence[tuple[Task, Outcome]]) -> None:
        for task, outcome in outcomes:
            if isinstance(outcome, Done) and self.journal.finished(self.key(task)) is None:
                self.journal.finish(self.key(task), outcome.update, outcome.beside)

    def write(
        self,
        kind: Any,
        label: str | None,
        told: Mapping[str, Any],
        position: Position,
        entries: Sequence[Entry | Change] = (),
        *,
        ended: bool = False,
        release: bool = False,
    ) -> Checkpoint:
        """Commit changes of the state, with where the run stands then."""
        with self._writing:
            base = self.thread._memory.base
            assert base is not None  # noqa: S101 - whoever made the drive has read or written the head
            draft = Draft(base.tree)
            draft.tell_state(dict(told))
            changes = [*entries, *(self.journal.emptied() if ended else ())]
            try:
                written = self.thread._commit(
                    draft,
                    base,
                    kind,
                    label,
                    None,
                    None,
                    run=self.run,
                    next=position.pack(),
                    changes=changes,
                    release=release,
                )
            except Conflict as conflict:
                if conflict.base == conflict.head:
                    raise  # an entry's
                # Nobody else writes under this lease: the database has lost its newest steps, as it may if relaxed.
                raise StorageError(conflict.message, retryable=True, hint="") from conflict
            self.position = position
            if ended:
                self.journal.forget()
                self._asked = False
        self.tell("checkpoint", None, written)
        return written

    def write_within(self, label: str, update: dict[str, Any], record: Change) -> None:
        """A checkpoint in the middle of a round: the state changes, where the run stands does not."""
        with self._writing:
            changes = Changes(self.state, self.agent.schema.reducers, self.agent.schema.empties)
            changes.take(update, label)
            self.write("step", label, self._told(changes), self.position, [record])
            self.state = changes.state

    # -- other ends

    def _park(self, outcomes: Sequence[tuple[Task, Outcome]]) -> RunStatus:
        """Wait for people, signals or time, without a process."""
        self._keep_finished(outcomes)
        pauses = [pause for _, outcome in outcomes if isinstance(outcome, Paused) for pause in outcome.pauses]
        requests = tuple(number for pause in pauses for number in pause.requests)
        status: RunStatus = "sleeping" if all(pause.sleeping for pause in pauses) else "waiting"
        return self.held.end(status, requests=requests, entries=self._not_asked_again(requests))

    def _not_asked_again(self, requests: Sequence[int]) -> list[Entry]:
        """Withdraws what an earlier attempt has asked and this one, on a state that was edited, has not."""
        if not self.taken_up:
            return []
        opened = self.ledger.requests(thread_id=self.thread.id, status="open", run=self.run)
        return [Withdraw([row.number for row in opened if row.number not in requests])]

    def _failed(self, outcomes: Sequence[tuple[Task, Outcome]]) -> RunStatus:
        self._keep_finished(outcomes)
        task, failed = next((task, outcome) for task, outcome in outcomes if isinstance(outcome, Failed))
        base = self.thread._memory.base
        step = base.step if base is not None else None
        failed.error.add_note(
            f"in node {task.name!r} of run {self.run} ({self.agent.name}) on thread {self.thread.id!r}, "
            f"after step {step}; resume the run to try the node again"
        )
        return self.held.fail(failed.error)

    def _cancelled(self, outcomes: Sequence[tuple[Task, Outcome]]) -> RunStatus:
        """What has finished is kept: as a checkpoint, from which the run could be gone on with."""
        finished = [task.name for task, outcome in outcomes if isinstance(outcome, Done)]
        finished = [name for name in finished if name not in self.position.done]
        undoes = self._word in ("compensate", UNDO)
        if finished or self._unwritten:
            changes = self._taken_in(outcomes)
            at = self.position._replace(done=(*self.position.done, *finished))
            ending = self._beside(outcomes)
            if not undoes:
                ending.append(self.held.ending("cancelled"))
            self.write("step", "cancelled", self._told(changes), at, ending, ended=True, release=not undoes)
            self.state = changes.state
            if not undoes:
                return self.held.ended("cancelled", released=True)
        return (undo(self.held, self._word, UNDO) if undoes else None) or self.held.end("cancelled")
