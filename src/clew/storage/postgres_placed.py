"""A placed checkpoint on PostgreSQL: one call of clew.place, when everything is as its writer believes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import psycopg_pool

from clew.model import KINDS
from clew.storage.changes import postgres_call
from clew.storage.placed import Placing, place_of
from clew.storage.port import Committed
from clew.storage.postgres_errors import clew_error

if TYPE_CHECKING:
    from clew.storage.postgres import PostgresEngine

_KINDS = {kind: number for number, kind in enumerate(KINDS)}
_PLACE = b"SELECT c.thread, c.step, c.lane, c.unfolded{changes} FROM clew.place(" + b", ".join([b"%s"] * 23) + b") AS c"
_THE_LONG_WAY = "KL011"


def place_at_once(engine: PostgresEngine, tenant: int, placing: Placing) -> Committed | None:
    """Write it; None if that takes the long way, and nothing was written."""
    digests: list[str] | None = None
    data: list[bytes] | None = None
    if placing.blobs:
        digests, data = [digest for digest, _ in placing.blobs], [data for _, data in placing.blobs]
    values: tuple[Any, ...] = (
        tenant, engine.durability == "strict", placing.thread_id, placing.ns, placing.id,
        place_of(placing.ns, placing.id), placing.base, placing.lane, _KINDS[placing.kind], placing.label, placing.run,
        placing.next, placing.created, placing.metadata, placing.manifest, placing.crc, placing.payload,
        placing.control, placing.control_crc, int(placing.leans), placing.expected, digests, data,
    )  # fmt: skip
    # The changes stand first in the statement, the arguments of clew.place behind them.
    statement, of_changes = postgres_call(_PLACE, tenant, placing.changes)
    try:
        thread, step, lane, unfolded = engine.call(statement, (*of_changes, *values))[:4]
    except psycopg.Error as error:
        if error.sqlstate == _THE_LONG_WAY:
            return None
        raise clew_error(error) from error
    except (psycopg_pool.PoolTimeout, UnicodeError) as error:
        raise clew_error(error) from error
    return Committed(thread, step, lane, unfolded, replayed=False)
