"""What people are asked about effects, and what they may answer."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

from clew.asking import new_request
from clew.errors import BadInput
from clew.model import from_microseconds
from clew.runtime.activation import Activation
from clew.runtime.forks import ASKED, chosen
from clew.runtime.waiting import asking
from clew.state.codec import decode
from clew.state.diff_json import as_json
from clew.state.shape_types import schema_of
from clew.storage.ledger import EffectRow, NewRequest

_LONGEST = 300
_SHOWN = 20


def ask_unknown(activation: Activation, fn: Callable[..., Any], row: EffectRow) -> Any:
    """Ask what became of a claim: "again", "skip", or `{"done": its result}`."""
    kind = Literal["again", "skip"] | typing.TypedDict("Was", {"done": result_type(fn)})  # type: ignore[operator]
    happened = "the process that called it is gone" if row.value is None else str(decode(row.value))
    question = {
        "question": f"Was {in_a_line(row.name, row.shown)} done? Nobody knows: {happened[:_LONGEST]}.",
        "answers": {"done": "it was: its result", "again": "it was not: call it", "skip": "go on without it"},
        **_told(row.name, row.key, row.shown),
        "called_at": from_microseconds(row.created).isoformat(),
    }
    id_ = f"effect {row.key} #{row.attempt}"
    return activation.answer(new_request(question, kind, **asking(activation, id_)), kind)


def ask_whether(activation: Activation, fn: Callable[..., Any], row: EffectRow) -> Any:
    """Ask whether a claim that is to be undone was done: "not done", or `{"done": its result}`."""
    kind = Literal["not done"] | typing.TypedDict("Was", {"done": result_type(fn)})  # type: ignore[operator]
    question = {
        "question": f"Was {in_a_line(row.name, row.shown)} done? Its run is cancelled, and what was done is undone.",
        "answers": {"done": "it was: its result", "not done": "it was not"},
        **_told(row.name, row.key, row.shown),
        "called_at": from_microseconds(row.created).isoformat(),
    }
    id_ = f"undo {row.key} #{row.attempt}"
    return activation.answer(new_request(question, kind, **asking(activation, id_)), kind)


def ask_repeat(
    activation: Activation, name: str, key: str, arguments: bytes, earlier: Sequence[EffectRow]
) -> EffectRow | str:
    """Ask whether to make a call, as other paths have made calls like it: the one to reuse, or "again", or "skip".

    What was asked before stays as it was asked, whatever the other paths have done since.
    """
    call, id_ = _told(name, key, arguments), f"{ASKED}{key}"
    asked = activation.ledger.asked(activation.thread_id, activation.id, id_)
    if asked is not None and asked.status != "withdrawn" and decode(asked.question)["arguments"] == call["arguments"]:
        known = asking(activation, id_)
        request = NewRequest(**known, digest=asked.digest, question=asked.question, schema=asked.schema)
    else:
        request = _compared(activation, call, id_, in_a_line(name, arguments), earlier[:_SHOWN])
    answer = activation.answer(request)
    reused = chosen(decode(request.question), answer)
    if reused is None:
        return str(answer)
    rows = activation.ledger.effects(activation.thread_id, key=reused["key"])
    return next(row for row in rows if row.attempt == reused["attempt"])


def _compared(
    activation: Activation,
    call: dict[str, Any],
    name: str,
    line: str,
    earlier: Sequence[EffectRow],
) -> NewRequest:
    keys = tuple(row.key for row in earlier if row.state == "done")
    kind: Any = Literal["reuse", "again", "skip"] if keys else Literal["again", "skip"]
    if len(keys) > 1:
        kind = Literal["again", "skip"] | typing.TypedDict("Which", {"reuse": Literal[keys]})  # type: ignore[operator]
    done = "; ".join(f"{in_a_line(row.name, row.shown)}: {_outcome(row)!r:.80}" for row in earlier)
    question = {
        "question": f"Call {line}? Past the point where this path began, another one has called {done}.",
        "answers": {"reuse": "take that result", "again": "make this call", "skip": "go on without it"},
        **call,
        "earlier": [
            {
                **_told(row.name, row.key, row.shown),
                "attempt": row.attempt,
                "branch": row.branch,
                "called_at": from_microseconds(row.created).isoformat(),
                "state": row.state,
                "result": as_json(_outcome(row)),
            }
            for row in earlier
        ],
    }
    return new_request(question, kind, **asking(activation, name))


def _outcome(row: EffectRow) -> Any:
    """What is known of a call: its result, or its state."""
    return row.state if row.state != "done" or row.value is None else decode(row.value)


def _told(name: str, key: str, arguments: bytes | None) -> dict[str, Any]:
    """A call as people are shown it."""
    return {"effect": name, "key": key, "arguments": None if arguments is None else as_json(decode(arguments))}


def in_a_line(name: str, arguments: bytes | None) -> str:
    """A call in one line: `charge(amount=420, trip='trip-7')`."""
    values = {} if arguments is None else decode(arguments)
    inner = ", ".join(f"{each}={value!r:.60}" for each, value in values.items())
    return f"{name}({inner[:_LONGEST]})"


def result_type(fn: Callable[..., Any]) -> Any:
    """What a function says that it returns, if people can be asked for that."""
    try:
        kind = typing.get_type_hints(fn).get("return", Any)
        schema_of(kind)
    except (BadInput, NameError, TypeError, AttributeError):
        return Any  # an annotation that means nothing here, or that JSON has no form for
    return kind
