"""Admitting a run on PostgreSQL: one call of clew.admit_run, when there is nobody that it would disturb."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from clew.storage.ledger import NewRun, RunRow
from clew.storage.ledger_rows import Seal, run_place
from clew.storage.postgres_errors import translated
from clew.storage.postgres_prepared import Connection, Row
from clew.storage.queue import Beside

if TYPE_CHECKING:
    from clew.storage.postgres import PostgresEngine

_ADMIT = b"SELECT clew.admit_run(" + b", ".join([b"%s"] * 16) + b")"


def admit_at_once(
    engine: PostgresEngine, tenant: int, thread_id: str, new: NewRun, beside: Sequence[Beside]
) -> RunRow | None:
    """Admit it; None if that takes the long way, and nothing was written."""
    if new.if_busy != "enqueue":
        return None
    seal, place = Seal(tenant), run_place(thread_id, new.id)
    values: tuple[Any, ...] = (
        tenant, engine.durability == "strict", thread_id, time.time_ns() // 1000, new.id, new.branch, new.agent,
        new.key, seal.close(place, new.input), seal.close(place, new.context), new.trace, new.priority, new.group,
        new.at, new.delay, new.grace,
    )  # fmt: skip

    def act(connection: Connection, _: Row) -> None:
        for one in beside:
            one.act(connection)

    with translated():
        try:
            admitted, wake = engine.call(_ADMIT, values, act if beside else None)[0]
        except psycopg.errors.UniqueViolation:
            return None  # a run of this key, or this very run: the answer to the first call was lost
    return RunRow.of(new, thread_id, created=admitted, updated=admitted, wake=wake)
