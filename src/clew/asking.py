"""Between who asks and the ledger: a question becomes a row, and a decision a value of the type that was asked for."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from clew.errors import BadInput, Corrupt, Rejected, RequestExpired, RequestWithdrawn, WrongAnswer
from clew.state.codec import decode, encode
from clew.state.shape import Problem, Schema, check
from clew.state.shape_types import NotPlain, build, plain, schema_of
from clew.storage.ledger import NewRequest, RequestRow

MAX_BYTES = 1 << 20
"""Of a question, a schema or an answer. What people look at is smaller; what a program needs belongs in the state."""
MAX_TEXT_BYTES = 512
_LONGEST = timedelta(days=36_600)
_MOST_APPROVALS = 1000
_REJECTED = "rejected"
_YES_OR_NO = "approved"


class Decision(NamedTuple):
    """What was decided. `rejected`: turned down, where the schema has no answer for that; `value` is None then."""

    value: Any
    rejected: bool = False
    by: str = ""
    reason: str | None = None


def new_request(
    question: Any,
    schema: Any = None,
    *,
    activation: str,
    ask: str,
    branch: str = "main",
    run: str | None = None,
    step: int | None = None,
    assignee: str | None = None,
    expires: timedelta | float | None = None,
    default: Any = ...,
    approvals: int = 1,
) -> NewRequest:
    """The row of a question. `schema` is a type or a JSON Schema; None takes any answer. `default=...`: there is none.

    The digest covers what a person is asked and shown, but not the expiry: that is counted from the first time, however
    often the node that asks is run again.
    """
    asked, wanted = _plain(question, "the question"), None if schema is None else schema_of(schema)
    if asked is None or asked in ("", {}, []):
        raise BadInput("a question cannot be empty", hint='for example clew.ask("Book for 420 €?", schema=bool)')
    if type(approvals) is not int or not 1 <= approvals <= _MOST_APPROVALS:
        raise BadInput(f"approvals is a number of people from 1 to {_MOST_APPROVALS}, not {approvals!r:.60}")
    fallback = None
    if default is not ...:
        if expires is None:
            raise BadInput("default= is what an expiry decides, and this never expires", hint="give expires= as well")
        fallback = _encoded(_fitting(default, wanted, "the default"), "the default")
    if assignee is not None:
        check_name(assignee, "an assignee")
    stored = _encoded(asked, "the question"), None if wanted is None else _encoded(wanted, "the schema")
    return NewRequest(
        activation=activation,
        ask=check_name(ask, "the id of a question"),
        digest=sha256(encode([*stored, assignee, approvals, fallback])).digest(),
        question=stored[0],
        schema=stored[1],
        branch=branch,
        run=run,
        step=step,
        assignee=assignee,
        ttl=None if expires is None else _microseconds(expires),
        default=fallback,
        approvals=approvals,
    )


def read_decision(row: RequestRow, schema: Any = None) -> Any:
    """What was decided, as a value of the type that was asked for. The row is not open any more.

    `Rejected` when it was turned down, where the schema has no answer for that; `RequestExpired` when its time ran out
    and there is no default; `RequestWithdrawn`.
    """
    name = f"R-{row.number}"
    if row.status == "withdrawn":
        raise RequestWithdrawn(f"{name} was withdrawn", hint="ask again")
    decision = decision_of(row)
    if decision is None:
        raise RequestExpired(
            f"nobody answered {name} ({_short(row)}) in time", hint="catch this where you ask, or give default="
        )
    if decision.rejected:
        raise rejection(row, decision)
    return built(decision.value, schema, name)


def built(answer: Any, schema: Any, name: str) -> Any:
    """An answer as a value of the type that was asked for."""
    if schema is None:
        return answer
    value = _fitting(answer, schema_of(schema), f"the answer to {name}")
    try:
        return build(schema, value)
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # a check of the type's own, in Python
        raise WrongAnswer(
            f"the answer to {name} cannot be made a {getattr(schema, '__name__', schema)}: {error}", hint="ask again"
        ) from error


def rejection(row: RequestRow, decision: Decision) -> Rejected:
    """What who asked gets for a no that is no answer."""
    because = f": {decision.reason}" if decision.reason else ""
    return Rejected(
        f"{decision.by} turned down R-{row.number} ({_short(row)}){because}",
        request=f"R-{row.number}",
        by=decision.by,
        reason=decision.reason,
    )


def decision_of(row: RequestRow) -> Decision | None:
    """What was decided, if anything was."""
    return None if row.value is None else read_answer(row.value)


def read_answer(stored: bytes) -> Decision:
    """A stored answer. A rejection is a tuple, which no JSON value is."""
    value = decode(stored)
    if type(value) is not tuple:
        return Decision(value)
    if len(value) != 3 or value[0] != _REJECTED:
        raise Corrupt("an answer is not a JSON value")
    return Decision(None, rejected=True, by=value[1], reason=value[2])


def write_answer(value: Any, schema: Schema | None, name: str) -> bytes:
    """An answer as it is stored; `WrongAnswer` if it is not of the shape that was asked for."""
    return _encoded(_fitting(value, schema, f"this answer to {name}"), f"this answer to {name}")


def write_rejection(by: str, reason: str | None) -> bytes:
    """A no where the schema has no answer for it."""
    return encode((_REJECTED, by, reason))


def problems(value: Any, schema: Schema | None) -> list[Problem]:
    """What is wrong with an answer."""
    try:
        return check(plain(value), True if schema is None else schema)
    except NotPlain as error:
        return [Problem(error.path, "a JSON value", str(error))]


def yes_or_no(schema: Schema | None, *, yes: bool, reason: str | None = None) -> Any:
    """The answer that says yes or no to this schema; `...` if it has none.

    That is a bool, an object with `approved` (and `reason`, where there is one), or True if anything may be answered.
    """
    if schema is None or schema in (True, {}):  # False would be an answer like any other
        return True if yes else ...
    choices: list[Any] = [yes, {_YES_OR_NO: yes}]
    if reason is not None:
        choices.insert(1, {_YES_OR_NO: yes, "reason": reason})
    return next((choice for choice in choices if not check(choice, schema)), ...)


def check_name(name: Any, what: str) -> str:
    """A name that people see: printable and short."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > MAX_TEXT_BYTES:
        raise BadInput(f"{what} is printable text of at most {MAX_TEXT_BYTES} bytes, not {name!r:.80}")
    return name


def _fitting(value: Any, schema: Schema | None, what: str) -> Any:
    found = problems(value, schema)
    if not found:
        return plain(value)
    first, rest = found[0], len(found) - 1
    more = f" (and {rest} more)" if rest else ""
    told = tuple(str(problem) for problem in found)
    raise WrongAnswer(f"{what} has another shape: {first}{more}", path=first.path, problems=told)


def _plain(value: Any, what: str) -> Any:
    try:
        return plain(value)
    except NotPlain as error:
        place = f"{what}: {error.path}" if error.path else what
        raise BadInput(f"{place} {error}", hint="people are shown plain JSON") from error


def _encoded(value: Any, what: str) -> bytes:
    data = encode(value)
    if len(data) > MAX_BYTES:
        raise BadInput(f"{what} has {len(data):,} bytes; at most {MAX_BYTES:,} can be")
    return data


def _microseconds(expires: Any) -> int:
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        try:
            expires = timedelta(seconds=expires)
        except (OverflowError, ValueError):
            expires = None
    if not isinstance(expires, timedelta) or not timedelta(0) <= expires <= _LONGEST:
        raise BadInput("expires is a timedelta or a number of seconds, of at most a hundred years")
    return expires // timedelta(microseconds=1)


def _short(row: RequestRow) -> str:
    question = decode(row.question)
    return f"{question!r:.80}"
