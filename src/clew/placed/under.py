"""Writing under a run: who drives a framework's graph holds the lease of its thread; what the graph places is his."""

from __future__ import annotations

from collections.abc import Sequence

from clew.model import Checkpoint
from clew.storage.ledger import Entry
from clew.storage.port import Lease
from clew.storage.queue import TakeIn
from clew.writing import EMPTY_BASE, Writing


class Under:
    """A run that drives a graph on a thread. `entries` ride on the first checkpoint that is placed in the root.

    Whatever is placed or recorded on the thread is refused (`Fenced`) once the lease has passed on. Who places it is
    given this by name: the framework calls from threads of its own, which no context variable reaches.
    """

    def __init__(self, run: str, lease: Lease, entries: Sequence[Entry] = ()) -> None:
        self.run = run
        self.lease = lease
        self.entries = tuple(entries)
        self._beside: tuple[Entry, ...] = ()

    def take_in(self, runs: Sequence[str]) -> None:
        """The next records are the inputs of these queued runs, which are done with that; they replace earlier ones."""
        self._beside = (TakeIn(self.run, tuple(runs)),)

    @property
    def takes_in(self) -> bool:
        """Whether the next records are inputs."""
        return bool(self._beside)

    def beside(self) -> tuple[Entry, ...]:
        """Entries for the records that are about to be written."""
        found, self._beside = self._beside, ()
        return found


def stand_on(thread: Writing, head: Checkpoint | None) -> int | None:
    """Let a handle know where its branch stands, without its state."""
    step = None if head is None else head.step
    thread._memory.base = EMPTY_BASE._replace(step=step, checkpoint=head)
    return step
