"""A change as plain JSON. What JSON has no form for becomes an object with `"$type"`."""

from __future__ import annotations

import math
from typing import Any

from clew.state.diff_path import MISSING, Key, Member, Path, Step, where
from clew.state.diff_shape import as_array, shape_of
from clew.state.diff_short import order_key, short

_TYPE = "$type"
_TEXT_WIDTH = 200


def change_as_json(path: Path, kind: str, old: object, new: object) -> dict[str, Any]:
    change: dict[str, Any] = {"kind": kind, "where": where(path), "path": [_step_as_json(step) for step in path]}
    if old is not MISSING:
        change["old"] = as_json(old)
    if new is not MISSING:
        change["new"] = as_json(new)
    return change


def _step_as_json(step: Step) -> Any:
    if isinstance(step, Key):
        return {"key": as_json(step.value)}
    return {"member": as_json(step.value)} if isinstance(step, Member) else step


def as_json(value: object) -> Any:
    """The value whole, as `json.dumps` takes it. Needs no recursion.

    >>> as_json({"at": (1, 2.5), "raw": b"abc"})
    {'at': {'$type': 'tuple', 'items': [1, 2.5]}, 'raw': {'$type': 'bytes', 'text': 'bytes 3 B #63906248'}}
    """
    root: list[Any] = [None]
    work: list[tuple[Any, Any, object]] = [(root, 0, value)]
    while work:
        target, place, part = work.pop()
        form, inner, parts = _form(part)
        target[place] = form
        work += ((inner, key, inner_part) for key, inner_part in parts)
    return root[0]


def _form(value: object) -> tuple[Any, Any, list[tuple[Any, object]]]:
    """The JSON form with gaps, the container in it that has the gaps, and what goes into each."""
    if value is None or type(value) in (bool, int, str):
        return value, None, []
    if type(value) is float and math.isfinite(value):
        return value, None, []
    shape = shape_of(value)
    if shape is None:
        return _leaf_form(value), None, []
    name = type(value).__name__
    if shape.kind == "entries":
        plain = type(value) is dict and all(type(key) is str for key in shape.names) and _TYPE not in shape.names
        if not plain:
            items: list[Any] = [[None, None] for _ in shape.names]
            pairs = [list(pair) for pair in zip(shape.names, shape.parts, strict=True)]
            return {_TYPE: name, "items": items}, items, list(enumerate(pairs))
    if shape.kind in ("entries", "fields"):
        named: dict[Any, Any] = dict.fromkeys(shape.names)
        whole = named if shape.kind == "entries" else {_TYPE: name, "fields": named}
        return whole, named, list(zip(shape.names, shape.parts, strict=True))
    parts = sorted(shape.parts, key=order_key) if shape.kind == "members" else shape.parts
    listed: list[Any] = [None] * len(parts)
    return (listed if type(value) is list else {_TYPE: name, "items": listed}), listed, list(enumerate(parts))


def _leaf_form(value: object) -> dict[str, Any]:
    array = as_array(value)
    whole = array is None and not isinstance(value, bytes | bytearray)
    return {_TYPE: type(value).__name__, "text": short(value, _TEXT_WIDTH if whole else 80)}
