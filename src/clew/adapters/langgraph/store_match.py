"""What LangGraph's stores mean by filters, patterns of namespaces, and paths into values. Pure functions.

Where LangGraph's in-memory store gives an answer, this one is the same. Where that one raises because a value cannot be
a number (`$gt` and its like), two texts are compared as texts, as its SQL stores do, and all else does not fit.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.store.base import MatchCondition, get_text_at_path

from clew.errors import BadInput

_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS = ("$eq", "$ne", *_ORDERED)


def compile_filter(given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """A function that tells whether a value fits. A missing field counts as None.

    >>> cheap = compile_filter({"kind": "book", "price": {"$lt": 20}, "by": {"name": "Frank"}})
    >>> cheap({"kind": "book", "price": 12, "by": {"name": "Frank", "born": 1920}}), cheap({"kind": "book"})
    (True, False)
    """
    for wanted in given.values():
        _check(wanted)
    return lambda value: all(_fits(value.get(field), wanted) for field, wanted in given.items())


def compile_names(conditions: Sequence[MatchCondition]) -> Callable[[tuple[str, ...]], bool]:
    """A function that tells whether a namespace fulfils all conditions. `*` stands for any one label."""
    for condition in conditions:
        if condition.match_type not in ("prefix", "suffix"):
            raise BadInput(f"a namespace is matched by its prefix or suffix, not by {condition.match_type!r:.60}")
    return lambda namespace: all(_name_fits(namespace, condition) for condition in conditions)


def literal_prefix(conditions: Sequence[MatchCondition]) -> tuple[str, ...]:
    """The longest beginning that every namespace which fulfils the conditions has."""
    longest: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            labels = path[: path.index("*")] if "*" in path else path
            longest = max(longest, labels, key=len)
    return longest


def texts_at(value: dict[str, Any], path: str) -> list[str]:
    """The texts at a path of LangGraph's: `"$"`, `"title"`, `"author.name"`, `"chapters[*].text"`.

    >>> texts_at({"chapters": [{"text": "One"}, {"text": "Two"}]}, "chapters[*].text")
    ['One', 'Two']
    """
    try:
        return get_text_at_path(value, path)
    except TypeError:
        # It asks for JSON; Clew keeps more than that.
        return get_text_at_path(json.loads(json.dumps(value, default=str)), path)


def _check(wanted: Any) -> None:
    if isinstance(wanted, dict):
        operators = [name for name in wanted if isinstance(name, str) and name.startswith("$")]
        unknown = [name for name in wanted if name not in _OPERATORS] if operators else []
        if unknown:
            raise BadInput(f"filter= has no operator {unknown[0]!r:.60}", hint=f"there are {', '.join(_OPERATORS)}")
        for part in () if operators else wanted.values():
            _check(part)
    elif isinstance(wanted, list | tuple):
        for part in wanted:
            _check(part)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            return all(_operate(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(_fits(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list | tuple) and len(value) == len(wanted) and all(map(_fits, value, wanted))
    return _equal(value, wanted)


def _operate(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return _equal(value, operand)
    if name == "$ne":
        return not _equal(value, operand)
    try:
        return bool(_ORDERED[name](float(value), float(operand)))
    except (TypeError, ValueError, ArithmeticError):
        return type(value) is type(operand) is str and bool(_ORDERED[name](value, operand))


def _equal(value: Any, wanted: Any) -> bool:
    try:
        return bool(value == wanted)
    except ValueError:
        return False  # arrays of several numbers are neither equal nor unequal


def _name_fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))
