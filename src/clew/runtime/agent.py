"""Agents: nodes, what follows them, and the ways to run them."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from clew import references
from clew.errors import BadInput, RunNotFound
from clew.runs import Run
from clew.runtime.drive import Drive, Listener
from clew.runtime.executor import Held, live
from clew.runtime.journal import pack_update
from clew.runtime.machine import Graph, Then
from clew.runtime.nodes import Node, made_node
from clew.runtime.retry import Retry
from clew.runtime.schema import Schema
from clew.runtime.taking import Taking, drive_here, take_up
from clew.storage.ledger import RunRow
from clew.storage.queue import IfBusy
from clew.submitting import check_busy
from clew.thread import Thread
from clew.writing import Ref

if TYPE_CHECKING:
    import asyncio

F = TypeVar("F", bound=Callable[..., Any])


class Event(NamedTuple):
    """What `agent.stream` yields.

    `kind` is "node" (one begins), "update" (it has returned `value`), "emit" (a value of `clew.emit`), "checkpoint"
    (`value` is it) or "end" (`value` is the `Run`).
    """

    kind: str
    node: str | None
    value: Any


class Agent:
    """Nodes over a state. Each round of nodes ends with one checkpoint.

    `state` is a TypedDict, a dataclass, a pydantic model, or left out (any dict). `checkpoint="run"` writes one at the
    end of each run only; what finished before is kept all the same. `aliases` are names it had before.

    >>> import clew
    >>> trip = clew.Agent("trip")
    >>> @trip.node(start=True, then="book")
    ... def plan(state): return {"plan": f"{state['city']}, 3 days"}
    >>> @trip.node
    ... def book(state): return {"booked": True}
    >>> run = trip.run(clew.open("memory:").thread("trip-7"), {"city": "Tokyo"})
    >>> run.status, run.state["plan"]
    ('done', 'Tokyo, 3 days')
    """

    def __init__(
        self,
        name: str,
        *,
        state: Any = None,
        checkpoint: Literal["round", "run"] = "round",
        max_rounds: int = 1000,
        aliases: Sequence[str] = (),
    ) -> None:
        if checkpoint not in ("round", "run"):
            raise BadInput(f"checkpoint is 'round' or 'run', not {checkpoint!r}")
        self.name = references.check_thread_id(name)
        self.schema = Schema(state)
        self.checkpoint = checkpoint
        self.max_rounds = references.check_count(max_rounds, "max_rounds", 1)
        self.aliases = tuple(aliases)
        self._nodes: dict[str, Node] = {}
        self._starts: list[str] = []
        self._then: dict[str, Then] = {}
        self._after: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, nodes={list(self._nodes)})"

    # -- building

    @overload
    def node(self, fn: F, /) -> F: ...
    @overload
    def node(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        start: bool = False,
        then: Then = None,
        after: Sequence[str] = (),
        timeout: float | None = None,
        retry: Retry | int | None = None,
        ask_before: bool | str = False,
    ) -> Callable[[F], F]: ...
    def node(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        start: bool = False,
        then: Then = None,
        after: Sequence[str] = (),
        timeout: float | None = None,
        retry: Retry | int | None = None,
        ask_before: bool | str = False,
    ) -> Any:
        """Add a function as a node: it takes the state, and returns what changes in it.

        `then` is what follows: a name, several names, or a function of the state after the round that gives names,
        `clew.Send`s, or None for the end. `after=["a", "b"]` runs this node once both have. `timeout` is in seconds,
        `retry` a number of attempts or a `clew.Retry`. `ask_before` (True, or a question) asks a person first.
        """

        def add(fn: F) -> F:
            known = name or str(getattr(fn, "__name__", ""))
            if not known or not known.isprintable() or "/" in known or "#" in known:
                raise BadInput(f"a node is a function with a name of printable letters, not {known or fn!r:.60}")
            if known in self._nodes:
                raise BadInput(f"agent {self.name!r} has a node {known!r} already", hint="node(name=…) gives another")
            self._nodes[known] = made_node(known, fn, timeout, Retry.of(retry), ask_before)
            if start:
                self._starts.append(known)
            self._then[known] = then
            if after:
                self._after[known] = (after,) if isinstance(after, str) else tuple(after)
            self.__dict__.pop("graph", None)
            return fn

        return add if fn is None else add(fn)

    @cached_property
    def graph(self) -> Graph:
        """The plan, checked: raises `BadInput` where it cannot work."""
        return Graph(self.name, self._nodes, self._starts, self._then, self._after)

    def node_named(self, name: str) -> Node:
        return self._nodes[name]

    def answers_to(self, name: str) -> bool:
        """Whether runs of this name are this agent's."""
        return name == self.name or name in self.aliases

    # -- as an executor

    def pack(self, given: Any) -> bytes:
        """An input, checked and encoded: `BadInput` when the state has no such keys."""
        return pack_update(self.schema.update_of(given, "the input"), "input")

    def take_up(self, held: Held) -> Drive:
        """Go on with a run that this process has claimed."""
        return take_up(self, held)

    # -- running

    def run(
        self,
        thread: Thread,
        input: Mapping[str, Any] | Any = None,  # noqa: A002 - the word that people guess
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> Run:
        """Run on a thread's state with an input, until it is over or has to wait.

        The input is a checkpoint of its own: from then on the run cannot vanish. An earlier run of this branch that was
        left by a process that is gone goes on first. The same `key` is the same run: it is resumed or returned. A node
        that fails raises its error here, and the run has failed. `context` is for the nodes (`clew.context()`), beside
        the state.

        While the branch belongs to another run, this raises `Busy`. With another `if_busy` (`db.submit` says what each
        does) it stands in line until it is its turn, and is driven here; or by a worker that was faster, and is
        returned as what became of it.
        """
        return self._driven(thread, begin(input, key=key, if_busy=if_busy, context=context))

    def resume(self, thread: Thread, ref: Ref = "head") -> Run:
        """Go on: with a run that waits for what has come, was left, failed or paused; or from any checkpoint.

        A checkpoint that nodes were to follow is gone on from by a new run; `ref` rewinds the branch to it first.
        Nothing to do is no error: the last run is returned.
        """
        if ref != "head":
            thread.rewind(ref)
        return self._driven(thread, Taking.resume)

    def stream(
        self,
        thread: Thread,
        input: Mapping[str, Any] | Any = None,  # noqa: A002
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> Iterator[Event]:
        """`run`, telling what happens. Whoever stops listening leaves the run paused after the round under way."""
        taken = begin(input, key=key, if_busy=if_busy, context=context)
        events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        drives: list[Drive] = []

        def listen(kind: str, node: str | None, value: Any) -> None:
            events.put(Event(kind, node, value))

        def work() -> None:
            try:
                events.put(Event("end", None, self._driven(thread, taken, listener=listen, started=drives.append)))
            except BaseException as error:  # noqa: BLE001 - whoever listens gets it
                events.put(error)

        worker = threading.Thread(
            target=contextvars.copy_context().run, args=(work,), name=f"clew-{self.name}", daemon=True
        )
        worker.start()
        try:
            while True:
                event = events.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if event.kind == "end":
                    return
        finally:
            for drive in drives:
                drive.want("pause")
            worker.join()

    def cancel(self, thread: Thread, *, compensate: bool = False) -> Run:
        """Cancel the branch's run: at once if it waits; one that is driven somewhere stops at its next call of Clew.

        What nodes had finished is kept. The thread takes the next input. With `compensate`, the effects of the run are
        undone first, the newest first, by their `compensate=`; also those of a run that has failed. What became of one
        may have to be asked: then the run waits, and goes on undoing when it is resumed.
        """
        row = Taking(self, thread, listener=None, loop=None).unfinished()
        if row is None or (row.status == "failed" and not compensate):
            raise RunNotFound(f"branch {thread.branch!r} of thread {thread.id!r} has no run to cancel")
        word = "compensate" if compensate else "cancel"
        if (held := live.get(row.id)) is not None:
            held.want(word)
        elif self.answers_to(row.agent):
            return self._driven(thread, lambda taking: taking.cancel(row, word))
        else:
            Run(thread._db, row).cancel(compensate=compensate)
        return Run(thread._db, row)

    # -- within

    def _driven(
        self,
        thread: Thread,
        take: Callable[[Taking], Drive | RunRow],
        *,
        listener: Listener | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        started: Callable[[Drive], None] | None = None,
    ) -> Run:
        taken = take(Taking(self, thread, listener=listener, loop=loop))
        if isinstance(taken, RunRow):
            return Run(thread._db, taken)
        if started is not None:
            started(taken)
        return Run(thread._db, drive_here(taken, thread))


def begin(
    given: Any, *, key: str | None, if_busy: IfBusy, context: Any, unwanted: Callable[[], bool] = lambda: False
) -> Callable[[Taking], Drive | RunRow]:
    """How a new run is taken up: at once, or after standing in line."""
    check_busy(if_busy)
    if if_busy == "reject":
        return lambda taking: taking.start(given, key=key, context=context)
    return lambda taking: taking.stand(given, key=key, if_busy=if_busy, context=context, unwanted=unwanted)


@overload
def agent(fn: Callable[..., Any], /) -> Agent: ...
@overload
def agent(
    fn: None = None, /, *, name: str | None = None, state: Any = None
) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(fn: Any = None, /, *, name: str | None = None, state: Any = None) -> Any:
    """An agent of one node: the function, under its own name.

    >>> import clew
    >>> @clew.agent
    ... def chat(state): return {"messages": clew.extend(["Hello!"])}
    >>> chat.run(clew.open("memory:").thread("t"), {"messages": ["Hi"]}).state
    {'messages': ['Hi', 'Hello!']}
    """

    def make(fn: Callable[..., Any]) -> Agent:
        made = Agent(name or str(getattr(fn, "__name__", "agent")), state=state)
        made.node(fn)
        return made

    return make if fn is None else make(fn)
