"""The ledger: what stands under the runtime. Runs, effects, requests, waits and notices of one tenant; the port.

Promises, which the contract tests hold against each backend (docs/design/runtime.md tells why):

1. A run that holds a branch (`HOLDING`) is the only one that does, by a unique index. One key is one run.
2. Entries are written together, or not at all: with the checkpoint that they ride on, or in a transaction of their own.
   A commit that was a lost reply (`replayed`) has written them before, and writes none again.
3. With a lease, whatever is written is fenced in the transaction that writes it.
4. A claim is durable before it is told. Of two claims of a key one is `mine`; the other sees its row.
5. A claim that nobody alive stands behind is `unknown` to whoever looks next. It is claimed again only by name of its
   token (`again`). A result is recorded by the token of its claim, however late; a run that waits to hear of it is due.
6. A request is decided once: by answers of as many different people as it needs, by its expiry, or by being withdrawn.
   An answer is bound to the digest of what was asked. One that does not count changes nothing.
7. What expires does so by the database's clock, at that moment, for every reader: whether or not anybody has noted it.
8. A run that waits is due from the moment on that what it waits for has happened; no wake-up is lost.
9. A signal is taken by one wait, once.
10. A notice is written with its request. It goes when somebody has told it, or when the request is closed.
11. No checkpoint goes that an open request or an unfinished run stands on. A thread's rows go with the thread.
12. Rows read in pages; nothing is held between two of them. Values whose checksum fails are `Corrupt`.
13. What is done within `transact`, and that it was done, is one commit, or nothing of it is.

Values (`bytes`) are the codec's, made and read by the layers above. Durations and times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from clew.storage.queue import Beside, Enter, IfBusy, Queue, Release, Rename, Rewind, TakeIn

if TYPE_CHECKING:
    from clew.storage.port import Lease, Storage

RunStatus = Literal["queued", "running", "waiting", "sleeping", "paused", "done", "failed", "cancelled", "dead"]
HOLDING: tuple[RunStatus, ...] = ("running", "waiting", "sleeping", "paused")
"""A run in one of these has its branch. Queued ones stand in line for it."""
ENDED: tuple[RunStatus, ...] = ("done", "failed", "cancelled", "dead")

EffectState = Literal["claimed", "done", "failed", "unknown", "compensated"]
RequestStatus = Literal["open", "answered", "expired", "withdrawn"]


# -- runs


class NewRun(NamedTuple):
    """A run to be. `input` is for one that is queued and has no checkpoint yet.

    A queued one is due after `delay`, or at `at`. While its branch is held, `if_busy` decides. `grace` is how long it
    is left
    to whoever admits it, once it is its turn; runs of a `group` share a limit.
    """

    id: str
    branch: str
    agent: str
    status: Literal["queued", "running"] = "running"
    key: str | None = None
    input: bytes | None = None
    context: bytes | None = None
    parent: str | None = None
    parent_step: int | None = None
    priority: int = 0
    delay: int = 0
    trace: str | None = None
    at: int | None = None
    group: str | None = None
    grace: int = 0
    if_busy: IfBusy = "enqueue"


class RunRow(NamedTuple):
    """A run as stored. `wake` is when it is due; `epoch` is that of the lease it last ran under.

    `failures` and `crashes` are counted since its last checkpoint.
    """

    id: str
    thread_id: str
    branch: str
    agent: str
    status: RunStatus
    key: str | None
    input_step: int | None
    step: int | None
    parent: str | None
    parent_step: int | None
    priority: int
    attempts: int
    crashes: int
    wanted: str | None
    wake: int | None
    epoch: int
    created: int
    updated: int
    input: bytes | None
    context: bytes | None
    error: bytes | None
    trace: str | None
    group: str | None
    failures: int
    stood: int | None
    """The step that its branch stood on when it was last claimed. None: on nothing (or it never was)."""

    @classmethod
    def of(cls, new: NewRun, thread_id: str, **known: Any) -> RunRow:
        """The row of a run that has just been admitted or begun."""
        given = {name: getattr(new, name) for name in cls._fields if name in NewRun._fields}
        return cls(**{**_NEW, **given, "thread_id": thread_id, **known})


_NEW: dict[str, Any] = dict.fromkeys(RunRow._fields) | dict.fromkeys(
    ("attempts", "crashes", "failures", "epoch", "created", "updated"), 0
)


class Counts(NamedTuple):
    """How many there are: runs by status (but for done and cancelled ones), runs that are due, open requests."""

    runs: dict[RunStatus, int]
    due: int
    requests: int


# -- effects


class NewEffect(NamedTuple):
    """A claim to be made: before the call, so that the intent is durable. `step` is where its node began.

    `args` is a digest; `shown` may hold the arguments themselves, for people. `again` names the token of an earlier
    claim whose outcome somebody has looked at: only that lets an unknown one be claimed again.
    """

    key: str
    name: str
    args: bytes
    token: str
    run: str | None = None
    activation: str | None = None
    step: int | None = None
    shown: bytes | None = None
    again: str | None = None


class EffectRow(NamedTuple):
    """One claim of a key; `attempt` counts them from 1. `value` is its result, or what is known of its failure."""

    key: str
    attempt: int
    name: str
    args: bytes
    state: EffectState
    token: str
    run: str | None
    activation: str | None
    branch: str
    step: int | None
    epoch: int
    created: int
    updated: int
    shown: bytes | None
    value: bytes | None


class Claimed(NamedTuple):
    """What a claim came to. Not `mine`: the row is the key's newest claim; one that is `claimed` is under way."""

    row: EffectRow
    mine: bool


# -- requests


class NewRequest(NamedTuple):
    """A question. It is known by (activation, ask); `digest` is of all that a person is shown and asked.

    Opened again with the digest it has, it is the same request; with another one, the open one is withdrawn and this is
    a new request. `ttl` counts from now by the database's clock. `step` None: that of the checkpoint it rides on.
    """

    activation: str
    ask: str
    digest: bytes
    question: bytes
    schema: bytes | None = None
    branch: str = "main"
    run: str | None = None
    step: int | None = None
    assignee: str | None = None
    ttl: int | None = None
    default: bytes | None = None
    approvals: int = 1


class RequestRow(NamedTuple):
    """A request as it stands at this moment: one that has run out is `expired`, and its `value` is the default."""

    number: int
    thread_id: str
    branch: str
    run: str | None
    step: int | None
    activation: str
    ask: str
    digest: bytes
    assignee: str | None
    approvals: int
    answers: int
    status: RequestStatus
    created: int
    expires: int | None
    decided: int | None
    question: bytes
    schema: bytes | None
    default: bytes | None
    value: bytes | None


class NewAnswer(NamedTuple):
    """Somebody's answer. `final` decides at once, however many approvals are needed: a refusal."""

    by: str
    value: bytes
    digest: bytes
    reason: str | None = None
    final: bool = False


class AnswerRow(NamedTuple):
    """Who answered what, when and why. Never changed."""

    by: str
    value: bytes
    reason: str | None
    created: int


# -- entries: what rides on a commit, or is written alone


class Start(NamedTuple):
    """Begin a run. Riding on its input's checkpoint, that is its `input_step`. `RunExists` when its key has a run."""

    run: NewRun


class Move(NamedTuple):
    """Give a run another status, if it has one of `was` (() : any that is not an end); else `Conflict`.

    To `running`: it is attempted again (after a crash of the last attempt, that is counted). Its wake time goes.
    To `waiting`: `requests` are the numbers that it waits for, and its open waits count as well. It is due when any of
    them has been decided or has run out, which may be now.
    To `sleeping` or `queued`: due after `delay`. To an end: its open requests are withdrawn, its waits go.
    Riding on a checkpoint, that becomes its `step`; else `step` says where it stands.
    """

    run: str
    status: RunStatus
    was: tuple[RunStatus, ...] = ()
    delay: int | None = None
    requests: Sequence[int] = ()
    error: bytes | None = None
    step: int | None = None


class Want(NamedTuple):
    """Leave word for whoever runs it ("cancel", "compensate", "pause"), if no stronger one was; None takes it back."""

    run: str
    wanted: str | None


class Ask(NamedTuple):
    """Open a request, with a notice of it."""

    request: NewRequest


class Withdraw(NamedTuple):
    """Withdraw open requests: by number, or all those of a run or an activation. The other ones stay as they are."""

    numbers: Sequence[int] = ()
    run: str | None = None
    activation: str | None = None


class Complete(NamedTuple):
    """What became of a claim, by its token. The first fact stays: done is not undone, but for being compensated."""

    key: str
    token: str
    state: EffectState
    value: bytes | None = None


Entry = Start | Move | Enter | TakeIn | Rewind | Want | Ask | Withdraw | Complete | Beside | Release | Rename


# -- waits


class NewWait(NamedTuple):
    """A wait for a signal (or, without `name`, for time to pass), known by (activation, id)."""

    run: str
    activation: str
    id: str
    name: str | None = None
    ttl: int | None = None


class WaitRow(NamedTuple):
    """`open`, `signalled` with the signal's value, or `over`: its time has run out."""

    state: Literal["open", "signalled", "over"]
    value: bytes | None
    expires: int | None


class Notice(NamedTuple):
    """Somebody has to be told of a request. `token` is the right to say that it was done."""

    number: int
    event: str
    attempts: int
    token: str


class Ledger(Queue, Protocol):
    """The ledger of one tenant. `after` is what the last row of a page says; None begins."""

    def apply(
        self, thread_id: str, entries: Sequence[Entry], *, lease: Lease | None = None, release: bool = False
    ) -> None:
        """Write entries in a transaction of their own. A thread that is new is made for a run that starts.

        `release`: the lease goes back with that.
        """
        ...

    # Runs.

    def run(self, id: str) -> RunRow | None: ...  # noqa: A002 - the field's name
    def run_with_key(self, thread_id: str, agent: str, key: str) -> RunRow | None: ...
    def run_holding(self, thread_id: str, branch: str) -> RunRow | None:
        """The unfinished run of a branch."""
        ...

    def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """Runs, newest first; `after` is the id of the last one read."""
        ...

    def counts(self) -> Counts:
        """How many runs and requests somebody may have to look at."""
        ...

    def due(self, limit: int = 100) -> list[RunRow]:
        """Runs that may go on now: queued, sleeping or waiting, with their time come; the longest due first."""
        ...

    def abandoned(self, limit: int = 100) -> list[RunRow]:
        """Runs that are `running`, but nobody alive holds their branch."""
        ...

    # Effects.

    def claim(self, thread_id: str, branch: str, effect: NewEffect, *, lease: Lease | None) -> Claimed:
        """Claim a key, or see what there is. `EffectConflict` when the key is known with another function or args only.

        Of several claims, the newest with these arguments counts. One that has failed is claimed anew; one whose
        claimer is gone becomes `unknown` here. What was done with these arguments is not claimed `again`.
        """
        ...

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
        """Claim a key, do the work on the transaction's connection, and record its result: one commit, or nothing.

        `mine`: it was done here. The work may be done again when the outcome of its transaction was lost.
        """
        ...

    def complete(self, thread_id: str, complete: Complete) -> bool:
        """Record what became of a claim; False when its token is not known or an earlier fact stands."""
        ...

    def effects(
        self,
        thread_id: str,
        *,
        key: str | None = None,
        name: str | None = None,
        after: tuple[str, int] | None = None,
        limit: int = 100,
    ) -> list[EffectRow]:
        """Claims by (key, attempt)."""
        ...

    # Requests.

    def ask(self, thread_id: str, request: NewRequest, *, lease: Lease | None = None) -> RequestRow:
        """Open a request at once, or see the one that was asked so before (whatever has become of it)."""
        ...

    def asked(self, thread_id: str, activation: str, ask: str) -> RequestRow | None:
        """The newest request that is known by these."""
        ...

    def request(self, number: int) -> RequestRow | None: ...
    def requests(
        self,
        *,
        status: RequestStatus | None = None,
        thread_id: str | None = None,
        run: str | None = None,
        assignee: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[RequestRow]:
        """Requests by number; open ones first come first served, so `after` is the number of the last one read."""
        ...

    def answers(self, number: int) -> list[AnswerRow]: ...
    def answer(self, number: int, answer: NewAnswer) -> RequestRow:
        """Record an answer and what it decides; a run that waits for it is due.

        Refused with `RequestAnswered`, `RequestExpired`, `RequestWithdrawn`, `RequestChanged` (another digest) or
        `RequestNotFound`.
        """
        ...

    def expire(self, limit: int = 100) -> int:
        """Note down that requests have run out; returns how many. Nothing depends on it: readers know."""
        ...

    # Signals and waits.

    def signal(self, name: str, value: bytes, *, key: str | None = None) -> bool:
        """Leave a signal; False when one with this name and key was left before."""
        ...

    def wait(self, thread_id: str, wait: NewWait, *, lease: Lease | None = None) -> WaitRow:
        """Begin a wait, or look at it again: takes the oldest signal of that name, if there is one."""
        ...

    # Notices.

    def next_notice(self, *, hold: int) -> Notice | None:
        """The longest due notice, held for so long: whoever took it is expected to have told it by then."""
        ...

    def told(self, notice: Notice) -> None:
        """It was told; the notice goes."""
        ...

    def not_told(self, notice: Notice, *, delay: int) -> None:
        """It was not; it is due again after a while."""
        ...


def ledger_of(storage: Storage) -> Ledger:
    """The ledger beside a tenant's threads."""
    from clew.storage.ledger_relational import RelationalLedger
    from clew.storage.relational import Relational

    rows = storage if isinstance(storage, Relational) else storage._rows  # type: ignore[attr-defined]  # blobs as files
    assert isinstance(rows, Relational)  # noqa: S101 - every backend is
    return RelationalLedger(rows)
