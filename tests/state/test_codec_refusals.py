"""What cannot be stored says so, says where, and says what to do; nothing is flattened in silence."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import pytest

from clew.errors import TooLarge, Unserialisable
from clew.state import codec
from clew.state.codec_slow import encode_slowly
from clew.testing.strategies import Order


class MyDict(dict[str, Any]):
    pass


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class Plain:
    pass


@dataclasses.dataclass
class DictOfSorts(dict[str, Any]):
    name: str = ""


def _generator() -> Any:
    yield 1


REFUSED: list[tuple[Any, str]] = [
    (lambda: None, "look the function up"),
    (print, "look the function up"),
    (Plain, "class's name"),
    (threading.Lock(), "belongs to this process"),
    (threading.local(), "belongs to this process"),
    (sys.stdin, "belongs to this process"),
    (os, "imported, not stored"),
    (_generator(), "what it produces"),
    (memoryview(b"x"), "bytes(view)"),
    (Plain(), "clew.register(Plain)"),
    (MyDict(a=1), "plain dict"),
    (MyStr("x"), "plain str"),
    (MyInt(3), "plain int"),
    (DictOfSorts("x"), "plain dict"),
    (defaultdict(list), "plain dict"),
    (Counter("aa"), "plain dict"),
    (Path("/").stat(), "plain tuple"),
    (types.SimpleNamespace(a=1), "register"),
    (iter([]), "register"),
]


@pytest.mark.parametrize(("value", "hint"), REFUSED, ids=lambda part: type(part).__name__)
def test_a_refused_value_is_named_with_its_path_and_a_way_out(value: Any, hint: str) -> None:
    state = {"messages": [{}, {"args": {"when": value}}]}
    with pytest.raises(Unserialisable) as caught:
        codec.encode(state)
    assert caught.value.path == "messages[1].args.when"
    assert caught.value.message.startswith("messages[1].args.when is a ")
    assert type(value).__qualname__ in caught.value.message
    assert hint in caught.value.hint


def test_a_coroutine_is_refused() -> None:
    async def work() -> None: ...

    coroutine = work()
    with pytest.raises(Unserialisable, match="await"):
        codec.encode([coroutine])
    asyncio.run(coroutine)


PATHS: list[tuple[Any, str]] = [
    (Plain(), ""),
    ([1, Plain()], "[1]"),
    ({"odd key": Plain()}, '["odd key"]'),
    ({'a"b': Plain()}, '["a\\"b"]'),
    ({3: {"a": Plain()}}, "[3].a"),
    ({"a": {(1, 2): Plain()}}, "a[<tuple>]"),
    ({"a": {MyStr("k"): 1}}, "a{key}"),
    ({"a": {MyInt(1): 1}}, "a{key}"),
    ({"a": (0, Plain())}, "a[1]"),
    ({"a": deque([0, Plain()], maxlen=4)}, "a[1]"),
    ({"a": OrderedDict(b=Plain())}, "a.b"),
    ({"a": frozenset([print])}, "a{…}"),
    ({"order": Order(1, [Plain()])}, "order.count[0]"),
    ({"\ud800": [Plain()]}, '["\ud800"][0]'),
    ([[[[[[[[[[[[[{"deep": Plain()}]]]]]]]]]]]]], "[0]" * 13 + ".deep"),
]


@pytest.mark.parametrize(("value", "path"), PATHS, ids=[path.encode("ascii", "replace").decode() for _, path in PATHS])
def test_the_path_leads_to_the_culprit(value: Any, path: str) -> None:
    with pytest.raises(Unserialisable) as caught:
        codec.encode(value)
    assert caught.value.path == path
    with pytest.raises(Unserialisable) as caught:
        codec.encode(value, path="state")
    assert caught.value.path == "state" + (path if path[:1] in ("", "[", "{") else f".{path}")


def test_the_path_leads_into_models() -> None:
    from clew.testing.models import Open, Trip, noting

    for value, path in (
        (Trip(city={"a": Plain()}), "trip.city.a"),
        (noting(Plain()), "trip._secret"),
        (Open(more=[Plain()]), "trip.more[0]"),
    ):
        with pytest.raises(Unserialisable) as caught:
            codec.encode({"trip": value})
        assert caught.value.path == path


def test_cycles_are_named() -> None:
    looped: list[Any] = [1]
    looped.append({"again": looped})
    order = Order("x")
    order.lines.append((order,))
    for value, path in (({"a": looped}, "a[1].again"), ({"order": order}, "order.lines[0][0]")):
        with pytest.raises(Unserialisable, match="contains itself") as caught:
            codec.encode(value)
        assert caught.value.path == path


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert codec.decode(codec.encode([shared, shared, (shared,)])) == [[1], [1], ([1],)]


def _nested(depth: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = {
    "list": (lambda v: [v], 255),
    "dict": (lambda v: {"a": v}, 255),
    "tuple": (lambda v: (v,), 100),
    "int keys": (lambda v: {1: v}, 100),
    "object": (Order, 100),
    "frozenset": (lambda v: frozenset([v]), 100),
}


@pytest.mark.parametrize("kind", WRAPS)
def test_depth_ends_with_an_error_and_what_is_accepted_comes_back(kind: str) -> None:
    wrap, limit = WRAPS[kind]
    encoded = codec.encode(_nested(limit, wrap))
    assert codec.encode(codec.decode(encoded)) == encoded == encode_slowly(_nested(limit, wrap))
    for depth in (limit + 1, 1000, 5000):
        with pytest.raises(Unserialisable, match="nested too deeply"):
            codec.encode(_nested(depth, wrap))


def test_lists_deep_inside_objects_are_refused_on_the_way_in() -> None:
    """What the reader would not accept, to keep its stack bounded, is not written."""
    for lists in (25, 31, 32, 33, 200):
        for objects in range(1, 9):
            value = _nested(objects, lambda v: (_nested(lists, lambda w: [w]) if v == 1 else v,))
            try:
                encoded = codec.encode(value)
            except Unserialisable:
                assert lists >= 31
                assert objects > 4
                continue
            assert codec.encode(codec.decode(encoded)) == encoded


def test_too_large_names_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from clew.state import codec_format

    monkeypatch.setattr(codec_format, "MAX_BYTES", 1000)
    with pytest.raises(TooLarge) as caught:
        codec.encode({"a": 1, "b": [1, {"text": "x" * 2000}]})
    assert caught.value.path == "b[1].text"
    with pytest.raises(TooLarge) as caught:
        codec.encode([["x" * 500], ["x" * 600]], path="state")
    assert caught.value.path == "state"


def test_a_keyboard_interrupt_inside_the_hook_is_not_lost() -> None:
    from clew.state.values import Blob

    def stop() -> bytes:
        raise KeyboardInterrupt

    blob = Blob.lazy("0" * 64, 1, None, stop)
    with pytest.raises(KeyboardInterrupt):
        codec.encode([blob])
    with pytest.raises(KeyboardInterrupt):
        codec.encode([{1: [blob]}])
    assert codec.decode(codec.encode([(1,)])) == [(1,)]


def test_frozen_is_what_cannot_change() -> None:
    from clew.testing.strategies import Colour, Point

    for value in (None, 1, "x", b"x", 1.5, (1, ("x",)), frozenset([1]), Colour.RED, Point(1, 2), Path("/a"), range(3)):
        assert codec.is_frozen(value), value
    for value in ([], {}, set(), bytearray(), ([],), Point([], 1), Order(1), deque(), Plain(), MyStr("x"), print):
        assert not codec.is_frozen(value), value
