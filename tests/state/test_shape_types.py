"""From types to schemas, and from plain JSON back to values of the type."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict

import jsonschema
import pydantic
import pytest

from clew.errors import BadInput
from clew.state.shape import check
from clew.state.shape_types import NotPlain, build, plain, schema_of
from clew.testing import exactly_equal


class Way(Enum):
    TRAIN = "train"
    PLANE = 2


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Approval:
    approved: bool
    reason: str = ""


@dataclass
class Tree:
    name: str
    kids: list[Tree] = field(default_factory=list)


@dataclass
class Trip:
    way: Way
    days: int
    budget: float
    approval: Approval
    tree: Tree | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)
    hidden: int = field(default=7, init=False)


class Base(TypedDict, total=False):
    city: str
    days: Required[int]


class Search(Base):
    query: str
    page: NotRequired[Annotated[int, "from 1"]]


class Room(pydantic.BaseModel):
    beds: int = pydantic.Field(ge=1, le=4)
    view: Literal["sea", "yard"] = "yard"


class Hotel(pydantic.BaseModel):
    name: str = pydantic.Field(alias="hotelName")
    rooms: list[Room]
    price: decimal.Decimal

    @pydantic.field_validator("name")
    @classmethod
    def not_a_tent(cls, name: str) -> str:
        if name == "tent":
            raise ValueError("a tent is no hotel")
        return name


UserId = NewType("UserId", str)
HOTEL = {"hotelName": "Ritz", "rooms": [{"beds": 2}], "price": "420.50"}

CASES: list[tuple[Any, Any, Any]] = [
    # kind, plain, value
    (None, None, None),
    (bool, True, True),
    (int, 3, 3),
    (float, 3, 3.0),
    (str, "x", "x"),
    (Any, {"a": [1]}, {"a": [1]}),
    (UserId, "u1", "u1"),
    (Literal["a", 1, True, None], True, True),
    (Literal["a", 1, True, None], 1, 1),
    (Way, "train", Way.TRAIN),
    (Way, 2, Way.PLANE),
    (Level, 2, Level.HIGH),
    (list, [1, "a"], [1, "a"]),
    (list[Way], ["train", 2], [Way.TRAIN, Way.PLANE]),
    (Sequence[float], [1], [1.0]),
    (dict[str, Approval], {"a": {"approved": False}}, {"a": Approval(False)}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Optional[Approval], None, None),  # noqa: UP045
    (Approval | None, {"approved": True, "reason": "ok"}, Approval(True, "ok")),
    (int | str | Approval, "7", "7"),
    (Tree, {"name": "r", "kids": [{"name": "k"}]}, Tree("r", [Tree("k")])),
    (
        Trip,
        {"way": 2, "days": 3, "budget": 4,
         "approval": {"approved": True}, "tree": {"name": "t"}, "notes": {"a": ["b"]}},
        Trip(Way.PLANE, 3, 4.0, Approval(True), Tree("t"), {"a": ["b"]}),
    ),
    (Search, {"days": 1, "query": "q", "page": 2}, {"days": 1, "query": "q", "page": 2}),
    (Hotel, HOTEL, Hotel(hotelName="Ritz", rooms=[Room(beds=2)], price=decimal.Decimal("420.50"))),
    (list[Hotel], [HOTEL], [Hotel(hotelName="Ritz", rooms=[Room(beds=2)], price=decimal.Decimal("420.50"))]),
    ({"type": "integer"}, 3, 3),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "value"), CASES)
def test_what_a_type_takes_and_what_comes_of_it(kind, given, value):
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert check(given, schema) == []
    assert jsonschema.Draft202012Validator(schema).is_valid(given)
    assert exactly_equal(build(kind, given), value)
    assert check(plain(value), schema) == [], "a value of the type may be given as well"
    assert plain(build(kind, plain(value))) == plain(value)


@pytest.mark.parametrize(
    ("kind", "given", "path"),
    [
        (bool, "true", ""),
        (bool, 1, ""),
        (int, True, ""),
        (int, 1.0, ""),
        (float, True, ""),
        (str, None, ""),
        (Literal[1], True, ""),
        (Way, "TRAIN", ""),
        (list[int], [1, "2"], "[1]"),
        (dict[str, int], {"a": None}, "a"),
        (bool | None, 0, ""),
        (Approval, [], ""),
        (Approval, {"approved": "true"}, "approved"),
        (Approval, {"approved": True, "extra": 1}, "extra"),
        (Approval, {}, "approved"),
        (Tree, {"name": "r", "kids": [{"name": "k", "kids": [{}]}]}, "kids[0].kids[0].name"),
        (Search, {"query": "q"}, "days"),
        (Search, {"days": 1}, "query"),
        (Trip, {**CASES[-5][1], "hidden": 1}, "hidden"),
        (Hotel, {**HOTEL, "rooms": [{"beds": 9}]}, "rooms[0].beds"),
        (Hotel, {**HOTEL, "price": None}, "price"),
        (list[Hotel], [{**HOTEL, "rooms": [{"beds": 1, "view": "moon"}]}], "[0].rooms[0].view"),
    ],
)  # fmt: skip
def test_what_a_type_does_not_take(kind, given, path):
    problems = check(given, schema_of(kind))
    assert [problem.path for problem in problems][:1] == [path]
    assert not jsonschema.Draft202012Validator(schema_of(kind)).is_valid(given) or given == 1.0


def test_schemas_are_readable():
    assert schema_of(Approval) == {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string", "default": ""}},
        "required": ["approved"],
        "additionalProperties": False,
    }
    assert schema_of(bool | None) == {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
    assert schema_of(Tree)["$ref"] == "#/$defs/Tree"
    assert list(schema_of(Trip)["$defs"]) == ["Approval", "Tree"]


def test_two_types_of_one_name_stay_apart():
    def other():
        @dataclass
        class Approval:
            sign: str

        return Approval

    class Both(pydantic.BaseModel):
        room: Room

    kind = dict[str, other() | Approval | Both | Hotel]  # type: ignore[misc]
    schema = schema_of(kind)
    for value in ({"approved": True}, {"sign": "x"}, {"room": {"beds": 1}}, HOTEL):
        assert check({"a": value}, schema) == []
    assert check({"a": {"sign": True}}, schema) != []


@pytest.mark.parametrize("kind", [set, tuple, tuple[int], bytes, dict[int, str], decimal.Decimal, object(), "bool", 3])
def test_types_that_no_answer_can_be_of(kind):
    with pytest.raises(BadInput):
        schema_of(kind)


def test_a_type_that_is_not_known_where_it_is_used():
    def made():
        class Inner(TypedDict):
            a: int

        @dataclass
        class Outer:
            inner: Inner

        return Outer

    with pytest.raises(BadInput, match="Inner"):
        schema_of(made())


def test_a_schema_is_plain_json():
    with pytest.raises(BadInput, match=r"properties\.a"):
        schema_of({"properties": {"a": {"const": {1, 2}}}})
    with pytest.raises(BadInput, match="not understood"):
        schema_of({"nullable": True})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {2}]}, "a[1]"),
        ({1: 2}, ""),
        ([float("nan")], "[0]"),
        ({"a": {"b": float("inf")}}, "a.b"),
        ({"a": b"x"}, "a"),
        (10**301, ""),
        (object(), ""),
        (Approval, ""),
    ],
)
def test_what_is_not_plain_is_told_by_its_place(value, path):
    with pytest.raises(NotPlain) as caught:
        plain(value)
    assert caught.value.path == path


def test_what_contains_itself_is_not_plain():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotPlain, match="deep"):
        plain(value)


def test_plain_values_are_exact():
    value = {"a": (1, True, 1.5, None, Way.PLANE, Level.LOW), "b": Approval(True), UserId("c"): "x"}
    assert exactly_equal(
        plain(value), {"a": [1, True, 1.5, None, 2, 1], "b": {"approved": True, "reason": ""}, "c": "x"}
    )


def test_a_check_of_the_types_own_is_not_in_its_schema():
    tent = {**HOTEL, "hotelName": "tent"}
    assert check(tent, schema_of(Hotel)) == []
    with pytest.raises(ValueError, match="no hotel"):
        build(Hotel, tent)
