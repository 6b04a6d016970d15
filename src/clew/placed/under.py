"""Writing under a run: who drives a framework's graph holds the lease of its thread, and what the graph places is his.

The framework calls its checkpointer from threads and tasks of its own, so the run is found by a context variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from clew.storage.ledger import Entry
from clew.storage.port import Lease


class Under:
    """A run that drives a graph on a thread. `entries` ride on the first checkpoint that is placed in the root.

    Whatever is placed or recorded on the thread is refused (`Fenced`) once the lease has passed on.
    """

    def __init__(self, run: str, lease: Lease, entries: Sequence[Entry] = ()) -> None:
        self.run = run
        self.lease = lease
        self.entries = tuple(entries)


under: ContextVar[Under | None] = ContextVar("clew_under", default=None)


def under_of(thread_id: str) -> Under | None:
    """The run that this code works for, if it is one on this thread."""
    found = under.get()
    return found if found is not None and found.lease.thread_id == thread_id else None
