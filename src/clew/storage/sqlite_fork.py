"""What happens to open SQLite engines when the process forks.

SQLite keeps a record of the file locks that its process holds. A child inherits the record but not the locks, so that
every connection it opens to the same file would go unprotected. Therefore all connections are closed before a fork,
once the running transactions have ended; parent and child open their own at the next use.

A thread that forks inside its own snapshot cannot wait for itself: there the child's engine refuses to work.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from clew.storage.sqlite import SqliteEngine

_WAIT = 5.0
_engines: WeakSet[SqliteEngine] = WeakSet()
_held: list[tuple[SqliteEngine, bool, bool]] = []
"""While a fork runs: each engine, whether its lock was got, and whether its child may use it."""
_abandoned: list[Any] = []
"""Connections that a child must neither use nor close."""


def watch_forks(engine: SqliteEngine) -> None:
    """Close the engine's connections before each fork from now on."""
    _engines.add(engine)


def _before() -> None:
    for engine in list(_engines):
        deadline = time.monotonic() + _WAIT
        engine.gate.acquire()
        # Snapshots are short; new ones wait at the gate. This thread's own cannot end before the fork does.
        own = threading.get_ident()
        while any(reader != own for reader in list(engine.reading.values())) and time.monotonic() < deadline:
            time.sleep(0.0005)
        locked = engine.lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        if locked:
            engine.disconnect()
        left = engine.open_connections()
        _abandoned.extend(left)
        _held.append((engine, locked, locked and not left))


def _after_in_parent() -> None:
    _abandoned.clear()
    while _held:
        engine, locked, _ = _held.pop()
        if locked:
            engine.lock.release()
        engine.gate.release()


def _after_in_child() -> None:
    while _held:
        engine, _, usable = _held.pop()
        engine.begin_child(usable=usable)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
