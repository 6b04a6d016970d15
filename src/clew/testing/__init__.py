"""For tests of programs that use Clew, and of Clew itself.

`exactly_equal` is stricter than `==`; `clew.testing.strategies` (needs hypothesis) makes values of every type that can
be stored.
"""

from __future__ import annotations

import datetime as dt
import enum
import struct
import sys
import types
import zoneinfo
from collections import OrderedDict, deque
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["exactly_equal"]

_Pairs = list[tuple[Any, Any]]


def exactly_equal(a: object, b: object) -> bool:
    """Whether two values are the same in every way a program could notice, but for identity.

    Types must be the same at every depth (`1`, `1.0` and `True` differ), floats the same bits (a NaN equals the same
    NaN, `0.0` is not `-0.0`), dicts in the same order; objects have the same attributes.

        >>> exactly_equal({"a": [1, float("nan")]}, {"a": [1, float("nan")]})
        True
        >>> exactly_equal([1], [True]), exactly_equal(0.0, -0.0)
        (False, False)
    """
    waiting: _Pairs = [(a, b)]
    while waiting:
        a, b = waiting.pop()
        if a is b:
            continue
        if type(a) is not type(b):
            return False
        more = _compare(a, b)
        if more is None:
            return False
        waiting += more
    return True


def _compare(a: Any, b: Any) -> _Pairs | None:
    """What remains to be compared of two values of one type; None when they differ already."""
    cls = type(a)
    if cls in (list, tuple, deque):
        return _items(a, b)
    if cls in (dict, OrderedDict):
        return None if len(a) != len(b) else [*zip(a, b, strict=True), *zip(a.values(), b.values(), strict=True)]
    if cls in (set, frozenset):
        return _members(a, b)
    if cls in (float, complex, Decimal, dt.datetime, dt.time, dt.timezone, zoneinfo.ZoneInfo, UUID):
        return [] if _identity(a) == _identity(b) else None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(a, numpy.ndarray | numpy.generic):
        same = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        return [] if same and a.dtype.isalignedstruct == b.dtype.isalignedstruct else None
    if isinstance(a, enum.Enum):
        return None
    if isinstance(a, tuple):
        more = _items(a, b)
        return None if more is None else [*more, (_attributes(a), _attributes(b))]
    if "__eq__" not in _defined(cls) or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__pydantic_fields__"):
        return [(_attributes(a), _attributes(b))]
    return [] if a == b else None


def _items(a: Any, b: Any) -> _Pairs | None:
    if len(a) != len(b) or (type(a) is deque and a.maxlen != b.maxlen):
        return None
    return list(zip(a, b, strict=True))


def _members(a: Any, b: Any) -> _Pairs | None:
    if len(a) != len(b):
        return None
    left = list(b)
    for member in a:
        for at, other in enumerate(left):
            if exactly_equal(member, other):
                del left[at]
                break
        else:
            return None
    return []


def _identity(value: Any) -> Any:
    """Something that is equal only for values that are exactly equal."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, complex):
        return struct.pack(">dd", value.real, value.imag)
    if isinstance(value, Decimal):
        return value.as_tuple()
    if isinstance(value, UUID):
        return value.int, value.is_safe
    if isinstance(value, dt.timezone):
        return value.__getinitargs__()  # type: ignore[attr-defined]
    if isinstance(value, zoneinfo.ZoneInfo):
        return value.key
    zone = value.tzinfo
    return value.replace(tzinfo=None), value.fold, type(zone), None if zone is None else _identity(zone)


def _defined(cls: type) -> set[str]:
    return {name for base in cls.__mro__[:-1] for name in vars(base)}


def _attributes(value: Any) -> dict[str, Any]:
    """All that an instance keeps, wherever it keeps it."""
    attributes = {name: vars(value)[name] for name in sorted(vars(value))} if hasattr(value, "__dict__") else {}
    for base in type(value).__mro__:
        for name, slot in vars(base).items():
            if type(slot) is types.MemberDescriptorType and hasattr(value, name):
                attributes[f"{base.__qualname__}.{name}"] = slot.__get__(value)
    return attributes
