"""Agents and runs, awaitable: parts of `clew.aio`.

A run is driven by a thread of its own. Its asynchronous nodes run in the loop that awaits it, its plain ones beside it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, overload

from clew import runs
from clew.hop import Hop
from clew.items import Texts
from clew.model import Checkpoint
from clew.runtime import agent as sync
from clew.runtime import waiting
from clew.runtime import worker as sync_worker
from clew.runtime.agent import Event, begin
from clew.runtime.drive import Drive, Listener
from clew.runtime.hops import hop
from clew.runtime.taking import Taking
from clew.state.values import ExceptionSummary
from clew.storage.ledger import RunRow, RunStatus
from clew.storage.queue import IfBusy
from clew.thread import Thread
from clew.writing import Ref

Take = Callable[[Taking], Drive | RunRow]


class Run:
    """`clew.Run`, awaitable: `await run.status`."""

    def __init__(self, run: runs.Run, thread: Any, wrap: Hop) -> None:
        self._run = run
        self._thread = thread
        self._hop = wrap

    def __repr__(self) -> str:
        return f"aio.{self._run!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def agent(self) -> str:
        return self._run.agent

    @property
    def key(self) -> str | None:
        return self._run.key

    @property
    def created_at(self) -> datetime:
        return self._run.created_at

    @property
    def info(self) -> runs.RunInfo:
        return self._run.info

    @property
    def thread(self) -> Any:
        """An awaitable handle on the branch that it runs on."""
        return self._thread

    @property
    def status(self) -> Awaitable[RunStatus]:
        return self._hop(lambda: self._run.status)

    @property
    def step(self) -> Awaitable[int | None]:
        return self._hop(lambda: self._run.step)

    @property
    def state(self) -> Awaitable[dict[str, Any]]:
        return self._hop(lambda: self._run.state)

    @property
    def error(self) -> Awaitable[ExceptionSummary | None]:
        return self._hop(lambda: self._run.error)

    @property
    def requests(self) -> Awaitable[list[Any]]:
        return self._requests()

    async def _requests(self) -> list[Any]:
        return list(await self._thread._requests(self.id))

    async def edit(self, update: Mapping[str, Any], *, label: str | None = None) -> Checkpoint:
        return await self._hop(self._run.edit, update, label=label)

    async def cancel(self, *, compensate: bool = False) -> None:
        await self._hop(self._run.cancel, compensate=compensate)

    async def retry(self) -> None:
        await self._hop(self._run.retry)

    async def revive(self) -> None:
        await self._hop(self._run.revive)

    async def move(self, *, agent: str | None = None, nodes: Mapping[str, str] | None = None) -> None:
        await self._hop(self._run.move, agent=agent, nodes=nodes)


class Agent(sync.Agent):
    """`clew.Agent`, to be awaited. It is built in the same way, and workers take either.

    An agent that was made as a `clew.Agent` is awaited through `clew.aio.Agent.of(agent)`.
    """

    @classmethod
    def of(cls, agent: sync.Agent) -> Agent:
        """The same agent, to be awaited."""
        made = cls.__new__(cls)
        made.__dict__ = agent.__dict__
        return made

    async def run(  # type: ignore[override]
        self,
        thread: Any,
        input: Mapping[str, Any] | Any = None,  # noqa: A002
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> Run:
        """`clew.Agent.run`, awaited. Cancelling the await cancels the run, and keeps what had finished."""
        unwanted = threading.Event()
        take = begin(input, key=key, if_busy=if_busy, context=context, unwanted=unwanted.is_set)
        return await self._awaited(thread, take, unwanted=unwanted)

    async def resume(self, thread: Any, ref: Ref = "head") -> Run:  # type: ignore[override]
        if ref != "head":
            await thread.rewind(ref)
        return await self._awaited(thread, Taking.resume)

    async def stream(  # type: ignore[override]
        self,
        thread: Any,
        input: Mapping[str, Any] | Any = None,  # noqa: A002
        *,
        key: str | None = None,
        if_busy: IfBusy = "reject",
        context: Any = None,
    ) -> AsyncIterator[Event]:
        unwanted = threading.Event()
        take = begin(input, key=key, if_busy=if_busy, context=context, unwanted=unwanted.is_set)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        drives: list[Drive] = []

        def listen(kind: str, node: str | None, value: Any) -> None:
            loop.call_soon_threadsafe(events.put_nowait, Event(kind, node, value))

        running = asyncio.ensure_future(self._awaited(thread, take, listener=listen, drives=drives, unwanted=unwanted))
        try:
            while True:
                event = asyncio.ensure_future(events.get())
                await asyncio.wait({event, running}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    event.cancel()
                    break
                yield event.result()
            yield Event("end", None, await running)
        finally:
            if not running.done():
                for drive in drives:
                    drive.want("pause")
                await asyncio.wait({running})
            if not running.cancelled():
                running.exception()

    async def cancel(self, thread: Any, *, compensate: bool = False) -> Run:  # type: ignore[override]
        found = await hop(sync.Agent.cancel, self, thread._handle, compensate=compensate)
        return Run(found, thread, thread._hop)

    async def _awaited(
        self,
        thread: Any,
        take: Take,
        *,
        listener: Listener | None = None,
        drives: list[Drive] | None = None,
        unwanted: threading.Event | None = None,
    ) -> Run:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[runs.Run] = loop.create_future()
        begun: list[Drive] = [] if drives is None else drives
        unwanted = unwanted or threading.Event()
        handle: Thread = thread._handle

        def started(drive: Drive) -> None:
            begun.append(drive)
            if unwanted.is_set():
                drive.want("cancel")

        def work() -> None:
            try:
                found = self._driven(handle, take, listener=listener, loop=loop, started=started)
            except BaseException as error:  # noqa: BLE001 - whoever awaits gets it
                loop.call_soon_threadsafe(outcome.set_exception, error)
            else:
                loop.call_soon_threadsafe(outcome.set_result, found)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name=f"clew-{self.name}", daemon=True).start()
        try:
            found = await asyncio.shield(outcome)
        except asyncio.CancelledError:
            unwanted.set()
            for drive in begun:
                drive.want("cancel")
            while not outcome.done():
                try:
                    await asyncio.wait([outcome])
                except asyncio.CancelledError:
                    continue
            outcome.exception()  # looked at, so that nobody is warned of it
            raise
        return Run(found, thread, thread._hop)


@overload
def agent(fn: Callable[..., Any], /) -> Agent: ...
@overload
def agent(
    fn: None = None, /, *, name: str | None = None, state: Any = None
) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(fn: Any = None, /, *, name: str | None = None, state: Any = None) -> Any:
    """An agent of one node, to be awaited."""
    if fn is not None:
        return Agent.of(sync.agent(fn))
    return lambda fn: Agent.of(sync.agent(name=name, state=state)(fn))


async def ask(
    question: Any,
    *,
    schema: Any = None,
    id: str | None = None,  # noqa: A002
    assignee: str | None = None,
    expires: timedelta | float | None = None,
    default: Any = ...,
    approvals: int = 1,
) -> Any:
    """`clew.ask` without blocking the loop: for asynchronous nodes. (`clew.ask` works there as well.)"""
    return await hop(
        waiting.ask,
        question,
        schema=schema,
        id=id,
        assignee=assignee,
        expires=expires,
        default=default,
        approvals=approvals,
    )


async def wait(signal: str, timeout: timedelta | float | None = None) -> Any:
    return await hop(waiting.wait, signal, timeout)


async def sleep(seconds: timedelta | float) -> None:
    await hop(waiting.sleep, seconds)


async def checkpoint(label: str, update: Mapping[str, Any] | None = None) -> None:
    await hop(waiting.checkpoint, label, update)


def store(
    *,
    embed: Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
    dims: int | None = None,
    texts: Texts | None = None,
    **scope: str | int,
) -> Any:
    """`clew.store`, a `clew.aio.Store`: its methods are awaited."""
    from clew.aio import Store

    return Store(waiting.store(embed=embed, dims=dims, texts=texts, **scope), hop)  # type: ignore[arg-type]


class Worker:
    """`clew.Worker`, within an application: async nodes run on the event loop that this is awaited on.

    `async with clew.aio.Worker(db, [trip]):` works as long as the block lasts; `await Worker(…).run()` until it is
    stopped. The parameters are those of `clew.Worker`.
    """

    def __init__(self, db: Any, agents: Any, **options: Any) -> None:
        self._worker = sync_worker.Worker(db._sync, agents, **options)
        self._running: asyncio.Future[None] | None = None

    @property
    def active(self) -> list[str]:
        return self._worker.active

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until it is stopped; a cancelled await stops it, and waits until it has handed over."""
        loop = asyncio.get_running_loop()
        self._worker.loop = loop
        over: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                self._worker.run(until_idle=until_idle)
            except BaseException as error:  # noqa: BLE001 - whoever awaits gets it
                loop.call_soon_threadsafe(over.set_exception, error)
            else:
                loop.call_soon_threadsafe(over.set_result, None)

        threading.Thread(target=work, name="clew-worker", daemon=True).start()
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            self._worker.stop(wait=False)
            await asyncio.wait([over])
            raise

    async def stop(self, *, at_once: bool = False) -> None:
        """Claim no more, and hand over what is under way."""
        self._worker.stop(at_once=at_once, wait=False)
        if self._running is not None:
            await self._running

    async def __aenter__(self) -> Self:
        self._running = asyncio.ensure_future(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
