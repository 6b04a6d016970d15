"""Pieces: what was packed is unpacked, one by one and by the hundred, and nothing else passes."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import ClewError, Corrupt
from clew.state.pieces import BYTES, ITEMS, Pieces, Segment, fold, length, pack, unpack, unpack_all

SEAL = 7
QUICK = settings(max_examples=300, deadline=None)

items = st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 1)), min_size=1, max_size=5)
flat_items = st.lists(st.tuples(st.binary(max_size=200), st.just(0)), min_size=1, max_size=3)


def of_items(log: int, start: int, held: list[tuple[bytes, int]]) -> Segment:
    sizes = [len(item) << 1 | refs for item, refs in held]
    return (log, ITEMS, start, sizes, b"".join(item for item, _ in held), any(refs for _, refs in held))


def of_bytes(log: int, start: int, data: bytes) -> Segment:
    return (log, BYTES, start, len(data), data, False)


logs, starts = st.integers(0, 300), st.integers(0, 100_000)
segments = st.one_of(
    st.builds(of_items, logs, starts, items),
    st.builds(of_items, logs, starts, flat_items),
    st.builds(of_bytes, logs, starts, st.binary(max_size=300)),
)
usual = st.builds(of_items, st.just(1), starts, flat_items).map(lambda segment: [segment])
"""What commits of a conversation write."""
rows = st.builds(
    lambda held, compress: pack(held, SEAL, compress=compress),
    st.one_of(usual, usual, st.lists(segments, min_size=1, max_size=4)),
    st.booleans(),
)


def plain(found: list[Segment]) -> list[tuple[Any, ...]]:
    return sorted((log, kind, start, str(sizes), bytes(body), refs) for log, kind, start, sizes, body, refs in found)


def sealed(row: bytes) -> bytes:
    """The row with a checksum that holds, as somebody would write who means it."""
    return row[:2] + crc32(row[6:], SEAL).to_bytes(4, "big") + row[6:]


@given(st.lists(segments, min_size=1, max_size=4), st.booleans())
@QUICK
def test_what_was_packed_is_unpacked(held: list[Segment], compress: bool) -> None:
    assert plain(unpack(pack(held, SEAL, compress=compress), SEAL)) == plain(held)


@given(st.lists(rows, max_size=8))
@QUICK
def test_many_are_what_each_is(many: list[bytes]) -> None:
    assert plain(unpack_all(many, SEAL)) == plain([segment for row in many for segment in unpack(row, SEAL)])


@given(st.lists(rows, min_size=1, max_size=6), st.data())
@QUICK
def test_a_row_that_is_refused_is_refused_among_many(many: list[bytes], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(many) - 1))
    row = bytearray(many[which])
    at = data.draw(st.integers(0, len(row) - 1))
    what = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if what == "flip":
        row[at] ^= 1 << data.draw(st.integers(0, 7))
    elif what == "cut":
        del row[at:]
    else:
        row += b"\0"
    many[which] = sealed(bytes(row)) if len(row) > 6 and data.draw(st.booleans()) else bytes(row)
    try:
        alone = [segment for each in many for segment in unpack(each, SEAL)]
    except ClewError as error:
        with pytest.raises(type(error)):
            unpack_all(many, SEAL)
    else:
        assert plain(unpack_all(many, SEAL)) == plain(alone)


@pytest.mark.parametrize("sizes", [[-2], [2.0], ["2"], [None], [[2]], [1 << 65], {2: 0}, "2", -2])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_sizes_that_are_none_are_corrupt(sizes: Any, neighbours: int) -> None:
    usual_row = pack([of_items(1, 0, [(b"x" * 40, 0)])], SEAL)
    try:
        row = pack([(1, ITEMS, 5, sizes, b"y", False)], SEAL)
    except TypeError:
        return  # no number that MessagePack can hold
    many = [usual_row] * neighbours + [row]
    with pytest.raises(Corrupt):
        unpack_all(many, SEAL)
    with pytest.raises(Corrupt):
        unpack(row, SEAL)


@given(st.lists(flat_items, min_size=1, max_size=30), st.data())
@QUICK
def test_any_stretch_is_read_from_rows_and_from_what_was_folded_of_them(
    held: list[list[tuple[bytes, int]]], data: st.DataObject
) -> None:
    written, stored = [item for each in held for item, _ in each], list[bytes]()
    at = 0
    for each in held:
        stored.append(pack([of_items(4, at, each)], SEAL))
        at += len(each)
    folded = data.draw(st.integers(0, len(stored)))
    chunks = fold([segment for row in stored[:folded] for segment in unpack(row, SEAL)], SEAL)
    pieces = Pieces(SEAL)
    for row in data.draw(st.permutations([*(chunk.data for chunk in chunks), *stored[folded:]])):
        pieces.add(2, row)
    for _ in range(3):
        start = data.draw(st.integers(0, at - 1))
        count = data.draw(st.integers(1, at - start))
        found = pieces.read(2, 4, start, count)
        assert sum(map(length, found)) == count
        assert b"".join(bytes(segment[4]) for segment in found) == b"".join(written[start : start + count])
    with pytest.raises(Corrupt):
        pieces.read(2, 4, at, 1)
    with pytest.raises(Corrupt):
        pieces.read(1, 4, 0, 1)
