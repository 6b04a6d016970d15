"""Statements of ours that a connection has prepared, so that they are sent, parsed and planned once.

Invariants:

1. A statement is prepared under a name that is a digest of its text. So whoever finds that name in a session, also one
   that a pooler has lent to others in between, finds this very statement.
2. It is an economy and nothing else: where a prepared statement is lost (a pooler gives each call another session), the
   call is repeated with the statement in full, and nothing is prepared any more.
3. Values go as they are to be stored: texts and bytes in binary, so that nothing ends at a zero byte; texts as UTF-8,
   so only where that is what the session takes them for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import errors, generators, pq
from psycopg.adapt import Transformer

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]

_FROM = 3
"""Prepared when it is run for the third time: most are run once, or ever again."""
_MOST, _LONGEST = 100, 4096
"""How many statements a connection prepares at most, and of how many bytes: those of commits differ by what rides on
them."""
_TEXT, _BINARY = 0, 1


class Preparing:
    """Whether connections prepare statements: all of an engine's do, or none."""

    allowed = True

    def refused(self, error: BaseException) -> bool:
        """Whether a call has failed because a prepared statement was lost. None are prepared any more, then."""
        lost = isinstance(error, errors.InvalidSqlStatementName | errors.DuplicatePreparedStatement) or (
            # Its message comes in the server's language.
            isinstance(error, errors.FeatureNotSupported) and error.diag.source_function == "RevalidateCachedQuery"
        )
        if lost:
            self.allowed = False
        return lost


class Prepared:
    """Runs statements on one connection."""

    def __init__(self, connection: Connection, preparing: Preparing) -> None:
        self._connection = connection
        self._preparing = preparing
        # One cursor and one reader for all calls: making them costs as much as the driver's other work for a call.
        self._cursor = connection.cursor(binary=True)
        self._reader = Transformer(connection)
        self._uses: Counter[bytes] = Counter()
        self._known: dict[bytes, bytes] = {}

    def rows(self, statement: bytes, values: Sequence[Any]) -> list[Row]:
        """The rows of a statement with `%s` for its values."""
        name = self._prepare(statement)
        sent = None if name is None else _sent(values)
        if name is None or sent is None:
            return self._cursor.execute(statement, values).fetchall()
        data, formats = sent
        self._connection.pgconn.send_query_prepared(name, data, formats, _BINARY)
        result = self._result()
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def _prepare(self, statement: bytes) -> bytes | None:
        """The name that it is prepared under; None: it is not."""
        if not self._preparing.allowed or self._connection.pgconn.parameter_status(b"client_encoding") != b"UTF8":
            return None  # another encoding is the driver's to write
        if known := self._known.get(statement):
            return known
        if len(statement) > _LONGEST or len(self._known) >= _MOST:
            return None
        self._uses[statement] += 1
        if self._uses[statement] < _FROM:
            return None
        name, numbered = _named(statement)
        self._connection.pgconn.send_prepare(name, numbered)
        self._result()
        self._known[statement] = name
        return name

    def _result(self) -> pq.abc.PGresult:
        result: pq.abc.PGresult = self._connection.wait(generators.execute(self._connection.pgconn))[-1]
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result)
        return result


@cache
def _named(statement: bytes) -> tuple[bytes, bytes]:
    """Its name, and its text with numbered values."""
    first, *rest = statement.split(b"%s")
    numbered = first + b"".join(b"$%d%s" % (number, part) for number, part in enumerate(rest, 1))
    return b"clew_" + blake2b(numbered, digest_size=16).hexdigest().encode(), numbered


def _sent(values: Sequence[Any]) -> tuple[list[bytes | None], list[int]] | None:
    """Values and their formats, as the server gets them; None if there is one that the driver knows better."""
    data: list[bytes | None] = []
    formats: list[int] = []
    for value in values:
        sort = type(value)
        if sort is str:
            data.append(value.encode())
            formats.append(_BINARY)
        elif sort is int:
            data.append(b"%d" % value)
            formats.append(_TEXT)
        elif sort is bytes:
            data.append(value)
            formats.append(_BINARY)
        elif value is None:
            data.append(None)
            formats.append(_TEXT)
        elif sort is bool:
            data.append(b"t" if value else b"f")
            formats.append(_TEXT)
        elif sort is list and all(type(item) in _IN_ARRAYS for item in value):
            data.append(b"{%s}" % b",".join(map(_item, value)))
            formats.append(_TEXT)
        else:
            return None
    return data, formats


_IN_ARRAYS = (str, int, type(None))


def _item(item: str | int | None) -> bytes:
    if isinstance(item, str):
        return b'"%s"' % item.replace("\\", r"\\").replace('"', r"\"").encode()
    return b"NULL" if item is None else b"%d" % item
