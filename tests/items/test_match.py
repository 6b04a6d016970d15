"""Filters: the table of operators, likeness of types, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import clew
from clew.errors import BadInput
from clew.state.match import compile_filter, equal, matches
from clew.testing.strategies import values

NOW = dt.datetime(2026, 1, 2)
NAN = float("nan")


@pytest.mark.parametrize(
    ("stored", "test", "passes"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        (1, "1", False),
        (None, None, True),
        (None, 0, False),
        (1, Decimal(1), False),
        (Decimal("1.0"), Decimal(1), True),
        ([1, 2], [1, 2.0], True),
        ([1], [True], False),
        ([1], (1,), False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {}, False),
        ({}, {}, True),
        (NAN, NAN, False),
        (b"a", "a", False),
        (2, {"$gt": 1}, True),
        (2, {"$gt": 2}, False),
        (2, {"$gte": 2.0}, True),
        (2, {"$lt": 2.5}, True),
        (2, {"$lte": 1}, False),
        ("b", {"$gt": "a"}, True),
        ("b", {"$gt": 1}, False),
        (2, {"$gt": "1"}, False),
        (True, {"$gte": 0}, False),
        (1, {"$gte": False}, False),
        (None, {"$lte": None}, False),
        ([2], {"$gt": [1]}, False),
        ({}, {"$gte": {}}, False),
        (NOW, {"$lt": NOW.replace(year=2027)}, True),
        (NOW, {"$lt": NOW.replace(year=2027, tzinfo=dt.UTC)}, False),
        (NOW, {"$gt": NOW.date()}, False),
        (NOW, NOW.replace(tzinfo=dt.UTC), False),
        (Decimal("NaN"), {"$lt": Decimal(1)}, False),
        (Decimal("sNaN"), Decimal("sNaN"), False),
        (NAN, {"$lte": NAN}, False),
        (2, {"$gt": 1, "$lt": 3}, True),
        (2, {"$gt": 1, "$lt": 2}, False),
        (2, {"$in": [1, 2.0]}, True),
        (2, {"$in": []}, False),
        (True, {"$in": [1]}, False),
        (1, {"$ne": 2}, True),
        (1, {"$ne": 1.0}, False),
        (1, {"$ne": True}, True),
        (1, {"$eq": 1}, True),
        ({"$gt": 1}, {"$eq": {"$gt": 1}}, True),
        (0, {"$exists": True}, True),
        (None, {"$exists": False}, False),
        ({1, 2}, {2, 1}, True),
        ({1: "a"}, {1: "a"}, True),
        (10**400, {"$gt": 1e308}, True),
    ],
)
def test_a_field_against_a_test(stored: Any, test: Any, passes: bool) -> None:
    assert matches({"f": stored}, {"f": test}) is passes


@pytest.mark.parametrize(
    ("test", "passes"),
    [(None, False), (1, False), ({"$ne": 1}, True), ({"$exists": False}, True), ({"$exists": True}, False)]
    + [({name: None if name != "$in" else [None]}, False) for name in ("$eq", "$gt", "$gte", "$lt", "$lte", "$in")],
)
def test_a_field_that_is_missing(test: Any, passes: bool) -> None:
    assert matches({"other": 1}, {"f": test}) is passes


def test_fields_with_dots() -> None:
    value = {"a": {"b": {"c": 1}}, "x.y": 2, "x": {"y": 3}, "list": [{"b": 1}]}
    assert matches(value, {"a.b.c": 1})
    assert matches(value, {"x.y": 2})
    assert not matches(value, {"x.y": 3})
    assert matches(value, {"list.b": {"$exists": False}})
    assert matches(value, {"a.b.c.d": {"$exists": False}, "": {"$exists": False}, ".": {"$exists": False}})
    assert matches(value, {})


@pytest.mark.parametrize(
    ("given_filter", "says"),
    [
        ({"f": {"$regex": "x"}}, "'$regex'"),
        ({"f": {"$gt": 1, "b": 2}}, "'b'"),
        ({"f": {"$where": "1; DROP"}}, "'$where'"),
        ({"$or": [{"a": 1}]}, "'$or'"),
        ({1: 2}, "a field in filter= is a str"),
        ([("a", 1)], "filter= is a dict"),
        ({"f": {"$in": "abc"}}, "$in"),
        ({"f": {"$exists": 1}}, "$exists"),
        ({"f": {"$gt": len}}, "'f'"),
        ({"f": object()}, "'f'"),
        ({"f": {"$gt": 1, 2: 3}}, "2"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(given_filter: Any, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        compile_filter(given_filter)
    assert says in str(refused.value)


def test_a_filter_does_not_change_once_it_is_made() -> None:
    wanted = [1]
    fits = compile_filter({"f": wanted})
    wanted.append(2)
    assert fits({"f": [1]})


@given(values(), values())
def test_any_two_values_compare_without_an_error(a: Any, b: Any) -> None:
    assert equal(a, b) is equal(b, a)
    for name in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"):
        assert matches({"f": a}, {"f": {name: b}}) in (True, False)
    assert matches({"f": a}, {"f": {"$eq": b}}) is not matches({"f": a}, {"f": {"$ne": b}})
    assert matches({"f": a}, {"f": {"$in": [b]}}) is matches({"f": a}, {"f": {"$eq": b}})


@given(st.integers() | st.text() | st.none() | st.booleans() | st.binary() | st.dates())
def test_a_plain_value_equals_itself(value: Any) -> None:
    assert equal(value, value)


def test_threads_are_chosen_by_the_same_filter() -> None:
    db = clew.open("memory:")
    for number, city in enumerate(["Oslo", "Rome", "Kyoto"]):
        db.thread(f"t{number}").save({}, metadata={"n": number, "at": {"city": city}})
    assert [t.id for t in db.threads(where={"n": {"$gte": 1}}, order="id")] == ["t1", "t2"]
    assert [t.id for t in db.threads(where={"at.city": {"$in": ["Oslo"]}})] == ["t0"]
    with pytest.raises(BadInput, match="where="):
        db.threads(where={"n": {"$near": 1}})
