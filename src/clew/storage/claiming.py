"""Claiming runs: what both backends share. Each claims in one transaction; PostgreSQL in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clew.errors import ClewError, Corrupt
from clew.storage.ledger import Move, RunRow
from clew.storage.ledger_rows import Seal
from clew.storage.ownership import OwnerRow, is_live
from clew.storage.port import Lease
from clew.storage.queue import Limits, Look

if TYPE_CHECKING:
    from clew.storage.relational import Relational

_THREAD, _BRANCH, _EPOCH = (RunRow._fields.index(name) for name in ("thread_id", "branch", "epoch"))


class NoOwner(Exception):
    """This process's owner row is gone: it was silent for too long."""


class Claims(Protocol):
    """What a backend does. Rows are columns of runs."""

    def claim_runs(
        self, owner: int, agents: Sequence[str], count: int, limits: Limits, *, sweep: bool
    ) -> list[tuple[Any, ...]]:
        """Take runs up, with their leases. `NoOwner` when the owner row is gone."""
        ...

    def claim_run(self, owner: int, run: str, *, forced: bool) -> list[tuple[Any, ...]]: ...
    def look(self, owner: int | None, agents: Sequence[str]) -> Seen: ...


class Seen(NamedTuple):
    """What there is to claim, the owners that have not expired, and the leases of running runs that this owner has."""

    due_in: int | None
    abandoned: bool
    owners: list[OwnerRow]
    mine: list[Lease]


class Claiming:
    """Claims for one tenant. One at a time in a process, so that what it has and what it holds are the same."""

    def __init__(self, storage: Relational, seal: Seal) -> None:
        self._storage = storage
        self._seal = seal

    def claim(self, agents: Sequence[str], count: int, limits: Limits, *, sweep: bool) -> list[RunRow]:
        return self._held(lambda owner: self._storage._claims.claim_runs(owner, agents, count, limits, sweep=sweep))

    def claim_one(self, run: str, *, forced: bool) -> RunRow | None:
        found = self._held(lambda owner: self._storage._claims.claim_run(owner, run, forced=forced))
        return found[0] if found else None

    def _held(self, take: Callable[[int], list[tuple[Any, ...]]]) -> list[RunRow]:
        storage = self._storage
        engine, tenant = storage._engine, storage._tenant
        with engine.claiming:
            owner = engine.owners.get(tenant)
            while True:
                if owner is None:
                    with storage._leasing(None) as run:
                        owner = engine.owner_row(tenant, run)
                try:
                    rows = take(owner)
                except NoOwner:
                    owner = None
                    continue
                break
            for row in rows:
                engine.hold(tenant, _lease(row), held=True)
        return [run for run in map(self._opened, rows) if run is not None]

    def _opened(self, columns: tuple[Any, ...]) -> RunRow | None:
        """The row; a damaged one is dead, so that nobody claims it again and again."""
        try:
            return self._seal.run(columns)
        except Corrupt:
            lease = _lease(columns)
            storage: Any = self._storage
            moved = Move(str(columns[0]), "dead", ("running",))
            with suppress(ClewError):  # then whoever claims it next says so; those that were claimed with it go on
                storage.apply(lease.thread_id, [moved], branch=lease.branch, epoch=lease.epoch)
            with suppress(ClewError):  # the next beat gives it back
                storage.release(lease)
            return None

    def look(self, agents: Sequence[str]) -> Look:
        storage = self._storage
        engine, tenant = storage._engine, storage._tenant
        with engine.claiming:
            due_in, abandoned, owners, mine = storage._claims.look(engine.owners.get(tenant), agents)
            # A claim whose answer was lost: the database has it as ours, and nobody here knows.
            lost = [lease for lease in mine if (tenant, lease) not in engine.leases]
            for lease in lost:
                try:
                    storage.release(lease)
                except ClewError:
                    continue  # the next beat gives it back
        me = storage._identity()
        dead = [owner for owner in owners if not is_live(owner, me, boot_clock=storage.boot_clock)]
        if dead:
            with storage._leasing(None) as run:
                for owner in dead:
                    run("expire_owner", owner=owner.owner, nonce=owner.nonce)
        return Look(due_in, abandoned or bool(lost or dead))


def _lease(columns: tuple[Any, ...]) -> Lease:
    return Lease(columns[_THREAD], columns[_BRANCH], columns[_EPOCH])
