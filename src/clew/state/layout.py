"""The layout: how a state lies in logs.

A *manifest* is the encoding of a state in which every large part is replaced by a reference. Items in logs are
encodings of the same kind, so references nest. A reference is an extension value; its payload is a list of varints:

    96 LIST      log, gap, runs                 items, each an encoded value
    97 TEXT      log, gap, runs                 bytes of UTF-8 (surrogates pass)
    98 BINARY    log, gap, runs                 bytes
    99 DICT      base, patches, log, gap, runs  first item: {key: encoded value}; then patches [{…}, [deleted keys]]
    100 SLOT     run                            one item: the value
    101 VALUE    digest of a blob that holds the value's encoding
    102 LAZY     digest, size, media type of a `Blob` that is read when asked for

`log` is the log that the sequence's next items go to (0: none yet), `gap` how far its tail lies behind the last run
in it. A run is `delta << 1 | moved`, [lane, log], count; delta counts from the end of the run before in the same log.
Lane 0 is the lane of the row that holds the reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.errors import Corrupt, FormatTooNew
from clew.state.codec import encode, pack_ext
from clew.state.pieces import read_varint, varint
from clew.state.shadow import Place, Run
from clew.state.values import Blob

LIST, TEXT, BINARY, DICT, SLOT, VALUE, LAZY = range(96, 103)
SLOT_LOG = 0
MANIFEST_FORMAT = 1

Stretch = tuple[int, int, int, int]
"""(lane, log, start, stop), with a real lane."""


class Tree(NamedTuple):
    """A state's root shadow, and the counters of the lane it was written in."""

    root: Any
    next_log: int
    slot_tail: int


EMPTY = Tree({}, 1, 0)


# -- references ----------------------------------------------------------------------------------------------------


def place_ref(tag: int, place: Place) -> bytes:
    """A sequence's place, as it is embedded in its parent."""
    own = place.log
    if len(place.runs) == 1 and own and tag != DICT:
        # By far the most frequent: a sequence that has only ever grown in its own log.
        lane, log, start, count = place.runs[0]
        if lane == 0 and log == own:
            return pack_ext(tag, _varints([own, place.tail - start - count, start << 2, count]))
    numbers = [place.base, place.patches] if tag == DICT else []
    end = 0
    for run in place.runs:
        if run[0] == 0 and run[1] == own and run[2] + run[3] > end:
            end = run[2] + run[3]
    numbers += (own, place.tail - end if own else 0)
    lane, log, at = 0, place.log, 0
    for run_lane, run_log, start, count in place.runs:
        if run_lane == lane and run_log == log:
            numbers += (_zigzag(start - at) << 1, count)
        else:
            lane, log = run_lane, run_log
            numbers += (_zigzag(start) << 1 | 1, lane, log, count)
        at = start + count
    return pack_ext(tag, _varints(numbers))


def read_place(tag: int, payload: bytes, lane: int) -> Place:
    """A place from its reference. `lane` replaces 0; a foreign sequence has no log of its own to append to."""
    numbers = iter(_read_varints(payload))
    try:
        base, patches = (next(numbers), next(numbers)) if tag == DICT else (0, 0)
        own = next(numbers)
        gap = next(numbers)
        runs: list[Run] = []
        run_lane, log, at, end = 0, own, 0, 0
        for head in numbers:
            if head & 1:
                run_lane, log, at = next(numbers), next(numbers), 0
            start = at + _unzigzag(head >> 1)
            count = next(numbers)
            at = start + count
            if start < 0:
                raise Corrupt("a reference names an impossible position")
            if run_lane == 0 and log == own:
                end = max(end, at)
            runs.append((run_lane or lane, log, start, count))
    except StopIteration:
        raise Corrupt("a reference is cut short") from None
    if lane or not own:
        return Place(tuple(runs), 0, 0, base, patches)
    return Place(tuple(runs), own, end + gap, base, patches)


def slot_ref(lane: int, position: int) -> bytes:
    return pack_ext(SLOT, _varints([lane, SLOT_LOG, position]))


def lazy_ref(blob: Blob) -> bytes:
    return pack_ext(LAZY, encode([blob.digest, blob.size, blob.media_type]))


def value_ref(digest: str) -> bytes:
    return pack_ext(VALUE, bytes.fromhex(digest))


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(number: int) -> int:
    return -((number + 1) >> 1) if number & 1 else number >> 1


def _varints(numbers: list[int]) -> bytes:
    if max(numbers) < 128:
        return bytes(numbers)
    return b"".join(map(varint, numbers))


def _read_varints(data: bytes) -> list[int]:
    if not data or max(data) < 128:
        return list(data)
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        if byte < 128:
            numbers.append(number)
            number = shift = 0
        elif shift < 63:
            shift += 7
        else:
            raise Corrupt("a stored number is too long")
    if shift:
        raise Corrupt("a stored number is cut short")
    return numbers


# -- manifests -----------------------------------------------------------------------------------------------------


def pack_manifest(next_log: int, slot_tail: int, root: bytes) -> bytes:
    return _varints([MANIFEST_FORMAT, next_log, slot_tail]) + root


def unpack_manifest(manifest: bytes) -> tuple[int, int, bytes]:
    """The lane's next log and slot, and the root's encoding."""
    if len(manifest) >= 3 and manifest[0] == MANIFEST_FORMAT and manifest[1] < 128 and manifest[2] < 128:
        return manifest[1], manifest[2], manifest[3:]
    version, at = read_varint(manifest, 0)
    if version > MANIFEST_FORMAT:
        raise FormatTooNew(f"a checkpoint has format {version}, this Clew reads up to {MANIFEST_FORMAT}")
    if version < 1:
        raise Corrupt(f"a checkpoint has the unknown format {version}")
    next_log, at = read_varint(manifest, at)
    slot_tail, at = read_varint(manifest, at)
    return next_log, slot_tail, manifest[at:]


def slot_run(payload: bytes, lane: int) -> Run:
    numbers = _read_varints(payload)
    if len(numbers) != 3:
        raise Corrupt("a slot's reference is cut short")
    return (numbers[0] or lane, numbers[1], numbers[2], 1)
