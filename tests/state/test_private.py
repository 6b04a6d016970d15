"""What is lent, and whether it was changed: against copies of everything, compared leaf by leaf."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clew.state.digest import ListDigest, digest
from clew.state.private import Lender, Watch
from clew.testing import exactly_equal
from clew.testing.strategies import values

leaves = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.floats())
nested = st.recursive(
    leaves, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(st.sampled_from("abc"), kids, max_size=3)
)
texts = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": st.text(max_size=4)})
messages = st.one_of(texts, st.dictionaries(st.sampled_from("abc"), nested, max_size=3), nested)


def containers(value: Any) -> list[Any]:
    """All containers in a value."""
    kids = value.values() if type(value) is dict else value if type(value) is list else ()
    return [value, *(found for kid in kids for found in containers(kid))] if type(value) in (dict, list) else []


def change(data: st.DataObject, value: Any) -> None:
    """Change one container of a value in place, wherever it stands."""
    found = data.draw(st.sampled_from(containers(value)))
    if type(found) is dict:
        found[data.draw(st.sampled_from("abc"))] = data.draw(nested)
    elif found and data.draw(st.booleans()):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(nested)
    else:
        found.append(data.draw(nested))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), kind=st.sampled_from([texts, messages]))
def test_a_lender_lends_what_is_there_and_notices_what_was_changed(data: st.DataObject, kind: Any) -> None:
    lender = Lender()
    state: dict[str, Any] = {"messages": data.draw(st.lists(kind, min_size=6, max_size=12)), "n": 0}
    out: list[dict[str, Any]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        before = copy.deepcopy(state)
        lent, known = lender.lend(state)
        assert exactly_equal(lent, state)
        shared = {id(one) for each in (state, *out) for one in containers(each)}
        assert not shared & {id(one) for one in containers(lent)}
        watch = Watch(lent, known)
        assert watch.changed(lent) is None
        for kept, items in ((kept, lent[key]) for key, kept in known.items()):
            assert kept.digest(items) == digest(before["messages"])
        if data.draw(st.booleans()):
            change(data, lent["messages"])
        if exactly_equal(lent, before):
            assert watch.changed(lent) is None
        else:
            assert watch.changed(lent) == "messages"
        assert exactly_equal(state, before)
        if watch.changed(lent) is None and data.draw(st.booleans()):
            lender.take_back(state, known)
        else:
            out.append(lent)  # somebody has it still
        more = data.draw(st.lists(kind, max_size=3))
        new = [*state["messages"], *more]
        lender.extended("messages", state["messages"], new)
        state = {**state, "messages": new}


def test_lists_are_lent_again_without_being_copied() -> None:
    lender = Lender()
    state = {"messages": [{"role": "user", "content": str(n)} for n in range(20)]}
    lent, known = lender.lend(state)
    lender.take_back(state, known)
    again, _ = lender.lend(state)
    assert all(one is other for one, other in zip(lent["messages"], again["messages"], strict=True))
    assert again["messages"] is not lent["messages"]


@settings(max_examples=100, deadline=None)
@given(items=st.lists(values(), max_size=20), cuts=st.lists(st.integers(0, 20), max_size=3))
def test_a_digest_in_pieces_is_that_of_the_whole(items: list[Any], cuts: list[int]) -> None:
    parts, at = ListDigest(), 0
    for cut in [*sorted(cuts), len(items)]:
        if cut > at:
            parts.take(items[at:cut])
            at = cut
    assert parts.value() == digest(items)
    assert digest([*items, None]) != digest(items)


def test_digests_of_long_lists_and_of_what_looks_alike() -> None:
    for count in (15, 16, 65_535, 65_536):
        parts = ListDigest()
        parts.take([1] * (count - 1))
        parts.take([1])
        assert parts.value() == digest([1] * count)
    alike: list[Any] = [[], [[]], [[], []], [1], [True], [1.0], (1,), [None], None, "", b""]
    assert len({digest(value) for value in alike}) == len(alike)
