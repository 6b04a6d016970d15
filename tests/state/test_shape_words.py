"""Schemas in words, for people who have to answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import pytest

from clew.state.shape_types import schema_of
from clew.state.shape_words import explain


@dataclass
class Seat:
    row: int
    side: Literal["window", "aisle"] = "window"


@dataclass
class Booking:
    approved: bool
    note: str = ""
    seat: Seat | None = None
    extras: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (Literal["window", "aisle"], '"window" or "aisle"'),
        (list[int], "a list of: a whole number"),
        (int | None, "a whole number or null"),
        (Any, "anything"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "a whole number, 1 or more, 9 or less"),
        ({"type": "string", "pattern": "^[A-Z]+$"}, "text, like ^[A-Z]+$"),
        ({"minLength": 3}, "anything, 3 or more letters"),
    ],
)
def test_one_line_tells_of_a_simple_answer(kind, words):
    assert explain(schema_of(kind)) == [words]


def test_an_object_is_told_entry_by_entry():
    assert explain(schema_of(Booking)) == [
        "an object",
        "  approved: true or false",
        '  note: text; "" if left out',
        "  seat: an object or null; null if left out",
        "    row: a whole number",
        '    side: "window" or "aisle"; "window" if left out',
        "  extras: a list of: text; may be left out",
    ]


def test_an_object_among_other_choices_is_told_entry_by_entry():
    assert explain(schema_of(Literal["again", "skip"] | TypedDict("Was", {"done": str}))) == [
        "one of",
        '  "again" or "skip"',
        "  an object",
        "    done: text",
    ]


def test_a_schema_that_refers_to_itself_comes_to_an_end():
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert len(explain(tree)) < 20


def test_without_a_schema_anything_will_do():
    assert explain(None) == ["anything: JSON or text"]
