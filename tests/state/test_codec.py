"""What goes in comes out: the same values, of the same types, from the same bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import Corrupt
from clew.state import codec
from clew.state.codec_slow import encode_slowly
from clew.state.values import Blob, Opaque, UnknownType
from clew.testing import exactly_equal
from clew.testing.strategies import keys, states, values

QUICK = settings(max_examples=150, deadline=None)


@QUICK
@given(values())
def test_a_value_comes_back_exactly(value: Any) -> None:
    encoded = codec.encode(value)
    back = codec.decode(encoded)
    assert exactly_equal(back, value)
    assert codec.encode(back) == encoded


@QUICK
@given(states())
def test_the_slow_encoder_writes_the_same_bytes(state: dict[str, Any]) -> None:
    assert encode_slowly(state) == codec.encode(state)


@QUICK
@given(st.lists(values(), max_size=5))
def test_packing_encoded_items_is_encoding_the_list(items: list[Any]) -> None:
    parts = [codec.encode(item) for item in items]
    assert codec.pack_list(parts) == codec.encode(items)
    assert exactly_equal(codec.decode_list(len(parts), parts), items)
    for wrong in {len(parts) - 1, len(parts) + 1} - {-1}:
        with pytest.raises(Corrupt):
            codec.decode_list(wrong, parts)


@QUICK
@given(st.dictionaries(keys(), values(), max_size=4))
def test_packing_encoded_values_is_encoding_the_dict(value: dict[Any, Any]) -> None:
    parts = [codec.encode(item) for item in value.values()]
    assert codec.pack_dict(list(value), parts) == codec.encode(value)


@QUICK
@given(values())
def test_an_object_is_its_head_and_its_fields(value: Any) -> None:
    parts = codec.take_apart(value)
    if parts is None:
        return
    encoded = [codec.encode(field) for field in parts.fields.values()]
    assert codec.put_together(parts.head, list(parts.fields), encoded) == codec.encode(value)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65535, 65536])
def test_headers_of_every_size(count: int) -> None:
    items: list[Any] = [None] * count
    assert codec.pack_list([b"\xc0"] * count) == codec.encode(items) == encode_slowly(items)
    by_name = {str(i): None for i in range(count)}
    assert codec.pack_dict(list(by_name), [b"\xc0"] * count) == codec.encode(by_name) == encode_slowly(by_name)
    numbered = dict.fromkeys(range(count))
    assert codec.decode(codec.encode(numbered)) == numbered


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 15, 16, 17, 255, 256, 65535, 65536])
def test_extensions_of_every_size(size: int) -> None:
    assert codec.decode(codec.pack_ext(3, b"x" * size)) == bytearray(b"x" * size)
    assert codec.encode(bytearray(b"x" * size)) == codec.pack_ext(3, b"x" * size)


def test_any_tag_keeps_its_bytes() -> None:
    for tag in (*range(-128, 1), *range(31, codec.REF_FIRST)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownType)  # told once for each tag in a process
            opaque = codec.decode(codec.pack_ext(tag, b"what is this"))
        assert type(opaque) is Opaque
        assert codec.encode([opaque]) == codec.pack_list([codec.pack_ext(tag, b"what is this")])


# --- references ------------------------------------------------------------------------------------------------------


class Kept:
    """A Spill that keeps what it is given, and the resolve that goes with it."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.blobs: list[Blob] = []

    def leaf(self, encoded: bytes) -> bytes:
        self.leaves.append(encoded)
        return codec.pack_ext(codec.REF_FIRST, str(len(self.leaves) - 1).encode())

    def blob(self, blob: Blob) -> bytes:
        self.blobs.append(blob)
        return codec.pack_ext(127, str(len(self.blobs) - 1).encode())

    def resolve(self, tag: int, payload: bytes) -> object:
        return self.blobs[int(payload)] if tag == 127 else codec.decode(self.leaves[int(payload)])


def _places(leaf: Any) -> Sequence[Any]:
    from clew.testing.models import Open, Trip
    from clew.testing.strategies import Money, Order, Point, Rush

    return [
        leaf,
        [leaf],
        {"a": leaf},
        {1: leaf},
        (1, (leaf,)),
        Order(leaf, [leaf]),
        Rush(leaf, leaf),
        Money((leaf,)),
        Point(leaf),
        Trip(city=leaf, notes=[{"a": (leaf,)}]),
        Open(known=1, more=leaf),
        {"surrogate": "\ud800", "leaf": [(leaf,)]},
    ]


@pytest.mark.parametrize(
    "make", [lambda n: "é" * (n // 2), lambda n: b"x" * n, lambda n: bytearray(n), lambda n: "\ud800" + "x" * n]
)
def test_large_leaves_leave_the_bytes_wherever_they_stand(make: Callable[[int], Any]) -> None:
    for value in _places(make(100_000)):
        kept = Kept()
        encoded = codec.encode(value, spill=kept)
        assert len(encoded) < 2000
        assert kept.leaves
        assert exactly_equal(codec.decode(encoded, resolve=kept.resolve), value)
        with pytest.raises(Corrupt):
            codec.decode(encoded)


def test_arrays_and_blobs_leave_the_bytes() -> None:
    import numpy

    for value in _places(numpy.arange(20_000)) + _places(Blob(b"small")):
        kept = Kept()
        encoded = codec.encode(value, spill=kept)
        assert len(encoded) < 2000
        assert kept.leaves or kept.blobs
        assert exactly_equal(codec.decode(encoded, resolve=kept.resolve), value)


def test_a_leaf_spills_from_one_byte_over_the_limit_on() -> None:
    import numpy

    limit = codec.SPILL_OVER
    for make in (
        lambda n: "x" * n,
        lambda n: b"x" * n,
        bytearray,
        lambda n: "\ud800" + n * "x",
        lambda n: numpy.zeros(n, "u1"),
    ):
        for size in range(limit - 40, limit + 5):
            value = make(size)
            for around in (lambda v: v, lambda v: [v], lambda v: ({1: v},)):
                kept = Kept()
                codec.encode(around(value), spill=kept)
                assert bool(kept.leaves) == (len(codec.encode(value)) > limit)


def test_keys_never_spill() -> None:
    from collections import OrderedDict

    key = "k" * 100_000
    for value in ({key: 1}, {1: 2, key: 3}, {(key,): "v" * 100_000}, OrderedDict({key: 1})):
        kept = Kept()
        encoded = codec.encode(value, spill=kept)
        assert exactly_equal(codec.decode(encoded, resolve=kept.resolve), value)
        assert len(kept.leaves) == (type(next(iter(value))) is tuple)


def test_small_values_are_encoded_alike_with_and_without_a_spill() -> None:
    value = {"messages": [{"role": "user", "content": "x" * 1000}] * 100, "other": (1, {2: 3})}
    kept = Kept()
    assert codec.encode(value, spill=kept) == codec.encode(value)
    assert not kept.leaves


def test_an_error_of_the_resolver_comes_through_unchanged() -> None:
    class Lost(Exception):
        pass

    def resolve(tag: int, payload: bytes) -> object:
        raise Lost

    with pytest.raises(Lost):
        codec.decode(codec.pack_ext(4, b"\x91" + codec.pack_ext(96, b"x")), resolve=resolve)
