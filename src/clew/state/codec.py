"""Values to bytes and back: exact types, a closed registry, no I/O.

A value is one MessagePack value, written the shortest way. nil, bool, int of up to 64 bits, float (always 64 bits, the
NaN's own bits kept), str, bin, array (list) and map (dict with only str keys) are themselves. All else is an extension
with a tag; its payload is bytes, or *encoded*: one array, written by these same rules, that holds what the table says.

| tag | type | payload |
|--:|---|---|
| 1 | int over 64 bits | big-endian two's complement in ⌊bit length / 8⌋ + 1 bytes |
| 2 | str with lone surrogates | UTF-8, each surrogate as three bytes |
| 3 | bytearray | the bytes |
| 4 | tuple | encoded: the items |
| 5, 6 | set, frozenset | encoded: the members, sorted by their encodings |
| 7, 8 | dict with other keys, OrderedDict | encoded: key, value, key, value … |
| 9 | deque | encoded: maxlen or nil, then the items |
| 10 | complex | real and imaginary part as big-endian float64 |
| 11 | datetime | u16 year, u8 month, day, hour, minute, second, u32 microsecond, u8 fold, *zone* |
| 12 | date | u16 year, u8 month, day |
| 13 | time | u8 hour, minute, second, u32 microsecond, u8 fold, *zone* |
| 14 | timedelta | i32 days, u32 seconds, u32 microseconds |
| 15 | timezone | as 14; then, if named, 01 and the name in UTF-8 |
| 16 | ZoneInfo | the key in UTF-8 |
| 17 | Decimal | its text in capitals |
| 18 | Fraction | encoded: numerator, denominator |
| 19 | UUID | 16 bytes; then, if known, 01 safe or 00 unsafe |
| 20 | path | encoded: 0 PurePosixPath, 1 PureWindowsPath, 2 PosixPath or 3 WindowsPath; the text |
| 21 | range | encoded: start, stop, step |
| 22 | enum member | encoded: type name, version, the member's name (combined flags: their int) |
| 23 | named tuple | encoded: type name, version, attributes besides or nil, {field: value} |
| 24 | dataclass, plain registered class | encoded: the same |
| 25 | pydantic model | encoded: type name, version, nil or [*set*, extra, private, others], {field: value} |
| 26 | registered with encode= | encoded: type name, version, what encode gave |
| 27 | exception, kept as a summary | encoded: type name, message, [notes], [args], cause or nil |
| 28 | Blob | encoded: media type or nil, the bytes |
| 29 | numpy array | encoded: *dtype*, [shape], bytes in C order |
| 30 | numpy scalar | encoded: *dtype*, bytes (or "U" and UTF-8, "S" and bytes) |
| 96 to 127 | references | the layout's own |

*zone*: nothing; 01 and a payload as of tag 15; 02 and a ZoneInfo's key. *set*: the names of the fields that were
given, or nil when these are all that are stored. *dtype*: numpy's text for it, [base, shape], or [names, formats,
offsets, item size, aligned, titles]. Numbers are big-endian. Tags not listed come back as Opaque and are kept; a tag
keeps its meaning for ever. A type's name is "module:QualName" unless it is registered under another.
"""

from __future__ import annotations

import datetime as dt
import enum
import zoneinfo
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

from ormsgpack import packb

from clew.errors import TooLarge, Unserialisable
from clew.state import codec_format as f
from clew.state import codec_write
from clew.state import registry as registering
from clew.state.codec_builtins import NotStorable
from clew.state.codec_classes import shape_of
from clew.state.codec_format import REF_FIRST, SPILL_OVER
from clew.state.codec_models import Built, have_keys, models_of, objects_of, put_at
from clew.state.codec_objects import TAGS, object_parts
from clew.state.codec_read import Resolve, decode, decode_list
from clew.state.codec_slow import encode_slowly, step
from clew.state.codec_write import REDUCE, NeedsTheSlowWay, Spill, Writer, holds_buffers

__all__ = [
    "encode",
    "decode",
    "decode_list",
    "Resolve",
    "Spill",
    "REF_FIRST",
    "SPILL_OVER",
    "IMMUTABLE",
    "is_frozen",
    "Parts",
    "take_apart",
    "put_together",
    "is_in_its_dict",
    "objects_of",
    "models_of",
    "put_at",
    "Built",
    "have_keys",
    "pack_list",
    "pack_dict",
    "pack_ext",
]


_hook, _OPTIONS = codec_write.hook, f.OPTIONS  # found faster as globals: encode is called for every message


def encode(value: object, *, path: str = "", spill: Spill | None = None, within: int = 0) -> bytes:
    """The bytes of a value, from which `decode` makes an equal value of exactly the same types.

    Equal values of equal types give equal bytes (a dict keeps its order, a set is sorted). What cannot be stored is
    `Unserialisable`, more than 256 MiB is `TooLarge`; both name the path to the culprit, which starts with `path`.
    `within` is how many objects the bytes will stand in.
    """
    try:
        if spill is None and not within:
            out = packb(value, _hook, _OPTIONS)
            if (0xC4 in out or 0xC5 in out or 0xC6 in out) and holds_buffers(value):
                out = encode_slowly(value, path=path)
        else:
            out = Writer(spill, within).pack(value)
    except (TypeError, NeedsTheSlowWay):
        if codec_write.interrupts:
            raise codec_write.interrupts.pop() from None
        out = encode_slowly(value, path=path, spill=spill, within=within)
    if len(out) > f.MAX_BYTES:
        raise _too_large(value, path, len(out))
    return out


def _too_large(value: object, path: str, size: int) -> TooLarge:
    """Name the innermost part that is too large by itself."""
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in items:
        try:
            encode(item, path=path + (step(key) if type(value) is dict else f"[{key}]"))
        except TooLarge as error:
            return error
        except Unserialisable:
            continue
    path = path.removeprefix(".")
    return TooLarge(
        f"{path or 'the value'} takes {size:,} bytes; at most {f.MAX_BYTES:,} go into one encoding",
        path=path,
        hint="store large bytes as clew.Blob",
    )


IMMUTABLE: frozenset[type] = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        Decimal,
        UUID,
        dt.date,
        dt.time,
        dt.datetime,
        dt.timedelta,
        dt.timezone,
        zoneinfo.ZoneInfo,
    }
)
"""Exact types whose instances cannot change: the same object is the same value."""


def is_frozen(value: object) -> bool:
    """Whether this very object will always encode to the same bytes."""
    waiting: list[object] = [value]
    while waiting:
        value = waiting.pop()
        cls = type(value)
        if cls in IMMUTABLE or isinstance(value, enum.Enum):
            continue
        if cls is tuple or cls is frozenset or _is_frozen_namedtuple(value):
            waiting.extend(cast("tuple[object, ...]", value))
        elif not (isinstance(value, PurePosixPath | PureWindowsPath) and cls in REDUCE):
            return False
    return True


def _is_frozen_namedtuple(value: object) -> bool:
    if not isinstance(value, tuple) or hasattr(value, "__dict__"):  # a __dict__ can change
        return False
    entry = registering.registry.meet(type(value))
    return entry is not None and entry.kind == "namedtuple"


# --- from parts that are encoded already -----------------------------------------------------------------------------


def _key(key: str) -> bytes | None:
    """A key's encoding; None for one that a plain dict cannot have."""
    try:
        return _short_key(key) if len(key) <= 64 else packb(key)
    except TypeError:
        return None


@lru_cache(maxsize=4096)
def _short_key(key: str) -> bytes:
    return packb(key)


def pack_list(parts: Sequence[bytes]) -> bytes:
    """`encode(items)` of a list, given the encodings of its items."""
    return f.array_header(len(parts)) + b"".join(parts)


def pack_dict(keys: Sequence[object], parts: Sequence[bytes]) -> bytes:
    """`encode(dict(zip(keys, values)))`, given the encodings of the values."""
    pieces: list[bytes] = []
    for key, part in zip(keys, parts, strict=True):
        encoded = _key(key) if type(key) is str else None
        if encoded is None:
            break
        pieces += (encoded, part)
    else:
        return f.map_header(len(parts)) + b"".join(pieces)
    pieces = [piece for key, part in zip(keys, parts, strict=True) for piece in (encode(key), part)]
    return f.ext(f.DICT, f.array_header(len(pieces)) + b"".join(pieces))


def pack_ext(tag: int, payload: bytes) -> bytes:
    """An extension value."""
    return f.ext(tag, payload)


class Parts(NamedTuple):
    """An object taken apart: `head` is what encodes it besides its fields."""

    head: bytes
    fields: dict[str, Any]


def take_apart(value: object) -> Parts | None:
    """The fields of a dataclass, pydantic model or registered class's instance; None for anything else.

    None as well for such an instance that cannot be stored: `encode` says why, and where.
    """
    cls = type(value)
    if cls in _NO_OBJECTS:
        return None
    entry = registering.registry.by_class.get(cls) or registering.registry.meet(cls)
    if entry is None or entry.kind not in _OBJECT_KINDS:
        return None
    try:
        extras, fields = object_parts(value, entry)
        if extras is not None:
            return Parts(_head(entry) + encode(extras), fields)
    except (NotStorable, Unserialisable):
        return None
    head = entry.shape.get("head")
    if head is None:
        head = entry.shape["head"] = _head(entry) + b"\xc0"
    return Parts(head, fields)


def _head(entry: registering.Entry) -> bytes:
    start = bytes((TAGS[entry.kind],)) + f.array_header(4)
    return start + packb(entry.name) + packb(entry.version)


def put_together(head: bytes, names: Sequence[str], parts: Sequence[bytes]) -> bytes:
    """`encode(value)` of an object, given its head and the encodings of its fields."""
    return f.ext(head[0], head[1:] + pack_dict(names, parts))


def is_in_its_dict(cls: type) -> Literal["model", "object"] | None:
    """What sort of object keeps all that is stored of it in its `__dict__`; a model, in its three slots as well."""
    if cls in _NO_OBJECTS:
        return None
    entry = registering.registry.by_class.get(cls) or registering.registry.meet(cls)
    if entry is None or entry.kind not in _OBJECT_KINDS:
        return None
    shape = shape_of(entry)
    if not shape.has_dict or shape.slots or shape.has_private:
        return None
    return "model" if entry.kind == "model" else "object"


_NO_OBJECTS = frozenset(REDUCE) | {type(None), bool, int, float, str, bytes, list, dict}
_OBJECT_KINDS = frozenset({"dataclass", "model", "plain"})
