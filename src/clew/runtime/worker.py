"""Workers: they take up runs that are due, or were left, and drive them, several at a time.

One thread claims and listens; runs are driven on threads of their own. Nothing is known here that the database does not
know: a worker may be killed at any moment, and another one goes on (docs/design/workers.md).
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clew import observing, references
from clew.errors import BadInput, ClewError
from clew.runtime.executor import Executor, Held, Terms, claim, execute, held_of, names_of
from clew.runtime.retry import Retry
from clew.storage.ledger import Ledger, RunRow, RunStatus, ledger_of
from clew.storage.queue import Limits

if TYPE_CHECKING:
    import asyncio

    from clew.database import Database

SWEEP = 2.0
"""Seconds between two looks for runs whose process died, and for what no bell was heard of."""
DRAIN = 25.0
_POLL = (0.02, 1.0)
"""Seconds between two looks where something is due and cannot be claimed, or no bell is heard: from … to …"""
_SETTLED = 0.5
"""Nobody is told of a run that comes while another one is due (`clew.tell_of_run`), and who takes that one may not see
this one yet. So a worker that has just claimed looks a few times more, until the pause between two looks is so long."""
_TOGETHER = 0.02
"""While more than half of its places are taken, so many seconds pass between two claims: one of three runs costs little
more than one of one."""
_WORD = 0.5
_TIDY = 60.0
_ATTEMPTS = Retry(attempts=3, delay=1.0)


class Worker:
    """Runs what was submitted to a database: `Worker(db, [trip]).run()`, in as many processes as you like.

    Runs that are due are claimed, and so are those whose process died. Up to `concurrency` of them are driven at once,
    each on a thread; async nodes run on one event loop. An error is tried again as `retry` says, then the run is
    `failed`; a run whose process dies more than `crashes` times before its next checkpoint is `dead`.

    Limits hold for all workers together: `tenant_limit` runs of a tenant at once, `agent_limits` of each agent,
    `group_limit` of each group. With `tenants`, a worker serves these of the database in turns, instead of its own.

    >>> import clew
    >>> db = clew.open("memory:")
    >>> trip = clew.Agent("trip")
    >>> plan = trip.node(lambda state: {"plan": "3 days"}, name="plan")
    >>> run = db.submit(trip, "trip-7", {"city": "Tokyo"})
    >>> clew.Worker(db, [trip]).run(until_idle=True)
    >>> run.status
    'done'
    """

    def __init__(
        self,
        db: Database,
        agents: Sequence[Executor] | Executor,
        *,
        concurrency: int = 10,
        retry: Retry | int = _ATTEMPTS,
        crashes: int = 3,
        tenant_limit: int | None = None,
        agent_limits: Mapping[str, int] | None = None,
        group_limit: int | None = None,
        tenants: Sequence[str] = (),
        drain: float = DRAIN,
    ) -> None:
        given = list(agents) if isinstance(agents, Sequence) else [agents]
        if not given:
            raise BadInput("a worker needs an agent", hint="clew.Worker(db, [trip])")
        self._served_by = given
        self._names = names_of(given)
        self._served = list(self._names)
        self._rooms = [_Room(db.tenant(name) if name != db.tenant_name else db) for name in tenants] or [_Room(db)]
        self._engine = db._engine
        self._free = self._concurrency = references.check_count(concurrency, "concurrency", 1)
        self._terms = Terms(Retry.of(retry), references.check_count(crashes, "crashes", 0))
        self._limits = Limits(tenant_limit, self._all_names(agent_limits or {}), group_limit)
        self._drain = drain
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where async nodes run; None: a loop of Clew's own."""
        self.outcomes: Counter[str] = Counter()
        """How many runs it has driven, by what became of them."""
        self._active: dict[str, tuple[Held, _Room]] = {}
        self._lock = threading.Lock()
        self._todo: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle_threads = 0
        self._stopping = threading.Event()
        self._at_once = threading.Event()
        self._background: threading.Thread | None = None
        self._bell: Any = None

    def _all_names(self, limits: Mapping[str, int]) -> dict[str, int]:
        if unknown := set(limits) - set(self._names):
            raise BadInput(f"this worker serves no agent {min(unknown)!r}", hint=f"it serves {self._served}")
        return dict(limits)

    def __repr__(self) -> str:
        return f"Worker({self._served}, concurrency={self._concurrency})"

    @property
    def active(self) -> list[str]:
        """The ids of the runs that it drives now."""
        with self._lock:
            return list(self._active)

    # -- from outside

    def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop()`, SIGTERM or SIGINT; with `until_idle`, until nothing is due and nothing is under way.

        On the first signal it claims no more, and hands over what it drives after the round under way; what has not
        come to that after `drain` seconds, or at a second signal, is handed over as it stands.
        """
        self._bell = self._engine.bell()
        try:
            with self._on_signals():
                self._work(until_idle=until_idle)
                self._hand_over()
        finally:
            self._bell.close()
            while self._threads:
                self._threads.pop()
                self._todo.put(None)

    def drive(self, run: str) -> RunStatus | None:
        """Drive one run here and now, by its id: for a queue of your own, whose jobs carry that and nothing else.

        None: it is not due, stands in line, is over, or somebody has it. So a job that comes twice, or too early, does
        nothing.
        """
        for room in self._rooms:
            held = claim(room.db, self._served_by, run=run, due=True, terms=self._terms, loop=self.loop)
            if held is not None:
                return execute(held)
        return None

    def due(self, limit: int = 100) -> list[str]:
        """The ids of runs that could go on now, or were left: for a sweep of your own, which makes up for lost jobs."""
        found: list[str] = []
        for room in self._rooms:
            left = room.ledger.abandoned(limit) if room.ledger.look(self._served).abandoned else []
            found += [row.id for row in (*left, *room.ledger.due(limit)) if row.agent in self._names]
        return found

    def start(self) -> Self:
        """Work on a thread of its own, until `stop()`."""
        self._background = threading.Thread(target=self.run, name="clew-worker", daemon=True)
        self._background.start()
        return self

    def stop(self, *, at_once: bool = False, wait: bool = True) -> None:
        """Claim no more, and hand over what is under way: after its round, or `at_once`."""
        if at_once or self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()
        if self._bell is not None:
            self._bell.ring()
        if wait and self._background is not None and self._background is not threading.current_thread():
            self._background.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT drain, if this is the main thread. A handler may have interrupted whoever holds a lock, so
        another thread does what is to be done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stop = partial(self.stop, wait=False)
        handlers = {
            number: signal.signal(number, lambda *_: threading.Thread(target=stop, daemon=True).start())
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    # -- the loop

    def _work(self, *, until_idle: bool) -> None:
        pause, failing = _POLL[0], 0.1
        told = tidied = time.monotonic()
        claimed_at = 0.0
        while not self._stopping.is_set():
            soon = claimed_at + _TOGETHER - time.monotonic()
            if soon > 0 and self._free > 0 and not self._roomy():
                self._bell.wait(soon)
                continue
            alone = not self._active
            try:
                claimed, due_in = self._claim()
                now = time.monotonic()
                if claimed:
                    claimed_at = now
                if now - told >= _WORD:
                    told = now
                    self._pass_word_on()
                if now - tidied >= _TIDY:
                    tidied = now
                    for room in self._rooms:
                        room.ledger.expire()
                failing = 0.1
            except ClewError as error:
                observing.log.warning("the worker cannot claim: %s", error)
                self._stopping.wait(failing)
                failing = min(2 * failing, 5.0)
                continue
            if until_idle and alone and not claimed and (due_in is None or due_in > 0):
                return
            pause = _POLL[0] if claimed else min((4 if self._bell.hears else 2) * pause, _POLL[1])
            if self._bell.wait(self._rest(due_in, pause)):
                pause = _POLL[0]

    def _rest(self, due_in: float | None, pause: float) -> float:
        """How long to wait for the bell."""
        if self._free == 0:
            return _WORD
        longest = SWEEP if self._bell.hears and pause >= _SETTLED else pause
        if self._active:
            longest = min(longest, _WORD)
        if due_in is None:
            return longest
        return min(longest, due_in if due_in > 0 else pause)

    def _claim(self) -> tuple[int, float | None]:
        """Claim for all who are served, in turns; how many, and in how many seconds the next known run is due."""
        total, due_in = 0, None
        for left in range(len(self._rooms), 0, -1):
            if self._free <= 0:
                break
            room = self._rooms[0]
            self._rooms.append(self._rooms.pop(0))
            count = -(-self._free // left)
            if room.quiet:
                room.look(self._served)
            if not room.quiet:
                rows = room.ledger.claim_runs(self._served, count=count, limits=self._limits, sweep=room.abandoned)
                room.claimed(len(rows), count)
                self._begin_all(room, rows)
                total += len(rows)
            if room.due_in is not None and (due_in is None or room.due_in < due_in):
                due_in = room.due_in
        return total, due_in

    def _roomy(self) -> bool:
        """Whether half of its places are free."""
        return 2 * self._free >= self._concurrency

    def _begin_all(self, room: _Room, rows: Sequence[RunRow]) -> None:
        """Each of them, whatever becomes of another: nobody else will."""
        failed: ClewError | None = None
        for row in rows:
            try:
                self._begin(room, row)
            except ClewError as error:
                failed = error
        if failed is not None:
            raise failed

    def _begin(self, room: _Room, row: RunRow) -> None:
        held = held_of(room.db, self._names[row.agent], row, terms=self._terms, loop=self.loop)
        if held is None:
            self.outcomes["dead"] += 1
            return
        held.watched = True
        with self._lock:
            self._active[row.id] = held, room
            self._free -= 1
            alone = self._idle_threads < self._todo.qsize() + 1
        self._todo.put(held)
        if alone and len(self._threads) < self._concurrency:
            thread = threading.Thread(target=self._drive_all, name="clew-run", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _drive_all(self) -> None:
        while True:
            with self._lock:
                self._idle_threads += 1
            held = self._todo.get()
            with self._lock:
                self._idle_threads -= 1
            if held is None:
                return
            try:
                status: str = execute(held)
            except BaseException as error:  # noqa: BLE001 - the thread lives on
                observing.log.warning("run %s was let go: %s", held.row.id, error)
                status = "let go"
            with self._lock:
                del self._active[held.row.id]
                self._free += 1
                self.outcomes[status] += 1
                tells = self._free == 1 or self._roomy() or self._stopping.is_set()
            if tells:
                self._bell.ring()

    def _pass_word_on(self) -> None:
        """What others want of the runs that are driven here."""
        with self._lock:
            active = dict(self._active)
        for room in self._rooms:
            mine = [run for run, (_, of) in active.items() if of is room]
            for run, word in room.ledger.wanted(mine) if mine else ():
                active[run][0].want(word)

    def _hand_over(self) -> None:
        """Let what is under way come to the end of its round; then give it away as it stands."""
        deadline = time.monotonic() + self._drain
        with self._lock:
            under_way = [held for held, _ in self._active.values()]
        for held in under_way:
            held.halt()
        while self._active and time.monotonic() < deadline and not self._at_once.is_set():
            self._bell.wait(0.1)
        with self._lock:
            left = [held for held, _ in self._active.values()]
        for held in left:
            try:
                held.hand_over()
            except ClewError as error:
                observing.log.warning("run %s could not be handed over: %s", held.row.id, error)


class _Room:
    """One tenant that is served, and what is known of its queue."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.ledger: Ledger = ledger_of(db._storage)
        self.quiet = True
        """Whether a claim would find nothing, as far as is known."""
        self.due_in: float | None = None
        self.abandoned = False

    def look(self, agents: Sequence[str]) -> None:
        due_in, self.abandoned = self.ledger.look(agents)
        self.due_in = None if due_in is None else max(0.0, due_in / 1e6)
        if self.abandoned:
            self.due_in = 0.0
        self.quiet = self.due_in is None or self.due_in > 0

    def claimed(self, count: int, asked: int) -> None:
        self.quiet = count < asked
        self.due_in = 0.0  # nobody has looked since
