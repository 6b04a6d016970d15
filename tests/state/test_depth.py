"""However deep a state is: what was saved is read back, and what cannot be is refused when it is saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import clew
from clew.errors import Unserialisable


@dataclass
class Box:
    inside: Any


@dataclass
class Padded:
    """Too large to stay in its parent."""

    inside: Any
    pad: str = "x" * 1100


LAYERS = {
    "dict": lambda value: {"inside": value},
    "large dict": lambda value: {"inside": value, "pad": "x" * 1100},
    "list": lambda value: [value],
    "large list": lambda value: ["x" * 1100, value],
    "tuple": lambda value: (value,),
    "object": Box,
    "large object": Padded,
}
blocks = st.tuples(st.sampled_from(sorted(LAYERS)), st.integers(1, 300))


def nested(wanted: list[tuple[str, int]]) -> Any:
    value: Any = "leaf"
    for kind, times in wanted:
        for _ in range(times):
            value = LAYERS[kind](value)
    return value


def flat(value: Any) -> list[str]:
    """What it consists of, from the outside to the inside: compared without recursion."""
    found = []
    while value != "leaf":
        found.append(type(value).__name__)
        if isinstance(value, dict):
            value = value["inside"]
        elif isinstance(value, (Box, Padded)):
            value = value.inside
        else:
            value = value[-1]
    return found


@pytest.fixture(params=[1000, 20_000])
def limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Python's own bound, and that of a program which has raised it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(request.param, before))
    yield
    sys.setrecursionlimit(before)


@given(st.lists(blocks, min_size=1, max_size=3), st.lists(blocks, max_size=2))
@example([("object", 100)], [])
@example([("object", 101)], [])
@example([("dict", 40), ("object", 5)], [])
@example([("dict", 31), ("object", 5)], [])
@example([("dict", 30), ("object", 5)], [])
@example([("object", 90)], [("object", 20)])
@example([("tuple", 60), ("object", 60)], [])
@example([("list", 200), ("dict", 200)], [("list", 200)])
def test_what_was_saved_is_read_back(wanted: list[tuple[str, int]], more: list[tuple[str, int]]) -> None:
    with clew.open("memory:") as db:
        thread = db.thread("t")
        for layers in (wanted, wanted + more):  # anew, and as a change of what is there
            state = {"value": nested(layers)}
            try:
                thread.save(state, parent=None if thread.head is None else "head")
            except Unserialisable:
                return
            assert flat(db.thread("t").state()["value"]) == flat(state["value"])


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("kind", sorted(LAYERS))
@pytest.mark.parametrize("saved_before", [False, True])
def test_a_value_that_contains_itself_is_refused(kind: str, saved_before: bool) -> None:
    thread = clew.open("memory:").thread("t")
    state: dict[str, Any] = {"agent": {"pad": "x" * 1100}}
    if saved_before:
        thread.save(state)
        state = thread.state()
    state["agent"]["self"] = LAYERS[kind](state["agent"])
    with pytest.raises(Unserialisable, match=r"^agent\.self.* contains itself") as refused:
        thread.save(state)
    assert len(refused.value.path) < 60


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_what_is_too_deep_is_refused(kind: str) -> None:
    with pytest.raises(Unserialisable, match="nested too deeply"):
        clew.open("memory:").thread("t").save({"value": nested([(kind, 2000)])})


def test_a_state_that_is_in_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(Unserialisable, match=r"^self contains itself"):
        clew.open("memory:").thread("t").save(state)
