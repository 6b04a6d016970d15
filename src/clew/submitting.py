"""Submitting runs: accepted durably, for whoever is alive to take up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, get_args

from clew import observing, references
from clew.errors import BadInput, RunExists
from clew.runs import Run, new_run_id
from clew.state.codec import encode
from clew.storage.ledger import Ledger, NewRun
from clew.storage.queue import Beside, IfBusy
from clew.thread import Thread
from clew.writing import check_key

if TYPE_CHECKING:
    from clew.database import Database

_POLICIES = get_args(IfBusy)
_HIGHEST = 1 << 31
_FURTHEST = timedelta(days=365_000)


class Submittable(Protocol):
    """What runs can be submitted of: an `Agent`, a LangGraph graph."""

    @property
    def name(self) -> str: ...
    def pack(self, given: Any) -> bytes:
        """Check and encode an input; `BadInput` when it is none."""
        ...


def submit(
    db: Database,
    ledger: Ledger,
    agent: Submittable,
    thread: str | Thread,
    given: Any = None,
    *,
    key: str | None = None,
    if_busy: IfBusy = "enqueue",
    at: datetime | timedelta | None = None,
    context: Any = None,
    priority: int = 0,
    group: str | None = None,
    grace: float = 0.0,
    beside: Callable[[str], Beside] | None = None,
) -> Run:
    """Admit a run in one transaction: see `Database.submit`.

    `beside`, a function of the run's id, gives what is done in that transaction too; `grace` seconds it is left to the
    caller, once it is its turn.
    """
    on = db.thread(thread) if isinstance(thread, str) else thread
    check_busy(if_busy)
    check_key(key)
    if key is not None and (known := ledger.run_with_key(on.id, agent.name, key)) is not None:
        return Run(db, known)
    if type(priority) is not int or abs(priority) >= _HIGHEST:
        raise BadInput(f"a priority is a whole number, not {priority!r:.60}", hint="greater ones go first")
    if group is not None:
        references.check_thread_id(group)
    due, delay = _due(at)
    new = NewRun(
        new_run_id(),
        on.branch,
        agent.name,
        "queued",
        key,
        agent.pack(given),
        None if context is None else encode(context, path="context"),
        priority=priority,
        at=due,
        delay=delay,
        group=group,
        grace=int(grace * 1e6),
        if_busy=if_busy,
    )
    place = observing.Where(on._tenant, on.id, on.branch, new.id, agent.name)
    try:
        with observing.span("start", agent.name, place) as span:
            others = [] if beside is None else [beside(new.id)]
            return Run(db, ledger.admit(on.id, new._replace(trace=span.trace), others))
    except RunExists as exists:
        return db.run(exists.run)


def check_busy(if_busy: str) -> None:
    if if_busy not in _POLICIES:
        names = ", ".join(map(repr, _POLICIES))
        raise BadInput(f"if_busy={if_busy!r} is not known", hint=f"it is one of {names}")


def _due(at: datetime | timedelta | None) -> tuple[int | None, int]:
    """When a run is due: a time of the database's clock, or a delay; in microseconds."""
    if at is None:
        return None, 0
    if isinstance(at, timedelta):
        if at < timedelta():
            raise BadInput(f"at={at!r} has passed", hint="leave it out to run at once")
        if at > _FURTHEST:
            raise BadInput(f"at={at!r} is further away than calendars go", hint=f"at most {_FURTHEST.days} days")
        return None, at // timedelta(microseconds=1)
    if at.tzinfo is None:
        raise BadInput(f"at={at!r} has no time zone", hint="give a timedelta, or datetime.now(UTC) + …")
    return int(at.timestamp() * 1e6), 0
