"""Writing entries of the ledger within a transaction that has locked their thread: a commit's, or one of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clew.errors import Busy, Conflict, RunExists, RunNotFound
from clew.storage import lines
from clew.storage.ledger import (
    ENDED,
    HOLDING,
    Ask,
    Complete,
    EffectState,
    Entry,
    Move,
    NewRequest,
    NewRun,
    RequestRow,
    Start,
    Want,
    Withdraw,
)
from clew.storage.ledger_rows import Seal, effect_place, request_place, run_place, stamped
from clew.storage.queue import Beside, Enter, Release, Rename, Rewind, TakeIn
from clew.storage.wanted import ROLL_BACK, STRENGTH, UNDO

if TYPE_CHECKING:
    from clew.storage.relational import Run

_BEFORE: dict[EffectState, tuple[EffectState, ...]] = {
    "done": ("claimed", "unknown", "failed"),
    "failed": ("claimed", "unknown"),
    "unknown": ("claimed",),
    "compensated": ("done",),
}
"""What a claim may have been before it became this. A fact is not undone, but a late one is believed."""


def write_entries(
    run: Run,
    tenant: int,
    thread: int,
    thread_id: str,
    entries: Sequence[Entry],
    *,
    step: int | None = None,
    epoch: int | None = None,
    connection: Any = None,
) -> None:
    """Write all of them. `step` is that of the checkpoint they ride on, `epoch` that of the lease they are under."""
    writer = Writer(run, tenant, thread, thread_id, step, epoch, connection)
    for entry in entries:
        writer.write(entry)


class Writer:
    """Writes the entries of one thread."""

    def __init__(
        self,
        run: Run,
        tenant: int,
        thread: int,
        thread_id: str,
        step: int | None = None,
        epoch: int | None = None,
        connection: Any = None,
    ) -> None:
        self.query = stamped(run)
        self._seal = Seal(tenant)
        self.thread = thread
        self.thread_id = thread_id
        self._step = step
        self._epoch = epoch
        self._connection = connection

    def write(self, entry: Entry) -> None:
        match entry:
            case Start(run):
                self._start(run)
            case Move():
                self.move(entry)
            case Enter():
                if not self.query("enter_input", thread=self.thread, step=self._step, **entry._asdict()):
                    raise self._no_run(entry.run)
            case TakeIn(run, taken):
                for one in taken:
                    self.move(Move(one, "done", ("queued",)))
                self.query("taken_in", thread=self.thread, id=run)
            case Rewind():
                lines.rewind(self, entry.branch, entry.step, entry.old_tip)
            case Want():
                self._want(entry)
            case Ask(request):
                self.ask(request)
            case Withdraw(numbers, of_run, activation):
                self._withdraw(numbers, of_run, activation)
            case Complete():
                self.complete(entry)
            case Beside() | Release() | Rename():
                self._write_other(entry)

    def _write_other(self, entry: Beside | Release | Rename) -> None:
        match entry:
            case Beside(act):
                act(self._connection)
            case Release(lease, owner):
                self.query("release_ref", thread=self.thread, name=lease.branch, epoch=lease.epoch, owner=owner)
            case Rename(run, agent):
                self._rename(run, agent)

    # -- runs

    def _start(self, new: NewRun) -> None:
        if new.key is not None:
            self._refuse_key(new.agent, new.key, new.id)
        if self.query("run", id=new.id):
            return  # the same entry again: an answer was lost
        running = new.status == "running"
        if running:
            lines.refuse(self, new.branch)
        standing = lines.Standing(None, None, None) if running else lines.admit(self, new)
        values = {**new._asdict(), **standing._asdict()}
        del values["if_busy"]
        place = run_place(self.thread_id, new.id)
        values |= {"input": self._seal.close(place, new.input), "context": self._seal.close(place, new.context)}
        self.query(
            "start_run",
            **values,
            thread=self.thread,
            step=self._step,
            attempts=int(running),
            epoch=self._epoch or 0,
        )

    def _rename(self, run: str, agent: str) -> None:
        found = self.query("run", id=run)
        if not found:
            raise self._no_run(run)
        key = found[0][5]
        if key is not None:
            self._refuse_key(agent, key, run)
        self.query("rename_run", thread=self.thread, id=run, agent=agent)

    def _refuse_key(self, agent: str, key: str, run: str) -> None:
        known = self.query("run_with_key", thread_id=self.thread_id, agent=agent, key=key)
        if known and known[0][0] != run:
            raise RunExists(
                f"agent {agent!r} has a run with the key {key!r} on thread {self.thread_id!r} already",
                run=known[0][0],
            )

    def _refuse_held(self, branch: str) -> None:
        held = self.query("run_holding", thread_id=self.thread_id, branch=branch)
        if held:
            run, status = held[0][0], held[0][4]
            raise Busy(
                f"branch {branch!r} of thread {self.thread_id!r} belongs to run {run}, which is {status}",
                owner=run,
                hint="resume or cancel that run first, or work on a fork",
            )

    def _want(self, want: Want) -> None:
        had = self.query("run_locked", thread=self.thread, id=want.run)
        if want.wanted is not None and had and STRENGTH[want.wanted] < STRENGTH.get(had[0][2], 0):
            return
        if not self.query("want_of_run", thread=self.thread, id=want.run, wanted=want.wanted):
            raise self._not_as_wanted(want.run)

    def move(self, move: Move, *, calls: bool = True) -> None:
        found = self.query("run_locked", thread=self.thread, id=move.run)
        if not found:
            raise self._no_run(move.run)
        status, epoch, wanted, branch, up, group = found[0]
        if status not in (move.was or [*HOLDING, "queued"]):
            raise Conflict(
                f"run {move.run} of thread {self.thread_id!r} is {status}, so it cannot become {move.status}",
                hint="read the run again",
            )
        if move.status in HOLDING and status not in HOLDING:
            self._refuse_held(branch)
        at = epoch if self._epoch is None else self._epoch
        again = move.status == "running" and (status != "running" or at != epoch)
        if (move.status == "paused" and wanted not in (UNDO, ROLL_BACK)) or move.status in ENDED:
            wanted = None
        wake, delay = self._wake(move, wanted)
        self.query(
            "move_run",
            id=move.run,
            status=move.status,
            step=move.step if self._step is None else self._step,
            error=self._seal.close(run_place(self.thread_id, move.run), move.error),
            wanted=wanted,
            attempted=int(again),
            crashed=int(again and status == "running"),
            failed=int(move.error is not None),
            epoch=at,
            wake=wake,
            delay=delay,
        )
        if move.status in ENDED:
            self._withdraw((), move.run, None)
            if move.status in ("done", "cancelled"):  # a failed one may be tried again, and then goes on waiting
                self.query("end_waits", run=move.run)
            if calls and (status != "queued" or up is not None or group is not None):
                lines.leave(self, branch, group)
        elif group is not None and status == "running" and move.status != "running":
            self.query("call_group", group=group)

    def _wake(self, move: Move, wanted: str | None) -> tuple[int | None, int | None]:
        """When the run is due: at a time, or after a delay."""
        if move.status == "queued":
            return None, move.delay or 0
        if move.status not in ("waiting", "sleeping"):
            return None, None
        if wanted not in (None, UNDO, ROLL_BACK):
            return None, 0
        asked = self.query("waited_for", id=move.run, numbers=list(move.requests))[0]
        if asked[0] or asked[1]:
            return None, 0
        if move.delay is not None:
            return None, move.delay
        return min((time for time in asked[2:] if time is not None), default=None), None

    def _no_run(self, run: str) -> RunNotFound:
        return RunNotFound(f"there is no run {run!r} on thread {self.thread_id!r}")

    def _not_as_wanted(self, run: str) -> Conflict | RunNotFound:
        if not self.query("run_locked", thread=self.thread, id=run):
            return self._no_run(run)
        return Conflict(f"run {run} of thread {self.thread_id!r} has ended", hint="there is nothing left to stop")

    # -- requests

    def ask(self, new: NewRequest) -> RequestRow:
        """The request that is known by this activation and id, opened if there is none that still counts."""
        known = self.asked(new.activation, new.ask)
        if known is not None and known.status != "withdrawn":
            if known.digest == new.digest:
                return known
            if known.status == "open":
                self._withdraw([known.number], None, None)
        number = self.query("next_number", name="request")[0][0]
        place = request_place(self.thread_id, number)
        values = new._asdict()
        del values["default"]
        values |= {
            "step": self._step if new.step is None else new.step,
            "question": self._seal.close(place, new.question),
            "schema": self._seal.close(place, new.schema),
            "fallback": self._seal.close(place, new.default),
        }
        self.query("open_request", **values, number=number, thread=self.thread)
        self.query("write_notice", number=number, event="request")
        opened = self.asked(new.activation, new.ask)
        assert opened is not None  # noqa: S101
        return opened

    def asked(self, activation: str, ask: str) -> RequestRow | None:
        found = self.query("request_asked", thread=self.thread, activation=activation, ask=ask)
        return self._seal.request(found[0]) if found else None

    def _withdraw(self, numbers: Sequence[int], run: str | None, activation: str | None) -> None:
        values = {"numbers": list(numbers), "run": run, "activation": activation}
        gone = [row[0] for row in self.query("withdraw_requests", thread=self.thread, **values)]
        if gone:
            self.query("drop_notices", numbers=gone)

    # -- effects

    def complete(self, complete: Complete) -> bool:
        """Whether the fact stands now."""
        known = {"thread": self.thread, "key": complete.key, "token": complete.token}
        found = self.query("effect_with_token", **known)
        if not found:
            return False
        row = self._seal.effect(found[0], self.thread_id)
        if row.state == complete.state:
            return row.value == complete.value or row.state == "unknown"
        if row.state not in _BEFORE.get(complete.state, ()):
            return False
        value: Any = row.value if complete.state == "compensated" and complete.value is None else complete.value
        place = effect_place(self.thread_id, complete.token)
        self.query("complete_effect", **known, state=complete.state, value=self._seal.close(place, value))
        if row.state == "unknown" and row.run is not None:
            self.query("wake_run", id=row.run)  # it may wait for somebody to tell just this
        return True
