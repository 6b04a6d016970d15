"""Exact comparison: values taken apart, and a number for each such that equal numbers mean exactly equal values.

Exact means: the same type at every place, floats by their bits, `1`, `1.0` and `True` apart, tuples and lists apart.
Only the order of dict keys and of set members is no part of a value here.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import pathlib
import struct
import sys
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, cast

from clew.errors import BadInput
from clew.state.registry import registry


class Shape(NamedTuple):
    """A container taken apart. Two of them are compared part by part when `kind` and `head` agree."""

    kind: Literal["items", "entries", "members", "fields"]
    head: tuple[object, ...]  # hashable
    parts: Sequence[object]
    names: Sequence[object] = ()  # the keys of entries, the names of fields
    assigned: frozenset[str] | None = None  # pydantic: the fields that were given, not defaulted


# Leaves whose `==` is looser than exact (Decimal("1.0") == Decimal("1.00"), fold ignored), but whose repr is exact.
_EXACT_REPR = frozenset(
    {
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        range,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        type(pathlib.Path()),
    }
)
# Leaves of one type that are equal exactly when `==` says so.
_EXACT_EQUAL = frozenset({int, bool, type(None), bytes})
_PLAIN_LEAVES = _EXACT_REPR | _EXACT_EQUAL | {str, float, complex, bytearray}


def shape_of(value: object) -> Shape | None:
    """The parts of a container or object; None for a leaf."""
    kind: type = type(value)
    if kind in _PLAIN_LEAVES:
        return None
    if kind is dict or kind is OrderedDict:
        entries = cast("dict[object, object]", value)
        return Shape("entries", (kind,), list(entries.values()), list(entries))
    if kind is list or kind is tuple:
        return Shape("items", (kind,), cast("Sequence[object]", value))
    if kind is set or kind is frozenset:
        return Shape("members", (kind,), list(cast("set[object]", value)))
    if isinstance(value, deque):
        return Shape("items", (kind, value.maxlen), list(value))
    if isinstance(value, defaultdict):
        return Shape("entries", (kind, value.default_factory), list(value.values()), list(value))
    return _object_shape(value)


def _object_shape(value: object) -> Shape | None:
    if isinstance(value, Enum | type):
        return None
    kind: type = type(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return Shape("fields", (kind,), tuple(value), kind._fields)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if hasattr(value, field.name)]
        return Shape("fields", (kind,), [getattr(value, name) for name in names], names)
    if hasattr(kind, "__pydantic_fields__") and hasattr(value, "__pydantic_fields_set__"):
        return _model_shape(value)
    return _registered_shape(value)


def _registered_shape(value: object) -> Shape | None:
    """The attributes of a registered plain class, or the state that a registered `encode` makes of the value."""
    kind = type(value)
    entry = registry.by_class.get(kind)
    if entry is None:
        return None
    if entry.encode is not None:
        inner = shape_of(entry.encode(value))
        return None if inner is None else inner._replace(head=(kind, *inner.head))
    names = [name for cls in reversed(kind.__mro__) for name in _slots(cls) if hasattr(value, name)]
    fields = {name: getattr(value, name) for name in names} | getattr(value, "__dict__", {})
    return Shape("fields", (kind,), list(fields.values()), list(fields))


def _slots(cls: type) -> list[str]:
    """The attributes that a class keeps in slots. Private names are given as they are stored."""
    slots = vars(cls).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    owner = cls.__name__.lstrip("_")
    stored = [f"_{owner}{name}" if name.startswith("__") and not name.endswith("__") else name for name in names]
    return [name for name in stored if name not in ("__dict__", "__weakref__")]


def leaf_state(value: object) -> tuple[object] | None:
    """The plain state of a leaf whose class is registered with an `encode`, in a tuple of one."""
    entry = None if type(value) in _PLAIN_LEAVES else registry.by_class.get(type(value))
    return None if entry is None or entry.encode is None else (entry.encode(value),)


def _model_shape(model: Any) -> Shape:
    """A pydantic model's fields, extra fields and private attributes. Their names cannot clash."""
    inside = vars(model)
    fields = {name: inside[name] for name in type(model).__pydantic_fields__ if name in inside}
    fields |= model.__pydantic_extra__ or {}
    fields |= model.__pydantic_private__ or {}
    return Shape(
        "fields", (type(model),), list(fields.values()), list(fields), frozenset(model.__pydantic_fields_set__)
    )


class Numbers:
    """Gives every value a number. Two values of one `Numbers` have the same number exactly when they are exactly equal.

    Each distinct part is stored once under what it consists of, so equality at any depth is one comparison of ints, and
    numbers can be hashed. Costs one walk over each value; needs no recursion.
    """

    def __init__(self) -> None:
        self._by_content: dict[Hashable, int] = {}
        self._strings: dict[str, int] = {}
        self._containers: dict[int, tuple[object, int]] = {}  # by id(); holds the value so that the id stays taken
        self._last = 0

    def of(self, value: object) -> int:
        known = self._known(value)
        return self._walk(value) if known is None else known

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _known(self, value: object) -> int | None:
        """The number of a leaf or of a container met before; None for one that has to be walked."""
        if type(value) is str:
            number = self._strings.get(value)
            if number is None:
                number = self._strings[value] = self._next()
            return number
        met = self._containers.get(id(value))
        if met is not None:
            return met[1]
        if type(value) in _PLAIN_LEAVES:
            return self._numbered(_leaf_content(value))
        return None

    def _numbered(self, content: Hashable) -> int:
        number = self._by_content.get(content)
        if number is None:
            number = self._by_content[content] = self._next()
        return number

    def _walk(self, root: object) -> int:
        open_ids: set[int] = set()
        stack: list[tuple[object, Shape | None]] = [(root, None)]
        while stack:
            value, shape = stack.pop()
            if shape is not None:
                open_ids.discard(id(value))
                self._containers[id(value)] = (value, self._numbered(self._content(shape)))
                continue
            if id(value) in open_ids:
                raise BadInput(f"a {type(value).__name__} contains itself, so it cannot be compared")
            if self._known(value) is not None:
                continue
            shape = shape_of(value)
            if shape is None:
                self._containers[id(value)] = (value, self._numbered(_leaf_content(value)))
                continue
            open_ids.add(id(value))
            stack.append((value, shape))
            stack.extend((part, None) for part in shape.parts if self._known(part) is None)
            if shape.kind == "entries":
                stack.extend((key, None) for key in shape.names if self._known(key) is None)
        return self._containers[id(root)][1]

    def _content(self, shape: Shape) -> Hashable:
        """What a container consists of, once all its parts have numbers."""
        parts: list[Any] = [self.of(part) for part in shape.parts]
        if shape.kind == "members":
            parts.sort()
        elif shape.kind == "entries":
            parts = sorted(zip(map(self.of, shape.names), parts, strict=True))
        elif shape.kind == "fields":
            parts = sorted(zip(shape.names, parts, strict=True))
        return (shape.kind, shape.head, shape.assigned, tuple(parts))


def _leaf_content(value: object) -> Hashable:
    kind = type(value)
    if kind in _EXACT_EQUAL or kind is str:
        return (kind, value)
    if isinstance(value, float) and kind is float:
        return (kind, struct.pack("<d", value))
    if kind in _EXACT_REPR:
        return (kind, repr(value))
    if isinstance(value, complex) and kind is complex:
        return (kind, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, bytearray):
        return (kind, bytes(value))
    if isinstance(value, Enum):
        return (kind, "member", id(value))  # members are singletons that their class keeps
    state = leaf_state(value)
    if state is not None:
        return (kind, "state", _leaf_content(state[0]))
    array = as_array(value)
    if array is not None:
        return (kind, repr(array.dtype), array.shape, array.tobytes())
    try:
        hash(value)
    except TypeError:
        return (kind, "identity", id(value))
    return (kind, value)


def as_array(value: object) -> Any:
    """The value if it is a numpy array or scalar without object members, else None. Never imports numpy."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    return None if cast("Any", value).dtype.hasobject else value
