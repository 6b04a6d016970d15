"""What the codec needs to know of a class whose instances it takes apart: worked out once, and kept with its entry."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from clew.state.registry import Entry

MISSING = dataclasses.MISSING
_TYPE_HINTS = frozenset({"__orig_class__"})  # what `Box[int](1)` leaves on its instance


class Shape(NamedTuple):
    """What the codec needs to know of a class, worked out once."""

    names: tuple[str, ...]  # the declared fields, in order; of a plain class none: all its attributes are fields
    all_names: frozenset[str]
    defaults: dict[str, Callable[[], Any]]
    unset: frozenset[str]  # fields that may have no value of their own
    slots: dict[str, Any]
    recomputed: frozenset[str]  # cached properties: left out, computed again on demand
    has_dict: bool
    has_extra: bool  # of a model: it takes more fields than it declares
    has_private: bool


def shape_of(entry: Entry) -> Shape:
    shape = entry.shape.get("shape")
    if shape is None:
        shape = entry.shape["shape"] = _work_out(entry)
    return cast("Shape", shape)


def _work_out(entry: Entry) -> Shape:
    cls = entry.cls
    slots: dict[str, Any] = {}
    recomputed = set(_TYPE_HINTS)
    for base in cls.__mro__:
        for name, attribute in vars(base).items():
            if type(attribute) is types.MemberDescriptorType and not name.startswith("__pydantic_"):
                slots.setdefault(name, attribute)
            elif isinstance(attribute, functools.cached_property):
                recomputed.add(name)
    names: tuple[str, ...] = ()
    defaults: dict[str, Callable[[], Any]] = {}
    unset: set[str] = set()
    if entry.kind == "dataclass":
        for field in dataclasses.fields(cls):
            names += (field.name,)
            if field.default is not MISSING:
                defaults[field.name] = functools.partial(_same, field.default)
            elif field.default_factory is not MISSING:
                defaults[field.name] = field.default_factory
            descriptor = inspect.getattr_static(cls, field.name, None)
            computed = hasattr(type(descriptor), "__set__") and field.name not in slots
            if computed or (not field.init and field.default_factory is MISSING):
                unset.add(field.name)  # with init=False, a default stays on the class
    elif entry.kind == "model":
        names = tuple(cls.__pydantic_fields__)  # type: ignore[attr-defined]
    elif entry.kind == "namedtuple":
        names = cls._fields  # type: ignore[attr-defined]
        defaults = {name: functools.partial(_same, value) for name, value in cls._field_defaults.items()}  # type: ignore[attr-defined]
    has_dict = any("__dict__" in vars(base) for base in cls.__mro__)
    model: Any = cls if entry.kind == "model" else None
    return Shape(
        names,
        frozenset(names),
        defaults,
        frozenset(unset),
        slots,
        frozenset(recomputed),
        has_dict,
        has_extra=model is not None and model.model_config.get("extra") == "allow",
        has_private=model is not None and bool(model.__private_attributes__),
    )


def _same(value: Any) -> Any:
    return value
