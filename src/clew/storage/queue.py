"""The ledger as a queue: what there is to claim, claims, and what the claimed are wanted for.

The rows of runs are all there is of it (docs/design/workers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from clew.storage.ledger import NewRun, RunRow
    from clew.storage.port import Lease

IfBusy = Literal["enqueue", "reject", "interrupt", "rollback", "inject"]
"""What becomes of a new run while its branch is held (docs/design/workers.md)."""


class Limits(NamedTuple):
    """How many runs may be driven at once, by all workers together: of the tenant, of an agent, of each group."""

    tenant: int | None = None
    agents: Mapping[str, int] = {}
    group: int | None = None


NO_LIMITS = Limits()


class Look(NamedTuple):
    """When the next run is due (in microseconds; 0: now; None: none is known), and whether one was abandoned."""

    due_in: int | None
    abandoned: bool


# -- entries that take part in a line: see `Ledger.apply`


class Enter(NamedTuple):
    """A run's input has become the checkpoint that this rides on. `parent…` is where a run on a fork comes from."""

    run: str
    parent: str | None = None
    parent_step: int | None = None


class TakeIn(NamedTuple):
    """The inputs of queued runs are part of the checkpoint that this rides on: they are done with that."""

    run: str
    taken: Sequence[str]


class Rewind(NamedTuple):
    """Point the lease's branch at an earlier step (None: at nothing). The tip keeps the name `old_tip`."""

    branch: str
    step: int | None
    old_tip: str


class Beside(NamedTuple):
    """Something of somebody else's, in the same transaction.

    Called with psycopg's connection; on SQLite, with the function that executes a statement.
    It is called again when the transaction is done again, because its outcome was lost.
    """

    act: Callable[[Any], None]


class Rename(NamedTuple):
    """A run belongs to another agent now. `RunExists` when that one has a run of its key."""

    run: str
    agent: str


class Release(NamedTuple):
    """The lease that this is written under goes back with it."""

    lease: Lease
    owner: int | None


class Queue(Protocol):
    """The part of a ledger that workers use, and those who give them work."""

    def admit(self, thread_id: str, run: NewRun, beside: Sequence[Beside] = ()) -> RunRow:
        """Let a queued run in, as its `if_busy` says; durable when this returns. A thread that is new is made."""
        ...

    def claim_runs(
        self, agents: Sequence[str], *, count: int = 1, limits: Limits = NO_LIMITS, sweep: bool = False
    ) -> list[RunRow]:
        """Take up runs of these agents that are due, with the leases of their branches; `sweep`: abandoned ones too.

        They are `running` then. Greater priorities come first, then who has been due for longest.
        """
        ...

    def claim_run(self, id: str, *, forced: bool = True) -> RunRow | None:  # noqa: A002
        """Take up one run, due or not; None when it stands in line, is held, or is over.

        Not `forced`: only if it is due by now, or was left.
        """
        ...

    def is_due(self, id: str) -> bool:  # noqa: A002
        """Whether a run may go on now, by the database's clock."""
        ...

    def look(self, agents: Sequence[str]) -> Look:
        """What there is to claim. Leases of processes that are known to be dead end here."""
        ...

    def wanted(self, runs: Sequence[str]) -> list[tuple[str, str]]:
        """Of these runs, those that word was left for."""
        ...

    def to_take_in(self, run: str) -> list[RunRow]:
        """Queued runs whose inputs this one is to take in, in their order."""
        ...
