"""Scopes and namespaces as bytes: order, ranges, and that no two of them meet."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.errors import BadName
from clew.state.namespace import MAX_PLACE_BYTES, beyond, decode_namespace, encode_namespace, encode_scope

segments = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4).filter(str.isprintable)
close = st.sampled_from(["a", "aa", "ab", "b", "1", "12", "%", "=", "/", "z", "é", "￼"])
namespaces = st.lists(segments | close, max_size=4).map(tuple)
scopes = st.dictionaries(segments | close, segments | close, max_size=3)


@given(namespaces)
def test_a_namespace_comes_back(namespace: tuple[str, ...]) -> None:
    scope = encode_scope({"user": "42"})
    assert decode_namespace(encode_namespace(namespace, scope), scope) == namespace


@given(namespaces, namespaces)
def test_places_sort_as_namespaces_do(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    assert (encode_namespace(a) < encode_namespace(b)) is (a < b)
    assert (encode_namespace(a) == encode_namespace(b)) is (a == b)


@given(namespaces, namespaces, scopes)
def test_below_a_namespace_is_a_range(prefix: tuple[str, ...], other: tuple[str, ...], scope: dict[str, str]) -> None:
    low = encode_namespace(prefix, encode_scope(scope))
    for namespace in (other, prefix + other):
        inside = low <= encode_namespace(namespace, encode_scope(scope)) < beyond(low)
        assert inside is (namespace[: len(prefix)] == prefix)


@given(scopes, scopes, namespaces, namespaces)
def test_scopes_never_meet(a: dict[str, str], b: dict[str, str], one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = encode_scope(a), encode_scope(b)
    assert (first == second) is (a == b)
    if a != b:
        assert not first <= encode_namespace(other, second) < beyond(first)
        assert encode_namespace(one, first) != encode_namespace(other, second)


def test_scopes_that_look_alike() -> None:
    alike = [
        {},
        {"a": "1", "b": "2"},
        {"a": "1/b=2"},
        {"a": "1", "b=2": "x"},
        {"a": "1"},
        {"a": "12"},
        {"A": "1"},
        {"a": "1%"},
    ]
    assert len({encode_scope(scope) for scope in alike}) == len(alike)
    assert encode_scope({"a": 1}) == encode_scope({"a": "1"})
    assert encode_scope({"b": "2", "a": "1"}) == encode_scope({"a": "1", "b": "2"})


@pytest.mark.parametrize("bad", ["", "a\0b", "\0", "\ud800", "a\nb", "\x01", "\x7f", "x" * 513, b"a", None, 1, ["a"]])
def test_what_cannot_be_a_segment(bad: object) -> None:
    with pytest.raises(BadName):
        encode_namespace(("a", bad))  # type: ignore[arg-type]
    if bad != 1:
        with pytest.raises(BadName):
            encode_scope({"user": bad})


@pytest.mark.parametrize("bad", ["users", b"users", None, {"a"}, 7, ("a" * 500, "b" * 500, "c" * 500, "d" * 500)])
def test_what_cannot_be_a_namespace(bad: object) -> None:
    with pytest.raises(BadName):
        encode_namespace(bad)  # type: ignore[arg-type]


def test_bools_are_no_scope() -> None:
    with pytest.raises(BadName):
        encode_scope({"user": True})
    assert len(encode_namespace(("a" * 500,) * 3 + ("b" * (MAX_PLACE_BYTES - 1504),))) == MAX_PLACE_BYTES
