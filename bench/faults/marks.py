"""Marks around each commit of a library that uses `sqlite3`: `storing` before it, `stored` after it; and its locks."""

from __future__ import annotations

import sqlite3
from typing import Any

from clew.testing.outside import say

_connect = sqlite3.connect


class _Marked(sqlite3.Connection):
    def commit(self) -> None:
        if not self.in_transaction:
            super().commit()
            return
        say("storing:commit")
        super().commit()
        say("stored:commit")


def _marked(*arguments: Any, **more: Any) -> Any:
    return _connect(*arguments, **{**more, "factory": _Marked})


def is_free(path: str) -> bool:
    """Whether nobody is writing to the file."""
    connection = _connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def marked_sqlite() -> None:
    """From now on, in this process."""
    sqlite3.connect = _marked  # type: ignore[assignment]
    sqlite3.dbapi2.connect = _marked  # type: ignore[assignment]
