"""The one place where psycopg's errors become Clew's.

Nothing here quotes a connection string: an error may be logged, a password may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from clew.errors import BadInput, ClewError, Closed, Corrupt, DiskFull, NotADatabase, ReadOnly, StorageError

# Classes and codes of PostgreSQL's appendix A.
_AGAIN = ("08", "40", "53", "57", "55P03", "58")
_UNREACHABLE = ("08", "57P01", "57P02", "57P03")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that what was asked for may have been done or not."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_UNREACHABLE)


def is_passing(error: BaseException) -> bool:
    """Whether the server rolled back for a reason of the moment: a deadlock, or a serialization failure."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("40")


@contextmanager
def translated() -> Iterator[None]:
    """Lets only Clew's errors out of the block."""
    try:
        yield
    except (psycopg.Error, psycopg.Warning, psycopg_pool.PoolTimeout, UnicodeError) as error:
        raise clew_error(error) from error


def clew_error(error: Exception) -> ClewError:
    """What the driver said, as the error that a caller can act on."""
    if isinstance(error, UnicodeError):
        return BadInput("PostgreSQL cannot store this text: it is not valid Unicode", hint="remove lone surrogates")
    if isinstance(error, psycopg_pool.PoolClosed):
        return Closed("this database is closed")
    if isinstance(error, psycopg_pool.PoolTimeout):
        return StorageError(
            f"no connection to PostgreSQL: {error}", retryable=True, hint="is the server running, and not overloaded?"
        )
    code = getattr(error, "sqlstate", None) or ""
    said = _said(error)
    if code == "53100":
        return DiskFull(f"PostgreSQL has no space left: {said}")
    if code == "25006":
        return ReadOnly(f"this PostgreSQL server does not accept writes: {said}")
    if code == "42501":
        return StorageError(
            f"this role may not do that: {said}", hint="as the owner of the schema, run SELECT clew.grant_to('<role>')"
        )
    if code in ("XX001", "XX002"):
        return Corrupt(f"PostgreSQL reports damage: {said}")
    if code in ("3F000", "42P01", "42883", "42703"):
        return NotADatabase(
            f"this database lacks a part of Clew's schema: {said}",
            hint="open it once as its owner, which migrates it: clew.open(owner_url)",
        )
    if isinstance(error, psycopg.DataError):
        return BadInput(f"PostgreSQL cannot store this: {said}")
    retryable = code.startswith(_AGAIN) or is_lost(error)
    return StorageError(f"PostgreSQL failed: {said}", retryable=retryable)


def _said(error: Exception) -> str:
    """The first line of the server's message; details could quote stored values."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return primary or (str(error).splitlines() or ["no reason given"])[0]
