"""Claiming runs on SQLite: the rules of clew.claim_runs (postgres_007_workers.sql), within BEGIN IMMEDIATE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import Corrupt
from clew.storage.claiming import NoOwner, Seen
from clew.storage.ledger import HOLDING, RunRow
from clew.storage.ledger_rows import stamped
from clew.storage.ownership import OwnerRow
from clew.storage.port import Lease
from clew.storage.queue import Limits

if TYPE_CHECKING:
    from clew.storage.relational import Run
    from clew.storage.sqlite_storage import SqliteStorage

_HIGHEST = 1 << 62
_ALL = 1 << 40
_SOON = 100_000
"""After so many microseconds a run is looked at again whose branch somebody has for a moment."""
_OWNER = slice(2, 10)
Up = tuple[int, int, int, str]
"""Priority, wake time, seq, agent."""


class SqliteClaims:
    """Claims of one tenant."""

    def __init__(self, storage: SqliteStorage) -> None:
        self._storage = storage

    def claim_runs(
        self, owner: int, agents: Sequence[str], count: int, limits: Limits, *, sweep: bool
    ) -> list[tuple[Any, ...]]:
        with self._storage._leasing(None) as plain:
            query = stamped(plain)
            if not query("beat", owner=owner, expiry=self._storage._engine.expiry):
                raise NoOwner
            if limits.tenant is not None:
                count = min(count, limits.tenant - query("count_running", agent=None, group=None)[0][0])
            room = {
                agent: most - query("count_running", agent=agent, group=None)[0][0]
                for agent, most in limits.agents.items()
            }
            found = _up(query, agents, 4 * count + 16) if count > 0 else []
            if sweep:
                left = _running(query, agents)
                found += [run.up for run in left if self._storage._live(run.owner, run.lease) is None]
            taken: list[tuple[Any, ...]] = []
            for _, _, seq, agent in sorted(found, key=lambda up: (-up[0], up[1], up[2])):
                if len(taken) >= count:
                    break
                if room.get(agent, 1) <= 0:
                    continue
                if row := self._take(query, owner, seq, limits.group, forced=False):
                    taken.append(row)
                    if agent in room:
                        room[agent] -= 1
            return taken

    def claim_run(self, owner: int, run: str, *, forced: bool) -> list[tuple[Any, ...]]:
        with self._storage._leasing(None) as plain:
            query = stamped(plain)
            if not query("beat", owner=owner, expiry=self._storage._engine.expiry):
                raise NoOwner
            found = query("seq_of_run", id=run)
            row = self._take(query, owner, found[0][0], None, forced=forced) if found else None
            return [row] if row else []

    def look(self, owner: int | None, agents: Sequence[str]) -> Seen:
        storage = self._storage
        with storage._reading() as plain:
            query = stamped(plain)
            wakes = [query("next_wake", agent=agent, priority=level)[0][0] for agent, level in _levels(query, agents)]
            left = False
            mine: list[Lease] = []
            for running in _running(query, agents):
                left = left or storage._live(running.owner, running.lease) is None
                if owner is not None and running.owner[0] == owner:
                    mine.append(running.lease)
            owners = [OwnerRow._make(row) for row in query("live_owners")]
        return Seen(min(wakes, default=None), left, owners, mine)

    def _take(
        self, query: Run, owner: int, seq: int, group_limit: int | None, *, forced: bool
    ) -> tuple[Any, ...] | None:
        """Take one run up: its branch's lease passes to this owner. None: it cannot go on now."""
        status, thread, thread_id, branch, group, wake, due, held = query("run_to_claim", seq=seq)[0]
        if status not in (*HOLDING, "queued") or (status == "queued" and wake is None):
            return None
        if status != "running" and not (due or forced):
            return None
        query("create_ref", thread=thread, name=branch, kind="branch", step=None)  # only if somebody has deleted it
        refs = query("ref", thread=thread, name=branch)
        if not refs:
            raise Corrupt(f"branch {branch!r} of thread {thread_id!r} is there, and is not this tenant's")
        ref = refs[0]
        if status == "queued" and held:
            query("set_wake", seq=seq, delay=None)
            return None
        if self._storage._live(ref[4:], Lease(thread_id, branch, ref[3])) is not None:
            if status != "running" and due:
                query("set_wake", seq=seq, delay=_SOON)
            return None
        if status == "queued" and group is not None and group_limit is not None:
            together = query("count_running", agent=None, group=group)[0][0]
            if together >= group_limit:
                query("set_wake", seq=seq, delay=None)
                query("call_next", thread=thread, branch=branch, but=seq)
                return None
            if together + 1 < group_limit:
                query("call_group", group=group)
        epoch = query("take_ref", thread=thread, name=branch, owner=owner)[0][0]
        query("take_run", seq=seq, epoch=epoch, stood=ref[1])
        return query("run_with_seq", seq=seq)[0]


def _levels(query: Run, agents: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The agents' priorities at which something is up, now or later."""
    for agent in agents:
        level: int | None = _HIGHEST
        while (level := query("next_level", agent=agent, below=level)[0][0]) is not None:
            yield agent, level


def _up(query: Run, agents: Sequence[str], most: int) -> list[Up]:
    found: list[Up] = []
    for agent, level in _levels(query, agents):
        found += query("runs_up", agent=agent, priority=level, limit=most)
    return found


class Running(NamedTuple):
    """A running run, the owner of its branch, and the lease that this has."""

    up: Up
    owner: Sequence[Any]
    lease: Lease


def _running(query: Run, agents: Sequence[str]) -> list[Running]:
    found: list[Running] = []
    for row in query("runs_running", after=-1, limit=_ALL):
        run = RunRow._make(row[_OWNER.stop :])
        if run.agent in agents:
            up = (run.priority, 0, row[0], run.agent)
            found.append(Running(up, row[_OWNER], Lease(run.thread_id, run.branch, row[1] or 0)))
    return found
