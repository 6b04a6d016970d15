"""Runs driven by procrastinate, for teams that already work with this queue on PostgreSQL.

Its jobs carry the ids of runs, and nothing else. The run's row stays the only truth: a job that is lost, late or there
twice costs latency, never a run (docs/queues.md).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import clew
from clew import observing
from clew.errors import BadInput
from clew.runtime.crew import call
from clew.runtime.executor import Executor, Held, Terms, claim, execute, names_of
from clew.runtime.retry import Retry
from clew.storage.ledger import RunRow, ledger_of
from clew.storage.queue import Beside, IfBusy
from clew.submitting import submit

try:
    from procrastinate import App, JobContext
except ImportError as error:
    raise BadInput("RunQueue needs the package procrastinate", hint='pip install "clew[procrastinate]"') from error

T = TypeVar("T")
_DEFER = """
SELECT procrastinate_defer_jobs_v1(array_agg(ROW(
    %(queue)s, %(task)s, one.priority, NULL, 'clew:' || one.id,
    jsonb_build_object('run', one.id), one.due)::procrastinate_job_to_defer_v1)) AS jobs
FROM unnest(%(ids)s::text[], %(priorities)s::integer[], %(due)s::timestamptz[]) AS one (id, priority, due)
WHERE NOT EXISTS (SELECT 1 FROM procrastinate_jobs j
                  WHERE j.status = 'todo' AND j.queueing_lock = 'clew:' || one.id)
HAVING count(*) > 0"""
"""Jobs for those of these runs that have none which is still to come."""
_PATH = "SELECT set_config('search_path', %s, true)"
_LOOK = 0.5
_MOST = 100
"""Runs that one sweep gives jobs to."""


class RunQueue:
    """Drives runs of these agents from a procrastinate app, which lives in the same PostgreSQL database.

        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        runs = RunQueue(app, clew.open(url), [trip])
        runs.submit(trip, "trip-7", {"city": "Tokyo"})      # the run and its job, in one transaction

    and `procrastinate --app=shop.app worker`. The app gets two tasks: one drives a run, and one looks every few seconds
    (`sweep`, a cron line, the seconds last) for runs that are due, or were left, and have no job. `retry` and `crashes`
    are those of `clew.Worker`; `schema` is where procrastinate's tables are. Each tenant has a `queue` of its own.
    """

    def __init__(
        self,
        app: App,
        db: clew.Database,
        agents: Sequence[Executor] | Executor,
        *,
        queue: str = "clew",
        retry: Retry | int = 3,
        crashes: int = 3,
        sweep: str = "* * * * * */5",
        schema: str = "public",
    ) -> None:
        if not hasattr(db._engine, "call"):
            raise BadInput(
                f"procrastinate works on PostgreSQL, and {db!r} is not", hint="clew.Worker(db, agents) works on both"
            )
        self._app = app
        self._db = db
        self._agents = list(agents) if isinstance(agents, Sequence) else [agents]
        self._names = names_of(self._agents)
        self._queue = queue
        self._task = f"{queue}.run"
        self._terms = Terms(Retry.of(retry), crashes)
        self._schema = schema
        app.task(name=self._task, queue=queue, pass_context=True)(self._drive)
        sweeping = app.task(name=f"{queue}.sweep", queue=queue, queueing_lock=f"{queue}.sweep")(self._sweep)
        app.periodic(cron=sweep)(sweeping)

    def __repr__(self) -> str:
        return f"RunQueue({list(self._names)}, queue={self._queue!r})"

    def submit(
        self,
        agent: Executor,
        thread: str | clew.Thread,
        input: Any = None,  # noqa: A002 - the word that people guess
        *,
        key: str | None = None,
        if_busy: IfBusy = "enqueue",
        at: datetime | timedelta | None = None,
        context: Any = None,
        priority: int = 0,
        group: str | None = None,
    ) -> clew.Run:
        """`db.submit`, and a job for it in the same transaction."""
        if agent.name not in self._names:
            raise BadInput(f"this queue serves no agent {agent.name!r}", hint=f"it serves {list(self._names)}")
        due = datetime.now(UTC) + at if isinstance(at, timedelta) else at

        def defer(run: str) -> Beside:
            return Beside(lambda connection: self._defer(connection, run, priority, due))

        return submit(
            self._db, ledger_of(self._db._storage), agent, thread, input,
            key=key, if_busy=if_busy, at=at, context=context, priority=priority, group=group, beside=defer,
        )  # fmt: skip

    def _defer(self, connection: Any, run: str, priority: int, due: datetime | None) -> None:
        """Within Clew's transaction."""
        (path,) = connection.execute("SELECT current_setting('search_path')").fetchone()
        connection.execute(_PATH, [self._schema])
        connection.execute(_DEFER, self._jobs([(run, priority, due)]))
        connection.execute(_PATH, [path])

    def _jobs(self, runs: Sequence[tuple[str, int, datetime | None]]) -> dict[str, Any]:
        return {
            "queue": self._queue,
            "task": self._task,
            "ids": [run for run, _, _ in runs],
            "priorities": [priority for _, priority, _ in runs],
            "due": [due for _, _, due in runs],
        }

    # -- tasks

    async def _drive(self, context: JobContext, run: str) -> None:
        """One job: its run, if that can go on now."""
        loop = asyncio.get_running_loop()
        held = await _on_thread(lambda: self._claim(run, loop))
        if held is None:
            return
        driving = asyncio.ensure_future(_on_thread(lambda: execute(held)))
        try:
            while not driving.done():
                await asyncio.wait({driving}, timeout=_LOOK)
                if context.should_abort():
                    held.halt()
        except asyncio.CancelledError:
            await _on_thread(held.hand_over)
            raise
        await self._sweep(0)

    def _claim(self, run: str, loop: asyncio.AbstractEventLoop) -> Held | None:
        # Only if it is due: a job that is there twice must not shorten a pause between two attempts.
        return claim(self._db, self._agents, run=run, due=True, terms=self._terms, loop=loop)

    async def _sweep(self, timestamp: int) -> None:  # noqa: ARG002 - procrastinate's
        """Jobs for runs that could go on, and have none."""
        found = await _on_thread(self._without_hands)
        if not found:
            return
        runs = [(row.id, row.priority, _time_of(row)) for row in found]
        try:
            await self._app.connector.execute_query_async(_DEFER, **self._jobs(runs))
        except Exception:  # noqa: BLE001 - the next sweep makes them
            observing.log.warning("jobs for %d runs are made later", len(runs), exc_info=True)

    def _without_hands(self) -> list[RunRow]:
        ledger = ledger_of(self._db._storage)
        left = ledger.abandoned(_MOST) if ledger.look(list(self._names)).abandoned else []
        return [row for row in (*left, *ledger.due(_MOST)) if row.agent in self._names]


def _time_of(row: RunRow) -> datetime | None:
    return None if row.wake is None else datetime.fromtimestamp(row.wake / 1e6, UTC)


async def _on_thread(work: Callable[[], T]) -> T:
    """Do it beside the event loop, on a thread of Clew's own."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(set_: Callable[[Any], None], value: Any) -> None:
        if not outcome.done():
            set_(value)

    def on_thread() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - whoever awaits gets it
            loop.call_soon_threadsafe(tell, outcome.set_exception, error)
        else:
            loop.call_soon_threadsafe(tell, outcome.set_result, found)

    context = contextvars.copy_context()
    call(lambda: context.run(on_thread))
    return await outcome
