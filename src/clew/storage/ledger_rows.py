"""From the ledger's stored columns to its rows: every value begins with a checksum of its place and content."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from clew.errors import Corrupt
from clew.storage.ledger import AnswerRow, EffectRow, RequestRow, RunRow

if TYPE_CHECKING:
    from clew.storage.relational import Run

_CRC = 4
_DELETE_LEDGER = (
    "delete_thread_answers",
    "delete_thread_notices",
    "delete_thread_requests",
    "delete_thread_signals",
    "delete_thread_waits",
    "delete_thread_effects",
    "delete_thread_runs",
)

Place = tuple[str, ...]
"""A table, and what names a row in it."""


class Seal(NamedTuple):
    """Closes and opens the values of one tenant."""

    tenant: int

    def close(self, place: Place, data: bytes | None) -> bytes | None:
        """What is stored of a value."""
        return None if data is None else self._crc(place, data) + data

    def open(self, place: Place, stored: bytes | None) -> bytes | None:
        """The value, if it is what was stored in this place."""
        if stored is None:
            return None
        stored = bytes(stored)
        data = stored[_CRC:]
        if stored[:_CRC] != self._crc(place, data):
            raise Corrupt(f"a value of {' '.join(place)} does not match its checksum")
        return data

    def _crc(self, place: Place, data: bytes) -> bytes:
        start = crc32("\0".join((str(self.tenant), *place, "")).encode("utf-8", "surrogatepass"))
        return crc32(data, start).to_bytes(_CRC, "big")

    # Rows.

    def run(self, columns: Sequence[Any]) -> RunRow:
        row = RunRow._make(columns)
        _check_thread(row.thread_id, f"run {row.id}")
        place = run_place(row.thread_id, row.id)
        return row._replace(
            input=self.open(place, row.input), context=self.open(place, row.context), error=self.open(place, row.error)
        )

    def effect(self, columns: Sequence[Any], thread_id: str) -> EffectRow:
        row = EffectRow._make(columns)
        place = effect_place(thread_id, row.token)
        return row._replace(args=bytes(row.args), shown=self.open(place, row.shown), value=self.open(place, row.value))

    def request(self, columns: Sequence[Any]) -> RequestRow:
        row = RequestRow._make(columns)
        _check_thread(row.thread_id, f"request R-{row.number}")
        place = request_place(row.thread_id, row.number)
        question = self.open(place, row.question)
        assert question is not None  # noqa: S101 - the column is NOT NULL
        return row._replace(
            digest=bytes(row.digest),
            question=question,
            schema=self.open(place, row.schema),
            default=self.open(place, row.default),
            value=self.open(place, row.value),
        )

    def answer(self, columns: Sequence[Any], number: int) -> AnswerRow:
        person, stored, reason, created = columns
        value = self.open(answer_place(number, person, reason), stored)
        assert value is not None  # noqa: S101 - the column is NOT NULL
        return AnswerRow(person, value, reason, created)


def _check_thread(thread_id: str | None, what: str) -> None:
    if thread_id is None:
        raise Corrupt(f"{what} belongs to a thread that is not there")


def run_place(thread_id: str, id_: str) -> Place:
    return "run", thread_id, id_


def effect_place(thread_id: str, token: str) -> Place:
    return "effect", thread_id, token


def request_place(thread_id: str, number: int) -> Place:
    return "request", thread_id, f"R-{number}"


def answer_place(number: int, person: str, reason: str | None) -> Place:
    """With the reason, for an audit is of all that somebody said."""
    return "answer", f"R-{number}", person, *(() if reason is None else (reason,))


def signal_place(name: str) -> Place:
    return "signal", name


def stamped(run: Run) -> Run:
    """The same queries, told the clock that things expire by on SQLite. On PostgreSQL the server's counts."""

    def query(name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        return run(name, **{"stamp": time.time_ns() // 1000, **values})

    return query


def delete_ledger(run: Run, thread: int) -> None:
    """A thread goes, and with it all that the ledger has of it."""
    for query in _DELETE_LEDGER:
        run(query, thread=thread)
