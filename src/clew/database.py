"""A database: where threads live. `clew.open(url)` gives one."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import unquote, urlsplit

from clew import references
from clew.errors import BadInput, RunNotFound, ThreadNotFound
from clew.items import Store, Texts
from clew.model import Durability, Notified, Overview, Page, Pruned, ThreadInfo, Usage, from_microseconds
from clew.requests import Request, Room, check_signal, find_request, list_requests
from clew.retention import prune
from clew.runs import Run, list_runs
from clew.state.codec import decode, encode
from clew.state.match import compile_filter
from clew.storage.items import Pending, items_of
from clew.storage.ledger import RequestStatus, RunStatus, ledger_of
from clew.storage.port import Listed, Storage
from clew.storage.queue import IfBusy
from clew.submitting import Submittable, submit
from clew.thread import Thread
from clew.writing import Memory

Order = Literal["updated", "created", "id"]
PAGE = 100
_MOST_LEFT = 1000  # looked for by an overview
_STAMP_BITS = 62
_MEMORY = ("memory:", ":memory:", "memory://")


def open(  # noqa: A001 - `clew.open` is the name people guess
    url: str,
    *,
    tenant: str = "default",
    durability: Literal["strict", "relaxed"] = "strict",
    blobs: str | os.PathLike[str] | None = None,
) -> Database:
    """Open a database, and create it when it does not exist.

    `"agent.db"` or `"sqlite:///agent.db"` is a file, `"memory:"` keeps nothing, `"postgresql://…"` is a server.
    `durability="strict"` survives a power cut, `"relaxed"` may lose the newest steps then (but never one in the
    middle). `blobs="agent-blobs"` keeps large values as files in that folder, instead of in the database.

    >>> with open("memory:") as db:
    ...     db.durability
    'volatile'
    """
    if durability not in ("strict", "relaxed"):
        raise BadInput(f"durability is 'strict' or 'relaxed', not {durability!r}")
    references.check_thread_id(tenant)
    folder = None if blobs is None else _folder(url, blobs)
    return Database(_engine(_place(url), durability), tenant, folder)


def _place(url: object) -> str:
    place = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if not isinstance(place, str) or "\0" in place or place != place.encode(errors="replace").decode():
        raise BadInput(f"{url!r:.80} names no database", hint='for example clew.open("agent.db")')
    return place


def _folder(url: object, blobs: str | os.PathLike[str]) -> Path:
    from clew.storage.blobs import folder_of

    if url in _MEMORY:
        raise BadInput("a database in memory keeps its blobs there too", hint="leave out blobs=")
    return folder_of(blobs)


def _engine(url: str, durability: Literal["strict", "relaxed"]) -> Any:
    if url.startswith(("postgresql://", "postgres://")):
        from clew.storage.postgres import PostgresEngine

        return PostgresEngine(url, durability)
    from clew.storage.sqlite import SqliteEngine

    if url in _MEMORY:
        return SqliteEngine(":memory:", durability)
    if url.startswith("sqlite:"):
        path = unquote(urlsplit(url).path)
        if not path.startswith("/"):
            raise BadInput(f"{url!r} names no file", hint='write "sqlite:///agent.db" or just "agent.db"')
        return SqliteEngine(path[1:], durability)  # three slashes: a relative path; four: an absolute one
    if "://" in url:
        raise BadInput(
            f"no database is known by the URL {url.split('://', maxsplit=1)[0]}://…",
            hint="sqlite:/// and postgresql:// are",
        )
    if not url:
        raise BadInput("the name of a database cannot be empty", hint='for example clew.open("agent.db")')
    return SqliteEngine(url, durability)


class Database:
    """One tenant's threads, in one place. A context manager; safe to share between threads and across a fork."""

    def __init__(self, engine: Any, tenant: str, blobs: Path | None = None) -> None:
        self._engine = engine
        self._tenant = references.check_thread_id(tenant)
        self._rows = engine.tenant(tenant)
        self._storage: Storage = self._rows
        self._blobs = blobs
        if blobs is not None:
            from clew.storage.blobs import OutsideBlobs

            self._storage = cast("Storage", OutsideBlobs(self._rows, blobs, tenant))

    def __repr__(self) -> str:
        return f"Database({self._engine.name!r}, tenant={self._tenant!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Tenants' handles of this database are closed with it."""
        self._engine.close()

    @property
    def durability(self) -> Durability:
        """What the database really achieves: strict, relaxed or volatile."""
        return self._storage.durability

    @property
    def tenant_name(self) -> str:
        return self._tenant

    def tenant(self, name: str) -> Database:
        """The same database, for another tenant: it sees that one's data and nobody else's."""
        return Database(self._engine, name, self._blobs)

    def thread(self, id: str, *, branch: str = "main") -> Thread:  # noqa: A002 - the word of the design
        """A handle on a thread. It need not exist: the first save makes it."""
        thread = Thread(self._storage, self._tenant, id, branch)
        thread._db = self
        return thread

    def _thread_with_memory(self, thread_id: str, branch: str, memory: Memory) -> Thread:
        """A handle that remembers in a place of the caller's: for those who share handles in their own way."""
        thread = Thread(self._storage, self._tenant, thread_id, branch, memory)
        thread._db = self
        return thread

    def threads(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order: Order = "updated",
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> Page[ThreadInfo]:
        """A page of threads, the last changed first. `where` compares metadata of each thread's newest checkpoint.

        The page's `cursor` fetches the next one: `db.threads(cursor=page.cursor)`.
        """
        if order not in ("updated", "created", "id"):
            raise BadInput(f"order is 'updated', 'created' or 'id', not {order!r}")
        limit = references.check_count(limit, "limit", 1)
        after = _read_cursor(cursor, order)
        fits = None if where is None else compile_filter(where, "where")
        found: list[Listed] = []
        while True:
            with self._storage.snapshot() as snapshot:
                rows = snapshot.threads(order=order, after=after, limit=limit + 1)
            more = len(rows) > limit
            rows = rows[:limit]
            for row in rows:
                if fits is None or fits(_metadata(row)):
                    found.append(row)
                    if len(found) == limit:
                        break
            if len(found) == limit:
                more = more or found[-1] is not rows[-1]
                return Page([_info(row) for row in found], _cursor(found[-1], order) if more else None)
            if not more:
                return Page([_info(row) for row in found])
            after = _keyset(rows[-1], order)

    def store(
        self,
        *,
        embed: Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
        dims: int | None = None,
        texts: Texts | None = None,
        **scope: str | int,
    ) -> Store:
        """Cross-thread memory of one scope: `db.store(user="42")` sees that user's items and no others.

        Without a scope it is what the tenant has in common, which is apart from every scope as well. With `embed`, a
        function from texts to vectors (of `dims` numbers), `search(query=…)` ranks by meaning instead of by words.
        `texts`, a function of a value and of the fields that `index=` names (or None), may tell which texts a query
        looks at; where it returns None, Clew does.

        >>> store = open("memory:").store(user="42")
        >>> store.put(("notes",), "1", {"text": "likes window seats"})
        >>> [item.key for item in store.search(("notes",), query="window")]
        ['1']
        """
        return self._store(None, scope, embed=embed, dims=dims, texts=texts)

    def _store(self, pending: Pending | None, scope: Mapping[str, str | int], **given: Any) -> Store:
        """A store; with `pending`, one whose writes wait there for a commit."""
        return Store(items_of(self._rows, pending), self._tenant, scope, **given)

    def requests(
        self,
        *,
        status: RequestStatus | None = "open",
        assignee: str | None = None,
        thread: str | Thread | None = None,
        run: str | None = None,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> Page[Request]:
        """A page of what agents have asked of people, the oldest first: open requests, or those of another status.

        `status` is "open", "answered", "expired" or "withdrawn"; None is all of them. The page's `cursor` fetches the
        next one.
        """
        return list_requests(
            self._room, status=status, assignee=assignee, thread=thread, run=run, limit=limit, cursor=cursor
        )

    def request(self, request: str | int) -> Request:
        """The request of this name: `db.request("R-12")`, or 12."""
        return find_request(self._room, request)

    def signal(self, name: str, value: Any = None, *, key: str | None = None) -> bool:
        """Leave a value under a name, for the one `clew.wait` that takes it; it may begin to wait later.

        With a `key`, a signal that is sent again counts once: False when one with this name and key was left before.

        >>> db = open("memory:")
        >>> db.signal("paid:42", {"amount": 420}, key="event-7"), db.signal("paid:42", {"amount": 420}, key="event-7")
        (True, False)
        """
        check_signal(name, key)
        return self._room.ledger.signal(name, encode(value), key=key)

    def notify(self, command: Sequence[str], *, limit: int = PAGE, timeout: float = 30.0) -> Notified:
        """Run a command for each open request that nobody has been told of, up to `limit`, with the request on stdin.

        What it gets is `request.as_json()`, with `event`, `tenant` and `attempt`. It is run without a shell. When it
        ends with 0, the request is told, once; on anything else, or after `timeout` seconds, it is told again later:
        after 10 s, 20 s, and so on, up to an hour. A kill between the command and its record tells it twice.

        Call this in a loop, in as many processes as you like.
        """
        from clew.notifying import notify  # brings subprocess

        return notify(self._room, command, limit=limit, timeout=timeout)

    @property
    def _room(self) -> Room:
        return Room(self._storage, self._tenant, ledger_of(self._rows))

    def runs(
        self,
        *,
        thread: str | Thread | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> Page[Run]:
        """A page of runs, the newest first: all, or those of a thread, of a status, of an agent (by its name).

        `status` is "running", "waiting", "sleeping", "paused", "queued", "done", "failed", "cancelled" or "dead". The
        page's `cursor` fetches the next one. What is listed of a run is in its `info`; `run.status` reads it anew.
        """
        return list_runs(self, self._room.ledger, thread=thread, status=status, agent=agent, limit=limit, cursor=cursor)

    def run(self, id: str) -> Run:  # noqa: A002 - the word of the design
        """A run by its id."""
        row = self._room.ledger.run(id) if str(id).isprintable() else None
        if row is None:
            raise RunNotFound(f"there is no run {id!r:.80}", hint="`clew runs` lists the runs of this database")
        return Run(self, row)

    def submit(
        self,
        agent: Submittable,
        thread: str | Thread,
        input: Any = None,  # noqa: A002 - the word that people guess
        *,
        key: str | None = None,
        if_busy: IfBusy = "enqueue",
        at: datetime | timedelta | None = None,
        context: Any = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Run:
        """Accept a run: when this returns it is durable, and a worker takes it up (`clew worker`, `clew.Worker`).

        The same `key` on a thread is the same run, which is returned as it is. `if_busy` says what becomes of it while
        the branch has another run: "enqueue" stands in line, "reject" raises `Busy`, "interrupt" cancels that one and
        goes on from there, "rollback" takes it back as if it had not been, "inject" gives it this input before its next
        round. `at` (a timedelta, or a datetime with a time zone) lets it wait until then, by the database's clock.
        Runs of greater `priority` go first; those of one `group` may share a limit of the workers.

        >>> import clew
        >>> db = open("memory:")
        >>> trip = clew.Agent("trip")
        >>> plan = trip.node(lambda state: {"plan": "3 days"}, name="plan")
        >>> db.submit(trip, "trip-7", {"city": "Tokyo"}, key="message-1").status
        'queued'
        """
        return submit(
            self, self._room.ledger, agent, thread, input,
            key=key, if_busy=if_busy, at=at, context=context, priority=priority, group=group,
        )  # fmt: skip

    def overview(self) -> Overview:
        """How many runs and requests there are that somebody may have to look at."""
        ledger = self._room.ledger
        runs, due, requests = ledger.counts()
        return Overview(runs, due, len(ledger.abandoned(_MOST_LEFT)), requests)

    def usage(self) -> Usage:
        """How much is stored."""
        with self._storage.snapshot() as snapshot:
            return snapshot.usage()

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        threads: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete old checkpoints, and the payload that only they needed.

        `keep_last` keeps that many on each branch, `older_than` all that are younger; with both, a checkpoint goes only
        if both let it. Heads, branches and tags always stay. Works in small transactions beside live writers; `dry_run`
        tells what would go, in bytes.

        >>> import clew
        >>> db = clew.open("memory:")
        >>> thread = db.thread("t")
        >>> for number in range(10):
        ...     _ = thread.save({"number": number})
        >>> db.prune(keep_last=3).checkpoints
        7
        """
        return prune(
            self._storage,
            self._tenant,
            keep_last=keep_last,
            older_than=older_than,
            threads=threads,
            dry_run=dry_run,
        )

    def delete(self, thread: str | Thread) -> None:
        """Erase a thread: checkpoints, payload, branches, tags. `Busy` while somebody holds a lease on it."""
        thread_id = thread.id if isinstance(thread, Thread) else references.check_thread_id(thread)
        if not self._storage.delete_thread(thread_id):
            raise ThreadNotFound(f"there is no thread {thread_id!r}")


def _metadata(row: Listed) -> dict[str, Any]:
    metadata: dict[str, Any] = decode(row.metadata) if row.metadata is not None else {}
    return metadata


def _info(row: Listed) -> ThreadInfo:
    return ThreadInfo(
        row.id,
        from_microseconds(row.created),
        from_microseconds(row.active),
        row.steps,
        row.branches,
        row.label,
        _metadata(row),
        row.busy,
    )


def _keyset(row: Listed, order: Order) -> tuple[Any, ...]:
    if order == "id":
        return (row.id,)
    return (row.updated if order == "updated" else row.created, row.id)


def _cursor(row: Listed, order: Order) -> str:
    return base64.urlsafe_b64encode(json.dumps([order, *_keyset(row, order)]).encode()).decode()


def _read_cursor(cursor: str | None, order: Order) -> tuple[Any, ...] | None:
    if cursor is None:
        return None
    try:
        told, *keyset = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"this cursor is not one of ours: {cursor!r:.40}", hint="use page.cursor as it is") from error
    expected = (str,) if order == "id" else (int, str)
    if told != order or tuple(map(type, keyset)) != expected:
        raise BadInput(f"this cursor belongs to order={told!r:.40}", hint="page on with the order that made it")
    references.check_thread_id(keyset[-1])
    if order != "id" and keyset[0].bit_length() > _STAMP_BITS:
        raise BadInput("this cursor is not one of ours: it names an impossible time", hint="use page.cursor as it is")
    return tuple(keyset)
