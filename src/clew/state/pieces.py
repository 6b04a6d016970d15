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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple
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
_INT = frozenset({int})

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
    if data[0] != FORMAT:
        if data[0] > FORMAT:
            raise FormatTooNew(f"a payload row has format {data[0]}, this Clew reads up to {FORMAT}")
        raise Corrupt(f"a payload row has the unknown format {data[0]}")
    content: bytes | memoryview = memoryview(data)[6:]
    if crc32(content, seal) != int.from_bytes(data[2:6], "big"):
        raise Corrupt("a payload row does not match its checksum")
    if data[1] != 0:
        content = memoryview(_inflate(data[1], content))
    size, at = read_varint(content, 0)
    try:
        table = unpackb(content[at : at + size])
    except ValueError as error:
        raise Corrupt(f"a payload row's table is damaged: {error}") from None
    return _segments(table, content, at + size)


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


def _segments(table: object, content: bytes | memoryview, at: int) -> list[Segment]:
    if type(table) is not list:
        raise Corrupt("a payload row's table is not a list")
    found: list[Segment] = []
    for entry in table:
        if type(entry) is not list or len(entry) != 4:
            raise Corrupt("a payload row's table has an entry of the wrong shape")
        log, kind, start, sizes = entry
        if type(log) is not int or type(start) is not int or log < 0 or start < 0:
            raise Corrupt("a payload row's table names an impossible position")
        refs = 0
        if kind == ITEMS and type(sizes) is list and _INT.issuperset(map(type, sizes)) and min(sizes, default=0) >= 0:
            refs = sum(map(_HAS_REFS, sizes))
            total = (sum(sizes) - refs) >> 1
        elif kind == BYTES and type(sizes) is int and sizes >= 0:
            total = sizes
        else:
            raise Corrupt("a payload row's table has a segment of an unknown kind")
        if at + total > len(content):
            raise Corrupt("a payload row is shorter than its table says")
        found.append((log, kind, start, sizes, content[at : at + total], refs > 0))
        at += total
    if at != len(content):
        raise Corrupt("a payload row is longer than its table says")
    return found


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
        ends = list(accumulate(size >> 1 for size in sizes))
        at = 0
        while at < len(sizes):
            filled = ends[at - 1] if at else 0
            upto = max(at + 1, bisect_right(ends, filled + CHUNK_BYTES))
            part = cut(segment, start + at, start + upto)
            yield Bounds(log, start + at, start + upto, pack([part], seal, compress=True))
            at = upto
        return
    for at in range(0, len(body), CHUNK_BYTES):
        part = cut(segment, start + at, min(stop, start + at + CHUNK_BYTES))
        yield Bounds(log, part[2], part[2] + length(part), pack([part], seal, compress=True))


class Pieces:
    """Stored segments by (lane, log), from which stretches of positions are read."""

    __slots__ = ("_logs", "_seal", "_sorted")

    def __init__(self, seal: int) -> None:
        self._seal = seal
        self._logs: dict[tuple[int, int], list[Segment]] = {}
        self._sorted = True

    def add(self, lane: int, data: bytes) -> None:
        for segment in unpack(data, self._seal):
            self._logs.setdefault((lane, segment[0]), []).append(segment)
        self._sorted = False

    def read(self, lane: int, log: int, start: int, count: int) -> list[Segment]:
        """Segments that together are exactly positions `start` … `start + count`; `Corrupt` where one is missing."""
        if not self._sorted:
            for segments in self._logs.values():
                segments.sort(key=lambda segment: segment[2])
            self._sorted = True
        found: list[Segment] = []
        at, stop = start, start + count
        segments = self._logs.get((lane, log), [])
        index = max(0, bisect_right(segments, start, key=lambda segment: segment[2]) - 1)
        while at < stop and index < len(segments):
            segment = segments[index]
            first, last = segment[2], segment[2] + length(segment)
            if first > at:
                break
            if last > at:
                whole = first == at and last <= stop
                found.append(segment if whole else cut(segment, at, min(last, stop)))
                at = min(last, stop)
            index += 1
        if at < stop:
            raise Corrupt(f"payload is missing: lane {lane}, log {log}, position {at}")
        return found
