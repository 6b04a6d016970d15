"""Requests: what an agent has asked of people. `db.requests()` lists them, `request.answer(…)` decides one."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from clew import references
from clew.asking import (
    check_name,
    decision_of,
    problems,
    read_answer,
    write_answer,
    write_rejection,
    yes_or_no,
)
from clew.errors import BadInput, RequestNotFound, WrongAnswer
from clew.model import Page, from_microseconds
from clew.state.codec import decode
from clew.state.diff import Diff, diff
from clew.state.diff_json import as_json
from clew.state.shape import describe
from clew.state.shape_words import explain
from clew.storage.ledger import AnswerRow, Ledger, NewAnswer, RequestRow, RequestStatus
from clew.storage.port import Storage
from clew.thread import Thread

STATUSES: tuple[RequestStatus, ...] = ("open", "answered", "expired", "withdrawn")
_ID = re.compile(r"[Rr]-([0-9]{1,18})\Z|([0-9]{1,18})\Z")
_MAX_REASON = 4096


class Room(NamedTuple):
    """Where requests are kept: one tenant's ledger, and the threads that it stands beside."""

    storage: Storage
    tenant: str
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Answer:
    """Who answered what, when and why. `rejected`: turned down where the schema has no such answer; no `value` then."""

    by: str
    value: Any
    reason: str | None
    at: datetime
    rejected: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A question to people, as it stood when it was read. It is answered once, and by what it was when it was read.

    `schema` is the JSON Schema of an answer (None: anything), `choices` the answers if these are few. `step` names the
    checkpoint at which it was asked. `default` is what its expiry decides (None: nothing). `approvals` people must give
    the same answer; `answers` have answered so far.
    `value` is what was decided: by them, or on expiry by the default. `rejected` tells that it was turned down where
    the schema has no answer that says so.
    """

    number: int
    thread_id: str
    branch: str
    run: str | None
    step: int | None
    question: Any
    schema: Any
    choices: tuple[Any, ...] | None
    assignee: str | None
    approvals: int
    answers: int
    status: RequestStatus
    created_at: datetime
    expires_at: datetime | None
    default: Any
    decided_at: datetime | None
    value: Any
    rejected: bool
    _digest: bytes = field(repr=False)
    _room: Room = field(repr=False, compare=False)

    def __repr__(self) -> str:
        place = f"{self.thread_id}@{self.step or 'new'}"
        return f"<{type(self).__name__} {self.id} {self.status} {self.question!r:.60} {place}>"

    @property
    def id(self) -> str:
        """`R-12`: what people call it."""
        return f"R-{self.number}"

    def state(self) -> dict[str, Any]:
        """The thread's state at the checkpoint where this was asked; `{}` when there was none yet."""
        return {} if self.step is None else self._thread().state(self.step)

    def changes(self) -> Diff:
        """What the step at which this was asked has changed: from its parent's state to its own."""
        if self.step is None:
            return diff({}, {})
        thread = self._thread()
        checkpoint = thread.checkpoint(self.step)
        return diff({} if checkpoint.parent is None else thread.state(checkpoint.parent), checkpoint.state())

    def check(self, value: Any) -> list[str]:
        """What is wrong with an answer, without giving it: `['approved: true or false expected, not "yes"']`."""
        return [str(problem) for problem in problems(value, self.schema)]

    def explain(self) -> list[str]:
        """What an answer looks like, in lines for people: `['an object', '  approved: true or false']`."""
        return explain(self.schema)

    def answer(self, value: Any, *, by: str, reason: str | None = None) -> Request:
        """Answer it, and get it as it stands then. A value of the type that was asked for will do, or its JSON.

        `WrongAnswer` if it is of another shape: nothing is recorded, and the request is as open as before.
        `RequestAnswered` if it has been answered, or you have answered it before; `RequestExpired`, `RequestWithdrawn`
        and `RequestChanged` likewise.
        """
        return self._give(write_answer(value, self.schema, self.id), by, reason)

    def approve(self, *, by: str, reason: str | None = None) -> Request:
        """Answer yes: True, or `{"approved": true}`. `WrongAnswer` if the question is not one of yes or no."""
        value = yes_or_no(self.schema, yes=True, reason=self._inner(reason))
        if value is ...:
            raise WrongAnswer(f"{self.id} asks for more than yes or no", hint=f"answer it: {self._allowed()}")
        return self._give(write_answer(value, self.schema, self.id), by, reason)

    def reject(self, *, by: str, reason: str | None = None) -> Request:
        """Answer no, which decides at once, however many approvals are needed: False, or `{"approved": false}`.

        Where the schema has no answer that says no, `clew.ask` raises `Rejected` in the agent.
        """
        value = yes_or_no(self.schema, yes=False, reason=self._inner(reason))
        check_name(by, "who answers")
        stored = write_rejection(by, reason) if value is ... else write_answer(value, self.schema, self.id)
        return self._give(stored, by, reason, final=True)

    def audit(self) -> list[Answer]:
        """All answers to it, in the order in which they were given."""
        return [_answer(row) for row in self._room.ledger.answers(self.number)]

    def as_json(self) -> dict[str, Any]:
        """It as plain JSON, with times in ISO 8601."""
        return {
            "id": self.id,
            "thread": self.thread_id,
            "branch": self.branch,
            "run": self.run,
            "step": self.step,
            "question": as_json(self.question),
            "schema": self.schema,
            "choices": None if self.choices is None else list(self.choices),
            "assignee": self.assignee,
            "approvals": self.approvals,
            "answers": self.answers,
            "status": self.status,
            "created_at": self.created_at.isoformat(),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "default": as_json(self.default),
            "decided_at": None if self.decided_at is None else self.decided_at.isoformat(),
            "value": as_json(self.value),
            "rejected": self.rejected,
        }

    def _thread(self) -> Thread:
        return Thread(self._room.storage, self._room.tenant, self.thread_id, self.branch)

    def _allowed(self) -> str:
        first, *entries = self.explain()
        if first == "one of" and self.schema is not None:
            return describe(self.schema, self.schema)
        return first + (f" with {', '.join(entry.strip() for entry in entries)}" if entries else "")

    def _inner(self, reason: str | None) -> str | None:
        """The reason, where it may stand in the answer itself: not where several answers have to be equal."""
        return reason if self.approvals == 1 else None

    def _give(self, stored: bytes, by: str, reason: str | None, *, final: bool = False) -> Request:
        check_name(by, "who answers")
        _check_reason(reason)
        given = NewAnswer(by=by, value=stored, digest=self._digest, reason=reason, final=final)
        return to_request(self._room, self._room.ledger.answer(self.number, given))


def to_request(room: Room, row: RequestRow) -> Request:
    """A row of the ledger as people see it."""
    schema = None if row.schema is None else decode(row.schema)
    decision = decision_of(row)
    return Request(
        row.number,
        row.thread_id,
        row.branch,
        row.run,
        row.step,
        decode(row.question),
        schema,
        _choices(schema),
        row.assignee,
        row.approvals,
        row.answers,
        row.status,
        from_microseconds(row.created),
        None if row.expires is None else from_microseconds(row.expires),
        None if row.default is None else read_answer(row.default).value,
        None if row.decided is None else from_microseconds(row.decided),
        None if decision is None else decision.value,
        decision is not None and decision.rejected,
        row.digest,
        room,
    )


def find_request(room: Room, request: str | int) -> Request:
    """The request of this number, or `R-number`."""
    match = _ID.match(request) if isinstance(request, str) else None
    number = int(match[1] or match[2]) if match else request
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadInput(f"{request!r:.60} names no request", hint="a request is named R-12, or 12")
    row = room.ledger.request(number) if 0 < number < 1 << 62 else None
    if row is None:
        raise RequestNotFound(f"there is no request R-{number}")
    return to_request(room, row)


def list_requests(
    room: Room,
    *,
    status: RequestStatus | None,
    assignee: str | None,
    thread: str | Thread | None,
    run: str | None,
    limit: int,
    cursor: str | None,
) -> Page[Request]:
    """A page of requests by number, the oldest first."""
    if status not in (*STATUSES, None):
        raise BadInput(f"status is one of {', '.join(STATUSES)}, or None for all, not {status!r:.60}")
    limit = references.check_count(limit, "limit", 1)
    thread_id = thread.id if isinstance(thread, Thread) else thread
    if thread_id is None and run is not None:
        found = room.ledger.run(run)  # the requests of a thread are found by an index, those of a run are not
        if found is None:
            return Page([])
        thread_id = found.thread_id
    rows = room.ledger.requests(
        status=status,
        thread_id=None if thread_id is None else references.check_thread_id(thread_id),
        run=run,
        assignee=assignee,
        after=_read_cursor(cursor),
        limit=limit + 1,
    )
    more = len(rows) > limit
    rows = rows[:limit]
    return Page([to_request(room, row) for row in rows], _cursor(rows[-1].number) if more else None)


def check_signal(name: str, key: str | None) -> None:
    """Names and keys of signals are text that people can read."""
    check_name(name, "a signal's name")
    if key is not None:
        check_name(key, "a signal's key")


def _choices(schema: Any) -> tuple[Any, ...] | None:
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "boolean":
        return True, False
    if "enum" in schema:
        return tuple(schema["enum"])
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts and all(isinstance(part, dict) and "const" in part for part in parts):
        return tuple(part["const"] for part in parts)
    return None


def _answer(row: AnswerRow) -> Answer:
    given = read_answer(row.value)
    return Answer(row.by, given.value, row.reason, from_microseconds(row.created), given.rejected)


def _check_reason(reason: Any) -> None:
    if reason is None:
        return
    if not isinstance(reason, str) or not all(one.isprintable() or one in "\n\t" for one in reason):
        raise BadInput(f"a reason is printable text, not {reason!r:.60}")
    if len(reason.encode()) > _MAX_REASON:
        raise BadInput(f"a reason has at most {_MAX_REASON} bytes")


def _cursor(number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps(["requests", number]).encode()).decode()


def _read_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    try:
        kind, number = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"this cursor is not one of ours: {cursor!r:.40}", hint="use page.cursor as it is") from error
    if kind != "requests" or type(number) is not int or not 0 < number < 1 << 62:
        raise BadInput(f"this cursor is not one of requests: {cursor!r:.40}", hint="use page.cursor as it is")
    return number
