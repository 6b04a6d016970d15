"""Hypothesis strategies for values of every type that Clew stores.

@given(states())
def test_my_agent_survives(state): ...
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib.util
import pathlib
import struct
import zoneinfo
from collections import OrderedDict, deque
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from hypothesis import strategies as st

from clew.state.values import Blob, ExceptionSummary

__all__ = ["scalars", "keys", "values", "states", "texts", "floats", "arrays", "objects"]

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    GREEN = object()  # a value that could not be stored: members are kept by name


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    CALM = "calm"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3
    RUN = 4


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclasses.dataclass
class Order:
    item: Any
    count: Any = 1
    lines: list[Any] = dataclasses.field(default_factory=list)

    @cached_property
    def total(self) -> int:
        return len(self.lines)


@dataclasses.dataclass
class Rush(Order, Generic[T]):
    """Inherits, and keeps an attribute that is no field."""

    by: Any = None

    def __post_init__(self) -> None:
        self.noticed = self.count


@dataclasses.dataclass(frozen=True, slots=True)
class Money:
    amount: Any
    currency: str = "EUR"


@dataclasses.dataclass(frozen=True, slots=True)
class Tip(Money):
    """Slots all the way, one more of them here."""

    to: Any = None
    _seen: Any = dataclasses.field(default=None, init=False, repr=False)


def texts() -> st.SearchStrategy[str]:
    """Any text: with NUL, outside the BMP, with lone surrogates."""
    return st.text(max_size=20) | st.text(st.characters(exclude_categories=()), max_size=10)


def floats() -> st.SearchStrategy[float]:
    """Any float, by its bits: each NaN is one of its own."""
    bits = st.integers(0, 2**64 - 1).map(lambda number: struct.unpack(">d", number.to_bytes(8, "big"))[0])
    return st.floats() | bits | st.sampled_from([0.0, -0.0, float("inf"), float("-inf")])


def _zones() -> st.SearchStrategy[dt.tzinfo | None]:
    offsets = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
    fixed = offsets.map(dt.timezone) | st.builds(dt.timezone, offsets, st.text(max_size=5))
    return st.none() | st.just(dt.UTC) | fixed | st.integers(0, 999).map(_known_zone)


@cache
def _zone_keys() -> list[str]:
    return sorted(zoneinfo.available_timezones())


def _known_zone(number: int) -> dt.tzinfo:
    known = _zone_keys()
    return zoneinfo.ZoneInfo(known[number % len(known)])


def _decimals() -> st.SearchStrategy[Decimal]:
    return st.decimals() | st.sampled_from(["-0", "1E+400", "0E-9", "NaN12", "-Infinity", "1.10"]).map(Decimal)


def keys() -> st.SearchStrategy[Any]:
    """What may be a key of a dict or a member of a set."""
    plain = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(-(2**70), 2**70)
        | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
        | floats()
        | texts()
        | st.binary(max_size=20)
        | st.complex_numbers()
        | _decimals().filter(lambda number: not number.is_snan())
        | st.fractions()
        | st.uuids()
        | st.dates()
        | st.timedeltas()
        | st.datetimes(timezones=_zones(), allow_imaginary=True)
        | st.times(timezones=_zones())
        | _zones()
        | st.builds(range, st.integers(), st.integers(), st.integers(1, 2**65))
        | st.sampled_from([*Colour, *Level, *Mood, *Rights, *Bits, Rights(0), Rights(5), Bits(0), Bits(3), Bits(9)])
        | st.sampled_from(["", ".", "/", "a/b", "/srv/x.txt", "//net/x"]).map(pathlib.PurePosixPath)
        | st.sampled_from(["", "C:/a", "//host/share/b", "a"]).map(pathlib.PureWindowsPath)
        | st.sampled_from(["", "a/b", "/srv"]).map(pathlib.Path)
    )
    return st.recursive(plain, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)


def scalars() -> st.SearchStrategy[Any]:
    """Values without values inside."""
    summaries = st.builds(ExceptionSummary, texts(), texts(), st.tuples(texts()), st.tuples(), st.none())
    blobs = st.builds(Blob, st.binary(max_size=50), media_type=st.none() | st.just("image/png"))
    more = st.just(Decimal("sNaN7")) | st.binary(max_size=20).map(bytearray) | summaries | blobs
    return keys() | more | arrays() if _has("numpy") else keys() | more


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def arrays() -> st.SearchStrategy[Any]:
    """numpy arrays and numpy's scalars."""
    import numpy
    from hypothesis.extra import numpy as extra

    kinds = (
        extra.scalar_dtypes()
        | extra.nested_dtypes(max_itemsize=64, max_leaves=3)
        | st.just(numpy.dtype([("a", "<i4"), ("b", "u1", (2,))], align=True))
    )
    kinds = kinds.filter(lambda kind: kind.itemsize > 0 and kind.subdtype is None)
    shapes = extra.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    whole = kinds.flatmap(lambda kind: st.builds(_array, st.just(kind), shapes, st.binary(min_size=1, max_size=16)))
    single = st.sampled_from(
        [numpy.float64(1.5), numpy.int8(-3), numpy.bool_(1), numpy.str_("a\x00"), numpy.bytes_(b"a\x00"),
         numpy.datetime64("2026-01-02T03:04", "ns"), numpy.timedelta64(3, "D"), numpy.complex64(1 + 2j), numpy.str_("")]
    )  # fmt: skip
    return whole | single


def _array(dtype: Any, shape: tuple[int, ...], data: bytes) -> Any:
    import numpy

    size = dtype.itemsize
    for side in shape:
        size *= side
    if dtype.kind not in "iufc" or dtype.names is not None:
        return numpy.zeros(shape, dtype)
    if not size:
        return numpy.zeros(shape, dtype)
    return numpy.frombuffer(bytearray((data * size)[:size]), dtype).reshape(shape)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances of the example classes of this module, holding values of `inner`."""
    made: st.SearchStrategy[Any] = (
        st.builds(Order, inner, inner, st.lists(inner, max_size=2))
        | st.builds(Rush, inner, inner, by=inner)
        | st.builds(Money, inner)
        | st.builds(Tip, inner, to=inner)
        | st.builds(Point, inner, inner)
    )
    return made | _models(inner) if _has("pydantic") else made


def _models(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    from clew.testing import models

    return (
        st.builds(models.Trip.model_construct, city=inner, notes=st.lists(inner, max_size=2))
        | st.builds(models.Trip, city=inner)
        | st.builds(models.noting, inner)
        | st.builds(models.Open, known=inner, other=inner)
        | st.builds(models.Box[int], item=st.integers())
        | st.builds(models.Box[Any], item=inner)
    )


def values() -> st.SearchStrategy[Any]:
    """Any value that can be stored, containers and objects within each other."""
    return st.recursive(scalars(), _containers, max_leaves=12)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        | st.dictionaries(keys(), inner, max_size=3)
        | st.dictionaries(keys(), inner, max_size=3).map(OrderedDict)
        | st.lists(inner, max_size=3).map(deque)
        | st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5))
        | st.sets(keys(), max_size=4)
        | objects(inner)
    )


def states() -> st.SearchStrategy[dict[str, Any]]:
    """Whole states: a dict from names to values."""
    return st.dictionaries(st.text(max_size=8), values(), max_size=5)
