"""Claiming runs on PostgreSQL: one call of clew.claim_runs, which tells the rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg

from clew.storage.claiming import NoOwner, Seen
from clew.storage.ownership import OwnerRow
from clew.storage.port import Lease
from clew.storage.postgres_entries import all_rows
from clew.storage.postgres_errors import translated
from clew.storage.postgres_queries import QUERIES
from clew.storage.queue import Limits

if TYPE_CHECKING:
    from clew.storage.postgres import PostgresEngine

_NO_OWNER = "KL011"
_THREAD_NAME = b"(SELECT t.id FROM thread t WHERE t.tenant = r.tenant AND t.thread = r.thread)"
"""As the statement's own snapshot has it: too old for a thread that was made meanwhile."""
_NAMED = re.compile(rb"%\((\w+)\)s")


class PostgresClaims:
    """Claims of one tenant."""

    def __init__(self, engine: PostgresEngine, tenant: int) -> None:
        self._engine = engine
        self._tenant = tenant

    def claim_runs(
        self, owner: int, agents: Sequence[str], count: int, limits: Limits, *, sweep: bool
    ) -> list[tuple[Any, ...]]:
        return self._claimed(
            "claim_runs",
            owner=owner,
            agents=list(agents),
            limits=[limits.agents.get(agent) for agent in agents],
            count=count,
            sweep=sweep,
            tenant_limit=limits.tenant,
            group_limit=limits.group,
        )

    def claim_run(self, owner: int, run: str, *, forced: bool) -> list[tuple[Any, ...]]:
        return self._claimed("claim_run", owner=owner, id=run, forced=forced)

    def look(self, owner: int | None, agents: Sequence[str]) -> Seen:
        with translated():
            due_in, abandoned, owners, mine = self._ask("look_for_runs", owner=owner, agents=list(agents))[0]
        leases = [Lease(thread_id, branch, epoch) for _, thread_id, branch, epoch in mine]
        return Seen(due_in, abandoned, [OwnerRow._make(owner) for owner in owners], leases)

    def _claimed(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        # Leases, and so claims, are as durable as the database can: an epoch is not given twice.
        values |= {"strict": True, "expiry": self._engine.expiry}
        with translated():
            try:
                return self._ask(query, **values)
            except psycopg.Error as error:
                if error.sqlstate == _NO_OWNER:
                    raise NoOwner from None
                raise

    def _ask(self, query: str, /, **values: Any) -> list[tuple[Any, ...]]:
        statement, names = _numbered(query)
        values["tenant"] = self._tenant
        return list(self._engine.call(statement, [values[name] for name in names], read=all_rows))


@cache
def _numbered(query: str) -> tuple[bytes, list[str]]:
    """A named query with plain places for its values, and their names in that order."""
    text = QUERIES[query].replace(_THREAD_NAME, b"clew.thread_name(r.tenant, r.thread)")
    return _NAMED.sub(b"%s", text), [name.decode() for name in _NAMED.findall(text)]
