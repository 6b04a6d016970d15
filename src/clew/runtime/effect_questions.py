"""What people are asked about effects, and what they may answer."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Literal

from clew.asking import new_request
from clew.errors import BadInput
from clew.model import from_microseconds
from clew.runtime.activation import Activation
from clew.runtime.waiting import ask_in, asking
from clew.state.codec import decode
from clew.state.diff_json import as_json
from clew.state.shape_types import schema_of
from clew.storage.ledger import EffectRow

_LONGEST = 300


def ask_unknown(activation: Activation, fn: Callable[..., Any], row: EffectRow) -> Any:
    """Ask what became of a claim: "again", "skip", or `{"done": its result}`."""
    kind = _decision(fn)
    happened = "the process that called it is gone" if row.value is None else str(decode(row.value))
    question = {
        "question": f"Was {shown(row)} done? Nobody knows: {happened[:_LONGEST]}.",
        "answers": {"done": "it was: its result", "again": "it was not: call it", "skip": "go on without it"},
        **told(row),
    }
    id_ = f"effect {row.key} #{row.attempt}"
    return ask_in(activation, new_request(question, kind, **asking(activation, id_)), kind)


def told(row: EffectRow) -> dict[str, Any]:
    """A claim as people are shown it."""
    return {
        "effect": row.name,
        "key": row.key,
        "arguments": None if row.shown is None else as_json(decode(row.shown)),
        "called_at": from_microseconds(row.created).isoformat(),
    }


def shown(row: EffectRow) -> str:
    """A call in one line: `charge(amount=420, trip='trip-7')`."""
    arguments = {} if row.shown is None else decode(row.shown)
    inner = ", ".join(f"{name}={value!r:.60}" for name, value in arguments.items())
    return f"{row.name}({inner[:_LONGEST]})"


def _decision(fn: Callable[..., Any]) -> Any:
    """The type of an answer: a result that was done is of the type that the function says it returns."""
    return Literal["again", "skip"] | typing.TypedDict("Was", {"done": result_type(fn)})  # type: ignore[operator]


def result_type(fn: Callable[..., Any]) -> Any:
    """What a function says that it returns, if people can be asked for that."""
    try:
        kind = typing.get_type_hints(fn).get("return", Any)
        schema_of(kind)
    except (BadInput, NameError, TypeError, AttributeError):
        return Any  # an annotation that means nothing here, or that JSON has no form for
    return kind
