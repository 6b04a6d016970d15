"""Many models read at once are what reading them one by one gives, whatever stands in the bytes."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from clew.errors import Corrupt
from clew.state import codec, codec_read
from clew.state.capture import Building, Capture
from clew.state.values import Opaque, UnknownType
from clew.testing import exactly_equal

QUICK = settings(max_examples=200, deadline=None)


class Said(BaseModel):
    text: Any = ""
    by: str | None = None


class Asked(Said):
    model_config = ConfigDict(extra="allow")
    options: list[Any] = []


class Whispered(Said):
    _to: str = PrivateAttr(default="all")


def _without(name: str, model: BaseModel) -> BaseModel:
    """A model that lacks a field, as one that was stored by an older class."""
    vars(model).pop(name)
    return model


texts = st.text(max_size=3) | st.integers(0, 3)
plain = st.builds(Said, text=texts) | st.builds(Said, text=texts, by=st.none() | st.text(max_size=2))
asked = st.builds(Asked, text=texts, options=st.lists(plain, max_size=2))
odd = (
    st.builds(Whispered, text=texts)
    | st.builds(lambda text: Asked(text=text, more=text), texts)  # type: ignore[call-arg]
    | st.builds(lambda text: _without("by", Said(text=text)), texts)
)
models = plain | asked
within = models.flatmap(lambda model: st.sampled_from([model, [model], {"said": [model, model]}, 7, (model,), {1, 2}]))
lists = (
    st.lists(models, min_size=8, max_size=12)
    | st.lists(within, min_size=8, max_size=12)
    | st.lists(within | odd, min_size=8, max_size=12)
)


def read(parts: list[bytes], *, many: int) -> Any:
    """What is read, when so many are read at once; or that they are corrupt."""
    with mock.patch.multiple(codec_read, _MANY=many, _AT_ONCE=5, _warned=set()), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownType)  # of damaged names there is no end: none is to be remembered
        try:
            return codec.decode_list(len(parts), parts)
        except Corrupt:
            return Corrupt


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, Opaque) and isinstance(other, Opaque):
        return codec.encode(one) == codec.encode(other)
    if type(one) is type(other) is list:
        return len(one) == len(other) and all(map(alike, one, other))
    return exactly_equal(one, other)


@QUICK
@given(lists)
def test_many_at_once_are_what_they_are_one_by_one(items: list[Any]) -> None:
    parts = [codec.encode(item) for item in items]
    assert alike(read(parts, many=8), read(parts, many=1 << 30))


@QUICK
@given(lists, st.data())
def test_damage_is_read_as_it_is_one_by_one(items: list[Any], data: st.DataObject) -> None:
    parts = [codec.encode(item) for item in items]
    at = data.draw(st.integers(0, len(parts) - 1))
    spot = data.draw(st.integers(0, len(parts[at]) - 1))
    damaged = bytearray(parts[at])
    damaged[spot] = data.draw(st.integers(0, 255))
    parts[at] = bytes(damaged)
    assert alike(read(parts, many=8), read(parts, many=1 << 30))


@QUICK
@given(st.lists(models, min_size=8, max_size=12), st.lists(models, max_size=3), st.data())
def test_what_was_built_together_is_captured_as_it_is(
    many: list[BaseModel], few: list[BaseModel], data: st.DataObject
) -> None:
    building, items = Building(), list[Any]()
    for batch in (many, few, many):
        built: list[codec.Built] = []
        read_now = codec.decode_list(len(batch), [codec.encode(one) for one in batch], built=built)
        assert bool(built) == (batch is many)
        building.take(read_now, built)
        items += read_now
    assert (building.capture is None) == (Capture.of(items) is None)
    if building.capture is not None:
        assert building.capture.same(items)
        assert exactly_equal(building.capture.copies(), items)
        changed = data.draw(st.sampled_from(items))
        vars(changed)["text"] = "another"
        assert not building.capture.same(items)


@QUICK
@given(st.lists(within | odd, min_size=8, max_size=12))
def test_what_was_not_built_together_is_not_told_of(items: list[Any]) -> None:
    built: list[codec.Built] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownType)
        read_now = codec.decode_list(len(items), [codec.encode(one) for one in items], built=built)
    assert sum(len(one.fields) for one in built) in (0, len(items))
    assert all(vars(model) in one.fields for one in built for model in read_now if type(model) is one.cls)


def test_objects_are_made_anew_for_each_place() -> None:
    said = Said(text="x")
    back = read([codec.encode([said, said])] * 8, many=8)
    assert len({id(one) for pair in back for one in pair}) == 16
