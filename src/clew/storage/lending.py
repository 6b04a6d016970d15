"""The database's own transaction, lent to the user's code for tables of its own.

It may do there what it likes, but for ending the transaction, and for changing what is Clew's. It has so many seconds:
everybody else who writes waits for it meanwhile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import apsw

from clew.errors import BadInput
from clew.storage.relational import Relational
from clew.storage.sqlite_storage import SqliteStorage
from clew.storage.statements import migrations

_ENDS = (apsw.SQLITE_TRANSACTION, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH)
_CHANGES = (apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE, apsw.SQLITE_DROP_TABLE, apsw.SQLITE_ALTER_TABLE)
_LOOK = 1000
"""Steps of SQLite's machine between two looks at the clock."""
_OWN = b"""SELECT set_config('search_path', (SELECT reset_val FROM pg_settings WHERE name = 'search_path'), true),
    set_config('enable_seqscan', 'on', true), set_config('statement_timeout', %s, true),
    set_config('idle_in_transaction_session_timeout', %s, true)"""
_LIMITS = b"""SELECT set_config('search_path', 'clew, pg_temp', true), set_config('enable_seqscan', 'off', true),
    set_config('statement_timeout', '120s', true), set_config('idle_in_transaction_session_timeout', '60s', true)"""
_XID = b"SELECT pg_current_xact_id()::text"
_HINT = "return from the function to commit, raise an exception to roll back"


class Ended(BadInput):
    """The transaction was ended by whoever it was lent to."""


def lent(storage: Relational, connection: Any, seconds: float) -> AbstractContextManager[Any]:
    """The connection of a transaction that is open, for the user's code: an apsw or a psycopg one."""
    if isinstance(storage, SqliteStorage):
        return _lent_sqlite(storage, seconds)
    return _lent_postgres(connection, seconds)


@contextmanager
def _lent_sqlite(storage: SqliteStorage, seconds: float) -> Iterator[apsw.Connection]:
    writer = storage._engine.writer
    assert writer is not None  # noqa: S101 - a transaction is open on it
    deadline = time.monotonic() + seconds

    def allowed(what: int, first: str | None, *_: Any) -> int:
        refused = what in _ENDS or (what in _CHANGES and first in _ours())
        return apsw.SQLITE_DENY if refused else apsw.SQLITE_OK

    writer.authorizer = allowed
    writer.set_progress_handler(lambda: time.monotonic() > deadline, _LOOK)
    try:
        yield writer
    except apsw.AuthError as error:
        raise Ended(
            "this transaction is Clew's: it cannot be ended, nor Clew's own tables be changed", hint=_HINT
        ) from error
    except apsw.InterruptError as error:
        raise _too_long(seconds) from error
    finally:
        writer.set_progress_handler(None)
        writer.authorizer = None
        writer.row_trace = writer.exec_trace = None
    if time.monotonic() > deadline:
        raise _too_long(seconds)


@contextmanager
def _lent_postgres(connection: Any, seconds: float) -> Iterator[Any]:
    limit = f"{max(1, int(seconds * 1000))}ms"
    (before,) = connection.execute(_XID).fetchone()
    connection.execute(_OWN, (limit, limit))
    deadline = time.monotonic() + seconds
    try:
        yield connection
    except Exception as error:
        if getattr(error, "sqlstate", None) in ("57014", "25P03") and time.monotonic() >= deadline:
            raise _too_long(seconds) from error
        raise
    if time.monotonic() > deadline:
        raise _too_long(seconds)
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise Ended(
            "a statement of this transaction has failed, so it cannot be committed",
            hint="let the exception out, or put what may fail into `with connection.transaction():`",
        )
    if status != "INTRANS" or connection.execute(_XID).fetchone() != (before,):
        raise Ended("this transaction is Clew's: it cannot be ended", hint=_HINT)
    connection.execute(_LIMITS)


def _too_long(seconds: float) -> TimeoutError:
    return TimeoutError(f"the transaction took longer than {seconds:g} s, and was rolled back")


@cache
def _ours() -> frozenset[str]:
    """The names of Clew's own tables."""
    text = "".join(statement for _, statement in migrations("sqlite"))
    return frozenset(re.findall(r"CREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?(\w+)", text)) | {"item_text"}
