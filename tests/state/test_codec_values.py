"""Particular values: what is kept of them, and what equal ones have in common."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Context, Decimal, setcontext
from pathlib import Path
from typing import Any

import pytest

from clew.errors import Corrupt, Unserialisable
from clew.state import codec
from clew.state.values import Blob, ExceptionSummary, Opaque, digest_of
from clew.testing import exactly_equal
from clew.testing.strategies import Bits, Order, Rush


def through(value: Any) -> Any:
    return codec.decode(codec.encode(value))


def test_an_exception_is_kept_as_a_summary() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as cause:
            raise ValueError("outer", 3, object()) from cause
    except ValueError as error:
        error.add_note("look here")
        kept = through({"error": error})["error"]
    assert kept == ExceptionSummary(
        "ValueError",
        kept.message,
        ("look here",),
        ("'outer'", "3", "<builtins.object>"),
        ExceptionSummary("KeyError", "'inner'", (), ("'inner'",), None),
    )
    assert exactly_equal(through(kept), kept)
    assert str(kept.cause) == "KeyError: 'inner'"


def test_an_exception_with_an_endless_text_and_chain_stays_small() -> None:
    error = ValueError("x" * 10_000_000)
    for _ in range(100):
        outer = ValueError("y")
        outer.__cause__ = error
        error = outer
    assert len(codec.encode(error)) < 2000
    assert len(codec.encode(ValueError("x" * 10_000_000))) < 20_000


def test_an_exception_whose_text_fails_is_kept() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert through(Mute()).message == "(its text could not be made)"


def test_a_blob_is_its_content() -> None:
    blob = Blob(b"data", media_type="text/plain")
    assert blob.digest == digest_of(b"data")
    assert (blob.size, blob.read()) == (4, b"data")
    assert through(blob) == blob
    assert through(blob).media_type == "text/plain"
    assert blob != Blob(b"data")
    assert len({blob, Blob(b"data", media_type="text/plain")}) == 1
    assert copy.deepcopy(blob) is blob
    with pytest.raises(AttributeError):
        blob.size = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Blob("text")  # type: ignore[arg-type]


def test_a_lazy_blob_reads_when_asked() -> None:
    asked: list[int] = []

    def load() -> bytes:
        asked.append(1)
        return b"data"

    blob = Blob.lazy(digest_of(b"data"), 4, None, load)
    assert blob == Blob(b"data")
    assert not asked
    assert blob.read() == b"data"
    assert asked


def test_opaque_values_are_compared_by_their_bytes() -> None:
    one, two, other = (codec.decode(codec.pack_ext(60, data)) for data in (b"a", b"a", b"b"))
    assert one == two != other
    assert len({one, two, other}) == 2
    assert type(copy.deepcopy(one)) is Opaque
    assert through({one: [other]}) == {one: [other]}


def test_cached_properties_are_left_out_and_other_attributes_kept() -> None:
    order = Order("tea", 1, [1, 2])
    before = codec.encode(order)
    assert order.total == 2
    assert codec.encode(order) == before
    assert through(Rush("tea", 7)).noticed == 7
    assert through(Rush[int]("tea")) == Rush("tea")


def test_a_field_that_was_deleted_is_refused() -> None:
    order = Order("tea")
    del order.item
    with pytest.raises(Unserialisable, match="'item' has no value"):
        codec.encode(order)
    assert codec.take_apart(order) is None


@dataclass
class Counted:
    name: str
    count: int = field(init=False, default=9)
    more: list[int] = field(init=False, default_factory=list)


def test_a_field_whose_default_stands_on_the_class() -> None:
    """`init=False` with a default: there is nothing in the instance until somebody sets it."""
    counted = Counted("tea")
    back = through(counted)
    assert (back, vars(back)) == (counted, vars(counted))
    counted.count = 10
    assert through(counted).count == 10


def test_a_named_tuple_with_attributes_can_change() -> None:
    class Marked(namedtuple("Marked", "x")):  # noqa: SLOT002
        pass

    marked = Marked(1)
    marked.note = "kept"
    assert through(marked).note == "kept"
    assert not codec.is_frozen(marked)


def test_flags_beyond_the_declared_ones() -> None:
    assert exactly_equal(through([Bits(0), Bits.A | Bits.B, Bits(64), ~Bits.A]), [Bits(0), Bits(3), Bits(64), ~Bits.A])


def test_a_decimal_does_not_depend_on_the_context() -> None:
    value = Decimal("1E+30")
    expected = codec.encode(value)

    def elsewhere() -> None:
        setcontext(Context(prec=2, capitals=0, traps=[]))
        results.append((codec.encode(value), through(Decimal("123.456"))))
        with pytest.raises(Corrupt):
            codec.decode(codec.pack_ext(17, b"nonsense"))
        results.append(True)

    results: list[Any] = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert results == [(expected, Decimal("123.456")), True]


def test_arrays_are_opaque_until_numpy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    encoded = codec.encode([numpy.arange(3), numpy.int8(1)])
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "numpy")
        with pytest.warns(match="numpy"):
            back = codec.decode(encoded)
        assert [type(part) for part in back] == [Opaque, Opaque]
        assert codec.encode(back) == encoded
    assert codec.decode(encoded)[0].flags.writeable


def test_arrays_of_objects_and_kinds_of_arrays_are_refused() -> None:
    import numpy

    matrix = numpy.asmatrix([[1]])
    for value in (numpy.array([object()]), matrix, numpy.ma.masked_array([1]), numpy.zeros(2, "V0")):
        with pytest.raises(Unserialisable) as caught:
            codec.encode({"data": [value]})
        assert caught.value.path == "data[0]"


def test_an_array_in_any_memory_order_is_the_same_array() -> None:
    import numpy

    array = numpy.arange(12).reshape(3, 4)
    for view in (array.T, array[::2, ::-1], numpy.asfortranarray(array), array[1, 1:1]):
        assert exactly_equal(through(view), view)


def test_equal_sets_have_equal_bytes_in_every_process() -> None:
    code = "from clew.state import codec; print(codec.encode({'a', 'b', 'cc', 1, None, (2, 'x'), b'y', 2**70}).hex())"
    source = str(Path(__file__).parents[2] / "src")
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": source, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_little_stack_is_said_and_not_taken_for_damage() -> None:
    value: Any = 1
    for _ in range(100):
        value = (value,)
    encoded = codec.encode(value)

    def deep(left: int) -> None:
        if left:
            return deep(left - 1)
        assert codec.encode(value) == encoded
        with pytest.raises(Corrupt, match="too little stack"):
            codec.decode(encoded)
        return None

    here, frame = 0, sys._getframe()
    while frame is not None:
        here, frame = here + 1, frame.f_back  # type: ignore[assignment]
    deep(sys.getrecursionlimit() - here - 60)
    assert codec.decode(encoded) == value


def test_values_are_saved_as_they_are_now() -> None:
    state = {"messages": [{"a": bytearray(b"x")}]}
    encoded = codec.encode(state)
    state["messages"][0]["a"] += b"y"
    assert codec.decode(encoded) == {"messages": [{"a": bytearray(b"x")}]}


def test_langchain_messages_come_back_and_come_apart() -> None:
    from langchain_core import messages

    call = {"name": "book", "args": {"city": "Osaka"}, "id": "c1", "type": "tool_call"}
    for message in (
        messages.HumanMessage("hi", name="bob"),
        messages.AIMessage("", tool_calls=[call], response_metadata={"model": "m"}),
        messages.ToolMessage("done", tool_call_id="c1"),
        messages.AIMessageChunk("x"),
        messages.HumanMessage([{"type": "text", "text": "hi"}], extra_key=1),
    ):
        back = through([message])[0]
        assert exactly_equal(back, message)
        assert back.model_dump() == message.model_dump()
        parts = codec.take_apart(message)
        assert parts is not None
        fields = [codec.encode(field) for field in parts.fields.values()]
        assert codec.put_together(parts.head, list(parts.fields), fields) == codec.encode(message)
