"""Laws of the diff: empty exactly for equal values, and complete: applying it to the old value gives the new one."""

import copy
import dataclasses
import json
import math
import struct
from collections import Counter, deque
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.state.diff import Change, Diff, Key, Member, diff
from clew.state.diff_align import Block, gaps, matches
from clew.state.diff_short import columns


@dataclasses.dataclass
class Order:
    id: object
    lines: object


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: object
    y: object


class Pair(NamedTuple):
    left: object
    right: object


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, math.nan, -math.nan, math.inf]),
    st.text(max_size=6),
    st.sampled_from(["a\nb\nc", "a\nB\nc", "one two three", "one two four", "\ud800", "\x1b[31m", "東京"]),
    st.binary(max_size=3),
)
keys = st.one_of(st.sampled_from(["id", "role", "a", "b", "odd key"]), st.integers(-1, 2), st.booleans(), st.none())


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=9)),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(scalars, max_size=4),
        st.frozensets(scalars, max_size=4),
        st.builds(Order, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
    )


values = st.recursive(scalars, containers, max_leaves=12)


@st.composite
def versions(draw: st.DrawFn) -> tuple[Any, Any]:
    """A list-bearing state before and after a few edits, so that most of it stays."""
    old = {"messages": draw(st.lists(values, max_size=10)), "rest": draw(values)}
    new = copy.deepcopy(old)
    for _ in range(draw(st.integers(0, 4))):
        items = new["messages"]
        at = draw(st.integers(0, len(items)))
        edit = draw(st.sampled_from(["insert", "delete", "replace", "inside", "rest"]))
        if edit == "insert":
            items.insert(at, draw(values))
        elif edit == "rest":
            new["rest"] = draw(values)
        elif at < len(items) and edit == "delete":
            del items[at]
        elif at < len(items) and edit == "inside" and isinstance(items[at], dict):
            items[at][draw(keys)] = draw(values)
        elif at < len(items):
            items[at] = draw(values)
    return old, new


pairs = st.one_of(versions(), st.tuples(values, values))


def same(one: Any, two: Any) -> bool:
    """Exactly equal, up to the order of dict keys. Written apart from the code under test."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", two)
    if isinstance(one, dict):
        return same_bag(list(one.items()), list(two.items()))
    if isinstance(one, set | frozenset):
        return same_bag(list(one), list(two))
    if isinstance(one, list | tuple | deque):
        return len(one) == len(two) and all(map(same, one, two))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(two, f.name)) for f in dataclasses.fields(one))
    return bool(one == two)


def same_bag(one: list[Any], two: list[Any]) -> bool:
    left = list(two)
    for item in one:
        at = next((i for i, other in enumerate(left) if same(item, other)), None)
        if at is None:
            return False
        del left[at]
    return not left


def patch(old: Any, changes: list[Change], depth: int = 0) -> Any:
    """The new value: `changes` are those at or below the place that the first `depth` steps of their paths lead to."""
    if not changes:
        return old
    if len(changes) == 1 and len(changes[0].path) == depth:
        assert same(old, changes[0].old)
        return changes[0].new
    here: list[Change] = []
    below: dict[Any, list[Change]] = {}
    for change in changes:
        if len(change.path) == depth + 1 and change.kind != "changed":
            here.append(change)
        else:
            below.setdefault(repr(change.path[depth]), []).append(change)
    if isinstance(old, set | frozenset):
        return patched_set(old, here)
    if isinstance(old, dict):
        return patched_dict(old, here, below, depth)
    if dataclasses.is_dataclass(old) or hasattr(old, "_fields"):
        names = getattr(old, "_fields", None) or [field.name for field in dataclasses.fields(old)]
        return type(old)(*(patch(getattr(old, name), below.get(repr(name), []), depth + 1) for name in names))
    items = patched_items(list(old), here, below, depth)
    return deque(items, old.maxlen) if isinstance(old, deque) else type(old)(items)


def patched_set(old: Any, here: list[Change]) -> Any:
    kept = [m for m in old if not any(c.kind == "removed" and same(m, c.path[-1].value) for c in here)]
    assert len(kept) == len(old) - sum(c.kind == "removed" for c in here)
    return type(old)([*kept, *(c.new for c in here if c.kind == "added")])


def patched_dict(old: Any, here: list[Change], below: dict[Any, list[Change]], depth: int) -> Any:
    def step(key: Any) -> Any:
        return key if type(key) is str else Key(key)

    gone = {repr(c.path[-1]) for c in here if c.kind == "removed"}
    kept = {k: patch(v, below.get(repr(step(k)), []), depth + 1) for k, v in old.items() if repr(step(k)) not in gone}
    assert len(kept) == len(old) - len(gone)
    for change in here:
        if change.kind == "added":
            last = change.path[-1]
            kept[last.value if isinstance(last, Key) else last] = change.new
    return kept


def patched_items(old: list[Any], here: list[Change], below: dict[Any, list[Change]], depth: int) -> list[Any]:
    gone = {c.path[-1] for c in here if c.kind == "removed"}
    came = {c.path[-1]: c.new for c in here if c.kind == "added"}
    kept = [item for at, item in enumerate(old) if at not in gone][::-1]
    new: list[Any] = []
    for at in range(len(kept) + len(came)):
        new.append(came[at] if at in came else patch(kept.pop(), below.get(repr(at), []), depth + 1))
    assert not kept
    return new


@given(values)
def test_a_value_does_not_differ_from_its_copy(value: Any) -> None:
    assert not diff(value, value)
    assert not diff(value, copy.deepcopy(value))


@given(pairs)
@example((1, True))
@example((1, 1.0))
@example((0.0, -0.0))
@example(({0: 1}, {False: 1}))
@example(({"a": (1,)}, {"a": [1]}))
@example(({math.nan: 1, -math.nan: 2, float("nan"): 3}, {math.nan: 3, -math.nan: 2, float("nan"): 1}))
@example(({math.nan: 1, float("nan"): 2}, {math.nan: 2}))
@example(({math.nan, float("nan")}, {math.nan}))
def test_a_diff_is_empty_exactly_when_both_are_the_same(pair: tuple[Any, Any]) -> None:
    old, new = pair
    assert bool(diff(old, new)) is not same(old, new)


@settings(max_examples=300)
@given(pairs)
def test_applying_the_diff_to_the_old_gives_the_new(pair: tuple[Any, Any]) -> None:
    old, new = pair
    before = copy.deepcopy(old)
    assert same(patch(old, list(diff(old, new))), new)
    assert same(old, before)


@given(pairs)
def test_renderings_are_bounded_printable_and_stable(pair: tuple[Any, Any]) -> None:
    old, new = pair
    found = diff(old, new)
    text = str(found)
    assert text == str(diff(copy.deepcopy(old), copy.deepcopy(new)))
    assert all(columns(line) <= 120 and line.isprintable() for line in text.split("\n"))
    assert sum(sign != "" for sign, _, _ in found.lines()) == len(found)
    assert len(json.loads(json.dumps(found.as_json(), allow_nan=False))) == len(found)
    for change in found:
        assert isinstance(change.path[-1] if change.path else "", str | int | Key | Member)
        assert len(Diff([change]).as_json()[0]) == 3 + (change.kind == "changed") + 1


@given(st.lists(st.integers(0, 6), max_size=30), st.lists(st.integers(0, 6), max_size=30))
def test_small_sequences_are_aligned_as_well_as_possible(old: list[int], new: list[int]) -> None:
    found = matches(old, new)
    assert all(old[i] == new[j] for i, j in found)
    assert found == sorted(set(found)), "rising"
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)
    longest = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, two in enumerate(new):
            longest[i + 1][j + 1] = longest[i][j] + 1 if one == two else max(longest[i][j + 1], longest[i + 1][j])
    assert len(found) == longest[-1][-1]


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 400))
def test_large_sequences_are_aligned_in_order(seed: int, alphabet: int) -> None:
    random = Random(seed)
    old = [random.randrange(alphabet) for _ in range(400)]
    new = [item for item in old if random.random() > 0.2] + [random.randrange(alphabet) for _ in range(50)]
    found = matches(old, new)
    assert all(old[i] == new[j] for i, j in found)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    blocks = list(gaps(found, Block(0, len(old), 0, len(new))))
    assert sum(b.old_stop - b.old for b in blocks) + len(found) == len(old)
    assert Counter(old[i] for i, _ in found) <= Counter(new)
