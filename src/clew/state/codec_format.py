"""The numbers of the format and its headers: what every other part of the codec agrees on."""

from __future__ import annotations

import ormsgpack

# Extension tags. They are written into databases: a number is never given to another meaning.
INT = 1
STR = 2
BYTEARRAY = 3
TUPLE = 4
SET = 5
FROZENSET = 6
DICT = 7
ORDERED_DICT = 8
DEQUE = 9
COMPLEX = 10
DATETIME = 11
DATE = 12
TIME = 13
TIMEDELTA = 14
TIMEZONE = 15
ZONE = 16
DECIMAL = 17
FRACTION = 18
UUID = 19
PATH = 20
RANGE = 21
ENUM = 22
NAMEDTUPLE = 23
OBJECT = 24
MODEL = 25
STATE = 26
EXCEPTION = 27
BLOB = 28
ARRAY = 29
NUMPY_SCALAR = 30
REF_FIRST = 96  # 96…127: references, given meaning by the layout

SPILL_OVER = 65536
MAX_BYTES = 256 * 1024 * 1024

# Nesting. Each level costs C stack when read back, so it is bounded twice: how many lists and dicts may stand
# directly within each other, and how many extension values may. Past the first few extension levels the former
# bound is tighter, so that no input can use the two together to run the stack out.
MAX_LISTS = 255
MAX_EXTS = 100
FREE_EXTS = 4
MAX_LISTS_INSIDE = 32

OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

_FIXED_EXT = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}
_NOT_CONTAINER = bytes(b for b in range(256) if not (0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF))


def array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x80 | count,))
    if count < 65536:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


def ext(tag: int, payload: bytes) -> bytes:
    """An extension value, as ormsgpack writes it (but for negative tags too, which only an Opaque has)."""
    size = len(payload)
    code = tag & 0xFF
    fixed = _FIXED_EXT.get(size)
    if fixed is not None:
        return b"%b%c%b" % (fixed, code, payload)
    if size < 256:
        return b"\xc7%c%c%b" % (size, code, payload)
    if size < 65536:
        return b"\xc8%b%c%b" % (size.to_bytes(2, "big"), code, payload)
    return b"\xc9%b%c%b" % (size.to_bytes(4, "big"), code, payload)


def nests_too_deep(payload: bytes, limit: int = MAX_LISTS_INSIDE) -> bool:
    """Whether lists and dicts nest deeper in here than `limit`. Malformed bytes are not its business."""
    if len(payload) <= limit or len(payload.translate(None, _NOT_CONTAINER)) <= limit:
        return False
    open_counts: list[int] = []
    at, end = 0, len(payload)
    while at < end:
        while open_counts and open_counts[-1] == 0:
            open_counts.pop()
        if open_counts:
            open_counts[-1] -= 1
        at, items = _step(payload, at)
        if items:
            open_counts.append(items)
            if len(open_counts) > limit:
                return True
    return False


def _step(data: bytes, at: int) -> tuple[int, int]:
    """Where the thing after the one that starts at `at` starts, and how many items the one at `at` opens."""
    code = data[at]
    if code < 0x80 or code >= 0xE0:
        return at + 1, 0
    if code < 0x90:
        return at + 1, 2 * (code & 0x0F)
    if code < 0xA0:
        return at + 1, code & 0x0F
    if code < 0xC0:
        return at + 1 + (code & 0x1F), 0
    length_bytes, fixed = _SHAPES[code]
    if not length_bytes:
        return at + 1 + fixed, 0
    count = int.from_bytes(data[at + 1 : at + 1 + length_bytes], "big")
    after = at + 1 + length_bytes
    if code >= 0xDC:
        return after, count if code < 0xDE else 2 * count
    return after + fixed + count, 0


_SHAPES = {  # code → (bytes of length that follow, bytes besides those the length counts)
    **dict.fromkeys(range(0xC0, 0xC4), (0, 0)),
    **dict(zip(range(0xC4, 0xC7), ((1, 0), (2, 0), (4, 0)), strict=True)),  # bin
    **dict(zip(range(0xC7, 0xCA), ((1, 1), (2, 1), (4, 1)), strict=True)),  # ext
    **dict(zip(range(0xCA, 0xD4), ((0, size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)), strict=True)),  # numbers
    **dict(zip(range(0xD4, 0xD9), ((0, size + 1) for size in (1, 2, 4, 8, 16)), strict=True)),  # ext of fixed size
    **dict(zip(range(0xD9, 0xE0), ((size, 0) for size in (1, 2, 4, 2, 4, 2, 4)), strict=True)),  # str, array, map
}
