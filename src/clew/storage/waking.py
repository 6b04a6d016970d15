"""How a worker hears that there may be something to claim, without asking the database. What it misses costs time only.

A bell is rung by this process when it writes to a queue. In other processes it is heard by what the backend offers: on
SQLite the log file is looked at (its size and time; no query), on PostgreSQL a connection listens.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_GLANCE = 0.025
"""Seconds between two looks at a file."""
_LONGEST_SYNC = 1.0


class Bell:
    """Rung from any thread; one thread waits. This one hears this process alone."""

    hears: bool | None = True
    """Whether it hears other processes; else the database has to be asked now and then. None: not known yet."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, seconds: float) -> bool:
        """Wait until it rings, at most so long; whether it has rung."""
        rung = self._rung.wait(seconds)
        self._rung.clear()
        return rung

    def close(self) -> None:
        """Nobody waits any more."""


class FileBell(Bell):
    """Rings when a SQLite file's log has changed: by this process or by another one."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._log = f"{path}-wal"
        self._seen = self._look()
        self._again = float("inf")
        self._pause = _GLANCE

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._log)  # noqa: PTH116 - forty times a second
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            rung = super().wait(max(0.0, min(_GLANCE, deadline - time.monotonic())))
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._pause, self._again = _GLANCE, time.monotonic() + _GLANCE
                return True
            if time.monotonic() >= self._again:
                # What changed may not have been there to be read yet: it is written before it is synced, and seen by
                # others after that. Or another commit came within the same tick of the file system's clock.
                self._pause *= 2
                self._again = time.monotonic() + self._pause if self._pause < _LONGEST_SYNC else float("inf")
                return True
            if rung or time.monotonic() >= deadline:
                return rung


class ListeningBell(Bell):
    """Rings when somebody else's thread calls `ring`: `listen` runs there, until `closed` is set."""

    hears: bool | None = None

    def __init__(self, listen: Callable[[ListeningBell], Any]) -> None:
        super().__init__()
        self.closed = threading.Event()
        threading.Thread(target=listen, args=(self,), name="clew-listen", daemon=True).start()

    def close(self) -> None:
        self.closed.set()
