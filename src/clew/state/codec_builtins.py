"""The standard library's types: each taken apart into a tag and what stands behind it, and built again from that.

`REDUCE[type](value)` gives (tag, payload): bytes, or a list that is encoded in turn. `BUILD[tag](payload)` is its
inverse, given bytes for the tags in `LEAVES` and a decoded list for the others; it raises ValueError or TypeError for
what no value of that type is encoded as.
"""

from __future__ import annotations

import datetime as dt
import struct
import zoneinfo
from collections import OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID, SafeUUID

from clew.state import codec_format as f

Reduced = tuple[int, Any]


class NotStorable(Exception):
    """A value of a known type that has no exact encoding; the text says why."""


class Unknown(Exception):
    """Well-formed bytes of something that cannot be built here; the text says why, the rest what it is."""

    def __init__(self, reason: str, *, type_name: str, version: int | None = None) -> None:
        super().__init__(reason)
        self.type_name = type_name
        self.version = version


# --- numbers ---------------------------------------------------------------------------------------------------------


def _int(value: int) -> Reduced:
    return f.INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _build_int(payload: bytes) -> int:
    value = int.from_bytes(payload, "big", signed=True)
    if -(1 << 63) <= value < 1 << 64 or value.bit_length() // 8 + 1 != len(payload):
        raise ValueError("an integer that is not written the usual way")
    return value


def _complex(value: complex) -> Reduced:
    return f.COMPLEX, struct.pack(">dd", value.real, value.imag)


def _build_complex(payload: bytes) -> complex:
    return complex(*struct.unpack(">dd", payload))


def _decimal(value: Decimal) -> Reduced:
    return f.DECIMAL, str(value).upper().encode()  # upper: a context may ask for "1e+5"


def _build_decimal(payload: bytes) -> Decimal:
    text = payload.decode("ascii")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError("no decimal number") from None
    if str(value).upper() != text:
        raise ValueError("a decimal number that is not written the usual way")
    return value


def _fraction(value: Fraction) -> Reduced:
    return f.FRACTION, [value.numerator, value.denominator]


def _build_fraction(parts: list[Any]) -> Fraction:
    numerator, denominator = _exactly(parts, int, int)
    if denominator < 1:
        raise ValueError("a fraction with a denominator below 1")
    value = Fraction(numerator, denominator)
    if value.denominator != denominator:
        raise ValueError("a fraction that is not in lowest terms")
    return value


def _range(value: range) -> Reduced:
    return f.RANGE, [value.start, value.stop, value.step]


def _build_range(parts: list[Any]) -> range:
    return range(*_exactly(parts, int, int, int))


# --- text and bytes --------------------------------------------------------------------------------------------------


def _str(value: str) -> Reduced:
    return f.STR, value.encode("utf-8", "surrogatepass")


def _build_str(payload: bytes) -> str:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return payload.decode("utf-8", "surrogatepass")
    raise ValueError("a text without surrogates behind the tag for those with")


def _bytearray(value: bytearray) -> Reduced:
    return f.BYTEARRAY, bytes(value)


def _uuid(value: UUID) -> Reduced:
    safety = value.is_safe
    return f.UUID, value.bytes + (
        b"" if safety is SafeUUID.unknown else b"\x01" if safety is SafeUUID.safe else b"\x00"
    )


def _build_uuid(payload: bytes) -> UUID:
    if len(payload) == 16:
        return UUID(bytes=payload)
    safety = {b"\x01": SafeUUID.safe, b"\x00": SafeUUID.unsafe}.get(payload[16:])
    if safety is None:
        raise ValueError("no UUID")
    return UUID(bytes=payload[:16], is_safe=safety)


_PATHS: tuple[type[PurePosixPath] | type[PureWindowsPath], ...] = (
    PurePosixPath,
    PureWindowsPath,
    PosixPath,
    WindowsPath,
)


def _path(value: PurePosixPath | PureWindowsPath) -> Reduced:
    return f.PATH, [_PATHS.index(type(value)), str(value)]


def _build_path(parts: list[Any]) -> PurePosixPath | PureWindowsPath:
    kind, text = _exactly(parts, int, str)
    if not 0 <= kind < len(_PATHS):
        raise ValueError("an unknown kind of path")
    try:
        path: PurePosixPath | PureWindowsPath = _PATHS[kind](text)
    except NotImplementedError:
        raise Unknown("paths of that system cannot be built on this one", type_name=_PATHS[kind].__name__) from None
    if str(path) != text:
        raise ValueError("a path that is not written the usual way")
    return path


# --- containers ------------------------------------------------------------------------------------------------------


def _tuple(value: tuple[Any, ...]) -> Reduced:
    return f.TUPLE, list(value)


def _set(value: set[Any]) -> Reduced:
    return f.SET, list(value)


def _frozenset(value: frozenset[Any]) -> Reduced:
    return f.FROZENSET, list(value)


def pairs(value: dict[Any, Any]) -> list[Any]:
    """Keys and values in turn, as dicts are written whose keys are not all plain text."""
    return [part for item in value.items() for part in item]


def _ordered_dict(value: OrderedDict[Any, Any]) -> Reduced:
    return f.ORDERED_DICT, pairs(value)


def _deque(value: deque[Any]) -> Reduced:
    return f.DEQUE, [value.maxlen, *value]


def _build_set(parts: list[Any]) -> set[Any]:
    value = set(parts)
    if len(value) != len(parts):
        raise ValueError("a set with a member twice")
    return value


def _build_frozenset(parts: list[Any]) -> frozenset[Any]:
    value = frozenset(parts)
    if len(value) != len(parts):
        raise ValueError("a set with a member twice")
    return value


def _build_dict(parts: list[Any]) -> dict[Any, Any]:
    value = dict(zip(parts[::2], parts[1::2], strict=True))
    if 2 * len(value) != len(parts):
        raise ValueError("a dict with a key twice")
    return value


def _build_deque(parts: list[Any]) -> deque[Any]:
    if not parts:
        raise ValueError("a deque without its bound")
    maxlen, *items = parts
    if maxlen is not None and (type(maxlen) is not int or not len(items) <= maxlen < 1 << 63):
        raise ValueError("a deque that exceeds its bound")
    return deque(items, maxlen)


# --- time ------------------------------------------------------------------------------------------------------------


def _zone_bytes(zone: dt.tzinfo | None) -> bytes:
    """One byte for the kind, then what it needs: nothing, an offset and a name, or a key."""
    if zone is None:
        return b""
    if type(zone) is dt.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return b"\x01" + _delta_bytes(offset) + (b"\x01" + name[0].encode("utf-8", "surrogatepass") if name else b"")
    if type(zone) is zoneinfo.ZoneInfo:
        if zone.key is None:
            raise NotStorable("a ZoneInfo without a key cannot be found again")
        if zone.key not in _zone_keys():  # it would not be found again: see _zone
            raise NotStorable(f"the time zone {zone.key!r} is not among zoneinfo.available_timezones()")
        return b"\x02" + zone.key.encode()
    raise NotStorable(
        f"the time zone is a {type(zone).__module__}.{type(zone).__qualname__}; "
        "use datetime.timezone or zoneinfo.ZoneInfo"
    )


def _zone(data: bytes) -> dt.tzinfo | None:
    if not data:
        return None
    if data[0] == 1:
        offset = _delta(data[1:13])
        if len(data) == 13:
            return dt.timezone(offset)
        if data[13] == 1:
            return dt.timezone(offset, data[14:].decode("utf-8", "surrogatepass"))
    if data[0] == 2:
        key = data[1:].decode()
        # ZoneInfo(key) tries to import a package by that name when it does not know the key
        if key not in _zone_keys():
            raise Unknown(f"this machine has no time zone {key!r}", type_name="zoneinfo:ZoneInfo")
        return zoneinfo.ZoneInfo(key)
    raise ValueError("no time zone")


@lru_cache(maxsize=1)
def _zone_keys() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _delta_bytes(value: dt.timedelta) -> bytes:
    return struct.pack(">iII", value.days, value.seconds, value.microseconds)


def _delta(payload: bytes) -> dt.timedelta:
    days, seconds, micros = struct.unpack(">iII", payload)
    if seconds >= 86400 or micros >= 1_000_000:
        raise ValueError("a time span that is not written the usual way")
    return dt.timedelta(days, seconds, micros)


def _datetime(value: dt.datetime) -> Reduced:
    v = value
    head = struct.pack(">HBBBBBIB", v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold)
    return f.DATETIME, head + _zone_bytes(v.tzinfo)


def _build_datetime(payload: bytes) -> dt.datetime:
    *parts, fold = struct.unpack_from(">HBBBBBIB", payload)
    return dt.datetime(*parts, fold=fold).replace(tzinfo=_zone(payload[12:]))  # noqa: DTZ001


def _date(value: dt.date) -> Reduced:
    return f.DATE, struct.pack(">HBB", value.year, value.month, value.day)


def _build_date(payload: bytes) -> dt.date:
    return dt.date(*struct.unpack(">HBB", payload))


def _time(value: dt.time) -> Reduced:
    head = struct.pack(">BBBIB", value.hour, value.minute, value.second, value.microsecond, value.fold)
    return f.TIME, head + _zone_bytes(value.tzinfo)


def _build_time(payload: bytes) -> dt.time:
    *parts, fold = struct.unpack_from(">BBBIB", payload)
    return dt.time(*parts, fold=fold).replace(tzinfo=_zone(payload[8:]))


def _timedelta(value: dt.timedelta) -> Reduced:
    return f.TIMEDELTA, _delta_bytes(value)


def _timezone(value: dt.timezone) -> Reduced:
    return f.TIMEZONE, _zone_bytes(value)[1:]


def _build_timezone(payload: bytes) -> dt.tzinfo | None:
    return _zone(b"\x01" + payload)


def _zone_info(value: zoneinfo.ZoneInfo) -> Reduced:
    return f.ZONE, _zone_bytes(value)[1:]


def _build_zone_info(payload: bytes) -> dt.tzinfo | None:
    return _zone(b"\x02" + payload)


def _exactly(parts: list[Any], *types: type) -> list[Any]:
    if [type(part) for part in parts] != list(types):
        raise ValueError("other parts than this type has")
    return parts


REDUCE: dict[type, Callable[[Any], Reduced]] = {
    int: _int,
    str: _str,
    complex: _complex,
    Decimal: _decimal,
    Fraction: _fraction,
    range: _range,
    bytearray: _bytearray,
    UUID: _uuid,
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    OrderedDict: _ordered_dict,
    deque: _deque,
    dt.datetime: _datetime,
    dt.date: _date,
    dt.time: _time,
    dt.timedelta: _timedelta,
    dt.timezone: _timezone,
    zoneinfo.ZoneInfo: _zone_info,
    **dict.fromkeys(_PATHS, _path),
}

BUILD: dict[int, Callable[[Any], Any]] = {
    f.INT: _build_int,
    f.STR: _build_str,
    f.BYTEARRAY: bytearray,
    f.TUPLE: tuple,
    f.SET: _build_set,
    f.FROZENSET: _build_frozenset,
    f.DICT: _build_dict,
    f.ORDERED_DICT: lambda parts: OrderedDict(_build_dict(parts)),
    f.DEQUE: _build_deque,
    f.COMPLEX: _build_complex,
    f.DATETIME: _build_datetime,
    f.DATE: _build_date,
    f.TIME: _build_time,
    f.TIMEDELTA: _delta,
    f.TIMEZONE: _build_timezone,
    f.ZONE: _build_zone_info,
    f.DECIMAL: _build_decimal,
    f.FRACTION: _build_fraction,
    f.UUID: _build_uuid,
    f.PATH: _build_path,
    f.RANGE: _build_range,
}

LEAVES = frozenset(
    {
        f.INT,
        f.STR,
        f.BYTEARRAY,
        f.COMPLEX,
        f.DATETIME,
        f.DATE,
        f.TIME,
        f.TIMEDELTA,
        f.TIMEZONE,
        f.ZONE,
        f.DECIMAL,
        f.UUID,
    }
)
"""Tags whose payload is bytes of its own kind rather than an encoded list."""
