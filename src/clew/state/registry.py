"""Which types may be built from stored bytes: a closed list that only running code adds to.

A type gets onto it by `register`, or by being met: an instance of a dataclass, pydantic model, named tuple or enum
that is saved puts its own class there. Reading looks names up here and nowhere else.
"""

from __future__ import annotations

import enum
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, overload

from clew.errors import BadInput

Kind = Literal["dataclass", "model", "namedtuple", "enum", "plain", "custom"]
Fields = dict[str, Any]
_CWritten = types.BuiltinFunctionType  # the `__new__` of a type in C, also where that is a heap type
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One known type. `shape` is where the codec keeps what it worked out about the class."""

    cls: type
    name: str
    version: int
    kind: Kind
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    met: bool = False
    shape: dict[str, Any] = field(default_factory=dict)

    def same_as(self, other: Entry) -> bool:
        """Whether `other` registers the same class (or its reloaded self)."""
        return self.cls is other.cls or qualified_name(self.cls) == qualified_name(other.cls)


def qualified_name(cls: type) -> str:
    """`module:QualName`, the name of a type that was given none."""
    return f"{cls.__module__}:{cls.__qualname__}"


def kind_of(cls: type) -> Kind | None:
    """What sort of class this is, when that alone says how to store it; else None."""
    if issubclass(cls, enum.Enum):
        return "enum"
    if issubclass(cls, tuple) and _is_namedtuple(cls):
        return "namedtuple"
    if hasattr(cls, "__pydantic_fields__") and hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields"):
        return None if builtin_base(cls) else "model"
    if "__dataclass_fields__" in vars(cls) or hasattr(cls, "__dataclass_fields__"):
        return None if builtin_base(cls) else "dataclass"
    return None


def builtin_base(cls: type) -> type | None:
    """The base written in C that `cls` keeps content in (`dict`, `threading.local`, …), if any."""
    heap_type = 1 << 9
    for base in cls.__mro__:
        if base is not object and (not base.__flags__ & heap_type or type(vars(base).get("__new__")) is _CWritten):
            return base
    return None


def _is_namedtuple(cls: type) -> bool:
    names = getattr(cls, "_fields", None)
    return isinstance(names, tuple) and all(type(name) is str for name in names) and hasattr(cls, "_field_defaults")


class Registry:
    """Types by name and by class, and the upcasts between their versions. `registry` is the one that is used."""

    def __init__(self) -> None:
        self.by_name: dict[str, Entry] = {}
        self.by_class: dict[type, Entry] = {}
        self.upcasts: dict[tuple[str, int], Callable[[Any], Any]] = {}
        self._lock = threading.Lock()

    def add(
        self,
        cls: type,
        *,
        name: str | None = None,
        version: int = 1,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        """Register a class under a name. See `register`."""
        if not isinstance(cls, type):
            raise BadInput(f"only a class can be registered, not {cls!r}")
        if (encode is None) != (decode is None):
            raise BadInput(
                f"{qualified_name(cls)} is registered with only one of encode and decode",
                hint="give both, or neither",
            )
        if type(version) is not int or version < 1:
            raise BadInput(f"a version is a whole number from 1 on, not {version!r}")
        if name is not None and (type(name) is not str or not name):
            raise BadInput(f"a type's name is a text, not {name!r}")
        entry = Entry(
            cls, name or qualified_name(cls), version, self._kind(cls, custom=encode is not None), encode, decode
        )
        with self._lock:
            self._put(entry)

    def _kind(self, cls: type, *, custom: bool) -> Kind:
        if custom:
            return "custom"
        kind = kind_of(cls)
        if kind is not None:
            return kind
        base = builtin_base(cls)
        if base is not None:
            raise BadInput(
                f"{qualified_name(cls)} keeps its content in {base.__name__}, which cannot be taken apart by fields",
                hint="register it with encode= (value to plain state) and decode= (plain state to value)",
            )
        return "plain"

    def _put(self, entry: Entry) -> None:
        taken = self.by_name.get(entry.name)
        if taken is not None and taken.cls is not entry.cls:
            if not taken.met and not taken.same_as(entry):
                raise BadInput(
                    f"the name {entry.name!r} is taken by {qualified_name(taken.cls)}",
                    hint="register one of the two under another name",
                )
            if taken.met:
                self.by_class.pop(taken.cls, None)
        earlier = self.by_class.get(entry.cls)
        if earlier is not None and earlier.name != entry.name:
            if not earlier.met:
                raise BadInput(f"{qualified_name(entry.cls)} is registered as {earlier.name!r} already")
            # what was stored while it was only met stays readable: the earlier name leads to it as well
        elif earlier is not None and not earlier.met and not _equal(earlier, entry):
            raise BadInput(
                f"{entry.name!r} is registered already, with other arguments", hint="register it in one place only"
            )
        self.by_name[entry.name] = entry
        self.by_class[entry.cls] = entry

    def meet(self, cls: type) -> Entry | None:
        """The entry of a class whose instance is being saved; a class that needs no help gets one."""
        entry = self.by_class.get(cls)
        if entry is not None:
            return entry
        kind = kind_of(cls)
        if kind is None:
            return None
        with self._lock:
            entry = self.by_class.get(cls)
            if entry is not None:
                return entry
            name = qualified_name(cls)
            taken = self.by_name.get(name)
            if taken is not None and not taken.met:
                # an instance of a class that has since been reloaded: its name and version still hold
                entry = Entry(cls, name, taken.version, kind, met=True)
                self.by_class[cls] = entry
                return entry
            entry = Entry(cls, name, 1, kind, met=True)
            self._put(entry)
            return entry

    def find(self, name: str) -> Entry | None:
        return self.by_name.get(name)

    def add_upcast(self, name: str, *, to: int, upcast: Callable[[Any], Any]) -> None:
        """Register the step from version `to - 1` to `to` of the type of that name."""
        if type(to) is not int or to < 2:
            raise BadInput(f"an upcast leads to version 2 or later, not {to!r}")
        with self._lock:
            known = self.upcasts.get((name, to))
            if known is not None and not _same_function(known, upcast):
                raise BadInput(f"an upcast of {name!r} to version {to} is registered already: {known!r}")
            self.upcasts[name, to] = upcast


def _equal(a: Entry, b: Entry) -> bool:
    return (a.version, a.kind) == (b.version, b.kind) and (a.encode is None) == (b.encode is None)


def _same_function(a: Callable[[Any], Any], b: Callable[[Any], Any]) -> bool:
    def place(function: Callable[[Any], Any]) -> tuple[Any, Any]:
        return getattr(function, "__module__", None), getattr(function, "__qualname__", function)

    return a is b or place(a) == place(b)


registry = Registry()


@overload
def register(name_or_class: C) -> C: ...
@overload
def register(
    name_or_class: C,
    *,
    version: int = ...,
    name: str | None = ...,
    encode: Callable[[Any], Any] | None = ...,
    decode: Callable[[Any], Any] | None = ...,
) -> C: ...
@overload
def register(
    name_or_class: str | None = ...,
    *,
    version: int = ...,
    name: str | None = ...,
    encode: Callable[[Any], Any] | None = ...,
    decode: Callable[[Any], Any] | None = ...,
) -> Callable[[C], C]: ...


def register(
    name_or_class: type | str | None = None,
    *,
    version: int = 1,
    name: str | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
) -> Any:
    """Make a class readable from stored bytes, under a name that survives moving and renaming it.

        @clew.register("shop.Order", version=2)     # a name of your own, and a version
        @clew.register                              # the name is "module:QualName", the version 1
        clew.register(Order)                        # the same, for a class from elsewhere
        clew.register(Money, encode=str, decode=Money.parse)    # a class that is no dataclass, model, enum or tuple

    A name that another class has is `BadInput`. Registering the same class again with the same arguments is fine.
    """

    def add(cls: type, chosen: str | None) -> type:
        registry.add(cls, name=chosen, version=version, encode=encode, decode=decode)
        return cls

    if isinstance(name_or_class, type):
        return add(name_or_class, name)
    if name_or_class is not None and name is not None and name != name_or_class:
        raise BadInput(f"two names were given: {name_or_class!r} and {name!r}")
    return lambda cls: add(cls, name_or_class if name_or_class is not None else name)


def upcast(name: str, *, to: int) -> Callable[[F], F]:
    """The decorated function turns the fields of version `to - 1` into those of version `to`; steps are chained.

    @clew.upcast("shop.Order", to=2)
    def add_currency(old: dict) -> dict:
        return {**old, "currency": "EUR"}
    """

    def add(function: F) -> F:
        registry.add_upcast(name, to=to, upcast=function)
        return function

    return add
