"""Whatever is changed in place, however deep: the next save notices it, and no earlier checkpoint changes."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clew
from clew.testing import exactly_equal


@clew.register("mutation.Agent")
@dataclass
class Agent:
    history: list[Any]
    notes: dict[str, Any] = field(default_factory=dict)


@clew.register("mutation.Profile")
class Profile(pydantic.BaseModel):
    name: str
    tags: list[Any] = []
    extra: dict[str, Any] = {}


leaves = st.one_of(
    st.integers(-3, 3), st.booleans(), st.just(1.0), st.just("long " * 300), st.text(max_size=5), st.none()
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=4)
    dicts = st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=4)
    return st.one_of(
        lists,
        dicts,
        dicts.map(OrderedDict),
        st.builds(Agent, lists, dicts),
        st.builds(lambda tags, extra: Profile(name="anna", tags=tags, extra=extra), lists, dicts),
        st.builds(lambda items, more: (items, more), lists, dicts),
        st.sets(st.integers(0, 9), min_size=1, max_size=4),
        st.binary(min_size=1, max_size=4).map(bytearray),
        lists.map(lambda items: items * 40),
    )


states = st.dictionaries(
    st.sampled_from(["messages", "agent", "notes"]), st.recursive(grown(leaves), grown, max_leaves=12), min_size=1
)


def places(value: Any) -> list[Any]:
    """Every container in a value that can be changed in place."""
    found = [value] if isinstance(value, (list, dict, set, bytearray, Agent, Profile)) else []
    if isinstance(value, (list, tuple)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    else:
        inner = list(vars(value).values()) if isinstance(value, (Agent, Profile)) else []
    return found + [place for one in inner for place in places(one)]


def change(place: Any, data: st.DataObject) -> None:
    """One change in place; it may come to the same value."""
    if isinstance(place, list):
        action = data.draw(st.sampled_from(["append", "insert", "drop", "set", "swap"]))
        at = data.draw(st.integers(0, max(0, len(place) - 1)))
        if action == "append":
            place.append(data.draw(leaves))
        elif action == "insert" or not place:
            place.insert(0, data.draw(leaves))
        elif action == "drop":
            del place[at]
        elif action == "set":
            place[at] = data.draw(leaves)
        else:
            place.reverse()
    elif isinstance(place, dict):
        key = data.draw(st.sampled_from([*map(str, place), "new"]))
        if key in place and data.draw(st.booleans()):
            del place[key]
        else:
            place[key] = data.draw(leaves)
    elif isinstance(place, set):
        place ^= {data.draw(st.integers(0, 9))}
    elif isinstance(place, bytearray):
        place[0] ^= data.draw(st.integers(0, 255))
    elif isinstance(place, Agent):
        place.notes = {"replaced": data.draw(leaves)}
    else:
        place.name = data.draw(st.text(max_size=3))


@given(state=states, data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_change_at_any_depth_is_saved_and_changes_nothing_before(state: dict[str, Any], data: st.DataObject) -> None:
    with clew.open("memory:") as db:
        thread = db.thread("t")
        thread.save(state)
        expected = [copy.deepcopy(state)]
        for _ in range(data.draw(st.integers(1, 4))):
            if data.draw(st.booleans()):
                state = thread.state()  # a value that was read is changed as well as one that was written
            place = data.draw(st.sampled_from([state, *places(state)]))
            change(place, data)
            thread.save(state)
            expected.append(copy.deepcopy(state))
        for step, wanted in enumerate(expected, start=1):
            assert exactly_equal(db.thread("t").state(step), wanted), step


def deep(levels: int) -> tuple[dict[str, Any], list[Any]]:
    inmost: list[Any] = ["x" * 2000]
    value: Any = inmost
    for level in range(levels):
        value = {"level": level, "inner": value} if level % 2 else [value, "y" * 1200]
    return {"deep": value}, inmost


@pytest.mark.parametrize("levels", [0, 1, 2, 5, 20])
def test_how_deep_does_not_matter(db: clew.Database, levels: int) -> None:
    state, inmost = deep(levels)
    thread = db.thread("t")
    thread.save(state)
    inmost.append("z")
    thread.save(state)
    inmost[0] = inmost[0][:-1] + "!"
    thread.save(state)
    first, _ = deep(levels)
    assert exactly_equal(thread.state(1), first)
    assert exactly_equal(thread.state(3), state)
    assert thread.state(2) not in (thread.state(1), thread.state(3))


def test_what_was_saved_is_encoded_then(db: clew.Database) -> None:
    """Not when it is read, and not with the next save."""
    thread = db.thread("t")
    message = {"content": "before"}
    thread.save({"messages": [message]})
    message["content"] = "after"
    assert thread.state() == {"messages": [{"content": "before"}]}
    assert db.thread("t").state(1) == {"messages": [{"content": "before"}]}


def test_what_was_read_is_the_readers_own(db: clew.Database) -> None:
    thread = db.thread("t")
    thread.save({"messages": [{"content": "before"}]})
    for read in (thread.state(), thread.state(1), db.thread("t").state(), thread.head.state()):  # type: ignore[union-attr]
        read["messages"][0]["content"] = "changed"
        read["messages"].append("more")
    assert db.thread("t").state() == {"messages": [{"content": "before"}]}


class Meddler:
    """Whoever encodes this changes something else meanwhile, as another thread might."""

    meddle: ClassVar[list[dict[str, Any]]] = []


def met(value: Meddler) -> str:
    for message in Meddler.meddle:
        message["content"] = "meddled"
    return "met"


clew.register(Meddler, name="mutation.Meddler", encode=met, decode=lambda _text: Meddler())


@pytest.mark.parametrize("way", ["read", "edit", "saved"])
@pytest.mark.parametrize("first", [True, False], ids=["changes one before it", "changes one after it"])
def test_what_changes_while_it_is_compared_is_saved_now_or_next(db: clew.Database, way: str, first: bool) -> None:
    plain = [{"role": "user", "content": f"{number} " * 400} for number in range(4)]
    messages: list[Any] = [*plain, {"tool": Meddler()}] if first else [{"tool": Meddler()}, *plain]
    thread = db.thread("t")
    thread.save({"messages": messages})
    if way == "edit":
        with thread.edit() as state:
            state["n"] = 1
    elif way == "read":
        state = thread.state()
    else:
        thread.save(state := thread.state())
    try:
        Meddler.meddle = [message for message in state["messages"] if "content" in message]
        state["messages"].append("more")
        thread.save(state)
    finally:
        Meddler.meddle = []
    thread.save(state)
    assert [message.get("content") for message in thread.state()["messages"][:5]] == [
        message.get("content") for message in state["messages"][:5]
    ]
