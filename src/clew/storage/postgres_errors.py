"""The one place where psycopg's errors become Clew's.

Nothing here quotes a connection string: an error may be logged, a password may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg
import psycopg_pool

from clew.errors import (
    BadInput,
    ClewError,
    Closed,
    Conflict,
    Corrupt,
    DiskFull,
    NameTaken,
    NotADatabase,
    ReadOnly,
    StorageError,
)
from clew.storage.port import Commit
from clew.storage.refusals import conflict, fenced, no_ref, no_step, no_thread

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


def detail(error: Exception) -> str:
    """The numbers that a refusal of ours carries."""
    found = error.diag.message_detail if isinstance(error, psycopg.Error) else None
    return found or ""


def refuse(commit: Commit, error: Exception) -> NoReturn:
    """Raise what a refused or failed commit means."""
    thread_id, branch, base = commit.thread_id, commit.branch, commit.base
    code = error.sqlstate if isinstance(error, psycopg.Error) else None
    if code == "KL002":
        head = detail(error)
        raise conflict(branch, thread_id, base, int(head) if head else None) from None
    if code == "KL004":
        raise fenced(branch, thread_id) from None
    if code == "KL012":
        raise Conflict(f"run {detail(error)} of thread {thread_id!r} is not running any more") from None
    if code == "KL005":
        raise no_thread(thread_id) from None
    if code == "KL006":
        raise no_ref(branch, thread_id) from None
    if code == "KL007":
        raise NameTaken(f"{branch!r} is not a branch of thread {thread_id!r}") from None
    if code == "KL009":
        raise no_step(base or 0, thread_id) from None
    if code == "KL010":
        raise NameTaken(f"thread {thread_id!r} has a branch or tag {branch!r} already") from None
    if code == "KL008":
        raise Corrupt(f"branch {branch!r} of thread {thread_id!r} points at step {base}, which is missing") from None
    if is_lost(error):
        raise StorageError(
            f"the connection to PostgreSQL broke while step after {base} of thread {thread_id!r} was saved, "
            "and could not be restored; whether it was written is unknown",
            retryable=True,
            hint="save again with the same key: it will not be written twice",
        ) from error
    raise clew_error(error) from error
