"""What is remembered of a list's items: every change is noticed, and they can be had as they were."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from clew.state.capture import Capture
from clew.state.codec import encode
from clew.state.values import Blob
from clew.testing import exactly_equal

QUICK = settings(max_examples=200, deadline=None)


class Role(enum.Enum):
    USER = "user"
    TOOL = "tool"


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    content: Any = ""
    name: str | None = None
    more: dict[str, Any] = Field(default_factory=dict)
    calls: list[Any] = Field(default_factory=list)


class Reply(Message):
    tokens: int = 0


class Secretive(BaseModel):
    _secret: int = PrivateAttr(default=1)


@dataclass
class Note:
    text: Any = ""
    tags: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = ("text",)


leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=3) | st.sampled_from(Role)
contents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
more = st.dictionaries(st.text(max_size=2), contents, max_size=2)
models = st.builds(Message, content=contents, more=more) | st.builds(Reply, content=contents, calls=st.lists(contents))
notes = st.builds(Note, contents, st.lists(contents, max_size=3))
conversations = st.lists(more, max_size=5) | st.lists(models, max_size=4) | st.lists(notes, max_size=4)


def holders(value: Any) -> list[Any]:
    """Everything in there that can be changed in place."""
    if type(value) is dict:
        return [value, *(found for item in value.values() for found in holders(item))]
    if type(value) is list:
        return [value, *(found for item in value for found in holders(item))]
    if isinstance(value, BaseModel | Note):
        return [value, *(found for item in vars(value).values() for found in holders(item))]
    return []


def change(holder: Any, data: st.DataObject) -> None:
    if type(holder) is list:
        at = data.draw(st.integers(0, len(holder)))
        holder[at : at + data.draw(st.integers(0, 1))] = data.draw(st.lists(contents, max_size=1))
    elif type(holder) is dict:
        key = data.draw(st.sampled_from([*holder, "new"]))
        kept = holder.pop(key, None)
        if data.draw(st.booleans()):
            holder[key] = data.draw(st.just(kept) | contents)  # the same one again moves to the end
    elif isinstance(holder, Note):
        holder.text = data.draw(contents)
    else:
        name = data.draw(st.sampled_from(["content", "name", "extra", "__pydantic_fields_set__"]))
        if name.startswith("__"):
            object.__setattr__(holder, name, {"content"})
        else:
            setattr(holder, name, data.draw(st.just(getattr(holder, name, 1)) | leaves))


@QUICK
@given(conversations, st.data())
def test_every_change_is_noticed_and_the_items_can_be_had_as_they_were(items: list[Any], data: st.DataObject) -> None:
    before = encode(items)
    capture = Capture.of(items)
    assert capture is not None
    assert capture.same(items)
    assert capture.same([*items, "more"])
    for _ in range(data.draw(st.integers(1, 3))):
        found = holders(items)[1:]
        if found:
            change(data.draw(st.sampled_from(found)), data)
    if encode(items) != before:
        assert not capture.same(items)
    assert encode(capture.copies()) == before


@QUICK
@given(st.lists(models, max_size=4) | st.lists(more, max_size=5), st.integers(0, 5))
def test_captures_joined_are_as_one(items: list[Any], at: int) -> None:
    first, second = Capture.of(items[:at]), Capture.of(items[at:])
    assert first is not None
    assert second is not None
    if items[:at] and items[at:]:
        assert first.join(second)
        assert first.same(items)
        assert exactly_equal(first.copies(), items)


@QUICK
@given(st.sampled_from([models, more, notes]), st.data())
def test_copies_are_compared_and_grow_like_what_they_were_made_of(kind: Any, data: st.DataObject) -> None:
    items = data.draw(st.lists(kind, min_size=1, max_size=4))
    capture = Capture.of(items)
    assert capture is not None
    for _ in range(data.draw(st.integers(1, 4))):
        before = encode(items)
        given_out, items = items, capture.renew()
        assert encode(items) == before
        assert capture.same(items)
        if found := holders(given_out)[1:]:
            change(data.draw(st.sampled_from(found)), data)
        assert capture.same(items)
        added = data.draw(st.lists(kind, min_size=1, max_size=2))
        joined = Capture.of(added)
        assert joined is not None
        assert capture.join(joined)
        items += added
        assert capture.same(items)
    before = encode(items)
    change(data.draw(st.sampled_from(holders(items)[1:])), data)
    assert capture.same(items) <= (encode(items) == before)
    assert encode(capture.copies()) == before


def test_objects_of_too_many_sorts_are_not_captured() -> None:
    """Each sort has columns of its own: what pays for messages does not for objects that have nothing in common."""
    notes = [Note("x") for _ in range(100)]
    for at, note in enumerate(notes):
        setattr(note, f"more_{at}", at)
    assert Capture.of(notes) is None
    few, others = Capture.of(notes[:40]), Capture.of(notes[40:80])
    assert few is not None
    assert others is not None
    assert not few.join(others)
    assert few.same(notes)


def test_what_takes_more_than_looking_at_leaves_is_not_captured() -> None:
    private, slotted = Secretive(), Slotted()
    extra = Message(content="x", unheard_of=1)  # type: ignore[call-arg]
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"deeper": deep}
    for item in ("text", {1}, [1], {"blob": Blob(b"x")}, {"set": {1}}, private, slotted, extra, deep, {"t": (1, [2])}):
        assert Capture.of([item]) is None, item
    assert Capture.of([{}, Note()]) is None
    assert Capture.of([Message(), Note()]) is None


@pytest.mark.parametrize("others", [[{}], [Note()], [Reply()]])
def test_captures_of_other_kinds_are_not_joined(others: list[Any]) -> None:
    for items in ([{"a": 1}], [Note("x")], [Message(content="x")]):
        capture, more = Capture.of(items), Capture.of(others)
        assert capture is not None
        assert more is not None
        fits = isinstance(items[0], BaseModel) == isinstance(others[0], BaseModel)
        fits = fits and (type(items[0]) is dict) == (type(others[0]) is dict)
        assert capture.join(more) == fits
        assert capture.same([*items, *others] if fits else items)
