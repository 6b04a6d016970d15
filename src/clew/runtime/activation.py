"""A node under way: what `recorded`, `effect`, `ask` and their like find when they are called.

They find it by a context variable: in the node, in the tasks that it starts, and in `asyncio.to_thread`; elsewhere by
`clew.bind`. Signals that end a node early derive from BaseException: no `except Exception` of its code swallows them.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

from clew.asking import read_decision
from clew.errors import ActivationClosed, BadInput, NoRun
from clew.runtime.forks import Origin
from clew.storage.items import Pending
from clew.storage.ledger import Entry, Ledger, NewRequest, NewWait, WaitRow
from clew.storage.port import Lease

P = ParamSpec("P")
R = TypeVar("R")

current: ContextVar[Activation | None] = ContextVar("clew_activation", default=None)
finders: list[Callable[[], Activation | None]] = []
"""How activations of other runtimes are found: adapters add to this."""
inside: ContextVar[str | None] = ContextVar("clew_inside", default=None)
"""The effect or transaction that this code runs in, for people: it is one call, and waits for nobody."""


class Pause(BaseException):
    """The node goes no further now: `requests` are what it waits for, or a wait of its own (`sleeping`: for time)."""

    def __init__(self, why: str, *, requests: tuple[int, ...] = (), sleeping: bool = False) -> None:
        super().__init__(why)
        self.requests = requests
        self.sleeping = sleeping


class Stop(BaseException):
    """The run is being cancelled."""


class Slot(NamedTuple):
    """Where the result of one call is journaled: the call, and the how manieth such it is."""

    call: str
    idx: int


class Activation(ABC):
    """One attempt of a node. `id` is the same for all attempts: (run, round, node, index)."""

    ledger: Ledger
    lease: Lease | None
    tenant: str
    origin: Origin | None = None
    """Where the run comes from, if it did not begin at the end of its thread."""

    def __init__(self, id: str, node: str, thread_id: str, branch: str, run: str | None) -> None:  # noqa: A002
        self.id = id
        self.node = node
        self.thread_id = thread_id
        self.branch = branch
        self.run = run
        self.tasks: set[Any] = set()
        """asyncio tasks that were started within."""
        self.pauses: list[Pause] = []
        self.trusting: list[Slot] = []
        """Calls that are right only if the node has not changed the state in place."""
        self._closed: str | None = None
        self._items: Pending | None = None
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def step(self) -> int | None:
        """The checkpoint that the branch stands on now."""

    # -- calls

    def slot(self, call: str) -> Slot:
        """The next slot of a call: like calls are told apart by their order."""
        self.check()
        with self._lock:
            count = self._counts.get(call, 0)
            self._counts[call] = count + 1
        return Slot(call, count)

    def digest_of(self, value: list[Any]) -> bytes | None:  # noqa: ARG002 - for those who know one
        """The digest of a list of the state, where that is known without reading it all, if nobody has changed it."""
        return None

    @abstractmethod
    def find(self, slot: Slot) -> bytes | None:
        """The journaled result of a call."""

    @abstractmethod
    def keep(self, slot: Slot, value: bytes) -> None:
        """Journal the result of a call; it is durable when this returns."""

    # -- the way out

    def pause(self, pause: Pause) -> NoReturn:
        """Leave the node until what it waits for has come."""
        self.pauses.append(pause)
        raise pause

    def check(self) -> None:
        """Refuse whoever goes on after the node was given up."""
        if self._closed is not None:
            raise ActivationClosed(f"node {self.node!r} {self._closed}; what still runs of it may not write any more")

    def close(self, why: str) -> None:
        """The node is over."""
        self._closed = self._closed or why

    # -- people, signals, time

    def answer(self, request: NewRequest, schema: Any = None) -> Any:
        """Ask, and the answer once somebody, or the request's expiry, has decided; the way out until then."""
        row = self.ledger.ask(self.thread_id, request, lease=self.lease)
        if row.status == "open":
            self.pause(Pause(f"waits for R-{row.number}", requests=(row.number,)))
        return read_decision(row, schema)

    def passes(self, call: str) -> None:  # noqa: B027 - nothing, for most
        """A call begins that may have asked before, and may not ask again: for those who count questions."""

    def wait(self, id: str, name: str | None, ttl: int | None) -> WaitRow:  # noqa: A002
        """Wait for a signal or for time; how that stands."""
        new = NewWait(self.run or self.id, self.id, id, name, ttl)
        return self.ledger.wait(self.thread_id, new, lease=self.lease)

    @property
    def items(self) -> Pending:
        """What the node has written to stores: it is written with the node's end."""
        with self._lock:
            if self._items is None:
                self._items = Pending(self.database._rows, self.check)
            return self._items

    def beside(self) -> Sequence[Entry]:
        """Entries that are written with what the node has come to."""
        return [] if self._items is None else self._items.entries()

    # -- what nodes may ask for

    @abstractmethod
    def emit(self, value: Any) -> None:
        """Tell whoever listens to the run."""

    @abstractmethod
    def checkpoint(self, label: str, update: Mapping[str, Any] | None) -> None:
        """Write a checkpoint within the node."""

    @property
    @abstractmethod
    def database(self) -> Any:
        """The database's handles: what `clew.store` opens."""

    @property
    @abstractmethod
    def context(self) -> Any:
        """What the run was started with as `context=`."""


def here(what: str, *, anywhere: bool = False) -> Activation:
    """The activation that this code runs in; unless `anywhere`, not from within an effect."""
    found = here_or_none()
    if found is None:
        raise NoRun(f"{what} was called outside of a run")
    if not anywhere and (within := inside.get()) is not None:
        raise BadInput(f"{what} was called within {within}", hint="call it in the node, before that or after it")
    found.check()
    return found


def here_or_none() -> Activation | None:
    found = current.get()
    if found is not None:
        return found
    for find in finders:
        if (found := find()) is not None:
            return found
    return None


def bind(fn: Callable[P, R]) -> Callable[P, R]:
    """The function, bound to the node that this is called in: for threads and callbacks that do not inherit it.

    `executor.submit(clew.bind(fetch), url)`
    """
    activation = here("clew.bind", anywhere=True)

    @functools.wraps(fn)
    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        token = current.set(activation)
        try:
            return fn(*args, **kwargs)
        finally:
            current.reset(token)

    return bound
