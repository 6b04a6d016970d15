"""`LangGraphAgent`: a compiled graph as an agent. Its runs are durable, come back by themselves, and stand in line."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import clew
from clew.adapters.langgraph import types
from clew.adapters.langgraph.calling import Calling
from clew.adapters.langgraph.driving import GraphDriving, Listening
from clew.adapters.langgraph.saver import ClewSaver
from clew.errors import BadInput
from clew.placed.reading import same_place
from clew.runtime.executor import pack_value
from clew.storage.queue import IfBusy

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel
    from langgraph.types import Command
except ImportError as error:
    raise BadInput("LangGraphAgent needs the package langgraph", hint='pip install "clew[langgraph]"') from error

if TYPE_CHECKING:
    from clew.runtime.executor import Held

_BRANCH = "main"
_MOST_BOUND = 64
"""Handles on databases, a tenant each, whose savers are kept."""


class LangGraphAgent:
    """A compiled graph as an agent: submit it, give it to workers, or run it here. The graph's code does not change.

        graph = builder.compile(checkpointer=ClewSaver(db))
        agent = LangGraphAgent(graph, name="support")
        run = agent.run(db.thread("trip-7"), {"messages": [("user", "Tokyo, please")]})

    A run holds the lease of its thread, so that two never write to it at once, and what a process has lost the right to
    write is refused. A process that dies leaves a run that the next worker goes on with, from the last superstep; tasks
    that had finished in it are not run again. Interrupts are requests: `run.requests[0].answer(…)` from any process.

    A graph that was compiled without a checkpointer is given one, on the database that it is run on. `config` goes with
    each call of the graph (`recursion_limit`, `tags`, …); `aliases` are names that the agent had before. Nodes that are
    asynchronous run in an event loop; `awaited` says whether there are any, where that cannot be seen.
    """

    def __init__(
        self,
        graph: Any,
        *,
        name: str,
        config: RunnableConfig | None = None,
        aliases: Sequence[str] = (),
        awaited: bool | None = None,
    ) -> None:
        made: Any = graph
        if not isinstance(made, Pregel):
            hint = "builder.compile(…)" if hasattr(graph, "compile") else 'LangGraphAgent(graph, name="support")'
            raise BadInput(f"LangGraphAgent needs a compiled graph, not {graph!r:.80}", hint=hint)
        saver = graph.checkpointer
        if not (saver is None or isinstance(saver, ClewSaver)):
            raise BadInput(
                f"this graph keeps its checkpoints in {type(saver).__name__}; its runs need them in Clew's database",
                hint="compile it with ClewSaver(db), or without a checkpointer",
            )
        if not (name and str(name) == name and name.isprintable()):
            raise BadInput(f"an agent's name is printable text, not {name!r:.80}")
        types.register()
        self.name = name
        self.aliases = tuple(aliases)
        self.config: RunnableConfig = {} if config is None else {**config}
        self.graph: Any = graph
        self._awaited = _only_awaited(graph) if awaited is None else awaited
        self._bound: OrderedDict[int, tuple[clew.Database, Any]] = OrderedDict()

    def __repr__(self) -> str:
        return f"LangGraphAgent({self.name!r}, nodes={[node for node in self.graph.nodes if node != '__start__']})"

    # -- as an executor

    def answers_to(self, name: str) -> bool:
        """Whether runs of this name are this agent's."""
        return name == self.name or name in self.aliases

    def pack(self, given: Any) -> bytes:
        """An input, checked and encoded: `BadInput` where it is none."""
        if given is None:
            raise BadInput("a graph's run begins with an input", hint="agent.resume(thread) goes on without one")
        if isinstance(given, Command):
            raise BadInput(
                "a run begins with an input, not with a Command",
                hint='answer its request: run.requests[0].answer("yes", by="alice")',
            )
        schema: Any = getattr(getattr(self.graph, "builder", None), "input_schema", None)
        validate = getattr(schema, "model_validate", None)
        if validate is not None and isinstance(given, dict):
            try:
                validate(given)
            except ValueError as error:
                raise BadInput(f"the input does not fit {schema.__name__}: {error}") from error
        elif (
            isinstance(schema, type)
            and not isinstance(given, dict)
            and (issubclass(schema, dict) or not isinstance(given, schema))
        ):
            raise BadInput(f"the input of graph {self.name!r} is a dict, not {given!r:.80}")
        return pack_value(given, "input")

    def take_up(self, held: Held) -> GraphDriving:
        """Go on with a run that this process has claimed."""
        return self._take_up(held, awaited=self._awaited)

    def _take_up(self, held: Held, *, awaited: bool, listening: Listening | None = None) -> GraphDriving:
        if held.row.branch != _BRANCH:
            raise BadInput(
                f"a graph's run goes on on branch {_BRANCH!r}, not on {held.row.branch!r}: LangGraph knows one history",
                hint="copy the thread: graph.checkpointer.copy_thread(…)",
            )
        return GraphDriving(self, self._graph_on(held.db), held, awaited=awaited, listening=listening)

    def _graph_on(self, db: clew.Database) -> Any:
        """The graph, with its checkpoints in the database that a run of it is held on."""
        known = self._bound.get(id(db))
        if known is not None:
            return known[1]
        own = self.graph.checkpointer
        if own is not None and not same_place(own.db, db):
            raise BadInput(
                f"graph {self.name!r} keeps its checkpoints in {own.db!r}, but this run is in {db!r}",
                hint="compile it with ClewSaver on the same database, or without a checkpointer",
            )
        saver = own if own is not None and own.db is db else ClewSaver(db)
        bound = self.graph.copy(update={"checkpointer": saver})
        self._bound[id(db)] = db, bound
        while len(self._bound) > _MOST_BOUND:
            self._bound.popitem(last=False)
        return bound

    # -- running

    def run(
        self,
        thread: str | clew.Thread,
        input: Any,  # noqa: A002 - the word that people guess
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> clew.Run:
        """Run the graph on a thread with an input, until it is over or has to wait. A node's error is raised here.

        The input is durable before a node runs. While another run has the thread, `if_busy` decides: "reject" raises
        `Busy`, "enqueue" waits for its turn, and the others do not wait (`db.submit` says what each means, and returns
        at once). The same `key` is the same run: it is gone on with, or returned. A run that a dead process has left on
        the thread goes on first. A thread may be named, if the graph was compiled with a `ClewSaver`.
        """
        calling = self._calling(thread)
        return calling.drive(calling.admit(input, key=key, if_busy=if_busy, context=context))

    def resume(self, thread: str | clew.Thread) -> clew.Run:
        """Go on with what the thread has: a run that was answered, left, failed or paused, or what the graph stands at.

        Nothing to do is no error: the last run is returned.
        """
        calling = self._calling(thread)
        return calling.drive(calling.to_resume())

    def stream(
        self,
        thread: str | clew.Thread,
        input: Any,  # noqa: A002
        *,
        stream_mode: Any = "updates",
        subgraphs: bool = False,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> Iterator[Any]:
        """`run`, yielding what `graph.stream` yields. Whoever stops listening leaves the run paused after
        its superstep. Parts of a run that another process drives are not heard here.
        """
        parts: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        listening = Listening(lambda part: parts.put(("part", part)), stream_mode, subgraphs)
        calling = self._calling(thread, listening=listening)

        def work() -> None:
            try:
                parts.put(("end", calling.drive(calling.admit(input, key=key, if_busy=if_busy, context=context))))
            except BaseException as error:  # noqa: BLE001 - whoever listens gets it
                parts.put(("error", error))

        worker = threading.Thread(
            target=contextvars.copy_context().run, args=(work,), name=f"clew-{self.name}", daemon=True
        )
        worker.start()
        try:
            while True:
                kind, value = parts.get()
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                yield value
        finally:
            calling.want("pause")
            worker.join()

    def cancel(self, thread: str | clew.Thread, *, compensate: bool = False) -> clew.Run:
        """Cancel the thread's run: at once if it waits, else after its superstep; asynchronous nodes are cancelled.

        What tasks had finished is kept. The thread takes the next input. With `compensate`, effects of the run are
        undone first, as `clew.Agent.cancel` says.
        """
        run: clew.Run = self._calling(thread).cancel(compensate=compensate)
        return run

    # -- awaited

    async def arun(
        self,
        thread: Any,
        input: Any,  # noqa: A002
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> Any:
        """`run`, awaited: the graph's nodes run in this event loop. Cancelling the await cancels the run."""
        calling = self._calling(thread, loop=asyncio.get_running_loop())
        return await calling.awaited(
            lambda: calling.drive(calling.admit(input, key=key, if_busy=if_busy, context=context))
        )

    async def aresume(self, thread: Any) -> Any:
        calling = self._calling(thread, loop=asyncio.get_running_loop())
        return await calling.awaited(lambda: calling.drive(calling.to_resume()))

    async def astream(
        self,
        thread: Any,
        input: Any,  # noqa: A002
        *,
        stream_mode: Any = "updates",
        subgraphs: bool = False,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> AsyncIterator[Any]:
        """`stream`, awaited."""
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[Any] = asyncio.Queue()

        def tell(part: Any) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, part)

        calling = self._calling(thread, loop=loop, listening=Listening(tell, stream_mode, subgraphs))
        running = asyncio.ensure_future(
            calling.awaited(lambda: calling.drive(calling.admit(input, key=key, if_busy=if_busy, context=context)))
        )
        try:
            while True:
                part = asyncio.ensure_future(parts.get())
                await asyncio.wait({part, running}, return_when=asyncio.FIRST_COMPLETED)
                if not part.done():
                    part.cancel()
                    break
                yield part.result()
            await running
        finally:
            if not running.done():
                calling.want("pause")
                await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # looked at, so that nobody is warned of it

    async def acancel(self, thread: Any, *, compensate: bool = False) -> Any:
        calling = self._calling(thread, loop=asyncio.get_running_loop())
        return await calling.awaited(partial(calling.cancel, compensate=compensate))

    def _calling(
        self, thread: Any, *, loop: asyncio.AbstractEventLoop | None = None, listening: Listening | None = None
    ) -> Calling:
        if isinstance(thread, str):
            if self.graph.checkpointer is None:
                raise BadInput(
                    f"the thread {thread!r:.60} is named, but graph {self.name!r} was compiled without a database",
                    hint="agent.run(db.thread(…), …), or compile it with ClewSaver(db)",
                )
            thread = self.graph.checkpointer.db.thread(thread)
        return Calling(self, thread, loop=loop, listening=listening)


def _only_awaited(runnable: Any) -> bool:
    """Whether a graph has a node that cannot be called, only awaited."""
    nodes: Mapping[str, Any] = getattr(runnable, "nodes", None) or {}
    if isinstance(runnable, Pregel):
        return any(_only_awaited(node.bound) for node in nodes.values())
    steps = getattr(runnable, "steps", ())
    if isinstance(steps, list | tuple) and any(_only_awaited(step) for step in steps):
        return True
    return getattr(runnable, "afunc", None) is not None and getattr(runnable, "func", None) is None
