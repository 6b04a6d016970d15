"""The ledger on SQLite and PostgreSQL. The promises stand in ledger.py."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from clew.errors import (
    EffectConflict,
    RequestAnswered,
    RequestChanged,
    RequestClosed,
    RequestExpired,
    RequestNotFound,
    RequestWithdrawn,
    RunNotFound,
)
from clew.storage.claiming import Claiming
from clew.storage.ledger import (
    AnswerRow,
    Claimed,
    Complete,
    Counts,
    EffectRow,
    Entry,
    NewAnswer,
    NewEffect,
    NewRequest,
    NewRun,
    NewWait,
    Notice,
    RequestRow,
    RequestStatus,
    RunRow,
    RunStatus,
    Start,
    WaitRow,
)
from clew.storage.ledger_entries import Writer
from clew.storage.ledger_rows import Seal, answer_place, effect_place, request_place, signal_place, stamped
from clew.storage.lending import lent
from clew.storage.port import Lease, Storage
from clew.storage.queue import NO_LIMITS, Beside, Limits, Look, Release
from clew.storage.refusals import no_thread
from clew.storage.relational import Relational, Run

_PAGE = 100
_OWNER = slice(2, 10)
_NOTED_BY_AN_ANSWER = 8
"""How many expired requests an answer or a question notes down besides."""
_CLOSED: dict[RequestStatus, tuple[type[RequestClosed], str]] = {
    "answered": (RequestAnswered, "has been answered already"),
    "expired": (RequestExpired, "has expired"),
    "withdrawn": (RequestWithdrawn, "was withdrawn: whoever asked does not need the answer any more"),
}


class RelationalLedger:
    """The ledger of one tenant."""

    def __init__(self, storage: Relational) -> None:
        self._storage = storage
        self._tenant = storage._tenant
        self._seal = Seal(storage._tenant)

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._storage._reading() as run:
            yield stamped(run)

    @contextmanager
    def _writing(self, thread_id: str | None) -> Iterator[Run]:
        with self._storage._writing(thread_id) as run:
            yield stamped(run)

    def _fence(self, query: Run, lease: Lease | None) -> None:
        """Refuse whoever has lost the lease."""
        if lease is not None:
            self._storage._branch(query, lease.thread_id, lease.branch, lease.epoch)

    @staticmethod
    def _thread(query: Run, thread_id: str) -> int:
        found = query("thread", thread_id=thread_id)
        if not found:
            raise no_thread(thread_id)
        thread: int = found[0][0]
        return thread

    def apply(
        self, thread_id: str, entries: Sequence[Entry], *, lease: Lease | None = None, release: bool = False
    ) -> None:
        branch, epoch = ("main", None) if lease is None else (lease.branch, lease.epoch)
        if lease is not None and release:
            entries = [*entries, Release(lease, self._storage._my_owner())]
        cast("Storage", self._storage).apply(thread_id, entries, branch=branch, epoch=epoch)
        if lease is not None and release:
            self._storage._engine.hold(self._tenant, lease, held=False)
        self._storage._engine.ring()

    # -- runs

    def run(self, id: str) -> RunRow | None:  # noqa: A002 - the field's name
        return self._one_run("run", id=id)

    def run_with_key(self, thread_id: str, agent: str, key: str) -> RunRow | None:
        return self._one_run("run_with_key", thread_id=thread_id, agent=agent, key=key)

    def run_holding(self, thread_id: str, branch: str) -> RunRow | None:
        return self._one_run("run_holding", thread_id=thread_id, branch=branch)

    def _one_run(self, name: str, **values: Any) -> RunRow | None:
        with self._reading() as query:
            found = query(name, **values)
        return self._seal.run(found[0]) if found else None

    def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        after: str | None = None,
        limit: int = _PAGE,
    ) -> list[RunRow]:
        values: dict[str, Any] = {"status": status, "after": after, "limit": limit, "thread_id": thread_id}
        name = "runs_of_thread" if thread_id is not None else "runs" if status is None else "runs_with_status"
        with self._reading() as query:
            found = query(name, **values)
        return [self._seal.run(row) for row in found]

    def counts(self) -> Counts:
        with self._reading() as query:
            return Counts(dict(query("count_runs")), query("count_due")[0][0], query("count_requests")[0][0])

    def due(self, limit: int = _PAGE) -> list[RunRow]:
        with self._reading() as query:
            found = query("runs_due", limit=limit)
        return [self._seal.run(row) for row in found]

    def abandoned(self, limit: int = _PAGE) -> list[RunRow]:
        gone: list[RunRow] = []
        after = -1
        while len(gone) < limit:
            with self._reading() as query:
                page = query("runs_running", after=after, limit=_PAGE)
            for row in page:
                run = self._seal.run(row[_OWNER.stop :])
                lease = Lease(run.thread_id, run.branch, row[1] or 0)
                if self._storage._live(row[_OWNER], lease) is None:
                    gone.append(run)
            if len(page) < _PAGE:
                break
            after = page[-1][0]
        return gone[:limit]

    # The queue.

    def admit(self, thread_id: str, run: NewRun, beside: Sequence[Beside] = ()) -> RunRow:
        admitted = self._storage._admit_at_once(thread_id, run, beside)
        if admitted is not None:
            self._storage._engine.ring()
            return admitted
        self.apply(thread_id, [Start(run), *beside])
        row = self.run(run.id)
        if row is None:
            raise RunNotFound(f"run {run.id!r} is gone, with its thread")
        return row

    @property
    def _claiming(self) -> Claiming:
        return Claiming(self._storage, self._seal)

    def claim_runs(
        self, agents: Sequence[str], *, count: int = 1, limits: Limits = NO_LIMITS, sweep: bool = False
    ) -> list[RunRow]:
        return self._claiming.claim(agents, count, limits, sweep=sweep)

    def claim_run(self, id: str, *, forced: bool = True) -> RunRow | None:  # noqa: A002
        return self._claiming.claim_one(id, forced=forced)

    def is_due(self, id: str) -> bool:  # noqa: A002
        with self._reading() as query:
            return bool(query("is_due", id=id))

    def look(self, agents: Sequence[str]) -> Look:
        return self._claiming.look(agents)

    def wanted(self, runs: Sequence[str]) -> list[tuple[str, str]]:
        with self._reading() as query:
            return [(row[0], row[1]) for row in query("runs_wanted", runs=list(runs))]

    def to_take_in(self, run: str) -> list[RunRow]:
        with self._reading() as query:
            return [self._seal.run(row) for row in query("runs_to_take_in", id=run)]

    # -- effects

    def claim(self, thread_id: str, branch: str, effect: NewEffect, *, lease: Lease | None) -> Claimed:
        with self._writing(thread_id) as query:
            thread = self._thread(query, thread_id)
            self._fence(query, lease)
            return self._claimed(query, thread, thread_id, branch, effect, lease)

    def transact(
        self,
        thread_id: str,
        branch: str,
        effect: NewEffect,
        work: Callable[[Any], bytes],
        *,
        seconds: float,
        lease: Lease | None,
    ) -> Claimed:
        found: list[Claimed] = []

        def act(connection: Any) -> None:
            query = stamped(self._storage._run(connection))  # type: ignore[attr-defined]
            claimed = self._claimed(query, self._thread(query, thread_id), thread_id, branch, effect, lease)
            if claimed.mine:
                try:
                    with lent(self._storage, connection, seconds) as own:
                        value = work(own)
                except Exception as error:
                    raise _Raised(error) from error
                done = Complete(effect.key, effect.token, "done", value)
                Writer(query, self._tenant, self._thread(query, thread_id), thread_id).complete(done)
                claimed = Claimed(claimed.row._replace(state="done", value=value), mine=True)
            found[:] = [claimed]

        try:
            self.apply(thread_id, [Beside(act)], lease=lease)
        except _Raised as raised:
            raise raised.error from raised.error.__cause__
        return found[0]

    def _claimed(
        self, query: Run, thread: int, thread_id: str, branch: str, effect: NewEffect, lease: Lease | None
    ) -> Claimed:
        rows = [self._seal.effect(row, thread_id) for row in query("claims", thread=thread, key=effect.key)]
        # Paths of a thread may have claimed a key with arguments of their own: each sees its own claim.
        same = next((row for row in rows if (row.name, row.args) == (effect.name, effect.args)), None)
        known = same or (rows[0] if rows else None)
        if known is not None:
            known = self._seen(query, thread, thread_id, known)
            if known.token == effect.token:  # asked again: the answer to the first time was lost
                return Claimed(known, known.state == "claimed")
            repeats = same is not None and known.state == "done"
            if effect.again != known.token or known.state == "claimed" or repeats:
                _same_call(known, effect, thread_id)
                if known.state != "failed":
                    return Claimed(known, mine=False)
        values = effect._asdict()
        del values["again"]
        values["shown"] = self._seal.close(effect_place(thread_id, effect.token), effect.shown)
        values |= {"attempt": rows[0].attempt + 1 if rows else 1, "epoch": lease.epoch if lease else 0}
        claimed = query("claim_effect", **values, thread=thread, branch=branch)
        return Claimed(self._seal.effect(claimed[0], thread_id), mine=True)

    def _seen(self, query: Run, thread: int, thread_id: str, row: EffectRow) -> EffectRow:
        """The claim as somebody else sees it: nobody knows what became of one whose lease is gone."""
        if row.state != "claimed":
            return row
        ref = query("ref", thread=thread, name=row.branch)
        if ref and row.epoch and ref[0][3] == row.epoch:
            lease = Lease(thread_id, row.branch, row.epoch)
            if self._storage._live(ref[0][4:], lease) is not None:
                return row
        known = {"thread": thread, "key": row.key, "token": row.token}
        now = self._seal.effect(query("effect_with_token", **known)[0], thread_id)
        if now.state != "claimed":
            return now  # its result came this moment: results wait for nobody
        query("complete_effect", **known, state="unknown", value=None)
        return row._replace(state="unknown")

    def complete(self, thread_id: str, complete: Complete) -> bool:
        with self._writing(None) as query:
            found = query("thread", thread_id=thread_id)
            return bool(found) and Writer(query, self._tenant, found[0][0], thread_id).complete(complete)

    def effects(
        self,
        thread_id: str,
        *,
        key: str | None = None,
        name: str | None = None,
        after: tuple[str, int] | None = None,
        limit: int = _PAGE,
    ) -> list[EffectRow]:
        at, attempt = after or ("", 0)
        values: dict[str, Any] = {"key": at, "attempt": attempt, "limit": limit, "thread_id": thread_id}
        with self._reading() as query:
            if key is not None:
                found = query("effects_with_key", **values, wanted=key)
            elif name is not None:
                found = query("effects_with_name", **values, name=name)
            else:
                found = query("effects", **values)
        return [self._seal.effect(row, thread_id) for row in found]

    # -- requests

    def ask(self, thread_id: str, request: NewRequest, *, lease: Lease | None = None) -> RequestRow:
        with self._writing(thread_id) as query:
            thread = self._thread(query, thread_id)
            self._fence(query, lease)
            return Writer(query, self._tenant, thread, thread_id).ask(request)

    def asked(self, thread_id: str, activation: str, ask: str) -> RequestRow | None:
        with self._reading() as query:
            found = query("thread", thread_id=thread_id)
            return Writer(query, self._tenant, found[0][0], thread_id).asked(activation, ask) if found else None

    def request(self, number: int) -> RequestRow | None:
        with self._reading() as query:
            return self._request(query, number)

    def _request(self, query: Run, number: int) -> RequestRow | None:
        found = query("request", number=number)
        return self._seal.request(found[0]) if found else None

    def requests(
        self,
        *,
        status: RequestStatus | None = None,
        thread_id: str | None = None,
        run: str | None = None,
        assignee: str | None = None,
        after: int | None = None,
        limit: int = _PAGE,
    ) -> list[RequestRow]:
        values: dict[str, Any] = {"status": status, "thread_id": thread_id, "run": run, "assignee": assignee}
        if thread_id is not None:
            name = "requests_of_thread"
        elif assignee is not None:
            name = "requests_open_of_assignee" if status == "open" else "requests_of_assignee"
        else:
            by_status = {None: "requests", "open": "requests_open", "expired": "requests_expired"}
            name = by_status.get(status, "requests_closed")
        with self._reading() as query:
            found = query(name, **values, after=after or 0, limit=limit)
        return [self._seal.request(row) for row in found]

    def answers(self, number: int) -> list[AnswerRow]:
        with self._reading() as query:
            return self._answers(query, number)

    def _answers(self, query: Run, number: int) -> list[AnswerRow]:
        return [self._seal.answer(row, number) for row in query("answers", number=number)]

    def answer(self, number: int, answer: NewAnswer) -> RequestRow:
        known = self.request(number)
        if known is None:
            raise _no_request(number)
        with self._writing(known.thread_id) as query:
            asked = self._request(query, number)
            if asked is None:
                raise _no_request(number)
            given = self._answers(query, number)
            _check_open(asked, given, answer)
            place = answer_place(number, answer.by, answer.reason)
            stored = self._seal.close(place, answer.value)
            query("record_answer", number=number, person=answer.by, reason=answer.reason, value=stored)
            if not query("count_answer", number=number):
                raise _closed("expired", number, given)  # in this very moment
            equal = 1 + sum(earlier.value == answer.value for earlier in given)
            if answer.final or equal >= asked.approvals:
                self._decide(query, asked, answer.value)
            self._expire(query, _NOTED_BY_AN_ANSWER)
            answered = self._request(query, number)
            assert answered is not None  # noqa: S101
        self._storage._engine.ring()
        return answered

    def _decide(self, query: Run, asked: RequestRow, value: bytes) -> None:
        stored = self._seal.close(request_place(asked.thread_id, asked.number), value)
        run = query("decide_request", number=asked.number, value=stored)[0][0]
        query("drop_notices", numbers=[asked.number])
        if run is not None:
            query("wake_run", id=run)

    def expire(self, limit: int = _PAGE) -> int:
        with self._writing(None) as query:
            return self._expire(query, limit)

    def _expire(self, query: Run, limit: int) -> int:
        gone = [row[0] for row in query("expire_requests", limit=limit)]
        if gone:
            query("drop_notices", numbers=gone)
        return len(gone)

    # -- signals and waits

    def signal(self, name: str, value: bytes, *, key: str | None = None) -> bool:
        with self._writing(None) as query:
            query("lock_signal", name=name)
            if not query("leave_signal", name=name, key=key, value=self._seal.close(signal_place(name), value)):
                return False
            for run in sorted(row[0] for row in query("runs_waiting_for", name=name)):
                query("wake_run", id=run)
        self._storage._engine.ring()
        return True

    def wait(self, thread_id: str, wait: NewWait, *, lease: Lease | None = None) -> WaitRow:
        known = {"run": wait.run, "activation": wait.activation, "id": wait.id}
        with self._writing(thread_id) as query:
            self._thread(query, thread_id)
            self._fence(query, lease)
            if wait.name is not None:
                query("lock_signal", name=wait.name)
            query("begin_wait", **known, name=wait.name, ttl=wait.ttl)
            seq, state, name, expires, over, stored = query("wait", **known)[0]
            if state == "open" and name is not None:
                taken = query("take_signal", name=name, expires=expires)
                if taken:
                    state, (stored, signal) = "signalled", taken[0]
                    query("end_wait", wait=seq, state=state, signal=signal)
            if state == "open" and over:
                state = "over"
                query("end_wait", wait=seq, state=state, signal=None)
        value = self._seal.open(signal_place(name), stored) if name is not None else None
        return WaitRow(state, value, expires)

    # -- notices

    def next_notice(self, *, hold: int) -> Notice | None:
        with self._writing(None) as query:
            found = query("next_notice", hold=hold, token=secrets.token_hex(8))
        return Notice._make(found[0]) if found else None

    def told(self, notice: Notice) -> None:
        with self._writing(None) as query:
            query("notice_told", number=notice.number, event=notice.event, token=notice.token)

    def not_told(self, notice: Notice, *, delay: int) -> None:
        with self._writing(None) as query:
            query("notice_not_told", number=notice.number, event=notice.event, token=notice.token, delay=delay)


class _Raised(Exception):
    """What the user's code has raised: not an error of the database that is to be translated, or tried again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _same_call(newest: EffectRow, effect: NewEffect, thread_id: str) -> None:
    if newest.name != effect.name:
        raise EffectConflict(
            f"the key {effect.key!r} of thread {thread_id!r} belongs to {newest.name!r}, not to {effect.name!r}"
        )
    if newest.args != effect.args:
        raise EffectConflict(
            f"{effect.name!r} was called with the key {effect.key!r} on thread {thread_id!r} before, "
            "with other arguments"
        )


def _no_request(number: int) -> RequestNotFound:
    return RequestNotFound(f"there is no request R-{number}")


def _check_open(asked: RequestRow, given: Sequence[AnswerRow], answer: NewAnswer) -> None:
    if asked.status != "open":
        raise _closed(asked.status, asked.number, given)
    if asked.digest != answer.digest:
        raise RequestChanged(f"R-{asked.number} asks something else than what this answers; nothing was recorded")
    if any(earlier.by == answer.by for earlier in given):
        raise RequestAnswered(
            f"{answer.by} has answered R-{asked.number} already; {asked.answers} of {asked.approvals} have",
            hint="somebody else has to answer it",
        )


def _closed(status: RequestStatus, number: int, given: Sequence[AnswerRow]) -> RequestClosed:
    kind, what = _CLOSED[status]
    who = f", by {', '.join(answer.by for answer in given)}" if status == "answered" and given else ""
    return kind(f"R-{number} {what}{who}")
