"""Driving a graph's run: one stretch of it, under the lease of its thread.

LangGraph's checkpoints are the run's own: the input is one, and so is each superstep. What a task has returned is
recorded when it ends, so whoever goes on with the run begins at the last superstep and runs only what had not finished.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import observing
from clew.adapters.langgraph.control import INTERRUPT, NULL_TASK, RESUME
from clew.adapters.langgraph.injecting import take_in
from clew.adapters.langgraph.memories import put_back, put_nothing
from clew.adapters.langgraph.noticing import Noticing
from clew.adapters.langgraph.saver import ClewSaver
from clew.errors import BadInput, Conflict
from clew.placed.asked import Asked, asked_by
from clew.placed.under import Under, stand_on
from clew.runtime.executor import unpack_value
from clew.runtime.loops import own_loop, start
from clew.runtime.undoing import STOPPING, undo
from clew.storage.wanted import ROLL_BACK, STRENGTH, UNDO

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.config import merge_configs
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.constants import END, START
    from langgraph.errors import GraphDrained
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.runtime import RunControl
    from langgraph.types import Command
except ImportError as error:
    raise BadInput("LangGraphAgent needs the package langgraph", hint='pip install "clew[langgraph]"') from error

if TYPE_CHECKING:
    from clew.adapters.langgraph.agent import LangGraphAgent
    from clew.runtime.executor import Held
    from clew.storage.ledger import RunStatus

_LOOK = 0.5
"""Seconds between two looks at what others want of a run that nobody watches."""
_ABOUT = frozenset({INTERRUPT, RESUME, "__error__", "__error_source_node__"})
"""Records that tell of a task that has not finished."""


class Listening(NamedTuple):
    """Who wants to hear of a run: LangGraph's parts of a stream, in these modes."""

    tell: Callable[[Any], None]
    modes: Any
    subgraphs: bool = False


class GraphDriving:
    """One stretch of a held run. `awaited`: the graph's nodes are asynchronous."""

    def __init__(
        self, agent: LangGraphAgent, graph: Any, held: Held, *, awaited: bool, listening: Listening | None = None
    ) -> None:
        self._agent = agent
        self._held = held
        self._under = Under(held.row.id, held.lease)
        self._saver: ClewSaver = graph.checkpointer.held_by(self._under)
        self._graph = graph.copy(update={"checkpointer": self._saver})
        self._awaited = awaited
        self._listening = listening
        self._row = held.row
        self._where = observing.Where(held.db.tenant_name, held.row.thread_id, held.row.branch, held.row.id, agent.name)
        self._thread: RunnableConfig = {"configurable": {"thread_id": held.row.thread_id}}
        self._noticing = Noticing(self._where)
        self._config = merge_configs(agent.config, self._thread, {"callbacks": [self._noticing]})
        self._lock = threading.Lock()
        self._word: str | None = None
        self._halted = False
        self._control: RunControl | None = None
        self._task: asyncio.Task[Any] | None = None
        self._looked = time.monotonic()
        self._begun = False
        self._check()
        if held.begins and held.row.wanted not in STOPPING:
            self._begin()

    # -- from outside

    def want(self, word: str) -> None:
        """Word was left for the run. Tasks that can be interrupted are; the others end, and no further ones begin."""
        with self._lock:
            if STRENGTH.get(word, 0) > STRENGTH.get(self._word, 0):
                self._word = word
            self._ask_to_stop()
            task = self._task if self._word in STOPPING else None
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def halt(self) -> None:
        """Go no further than this superstep."""
        with self._lock:
            self._halted = True
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        if self._control is not None:
            self._control.request_drain("clew")

    # -- taking up

    def _check(self) -> None:
        """Whether the graph has the nodes that the run stands before: LangGraph would pass over the others."""
        head = self._held.thread.head
        stand_on(self._held.thread, head)
        self._held.stands_on(None if head is None else head.step)
        if head is None or self._held.begins:
            return
        missing = [node for node in head.next if node != START and node not in self._graph.nodes]
        if missing:
            self._held.end("paused")
            raise BadInput(
                f"run {self._row.id} stands before node {missing[0]!r}, which graph {self._agent.name!r} does not have",
                hint="the run is paused: bring the node back, or continue from an earlier checkpoint",
            )

    def _begin(self) -> None:
        """Write the input's checkpoint, as LangGraph does it, and run nothing yet: from then on it cannot vanish."""
        self._under.entries = tuple(self._held.entered())
        control = RunControl()
        control.request_drain("clew")
        try:
            for _ in self._graph.stream(unpack_value(self._row.input), self._config, **self._options(control, [])):
                pass
        except GraphDrained:
            pass
        self._begun = True

    # -- driving

    def drive(self) -> RunStatus:
        """Go on until the run is over, or has to wait, and that is written."""
        token = observing.where.set(self._where)
        try:
            with observing.span("run", self._agent.name, self._where, trace=self._row.trace) as span:
                observing.log.debug("run %s goes on", self._row.id)
                self._noticing.within(span)
                status = self._stretches()
                span.ends(status, self._held.error)
                observing.log.info("run %s is %s", self._row.id, status)
            return status
        finally:
            observing.where.reset(token)

    def _stretches(self) -> RunStatus:
        given = self._answers()
        while True:
            self._look()
            if (status := self._heed()) is not None:
                return status
            try:
                stopped = self._stretch(given)
            except Exception as error:  # noqa: BLE001 - whatever the graph raises
                if self._word not in STOPPING:
                    return self._failed(error)
                stopped = True
            given = None
            if not stopped and self._word not in STOPPING:
                return self._settled()

    def _heed(self) -> RunStatus | None:
        """Between two supersteps: do what somebody wants. None: the run goes on."""
        match self._word:
            case "rollback" | "roll back":
                return undo(self._held, self._word, ROLL_BACK) or self._roll_back()
            case "compensate" | "undo":
                return undo(self._held, self._word, UNDO) or self._cancel()
            case "cancel" | "interrupt":
                return self._cancel()
            case "pause":
                return self._end("paused")
            case "inject":
                with self._lock:
                    self._word = None
                self._take_in()
        return self._held.hand_over() if self._halted else None

    def _settled(self) -> RunStatus:
        """What has become of the run: the graph goes no further by itself."""
        state = self._graph.get_state(self._thread)
        if not state.next:
            return self._end("done")
        if not state.interrupts:
            return self._end("paused")  # at a breakpoint of the graph's own
        asked = self._asked()
        return self._end("waiting", requests=[asked[one.id].number for one in state.interrupts if one.id in asked])

    def _failed(self, error: Exception) -> RunStatus:
        step = stand_on(self._held.thread, self._held.thread.head)
        error.add_note(
            f"in run {self._row.id} ({self._agent.name}) on thread {self._row.thread_id!r}, after step {step}; "
            "resume the run to try again"
        )
        return self._held.fail(error)

    def _end(self, status: RunStatus, *, requests: Sequence[int] = ()) -> RunStatus:
        stand_on(self._held.thread, self._held.thread.head)
        return self._held.end(status, requests=requests)

    # -- one stretch of LangGraph's own

    def _options(self, control: RunControl, modes: Any) -> dict[str, Any]:
        subgraphs = self._listening is not None and self._listening.subgraphs
        return {
            "context": self._held.context,
            "control": control,
            "durability": "sync",
            "stream_mode": modes,
            "subgraphs": subgraphs,
        }

    @contextmanager
    def _controlled(self) -> Iterator[RunControl]:
        control = RunControl()
        with self._lock:
            self._control = control
            if self._word is not None or self._halted:
                self._ask_to_stop()
        try:
            yield control
        finally:
            with self._lock:
                self._control = self._task = None

    def _stretch(self, given: Any) -> bool:
        """Go on, until the graph ends, waits or fails; or is asked to stop: whether it was."""
        modes = ["updates"] if self._listening is None else self._listening.modes
        with self._controlled() as control:
            options = self._options(control, modes)
            try:
                if self._awaited:
                    return self._await(self._astretch(given, options))
                for part in self._graph.stream(given, self._config, **options):
                    self._tell(part)
                    self._look()
            except GraphDrained:
                return True
        return False

    async def _astretch(self, given: Any, options: Mapping[str, Any]) -> bool:
        with self._lock:
            self._task = asyncio.current_task()
            if self._word in STOPPING:
                return True
        try:
            async for part in self._graph.astream(given, self._config, **options):
                self._tell(part)
        except GraphDrained:
            return True
        except asyncio.CancelledError:
            if self._word not in STOPPING:
                raise
            return True
        return False

    def _await(self, coroutine: Any) -> bool:
        future: Future[bool] = start(coroutine, self._held.loop or own_loop())
        while True:
            try:
                return future.result(_LOOK)
            except NotYet:
                if future.done():
                    raise  # it is the graph's own
                self._look()

    def _tell(self, part: Any) -> None:
        if self._listening is not None:
            self._listening.tell(part)

    def _look(self) -> None:
        """Look, now and then, at what others want of the run, unless somebody tells."""
        now = time.monotonic()
        if self._held.watched or now - self._looked < _LOOK:
            return
        self._looked = now
        for _, word in self._held.ledger.wanted([self._row.id]):
            self.want(word)

    # -- people

    def _asked(self) -> dict[str, Asked]:
        return asked_by(self._held.ledger, self._row.thread_id, self._row.id)

    def _answers(self) -> Command[Any] | None:
        """What people have answered of what the graph waits for, by the interrupts' ids."""
        if self._begun:
            return None
        waiting = {one.id for one in self._graph.get_state(self._thread).interrupts}
        asked = self._asked() if waiting else {}
        given = {id_: asked[id_].value for id_ in waiting if id_ in asked and asked[id_].decided}
        return Command(resume=given) if given else None

    # -- what others want

    def _take_in(self) -> None:
        """Take in the inputs that were sent to the run: they change its state before the next superstep."""
        rows = self._held.ledger.to_take_in(self._row.id)
        latest = self._latest()
        following = self._graph.get_state(self._thread).next
        if not rows or latest is None or not following or not isinstance(self._graph, CompiledStateGraph):
            return  # what has no next round to come before runs by itself
        mine = [(name, value) for task, name, value in latest.pending_writes or () if task == NULL_TASK]
        writes = [write for write in mine if write[0] != RESUME]
        for row in rows:
            take_in(writes, unpack_value(row.input), self._graph.channels)
        self._under.take_in([row.id for row in rows])
        with suppress(Conflict):  # one of them was cancelled just now: word of what is left comes again
            self._saver.put_writes(latest.config, writes, NULL_TASK)

    def _cancel(self) -> RunStatus:
        """The run ends here. What had finished is kept, and so is its input."""
        ending = self._held.ending("cancelled")
        latest = self._latest()
        if self._held.begins and not self._begun:
            if self._word in ("cancel", "compensate") or not isinstance(self._graph, CompiledStateGraph):
                return self._held.end("cancelled")
            self._under.entries = (*self._held.entered(), ending)
            self._graph.update_state(self._thread, unpack_value(self._row.input), as_node=START)
        elif latest is None:
            return self._held.end("cancelled")
        elif START in latest.checkpoint["channel_values"] and isinstance(self._graph, CompiledStateGraph):
            # Its input stands where only its first superstep would have read it.
            self._under.entries = (ending,)
            self._graph.update_state(self._thread, latest.checkpoint["channel_values"][START], as_node=START)
        elif any(task != NULL_TASK and name not in _ABOUT for task, name, _ in latest.pending_writes or ()):
            self._under.entries = (ending,)
            self._graph.update_state(self._thread, None, as_node=END)
        else:
            return self._end("cancelled")
        return self._held.ended("cancelled")

    def _roll_back(self) -> RunStatus:
        """The run ends here, and the thread goes on from what was before its input. What it did keeps a name."""
        if self._held.begins and not self._begun:
            return self._held.end("cancelled")
        thread, row = self._held.thread, self._held.ledger.run(self._row.id)
        begun = None if row is None or row.input_step is None else thread.checkpoint(row.input_step)
        if begun is None:
            return self._end("cancelled")
        put_back(self._saver, self._row.thread_id, begun.step)
        self._under.entries = (self._held.ending("cancelled"),)
        if begun.parent is None:
            put_nothing(self._saver, self._row.thread_id, "")
        else:
            before = thread.checkpoint(begun.parent).id
            told: Any = {"configurable": {"thread_id": self._row.thread_id, "checkpoint_id": before}}
            self._graph.update_state(told, None, as_node="__copy__")
        return self._held.ended("cancelled")

    def _latest(self) -> CheckpointTuple | None:
        return self._saver.get_tuple(self._thread)
