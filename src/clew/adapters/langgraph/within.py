"""What Clew's functions find in a graph's node or tool: the task that runs there, known by LangGraph's own id of it.

A task that was begun again after a crash has the same id, so it finds what it had recorded. That goes in the commit
that records what the task has written. A question is LangGraph's own interrupt.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from clew.adapters.langgraph.control import RESUME
from clew.asking import built
from clew.errors import BadInput, Rejected, WrongAnswer
from clew.placed import Question
from clew.runtime.activation import Activation, Pause, Slot, finders
from clew.runtime.journal import Journal
from clew.state.codec import decode, encode
from clew.state.shape import check
from clew.storage.changes import Change
from clew.storage.ledger import Entry, NewRequest, WaitRow, ledger_of

try:
    from langchain_core.runnables.config import var_child_runnable_config
    from langgraph.errors import GraphInterrupt
    from langgraph.types import interrupt
except ImportError as error:
    raise BadInput("ClewSaver needs the package langgraph", hint='pip install "clew[langgraph]"') from error

_MOST = 4096
"""Tasks, and questions, that are remembered."""
_ASKED = "asked "


class Task(NamedTuple):
    """A task that calls Clew: which attempt of it that is, and what was made for it."""

    scratch: Any
    attempt: int
    activation: TaskActivation
    journal: Journal


class Tasks:
    """The tasks of a saver's graphs that have called Clew, and have not ended."""

    def __init__(self) -> None:
        self._running: OrderedDict[tuple[str, str], Task] = OrderedDict()
        self._terms: OrderedDict[str, NewRequest] = OrderedDict()
        self._lock = threading.Lock()

    def activation(self, saver: Any, told: Mapping[str, Any]) -> TaskActivation:
        """That of the attempt that is under way: the one there is, or a new one."""
        thread_id, task = str(told["thread_id"]), str(told["__pregel_task_id"])
        scratch, runtime = told.get("__pregel_scratchpad"), told.get("__pregel_runtime")
        attempt = getattr(getattr(runtime, "execution_info", None), "node_attempt", 1)
        with self._lock:
            known = self._running.get((thread_id, task))
            if known is not None and known.scratch is scratch and known.attempt == attempt:
                return known.activation
            if known is not None:
                known.activation.close("is tried again")
            activation = TaskActivation(saver, thread_id, task, told)
            self._running[thread_id, task] = Task(scratch, attempt, activation, activation.journal)
            while len(self._running) > _MOST:
                self._running.popitem(last=False)
        return activation

    def ended(self, thread_id: str, task: str) -> Sequence[Change | Entry]:
        """A task has ended: what its writes take with them."""
        with self._lock:
            known = self._running.pop((thread_id, task), None)
        if known is None:
            return ()
        known.activation.close("is over")
        return [*known.journal.emptied(), *known.activation.beside()]

    def ask(self, id_: str, terms: NewRequest) -> None:
        """A question is about to be recorded."""
        with self._lock:
            self._terms[id_] = terms
            while len(self._terms) > _MOST:
                self._terms.popitem(last=False)

    def with_terms(self, asked: Question) -> Question:
        with self._lock:
            return asked._replace(terms=self._terms.get(asked.id))


class TaskActivation(Activation):
    """One attempt of a task of a graph."""

    def __init__(self, saver: Any, thread_id: str, task: str, told: Mapping[str, Any]) -> None:
        db, under = saver.db, saver._under_on(thread_id)
        self._saver = saver
        self._told = told
        self.ledger = ledger_of(db._storage)
        self.lease = None if under is None else under.lease
        self.tenant = db.tenant_name
        ns = str(told.get("checkpoint_ns") or "")
        node = ns.rpartition("|")[2].partition(":")[0] or "task"
        super().__init__(f"task {task}", node, thread_id, "main", None if under is None else under.run)
        self.journal = Journal(db._storage, self.tenant, thread_id, self.id, self.lease)
        self._loaded = False
        self._loading = threading.Lock()
        self._replayed: set[str] = set()

    @property
    def step(self) -> int | None:
        return None

    # -- calls

    def _records(self) -> Journal:
        with self._loading:
            if not self._loaded:
                self._make_thread()
                self.journal.load()
                self._loaded = True
        return self.journal

    def _make_thread(self) -> None:
        """LangGraph may write its first checkpoint later than this."""
        storage = self._saver.db._storage
        with storage.snapshot() as snapshot:
            there = snapshot.find_thread(self.thread_id) is not None
        if not there:
            storage.apply(self.thread_id, [])

    def find(self, slot: Slot) -> bytes | None:
        return self._records().find(slot.call, slot.idx)

    def keep(self, slot: Slot, value: bytes) -> None:
        self.check()
        self._records().keep(slot.call, slot.idx, value)

    # -- people

    def answer(self, request: NewRequest, schema: Any = None) -> Any:
        """Ask by an interrupt. LangGraph knows answers by how many came before them, so each is asked for again when
        the task is run again, also where the answer is known."""
        if request.ttl is not None and request.default is None:
            raise BadInput(
                "a question that expires needs a default in a graph", hint="clew.ask(…, expires=…, default=…)"
            )
        slot = Slot(f"{_ASKED}{request.ask}", 0)
        known = self.find(slot)
        if known is not None:
            self._ask_again(request.ask, known)
            return built(decode(known)[1], schema, "a question")
        question = decode(request.question)
        try:
            value = interrupt(question)
        except GraphInterrupt as waiting:
            for one in waiting.args[0] if waiting.args else ():
                self._saver._tasks.ask(one.id, request)
            raise
        stored = None if request.schema is None else decode(request.schema)
        if value is False and stored is not None and check(value, stored):
            raise Rejected(f"{question!r:.80} was turned down")
        try:
            answer = built(value, schema, f"{question!r:.80}")
        except WrongAnswer:
            self._give_back()
            raise
        self._replayed.add(request.ask)
        self.keep(slot, encode([question, value]))
        return answer

    def _give_back(self) -> None:
        """The answer was a wrong one: LangGraph is not to keep it, so that another one can take its place."""
        scratch, writes = self._told["__pregel_scratchpad"], getattr(self._told["__pregel_send"], "__self__", None)
        if isinstance(writes, deque) and scratch.resume:
            scratch.resume.pop()
            for write in [write for write in writes if write[0] == RESUME]:
                writes.remove(write)
            if scratch.resume:
                writes.append((RESUME, [*scratch.resume]))

    def _ask_again(self, ask: str, known: bytes) -> None:
        if ask not in self._replayed:
            self._replayed.add(ask)
            try:
                interrupt(decode(known)[0])
            except GraphInterrupt:
                return  # LangGraph has not kept it: we have

    def passes(self, call: str) -> None:
        attempt = 1
        while (known := self.find(Slot(f"{_ASKED}{call}{attempt}", 0))) is not None:
            self._ask_again(f"{call}{attempt}", known)
            attempt += 1

    def wait(self, id: str, name: str | None, ttl: int | None) -> WaitRow:  # noqa: A002, ARG002
        raise BadInput(
            "clew.wait and clew.sleep are for Clew's own agents: a graph has nobody who would go on with it",
            hint="ask with clew.ask or interrupt(), and resume the graph when it is time",
        )

    def pause(self, pause: Pause) -> NoReturn:
        raise BadInput(f"a graph's node cannot wait: it {pause}")

    # -- what nodes may ask for

    def emit(self, value: Any) -> None:
        self._told["__pregel_runtime"].stream_writer(value)

    def checkpoint(self, label: str, update: Mapping[str, Any] | None) -> None:  # noqa: ARG002
        raise BadInput(
            f"clew.checkpoint({label!r}) is for Clew's own agents",
            hint="what is recorded in a graph's node is kept without; or make two nodes of it",
        )

    @property
    def database(self) -> Any:
        return self._saver.db

    @property
    def context(self) -> Any:
        return self._told["__pregel_runtime"].context


def find() -> Activation | None:
    """The task that this code runs in, if its graph's checkpointer is a `ClewSaver`."""
    config = var_child_runnable_config.get()
    told: Mapping[str, Any] = {} if config is None else config.get("configurable") or {}
    tasks = getattr(told.get("__pregel_checkpointer"), "_tasks", None)
    if not isinstance(tasks, Tasks) or "__pregel_task_id" not in told:
        return None
    return tasks.activation(told["__pregel_checkpointer"], told)


finders.append(find)
