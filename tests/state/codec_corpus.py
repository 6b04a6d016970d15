"""Encodings of every type, for tests that damage them."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy

from clew.state import codec
from clew.state.values import Blob
from clew.testing.models import Box, Open, Trip
from clew.testing.strategies import Colour, Level, Money, Order, Point, Rights, Rush, Tip


def _raised() -> ValueError:
    try:
        raise KeyError("inner")
    except KeyError as cause:
        error = ValueError("outer", 3)
        error.__cause__ = cause
        error.add_note("a note")
        return error


VALUES: list[Any] = [
    None,
    True,
    [0, -1, 127, 128, -33, 2**31, 2**63, -(2**63), 2**64, -(2**64), 2**200],
    [0.0, -0.0, float("nan"), float("inf")],
    ["", "é\x00😀", "\ud800", "x" * 40],
    [b"", b"x" * 20, bytearray(b"yz")],
    {"role": "user", "content": "hi", "tags": ["a", {"b": None}]},
    {1: "a", (2, "b"): "c", None: b"d"},
    {"\ud800": 1},
    (1, (2, ()), [3]),
    [{1, 2, "a"}, frozenset([(1,)])],
    [OrderedDict(a=1), deque([1, 2], 3), deque([1])],
    [1 + 2j, Decimal("1.10"), Decimal("sNaN3"), Fraction(1, 3), range(1, 9, 2)],
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=1),
    [dt.date(2026, 1, 2), dt.time(1, 2, 3, 4), dt.timedelta(-1, 2, 3), dt.UTC, zoneinfo.ZoneInfo("UTC")],
    dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=2), "name")),
    UUID(int=5),
    PurePosixPath("a/b"),
    [Colour.RED, Level.LOW, Rights.READ, Rights(5)],
    [Order("tea", 2, [1]), Rush("x", by=(1,)), Money(3), Tip(1, to=2), Point(1, 2)],
    [Trip(city="Tokyo"), Open(known=1, more=[2]), Box[int](item=3)],
    _raised(),
    Blob(b"data", media_type="image/png"),
    numpy.arange(6, dtype="<i2").reshape(2, 3),
    numpy.zeros(2, numpy.dtype([("a", "<i4"), ("b", "S3")])),
    [numpy.float32(1.5), numpy.str_("a"), numpy.datetime64("2026-01-02")],
]


def corpus() -> list[bytes]:
    return [codec.encode(value) for value in VALUES]


NAMES = [
    "os:system",
    "builtins:eval",
    "builtins:exec",
    "subprocess:Popen",
    "os.system",
    "posix\nsystem",
    "pickle:loads",
]


def poisoned() -> list[bytes]:
    """Bytes that make other loaders import or call something."""
    import json
    import pickle

    made = [
        pickle.dumps(value, protocol) for protocol in range(6) for value in (print, Order("x"), {"a": [1]}, _Runs())
    ]
    for name in NAMES:
        module, _, attribute = name.replace(".", ":").replace("\n", ":").partition(":")
        envelope = {"lc": 1, "type": "constructor", "id": [module, attribute], "kwargs": {"command": "echo hurt"}}
        made.append(codec.encode(envelope))
        made.append(json.dumps(envelope).encode())
        call = codec.encode([module, attribute, ["echo hurt"], {"a": 1}, "__reduce__"])
        made += [codec.pack_ext(tag, call) for tag in range(-8, 96)]
        for state in (["echo hurt"], {"command": "echo hurt"}, "echo hurt", None):
            for tag in range(22, 28):
                made.append(codec.pack_ext(tag, codec.encode([name, 1, state])))
                made.append(codec.pack_ext(tag, codec.encode([name, 1, None, state])))
    zones = [
        "os",
        "../../etc/passwd",
        "/etc/localtime",
        "tzdata",
        "subprocess",
        "a.b",
        "xml/etree",
        "..",
        "posix/UTC",
        "tzdata.zi",
        "leapseconds",
    ]
    made += [codec.pack_ext(16, zone.encode()) for zone in zones]
    made += [codec.pack_ext(11, b"\x07\xea\x01\x01\0\0\0\0\0\0\0\0\x02" + zone.encode()) for zone in zones]
    dtypes = ["O", "|O", "|O8", "os", "i4,f8", "(2,)O", "U" * 9, "<U999999999", "numpy.object_", "<M8[1000000000s]"]
    made += [codec.pack_ext(29, codec.encode([dtype, [1], b"12345678"])) for dtype in dtypes]
    made += [codec.pack_ext(30, codec.encode([dtype, b"12345678"])) for dtype in dtypes]
    return made


class _Runs:
    def __reduce__(self) -> Any:
        return print, ("hurt",)


def in_every_position(part: bytes) -> list[bytes]:
    """The part as it is, and inside each kind of container, as item, key, value, field and member."""
    one = codec.encode("k")
    inside = [codec.pack_list([part]), codec.pack_dict(["k"], [part])]
    inside += [codec.pack_ext(tag, codec.pack_list(items)) for tag in (4, 5, 6, 9) for items in ([part], [one, part])]
    inside += [codec.pack_ext(tag, codec.pack_list(items)) for tag in (7, 8) for items in ([part, one], [one, part])]
    for value in (Order("x"), Trip(city=1)):
        taken = codec.take_apart(value)
        assert taken is not None
        inside.append(codec.put_together(taken.head, list(taken.fields), [part] * len(taken.fields)))
    return [part, *inside]


def bombs() -> list[bytes]:
    """Depth, lengths and numbers far beyond what stands behind them."""
    made = [start * 100_000 + b"\xc0" for start in (b"\x91", b"\x81\xa1a", b"\x92\xc0", b"\xdc\x00\x01")]
    made += [
        code + b"\x7f\xff\xff\xff" + rest
        for code in (b"\xdd", b"\xdf", b"\xdb", b"\xc6")
        for rest in (b"", b"\xc0" * 9)
    ]
    made += [b"\xc9\x7f\xff\xff\xff%c" % tag for tag in (1, 4, 24, 29)]
    made += [b"\x91" * 900 + codec.pack_ext(4, b"\x91" * 900 + codec.pack_ext(4, b"\x91" * 900 + b"\xc0"))]
    for wrap in (
        lambda v: codec.pack_ext(4, b"\x91" + v),
        lambda v: codec.pack_ext(24, b"\x94\xa1n\x01\xc0\x81\xa1a" + v),
    ):
        for depth in (50, 101, 2000):
            value = b"\xc0"
            for _ in range(depth):
                value = wrap(value)
            made.append(value)
    for lists in (31, 33, 250, 1000):
        value = b"\xc0"
        for _ in range(100):
            value = codec.pack_ext(4, b"\x91" * lists + value)
        made.append(value)
    made.append(codec.pack_ext(1, b"\x7f" * 1_000_000))
    made += [
        codec.pack_ext(17, text) for text in (b"1E+999999999999999999", b"9" * 100_000, b"1E+9999999999999999999999")
    ]
    made.append(codec.pack_ext(21, codec.encode([0, 2**62, 1])))
    made.append(codec.pack_ext(9, codec.encode([2**62, 1])))
    for shape in ([2**31 - 1, 2**31 - 1], [0, 2**31 - 1, 2**31 - 1], [2**30], [1] * 40, [0] * 70):
        for dtype in ("<f8", "|V0", "|S0", "<U0", "<U999999999"):
            made.append(codec.pack_ext(29, codec.encode([dtype, shape, b""])))
    wide = [["a"], ["<f8"], [2**31 - 8], 2**31 - 1, False, [None]]
    made.append(codec.pack_ext(29, codec.encode([wide, [0], b""])))
    return made
