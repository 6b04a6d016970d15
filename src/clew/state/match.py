"""Filters: which values, or metadata, a search asks for. One pure function, so that every backend agrees.

A filter maps fields to what they must be: a value, which must be equal, or a dict of operators. A field is a key of
the value; when there is none of that name, dots lead into dicts (`"address.city"`).

| operator | holds when the field is there and |
|---|---|
| `$eq`, `$in` | it equals the operand; one of the operands |
| `$gt`, `$gte`, `$lt`, `$lte` | it comes after, not before, before, not after the operand |
| `$ne` | it does not equal the operand; also when the field is missing |
| `$exists` | always, given True; given False, when the field is missing |

Unlike types are neither equal nor ordered, and that is no error: `1` and `1.0` are both numbers, but `True`, `"1"` and
`Decimal(1)` are not like them. Lists and dicts are equal when their parts are.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from clew.errors import BadInput, ClewError
from clew.state.codec import decode, encode

Test = Callable[[Any], bool]
"""Given a field's value, or `MISSING`."""

MISSING: Any = object()

_NUMBER = (int, float)
_PLAIN = (str, bytes, Decimal, Fraction, dt.datetime, dt.date, dt.time, dt.timedelta)


def compile_filter(given: Mapping[str, Any], what: str = "filter") -> Callable[[Mapping[str, Any]], bool]:
    """A function that tells whether a value passes. A filter that cannot mean anything is `BadInput`.

    >>> cheap = compile_filter({"kind": "book", "price": {"$lt": 20}})
    >>> cheap({"kind": "book", "price": 12.5}), cheap({"kind": "book", "price": "12"})
    (True, False)
    """
    if not isinstance(given, Mapping):
        raise BadInput(f"{what}= is a dict from fields to values, not {type(given).__name__}")
    tests: list[tuple[str, Test]] = []
    for field, wanted in given.items():
        if not isinstance(field, str):
            raise BadInput(f"a field in {what}= is a str, not {field!r:.60}")
        if field.startswith("$"):
            raise BadInput(
                f"{field!r:.60} stands where {what}= names a field",
                hint='write {"field": {"$gt": 1}}: operators go inside',
            )
        tests += [(field, test) for test in _tests(field, wanted, what)]
    return lambda value: all(test(find(value, field)) for field, test in tests)


def matches(value: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether a value passes a filter.

    >>> matches({"user": {"city": "Oslo"}}, {"user.city": {"$in": ["Oslo", "Rome"]}})
    True
    """
    return compile_filter(given)(value)


def find(value: Mapping[str, Any], field: str) -> Any:
    """What stands at a field: the key of that name, else along its dots. `MISSING` if nothing does."""
    if field in value:
        return value[field]
    found: Any = value
    for name in field.split("."):
        if not isinstance(found, dict) or name not in found:
            return MISSING
        found = found[name]
    return found


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal and of like types, at any depth. Runs no code of the values' classes."""
    one, other = type(a), type(b)
    if one in _NUMBER and other in _NUMBER:
        return bool(a == b)
    if one is not other:
        return False
    if one in _PLAIN or one is bool or a is None:
        return _try(operator.eq, a, b)
    if one is list or one is tuple:
        return len(a) == len(b) and all(map(equal, a, b))
    if one is dict and all(type(key) is str for key in a):
        return len(a) == len(b) and all(key in b and equal(item, b[key]) for key, item in a.items())
    return encode(a) == encode(b)


def _tests(field: str, wanted: Any, what: str) -> list[Test]:
    if not isinstance(wanted, Mapping) or not any(isinstance(key, str) and key.startswith("$") for key in wanted):
        return [_equals(_kept(wanted, field, what))]
    tests = []
    for name, operand in wanted.items():
        if name not in _OPERATORS:
            known = ", ".join(_OPERATORS)
            raise BadInput(f"{what}= has no operator {name!r:.60} (at field {field!r:.60})", hint=f"there are {known}")
        tests.append(_OPERATORS[name](_kept(operand, field, what)))
    return tests


def _kept(operand: Any, field: str, what: str) -> Any:
    """A copy of the operand that nobody can change, and that is sure to be of a kind that values can have."""
    try:
        return decode(encode(operand))
    except ClewError as error:
        raise BadInput(f"{what}= cannot compare {field!r:.60} with that: {error.message}", hint=error.hint) from error


def _equals(operand: Any) -> Test:
    return lambda value: value is not MISSING and equal(value, operand)


def _differs(operand: Any) -> Test:
    return lambda value: value is MISSING or not equal(value, operand)


def _is_one_of(operand: Any) -> Test:
    if not isinstance(operand, list | tuple | set | frozenset):
        raise BadInput(f"$in compares with a list, not {type(operand).__name__}")
    return lambda value: value is not MISSING and any(equal(value, one) for one in operand)


def _exists(operand: Any) -> Test:
    if not isinstance(operand, bool):
        raise BadInput(f"$exists is True or False, not {operand!r:.60}")
    return lambda value: (value is not MISSING) is operand


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any], Test]:
    def bind(operand: Any) -> Test:
        kinds = _NUMBER if type(operand) in _NUMBER else (type(operand),)
        if type(operand) not in _NUMBER + _PLAIN:
            return lambda _value: False
        return lambda value: type(value) in kinds and _try(compare, value, operand)

    return bind


def _try(compare: Callable[[Any, Any], Any], a: Any, b: Any) -> bool:
    try:
        return bool(compare(a, b))
    except (TypeError, ArithmeticError):
        # A time with a zone beside one without; a Decimal that signals.
        return False


_OPERATORS: dict[str, Callable[[Any], Test]] = {
    "$eq": _equals,
    "$ne": _differs,
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
    "$in": _is_one_of,
    "$exists": _exists,
}
