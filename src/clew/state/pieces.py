"""Payload: runs of log positions as bytes, and what can be done to them without knowing what they mean.

A stored run is one *piece*:

    byte 0      format (1)
    byte 1      0 plain, 1 zstd: how everything after the checksum is stored
    bytes 2-5   CRC-32 (big endian) of everything after it, begun with the thread's *seal*: a row that was
                damaged, or that stands in another thread than it was written for, is noticed
    varint      length of the table
    table       msgpack array of segments: [log, kind, start, sizes]
    bodies      of all segments, one after the other

`kind` 0 holds items: `sizes` lists each item's `length << 1 | refs`, where `refs` tells that the item contains
references to other logs. `kind` 1 holds plain bytes (text, binary): `sizes` is their number. Positions count items or
bytes.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, groupby, repeat
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import zstandard
from ormsgpack import packb, unpackb

from clew.errors import Corrupt, FormatTooNew

FORMAT = 1
ITEMS, BYTES = 0, 1
CHUNK_BYTES = 64 * 1024
"""A folded chunk is cut at about this size: large enough to fill its pages, small enough for a random read."""

COMPRESS_FROM = 4096
COMPRESS_GAIN = 0.75
COMPRESS_UPTO = 1 << 24
"""Of larger pieces (one item fills them) none is compressed, so that none inflates to more."""
_LEVEL = 3
_BLOCK = 1 << 17
_HAS_REFS = (1).__and__
_LOG, _START, _BY_LOG = itemgetter(0), itemgetter(2), itemgetter(0, 2)
_HEAD = Struct(">HI").unpack_from
_PLAIN = FORMAT << 8

Segment = tuple[int, int, int, "list[int] | int", "bytes | memoryview", bool]
"""(log, kind, start, sizes, body, refs); a body that was read is a view into its row.

`refs` False: no item in it holds references. True: some may, as their sizes tell.
"""


class Bounds(NamedTuple):
    """A piece of one segment, as stored: what the database needs to find it again."""

    log: int
    start: int
    stop: int
    data: bytes


def length(segment: Segment) -> int:
    """How many positions a segment covers."""
    sizes = segment[3]
    return len(sizes) if isinstance(sizes, list) else sizes


def varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where the next one starts."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Corrupt("a stored number is cut short")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def pack(segments: Sequence[Segment], seal: int, *, compress: bool = False) -> bytes:
    """One piece holding these segments."""
    table = packb([segment[:4] for segment in segments])
    content = b"".join([varint(len(table)), table, *[segment[4] for segment in segments]])
    head = b"\x01\x00"
    if compress and COMPRESS_FROM <= len(content) <= COMPRESS_UPTO and _shrinks(content):
        small = zstandard.ZstdCompressor(level=_LEVEL).compress(content)
        if len(small) <= len(content) * COMPRESS_GAIN:
            head, content = b"\x01\x01", small
    return b"".join((head, crc32(content, seal).to_bytes(4, "big"), content))


def _shrinks(content: bytes) -> bool:
    """Try a sample before the whole: what does not shrink is not worth the time."""
    middle = content[len(content) // 2 :][:COMPRESS_FROM]
    return len(middle) < COMPRESS_FROM or len(zstandard.ZstdCompressor(level=1).compress(middle)) <= 0.9 * len(middle)


def unpack(data: bytes, seal: int) -> list[Segment]:
    """The segments of a piece; `Corrupt` unless its checksum holds and every length in it adds up."""
    if len(data) < 7:
        raise Corrupt("a payload row is cut short")
    head, crc = _HEAD(data)
    if head >> 8 != FORMAT:
        if head >> 8 > FORMAT:
            raise FormatTooNew(f"a payload row has format {head >> 8}, this Clew reads up to {FORMAT}")
        raise Corrupt(f"a payload row has the unknown format {head >> 8}")
    content = memoryview(data)[6:]
    if crc32(content, seal) != crc:
        raise Corrupt("a payload row does not match its checksum")
    if head != _PLAIN:
        content = memoryview(_inflate(head & 255, content))
    size, at = read_varint(content, 0)
    try:
        table = unpackb(content[at : at + size])
    except ValueError as error:
        raise Corrupt(f"a payload row's table is damaged: {error}") from None
    return _segments(table, content, at + size)


def unpack_all(rows: Iterable[bytes], seal: int) -> list[Segment]:
    """The segments of many pieces: of small ones, as commits write them, without many steps of Python for each."""
    small: list[bytes] = []
    found: list[Segment] = []
    for row in rows:
        if len(row) > 6 and row[6] < 128 and row.startswith(b"\x01\x00"):
            small.append(row)
        else:
            found += unpack(row, seal)
    contents = [memoryview(row)[6:] for row in small]
    if list(map(crc32, contents, repeat(seal))) != [_HEAD(row)[1] for row in small]:
        raise Corrupt("a payload row does not match its checksum")
    tables = b"".join([row[7 : 7 + row[6]] for row in small])
    alike = None
    with suppress(ValueError):
        decoded = unpackb(b"".join((b"\xdd", len(small).to_bytes(4, "big"), tables)))
        alike = _alike(decoded, [content[1 + content[0] :] for content in contents])
    if alike is None:  # or some are not what they should be: then this tells
        alike = [segment for row in small for segment in unpack(row, seal)]
    return found + alike


def _alike(tables: list[Any], bodies: list[memoryview]) -> list[Segment] | None:
    """The segments of pieces that hold items of one list each, without references; None if any does not."""
    try:
        if list(map(len, tables)) != [1] * len(bodies):
            return None
        logs, kinds, starts, sizes = zip(*chain.from_iterable(tables), strict=True)
        if set(kinds) != {ITEMS} or set(map(type, sizes)) != {list} or not _are_sizes((*logs, *starts)):
            return None
        if not _are_sizes(chain.from_iterable(sizes)) or list(map(sum, sizes)) != [2 * len(body) for body in bodies]:
            return None
    except (TypeError, ValueError):
        return None
    return list(zip(logs, kinds, starts, sizes, bodies, repeat(False)))


_own = threading.local()


def _decompressor() -> zstandard.ZstdDecompressor:
    """This thread's: one takes as long to make as a piece to decompress, and two threads must not share one."""
    found: zstandard.ZstdDecompressor | None = getattr(_own, "decompressor", None)
    if found is None:
        found = _own.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    return found


def _inflate(method: int, data: bytes | memoryview) -> bytes:
    """Decompress through a stream with a cap: a frame's own statement of its size cannot be trusted."""
    if method != 1:
        raise Corrupt(f"a payload row has the unknown compression {method}")
    blocks: list[bytes] = []
    size = 0
    try:
        with _decompressor().stream_reader(data) as reader:
            while block := reader.read(_BLOCK):
                blocks.append(block)
                size += len(block)
                if size > COMPRESS_UPTO:
                    raise Corrupt(f"a payload row inflates to more than {COMPRESS_UPTO} bytes")
    except zstandard.ZstdError as error:
        raise Corrupt(f"a payload row's compression is damaged: {error}") from None
    return b"".join(blocks)


def _segments(table: object, content: memoryview, at: int) -> list[Segment]:
    if type(table) is not list:
        raise Corrupt("a payload row's table is not a list")
    found: list[Segment] = []
    end = len(content)
    for entry in table:
        if type(entry) is not list or len(entry) != 4:
            raise Corrupt("a payload row's table has an entry of the wrong shape")
        log, kind, start, sizes = entry
        if type(log) is not int or type(start) is not int or log < 0 or start < 0:
            raise Corrupt("a payload row's table names an impossible position")
        refs = False
        if kind == ITEMS and type(sizes) is list and _are_sizes(sizes):
            total = sum(sizes)
            if entry is not table[-1] or total != 2 * (end - at):  # else the bytes that are left tell: no size is odd
                odd = sum(map(_HAS_REFS, sizes))
                total, refs = total - odd, odd > 0
            stop = at + (total >> 1)
        elif kind == BYTES and type(sizes) is int and sizes >= 0:
            stop = at + sizes
        else:
            raise Corrupt("a payload row's table has a segment of an unknown kind")
        if stop > end:
            raise Corrupt("a payload row is shorter than its table says")
        found.append((log, kind, start, sizes, content[at:stop], refs))
        at = stop
    if at != end:
        raise Corrupt("a payload row is longer than its table says")
    return found


def _are_sizes(sizes: Iterable[Any]) -> bool:
    """Whether all of them are integers from 0 on: as an array they are looked at without a step of Python for each."""
    try:
        array("Q", sizes)
    except (TypeError, OverflowError):
        return False
    return True


def cut(segment: Segment, start: int, stop: int) -> Segment:
    """The part of a segment that covers positions `start` up to `stop`."""
    log, kind, first, sizes, body, refs = segment
    if not isinstance(sizes, list):
        return (log, kind, start, stop - start, body[start - first : stop - first], refs)
    a, b = start - first, stop - first
    before = sum(size >> 1 for size in sizes[:a])
    within = sum(size >> 1 for size in sizes[a:b])
    return (log, kind, start, sizes[a:b], body[before : before + within], refs)


def join(segments: Sequence[Segment]) -> Segment:
    """Neighbouring segments of one log as one."""
    log, kind, start, sizes, _, refs = segments[0]
    body = b"".join([segment[4] for segment in segments])
    if not isinstance(sizes, list):
        return (log, kind, start, len(body), body, refs)
    joined = [size for segment in segments for size in segment[3]]  # type: ignore[union-attr]
    return (log, kind, start, joined, body, any(segment[5] for segment in segments))


def fold(segments: Iterable[Segment], seal: int) -> list[Bounds]:
    """The same positions in as few pieces as `CHUNK_BYTES` allows, one log to a piece, compressed where it pays."""
    logs: dict[int, list[Segment]] = {}
    for segment in segments:
        if length(segment):
            logs.setdefault(segment[0], []).append(segment)
    folded: list[Bounds] = []
    for log in sorted(logs):
        for run in _neighbours(sorted(logs[log], key=lambda segment: segment[2])):
            folded.extend(_chunks(join(run), seal))
    return folded


def _neighbours(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Split where positions are missing (pruned away) between two segments."""
    run = [segments[0]]
    for segment in segments[1:]:
        if segment[2] == run[-1][2] + length(run[-1]):
            run.append(segment)
        else:
            yield run
            run = [segment]
    yield run


def _chunks(segment: Segment, seal: int) -> Iterator[Bounds]:
    log, _, start, sizes, body, _ = segment
    stop = start + length(segment)
    if isinstance(sizes, list):
        for at, upto in batches((size >> 1 for size in sizes), CHUNK_BYTES):
            part = cut(segment, start + at, start + upto)
            yield Bounds(log, start + at, start + upto, pack([part], seal, compress=True))
        return
    for at in range(0, len(body), CHUNK_BYTES):
        part = cut(segment, start + at, min(stop, start + at + CHUNK_BYTES))
        yield Bounds(log, part[2], part[2] + length(part), pack([part], seal, compress=True))


def batches(sizes: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    """Where to cut a row of things, so that each stretch is at most so large, or a single thing.

    >>> list(batches([3, 3, 3, 9, 1], 7))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = list(accumulate(sizes))
    at = 0
    while at < len(ends):
        filled = ends[at - 1] if at else 0
        upto = max(at + 1, bisect_right(ends, filled + most))
        yield at, upto
        at = upto


class Pieces:
    """Stored segments by (lane, log), from which stretches of positions are read."""

    __slots__ = ("_found", "_logs", "_rows", "_seal")

    def __init__(self, seal: int) -> None:
        self._seal = seal
        self._found: dict[tuple[int, int, int, int], list[Segment]] = {}
        """What was read: whoever looks for references in a stretch reads it before whoever decodes it."""
        self._rows: dict[int, list[bytes]] = {}
        """By lane: what was added since the last read."""
        self._logs: dict[tuple[int, int], list[Segment]] = {}

    def add(self, lane: int, data: bytes) -> None:
        self._rows.setdefault(lane, []).append(data)

    def _unpack(self) -> None:
        for lane, rows in self._rows.items():
            segments = sorted(unpack_all(rows, self._seal), key=_BY_LOG)
            for log, found in groupby(segments, key=_LOG):
                known = self._logs.setdefault((lane, log), [])
                known += found
                known.sort(key=_START)
        self._rows, self._found = {}, {}

    def read(self, lane: int, log: int, start: int, count: int) -> list[Segment]:
        """Segments that together are exactly positions `start` … `start + count`; `Corrupt` where one is missing."""
        if self._rows:
            self._unpack()
        asked = (lane, log, start, count)
        if (known := self._found.get(asked)) is not None:
            return known
        found = self._found[asked] = list[Segment]()
        at, stop = start, start + count
        segments = self._logs.get((lane, log), [])
        for index in range(max(0, bisect_right(segments, start, key=_START) - 1), len(segments)):
            segment = segments[index]
            _, _, first, sizes, _, _ = segment
            last = first + (len(sizes) if isinstance(sizes, list) else sizes)
            if first > at or at >= stop:
                break
            if last > at:
                whole = first == at and last <= stop
                found.append(segment if whole else cut(segment, at, min(last, stop)))
                at = min(last, stop)
        if at < stop:
            del self._found[asked]
            raise Corrupt(f"payload is missing: lane {lane}, log {log}, position {at}")
        return found
