"""Runs, as people hold them: one execution of an agent on a branch of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from clew.errors import Busy, Conflict, RunNotFound
from clew.model import Checkpoint, from_microseconds
from clew.reading import find_row
from clew.state.codec import decode
from clew.state.draft import Draft
from clew.state.values import ExceptionSummary
from clew.storage.ledger import ENDED, HOLDING, Ledger, Move, RunRow, RunStatus, Want, ledger_of
from clew.thread import Thread
from clew.writing import Memory


class Run:
    """One execution of an agent: what `agent.run` returns and `db.runs()` lists.

    `status`, `error`, `requests` and `state` are read when you ask for them.
    """

    def __init__(self, db: Any, row: RunRow) -> None:
        self._db = db
        self._row = row

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.agent} on {self._row.thread_id} {self._row.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._row.agent

    @property
    def key(self) -> str | None:
        return self._row.key

    @property
    def created_at(self) -> datetime:
        return from_microseconds(self._row.created)

    @property
    def thread(self) -> Thread:
        """A handle on the branch that it runs on."""
        thread: Thread = self._db.thread(self._row.thread_id, branch=self._row.branch)
        return thread

    @property
    def status(self) -> RunStatus:
        """running, waiting, sleeping, paused, queued, done, failed, cancelled or dead."""
        return self._read().status

    @property
    def step(self) -> int | None:
        """The checkpoint that it stands on."""
        return self._read().step

    @property
    def state(self) -> dict[str, Any]:
        """The state where it stands."""
        step = self.step
        return self.thread.state("head" if step is None else step)

    @property
    def error(self) -> ExceptionSummary | None:
        """What a failed run failed of."""
        stored = self._read().error
        found: ExceptionSummary | None = None if stored is None else decode(stored)
        return found

    @property
    def requests(self) -> list[Any]:
        """Its open requests."""
        return list(self._db.requests(run=self.id))

    def edit(self, update: Mapping[str, Any], *, label: str | None = None) -> Checkpoint:
        """Change the state under a run that waits. It is due then: nodes that had not finished run on the new state.

        What finished is kept. A question that comes out the same stays open; one that changes is withdrawn and asked
        anew, when the run is resumed.
        """
        row = self._read()
        own = self._own(row)
        Thread._check_state(update)
        with own.lease(wait=0):
            row = self._read()
            if row.status not in (*HOLDING, "failed") or row.status == "running":
                raise Conflict(
                    f"run {row.id} is {row.status}; only one that waits, sleeps, is paused or has failed can be edited"
                )
            _, own._memory.base = own._load_head()
            base = own._memory.base
            with own._storage.snapshot() as snapshot:
                at = row.step if row.step is not None else base.step
                packed = None if at is None else find_row(snapshot, own.id, own.branch, at)[1].next
            draft = Draft(base.tree)
            draft.tell_state(dict(update))
            moved = Move(row.id, row.status, (row.status,), delay=0)
            return own._commit(draft, base, "edit", label, None, None, run=row.id, next=packed, changes=[moved])

    def cancel(self) -> None:
        """Cancel it: at once if nobody drives it, else whoever does stops at its next call of Clew."""
        row = self._read()
        if row.status in ENDED:
            raise Conflict(f"run {row.id} is {row.status} already")
        own = self._own(row)
        try:
            with own.lease(wait=0) as lease:
                self._ledger.apply(row.thread_id, [Move(row.id, "cancelled")], lease=lease)
        except Busy:
            self._ledger.apply(row.thread_id, [Want(row.id, "cancel")])

    @property
    def _ledger(self) -> Ledger:
        return ledger_of(self._db._storage)

    def _read(self) -> RunRow:
        row = self._ledger.run(self.id)
        if row is None:
            raise RunNotFound(f"run {self.id!r} is gone, with its thread")
        self._row = row
        return row

    def _own(self, row: RunRow) -> Thread:
        own: Thread = self._db._thread_with_memory(row.thread_id, row.branch, Memory())
        return own
