"""The same API, awaitable: `async with clew.aio.open("agent.db") as db: await db.thread("t").save(state)`.

One implementation serves both. Each call is one hop onto threads of Clew's own; an await that is cancelled waits until
the outcome of its commit is known, and is cancelled then. A handle keeps what it has read apart for each task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self, cast
from weakref import WeakKeyDictionary

from clew import database, items, model, requests, thread
from clew.aio_runtime import Agent, Run, Worker, agent, ask, checkpoint, sleep, store, wait
from clew.database import Order
from clew.hop import Hop as _Hop
from clew.items import Filter, Index, Item, ItemOrder, Texts
from clew.model import Durability, Notified, Overview, Page, Pruned, ThreadInfo, Usage
from clew.requests import Answer
from clew.runs import Run as SyncRun
from clew.state.diff import Diff
from clew.state.namespace import Namespace
from clew.storage.ledger import RequestStatus, RunStatus
from clew.storage.port import Lease
from clew.storage.queue import IfBusy
from clew.submitting import Submittable
from clew.writing import Memory, Ref


class Checkpoint(model.Checkpoint):
    """A checkpoint whose `state()` is awaited."""

    __slots__ = ("_hop",)

    def __init__(self, checkpoint: model.Checkpoint, hop: _Hop) -> None:
        super().__init__(*(getattr(checkpoint, name) for name in _FIELDS))
        self._hop = hop

    async def state(self) -> dict[str, Any]:  # type: ignore[override]
        """The state at this checkpoint: fresh containers, yours to change."""
        return await self._hop(self._load, self.step)


_FIELDS = (
    "id",
    "step",
    "parent",
    "kind",
    "label",
    "run",
    "next",
    "created_at",
    "metadata",
    "thread_id",
    "_load",
)


@dataclass(frozen=True, slots=True, repr=False)
class Request(requests.Request):
    """A request whose methods are awaited, but for `check`, `explain` and `as_json`."""

    _hop: _Hop

    async def state(self) -> dict[str, Any]:  # type: ignore[override]
        return await self._hop(requests.Request.state, self)

    async def changes(self) -> Diff:  # type: ignore[override]
        return await self._hop(requests.Request.changes, self)

    async def answer(self, value: Any, *, by: str, reason: str | None = None) -> Request:  # type: ignore[override]
        given = await self._hop(requests.Request.answer, self, value, by=by, reason=reason)
        return _request(given, self._hop)

    async def approve(self, *, by: str, reason: str | None = None) -> Request:  # type: ignore[override]
        return _request(await self._hop(requests.Request.approve, self, by=by, reason=reason), self._hop)

    async def reject(self, *, by: str, reason: str | None = None) -> Request:  # type: ignore[override]
        return _request(await self._hop(requests.Request.reject, self, by=by, reason=reason), self._hop)

    async def audit(self) -> list[Answer]:  # type: ignore[override]
        return await self._hop(requests.Request.audit, self)


def _request(request: requests.Request, hop: _Hop) -> Request:
    values: dict[str, Any] = {field.name: getattr(request, field.name) for field in fields(requests.Request)}
    return Request(**values, _hop=hop)


def open(  # noqa: A001 - `clew.aio.open` is the name people guess
    url: str,
    *,
    tenant: str = "default",
    durability: Literal["strict", "relaxed"] = "strict",
    blobs: str | os.PathLike[str] | None = None,
) -> Database:
    """Open a database, as `clew.open` does. This does not await anything: use it anywhere, then `async with` it."""
    return Database(database.open(url, tenant=tenant, durability=durability, blobs=blobs), _Hop())


class Database:
    """`clew.Database`, awaitable."""

    def __init__(self, sync: database.Database, hop: _Hop) -> None:
        self._sync = sync
        self._hop = hop

    def __repr__(self) -> str:
        return f"aio.{self._sync!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._hop(self._sync.close)
        self._hop.close()

    @property
    def durability(self) -> Durability:
        return self._sync.durability

    @property
    def tenant_name(self) -> str:
        return self._sync.tenant_name

    def tenant(self, name: str) -> Database:
        return Database(self._sync.tenant(name), self._hop)

    def thread(self, id: str, *, branch: str = "main") -> Thread:  # noqa: A002 - the word of the design
        return Thread(self._sync, self._hop, id, branch)

    async def threads(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order: Order = "updated",
        limit: int = database.PAGE,
        cursor: str | None = None,
    ) -> Page[ThreadInfo]:
        return await self._hop(self._sync.threads, where=where, order=order, limit=limit, cursor=cursor)

    def store(
        self,
        *,
        embed: Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
        dims: int | None = None,
        texts: Texts | None = None,
        **scope: str | int,
    ) -> Store:
        return Store(self._sync.store(embed=embed, dims=dims, texts=texts, **scope), self._hop)

    async def requests(
        self,
        *,
        status: RequestStatus | None = "open",
        assignee: str | None = None,
        thread: str | Thread | None = None,
        run: str | None = None,
        limit: int = database.PAGE,
        cursor: str | None = None,
    ) -> Page[Request]:
        thread_id = thread.id if isinstance(thread, Thread) else thread
        page = await self._hop(
            self._sync.requests,
            status=status,
            assignee=assignee,
            thread=thread_id,
            run=run,
            limit=limit,
            cursor=cursor,
        )
        return Page([_request(request, self._hop) for request in page], page.cursor)

    async def request(self, request: str | int) -> Request:
        return _request(await self._hop(self._sync.request, request), self._hop)

    async def signal(self, name: str, value: Any = None, *, key: str | None = None) -> bool:
        return await self._hop(self._sync.signal, name, value, key=key)

    async def notify(self, command: Sequence[str], *, limit: int = database.PAGE, timeout: float = 30.0) -> Notified:
        return await self._hop(self._sync.notify, command, limit=limit, timeout=timeout)

    async def runs(
        self,
        *,
        thread: str | Thread | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = database.PAGE,
        cursor: str | None = None,
    ) -> Page[Run]:
        thread_id = thread.id if isinstance(thread, Thread) else thread
        page = await self._hop(
            self._sync.runs, thread=thread_id, status=status, agent=agent, limit=limit, cursor=cursor
        )
        return Page([self._run(run) for run in page], page.cursor)

    async def run(self, id: str) -> Run:  # noqa: A002 - the word of the design
        return self._run(await self._hop(self._sync.run, id))

    def _run(self, run: SyncRun) -> Run:
        place = run.thread
        return Run(run, Thread(self._sync, self._hop, place.id, place.branch), self._hop)

    async def submit(
        self,
        agent: Submittable,
        thread: str | Thread,
        input: Any = None,  # noqa: A002
        *,
        key: str | None = None,
        if_busy: IfBusy = "enqueue",
        at: datetime | timedelta | None = None,
        context: Any = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Run:
        on = thread if isinstance(thread, str) else thread._home
        given = {"key": key, "if_busy": if_busy, "at": at, "context": context, "priority": priority, "group": group}
        return self._run(await self._hop(lambda: self._sync.submit(agent, on, input, **cast("Any", given))))

    async def overview(self) -> Overview:
        return await self._hop(self._sync.overview)

    async def usage(self) -> Usage:
        return await self._hop(self._sync.usage)

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        threads: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        return await self._hop(
            self._sync.prune, keep_last=keep_last, older_than=older_than, threads=threads, dry_run=dry_run
        )

    async def delete(self, thread: str | Thread) -> None:
        await self._hop(self._sync.delete, thread if isinstance(thread, str) else thread.id)


class Thread:
    """`clew.Thread`, awaitable. Properties are awaited too: `await thread.head`."""

    def __init__(self, sync: database.Database, hop: _Hop, thread_id: str, branch: str) -> None:
        self._database = sync
        self._hop = hop
        self._name = (thread_id, branch)
        self._handles: WeakKeyDictionary[asyncio.Task[Any], thread.Thread] = WeakKeyDictionary()
        self._home = self._handle_with(Memory())

    def _handle_with(self, memory: Memory) -> thread.Thread:
        return self._database._thread_with_memory(*self._name, memory)

    @property
    def _handle(self) -> thread.Thread:
        """This task's own handle. The first task's is the home: the others start from what that has read."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        handle = self._handles.get(task)
        if handle is None:
            if not self._handles:
                handle = self._home
            else:
                memory = Memory()
                memory.base = self._home._memory.base
                handle = self._handle_with(memory)
            self._handles[task] = handle
        return handle

    def __repr__(self) -> str:
        return f"aio.{self._home!r}"

    @property
    def id(self) -> str:
        return self._name[0]

    @property
    def branch(self) -> str:
        return self._name[1]

    async def _requests(self, run: str) -> list[Request]:
        page = await self._hop(self._database.requests, run=run)
        return [_request(request, self._hop) for request in page]

    @property
    def head(self) -> Awaitable[Checkpoint | None]:
        return self._head()

    async def _head(self) -> Checkpoint | None:
        head = await self._hop(lambda: self._home.head)
        return None if head is None else Checkpoint(head, self._hop)

    @property
    def branches(self) -> Awaitable[dict[str, int | None]]:
        return self._hop(lambda: self._home.branches)

    @property
    def tags(self) -> Awaitable[dict[str, int | None]]:
        return self._hop(lambda: self._home.tags)

    @property
    def tips(self) -> Awaitable[dict[str, int | None]]:
        return self._hop(lambda: self._home.tips)

    async def state(self, ref: Ref = "head") -> dict[str, Any]:
        return await self._hop(self._handle.state, ref)

    async def checkpoint(self, ref: Ref = "head") -> Checkpoint:
        return Checkpoint(await self._hop(self._home.checkpoint, ref), self._hop)

    async def history(self, *, limit: int | None = None, before: Ref | None = None) -> list[Checkpoint]:
        found = await self._hop(self._home.history, limit=limit, before=before)
        return [Checkpoint(checkpoint, self._hop) for checkpoint in found]

    async def diff(self, a: Ref, b: Ref = "head") -> Diff:
        return await self._hop(self._home.diff, a, b)

    async def save(
        self,
        state: dict[str, Any],
        *,
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Ref | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        saved = await self._hop(self._handle.save, state, label=label, metadata=metadata, parent=parent, key=key)
        return Checkpoint(saved, self._hop)

    async def update(
        self,
        changes: Mapping[str, Any],
        *,
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Ref | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        saved = await self._hop(self._handle.update, changes, label=label, metadata=metadata, parent=parent, key=key)
        return Checkpoint(saved, self._hop)

    @asynccontextmanager
    async def edit(self, label: str | None = None, *, wait: float = 10.0) -> AsyncIterator[dict[str, Any]]:
        block = self._handle.edit(label, wait=wait)
        async with _entered(block, self._hop) as state:
            yield state

    @asynccontextmanager
    async def lease(self, *, wait: float = 0.0) -> AsyncIterator[Lease]:
        async with _entered(self._handle.lease(wait=wait), self._hop) as lease:
            yield lease

    async def fork(self, ref: Ref = "head", *, branch: str, update: Mapping[str, Any] | None = None) -> Thread:
        await self._hop(self._home.fork, ref, branch=branch, update=update)
        return Thread(self._database, self._hop, self.id, branch)

    async def copy(self, ref: Ref = "head", *, to: str) -> Thread:
        await self._hop(self._home.copy, ref, to=to)
        return Thread(self._database, self._hop, to, "main")

    async def rewind(self, ref: Ref) -> Checkpoint:
        return Checkpoint(await self._hop(self._handle.rewind, ref), self._hop)

    async def tag(self, name: str, ref: Ref = "head") -> Checkpoint:
        return Checkpoint(await self._hop(self._home.tag, name, ref), self._hop)

    async def delete_tag(self, name: str) -> None:
        await self._hop(self._home.delete_tag, name)

    async def delete_branch(self, name: str) -> None:
        await self._hop(self._home.delete_branch, name)


class Store:
    """`clew.Store`, awaitable. An embedding function is called on threads of Clew's own."""

    def __init__(self, sync: items.Store, hop: _Hop) -> None:
        self._sync = sync
        self._hop = hop

    def __repr__(self) -> str:
        return f"aio.{self._sync!r}"

    async def put(
        self, namespace: Namespace, key: str, value: dict[str, Any], *, ttl: float | None = None, index: Index = None
    ) -> None:
        await self._hop(self._sync.put, namespace, key, value, ttl=ttl, index=index)

    async def put_many(
        self, entries: Iterable[tuple[Any, ...]], *, delete: Iterable[tuple[Namespace, str]] = ()
    ) -> None:
        await self._hop(self._sync.put_many, entries, delete=delete)

    async def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool = False) -> Item | None:
        return await self._hop(self._sync.get, namespace, key, refresh_ttl=refresh_ttl)

    async def touch(self, names: Iterable[tuple[Namespace, str]]) -> None:
        await self._hop(self._sync.touch, names)

    async def delete(self, namespace: Namespace, key: str) -> bool:
        return await self._hop(self._sync.delete, namespace, key)

    async def search(
        self,
        namespace: Namespace = (),
        *,
        query: str | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word that people guess
        order: ItemOrder = "key",
        limit: int = 10,
        cursor: str | None = None,
        refresh_ttl: bool = False,
    ) -> Page[Item]:
        return await self._hop(
            self._sync.search,
            namespace,
            query=query,
            filter=filter,
            order=order,
            limit=limit,
            cursor=cursor,
            refresh_ttl=refresh_ttl,
        )

    async def namespaces(
        self,
        prefix: Namespace = (),
        suffix: Namespace = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Namespace]:
        return await self._hop(self._sync.namespaces, prefix, suffix, max_depth=max_depth, limit=limit, cursor=cursor)

    async def sweep(self, *, limit: int = 1000) -> int:
        return await self._hop(self._sync.sweep, limit=limit)

    async def reindex(self, namespace: Namespace = ()) -> int:
        return await self._hop(self._sync.reindex, namespace)


@asynccontextmanager
async def _entered(block: Any, hop: _Hop) -> AsyncIterator[Any]:
    """A blocking context manager, entered and left on threads of ours."""
    entering = asyncio.ensure_future(hop(block.__enter__))
    try:
        value = await asyncio.shield(entering)
    except asyncio.CancelledError as error:
        # Cancelled while it was entered: leave it again, or the lease would stay.
        await asyncio.wait([entering])
        if not entering.cancelled() and entering.exception() is None:
            await hop(block.__exit__, type(error), error, None)
        raise
    try:
        yield value
    except BaseException as error:
        if not await hop(block.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await hop(block.__exit__, None, None, None)


__all__ = [
    "open",
    "agent",
    "ask",
    "wait",
    "sleep",
    "store",
    "checkpoint",
    "Agent",
    "Run",
    "Worker",
    "Database",
    "Thread",
    "Store",
    "Checkpoint",
    "Request",
]
