"""Listening for runs that are due, on a connection of its own that no pooler may lend to others.

A pooler accepts LISTEN and forgets it. So the listener is sent a word first: until that comes, it hears nothing, and
whoever waits has to ask the database. The word comes over another connection: in a quiet pool the same session is given
out for both statements, and a session always hears itself.
"""

from __future__ import annotations

import secrets
import time

import psycopg
from psycopg.conninfo import make_conninfo

from clew.storage.waking import ListeningBell

_LISTEN = (b"LISTEN clew_due", b"LISTEN clew_wanted")
_PATIENCE = 2.0
"""Seconds within which a word comes to whoever really listens."""
_AGAIN = 60.0
"""Seconds until it is tried again where it did not."""
_LONGEST = 5.0


def listen(link: str, bell: ListeningBell) -> None:
    """Ring the bell for each notification, until it is closed; connections that break are replaced."""
    pause = 0.1
    while not bell.closed.is_set():
        try:
            with psycopg.connect(make_conninfo(link), autocommit=True, prepare_threshold=None) as connection:
                if not _heard(connection, link, bell):
                    pause = _AGAIN
                    bell.hears = False
                    connection.execute(b"UNLISTEN *")  # most likely it is the same session
                else:
                    pause = 0.1
                    bell.hears = True
                    bell.ring()  # whatever came before this was not heard
                    _follow(connection, bell)
        except psycopg.Error:
            bell.hears = False
            bell.ring()
        bell.closed.wait(pause)
        pause = min(2 * pause, max(pause, _LONGEST))


def _heard(connection: psycopg.Connection[tuple[object, ...]], link: str, bell: ListeningBell) -> bool:
    for statement in _LISTEN:
        connection.execute(statement)
    token = f"hello {secrets.token_hex(8)}"
    with psycopg.connect(make_conninfo(link), autocommit=True, prepare_threshold=None) as another:
        another.execute("SELECT pg_notify('clew_due', %s)", (token,))
    deadline = time.monotonic() + _PATIENCE
    while not bell.closed.is_set() and time.monotonic() < deadline:
        for notice in connection.notifies(timeout=0.2, stop_after=1):
            if notice.payload == token:
                return True
    return False


def _follow(connection: psycopg.Connection[tuple[object, ...]], bell: ListeningBell) -> None:
    while not bell.closed.is_set():
        for notice in connection.notifies(timeout=1.0, stop_after=1):
            if not notice.payload.startswith("hello"):
                bell.ring()
