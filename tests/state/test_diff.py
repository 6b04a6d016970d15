"""What people see of a difference between two states of an agent."""

import dataclasses
import datetime
import doctest
import enum
import json
import random
from decimal import Decimal
from typing import Any

import numpy
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage

from clew.errors import BadInput
from clew.state import diff as diff_module
from clew.state import diff_align, diff_json
from clew.state.diff import MISSING, Change, Diff, Key, Member, diff
from clew.state.diff_align import Block, changed_in_place, matches
from clew.state.diff_short import columns, short
from clew.state.registry import registry
from clew.state.values import Blob, Opaque


def shown(old: object, new: object) -> list[str]:
    """The rendering with runs of spaces made one, so that tests read well."""
    return [" ".join(line.split()) for line in str(diff(old, new)).split("\n")]


def found(old: object, new: object) -> list[tuple[str, str]]:
    return [(change.kind, change.where) for change in diff(old, new)]


def user(text: str, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


# ---- lists of messages


def test_an_appended_message_is_one_added_line() -> None:
    old = [user(f"question {i}") for i in range(4)]
    assert shown({"messages": old}, {"messages": [*old, user("And Osaka?")]}) == [
        '+ messages[4] {role: "user", content: "And Osaka?"}'
    ]


def test_a_window_that_slides_shows_what_left_and_what_came() -> None:
    old = [user(f"question {i}") for i in range(6)]
    assert found(old, [*old[2:], user("new"), user("newer")]) == [
        ("removed", "[0]"),
        ("removed", "[1]"),
        ("added", "[4]"),
        ("added", "[5]"),
    ]


def test_an_edited_message_is_descended_into() -> None:
    old = [user("a"), {"role": "tool", "args": {"when": "today", "days": [1, 2]}}, user("b")]
    new = [user("a"), {"role": "tool", "args": {"when": "later", "days": [1, 2, 3]}}, user("b")]
    assert found({"m": old}, {"m": new}) == [("changed", "m[1].args.when"), ("added", "m[1].args.days[2]")]


def test_an_edit_beside_an_insertion_is_still_an_edit() -> None:
    old = [user("first"), {"role": "assistant", "content": "ok", "usage": 10}]
    new = [user("first"), {"role": "assistant", "content": "ok", "usage": 12}, user("more")]
    assert found(old, new) == [("changed", "[1].usage"), ("added", "[2]")]


def test_an_edited_item_is_paired_with_the_one_most_like_it() -> None:
    old = [user("the long question", lang="en", tokens=7)]
    new = [user("before"), user("the long question", lang="en", tokens=8)]
    assert found(old, new) == [("added", "[0]"), ("changed", "[1].tokens")]


def test_positions_are_those_of_the_new_state_but_for_removed_items() -> None:
    old = ["gone", "also gone", {"role": "user", "tags": ["x", "y"]}]
    new = [{"role": "user", "tags": ["y"]}]
    assert found(old, new) == [("removed", "[0]"), ("removed", "[1]"), ("removed", "[0].tags[0]")]


def test_items_with_an_id_belong_together_whatever_else_changed() -> None:
    old = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}, {"id": "c", "text": "three"}]
    new = [{"id": "b", "text": "zwei"}, {"id": "c", "text": "drei"}]
    assert found(old, new) == [("removed", "[0]"), ("changed", "[0].text"), ("changed", "[1].text")]


def test_items_with_different_ids_are_never_one_item_that_changed() -> None:
    assert found([{"id": 1, "text": "same"}], [{"id": 2, "text": "same"}]) == [("removed", "[0]"), ("added", "[0]")]


def test_an_item_that_gets_an_id_is_the_same_item() -> None:
    assert found([{"id": None, "text": "same"}], [{"id": 2, "text": "same"}]) == [("changed", "[0].id")]


def test_a_moved_item_is_removed_and_added() -> None:
    assert found([{"id": 1}, {"id": 2}, {"id": 3}], [{"id": 2}, {"id": 3}, {"id": 1}]) == [
        ("removed", "[0]"),
        ("added", "[2]"),
    ]


def test_an_embedding_is_one_change_not_a_thousand() -> None:
    old, new = [i / 7 for i in range(1536)], [i / 9 + 1 for i in range(1536)]
    assert found({"v": old}, {"v": new}) == [("changed", "v")]
    assert found({"v": []}, {"v": new}) == [("changed", "v")]
    assert found({"v": old}, {"v": [*old[:7], 0.5, *old[8:]]}) == [("changed", "v[7]")]


# ---- long lists: the number of comparisons is bounded


class Counted:
    """A token that counts how often tokens are compared or hashed."""

    used = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        Counted.used += 1
        return isinstance(other, Counted) and self.value == other.value

    def __hash__(self) -> int:
        Counted.used += 1
        return hash(self.value)


N = 10_000
_shuffled = random.Random(5).sample(range(N), N)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (range(N), range(50, N + 50), N - 50),
        (range(N), [*range(N // 2), -1, *range(N // 2, N)], N),
        (range(N), range(N, 2 * N), 0),
        (range(N), range(N - 1, -1, -1), 1),
        (range(N), _shuffled, None),
        ([i % 7 for i in range(N)], [i % 5 for i in range(N)], None),
        ([0] * N, [1, *[0] * (N // 2), 1], N // 2),
        ([i % 2 for i in range(N)], [(i + 1) % 2 for i in range(N)], None),
    ],
    ids=["window", "insert", "replaced", "reversed", "shuffled", "few values", "one value", "alternating"],
)
def test_aligning_never_takes_quadratic_work(old: Any, new: Any, kept: int | None) -> None:
    Counted.used = 0
    pairs = matches([Counted(i) for i in old], [Counted(i) for i in new])
    assert Counted.used < 60 * N
    assert kept is None or len(pairs) == kept


def test_a_long_history_that_slid_and_was_edited_has_few_changes() -> None:
    old = {"messages": [user(f"message {i}") for i in range(N)]}
    new = {"messages": [user(f"message {i}") for i in range(30, N + 20)]}
    new["messages"][5000]["content"] = "edited"
    changes = diff(old, new)
    assert repr(changes) == "<Diff: 20 added, 30 removed, 1 changed>"
    assert [change.where for change in changes if change.kind == "changed"] == ["messages[5000].content"]


def test_a_list_whose_every_item_changed_is_compared_item_by_item() -> None:
    old = [user(f"message {i}", n=i) for i in range(2000)]
    new = [user(f"message {i}", n=-i - 1) for i in range(2000)]
    assert found(old, new) == [("changed", f"[{i}].n") for i in range(2000)]


def test_telling_edited_items_apart_never_takes_quadratic_work() -> None:
    calls = 0

    def likeness(i: int, j: int) -> float:
        nonlocal calls
        calls += 1
        return 1.0

    pairs = changed_in_place(Block(0, N, 0, N + 5), lambda i: None, lambda j: None, likeness)
    assert pairs == [(i, i) for i in range(N)]
    assert calls <= 2 * N


# ---- exactness


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (1, 1.0, "int 1 → float 1.0"),
        (1, True, "int 1 → bool True"),
        (0.0, -0.0, "0.0 → -0.0"),
        ((1, 2), [1, 2], "tuple (1, 2) → list [1, 2]"),
        (None, 0, "None → 0"),
        (b"a", bytearray(b"a"), "bytes 1 B #ca234c55 → bytearray 1 B #ca234c55"),
        (Decimal("1.0"), Decimal("1.00"), "1.0 → 1.00"),
        ({1}, frozenset({1}), "set {1} → frozenset(1)"),
        (numpy.float64(1), 1.0, "float64 1.0 → float 1.0"),
        (
            datetime.datetime(2024, 10, 27, 2, 30),
            datetime.datetime(2024, 10, 27, 2, 30, fold=1),
            "datetime.datetime(2024, 10, 27, 2, 30) → datetime.datetime(2024, 10, 27, 2, 30, fold=1)",
        ),
        (float("nan"), -float("nan"), "nan (0x7ff8000000000000) → nan (0xfff8000000000000)"),
    ],
)
def test_values_that_compare_equal_or_look_alike_are_told_apart(old: object, new: object, text: str) -> None:
    assert shown({"x": old}, {"x": new}) == [f"~ x {text}"]


def test_equal_nan_and_key_order_are_no_difference() -> None:
    assert not diff({"a": float("nan"), "b": 1}, {"b": 1, "a": float("nan")})


def test_dict_keys_are_exact_too() -> None:
    assert list(diff({1: "x"}, {True: "x"})) == [
        Change((Key(1),), "removed", old="x"),
        Change((Key(True),), "added", new="x"),
    ]


def test_arrays_differ_by_content_type_and_shape() -> None:
    old = numpy.zeros((2, 3), dtype="f4")
    assert not diff(old, old.copy())
    assert shown({"v": old}, {"v": old.reshape(3, 2)}) == [
        "~ v float32[2, 3] 24 B #8691c643 → float32[3, 2] 24 B #8691c643"
    ]
    assert diff(old, old.astype("i4"))


# ---- objects


@dataclasses.dataclass(slots=True)
class Order:
    id: int
    total: float
    note: str = ""


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Trip(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    city: str
    paid: bool = False
    stops: list[str] = []
    _seen: int = pydantic.PrivateAttr(default=0)


def test_dataclasses_are_compared_by_field() -> None:
    old = {"orders": [Order(1, 2.0), Order(2, 3.0)], "colour": Colour.RED}
    new = {"orders": [Order(2, 3.5), Order(3, 1.0)], "colour": Colour.BLUE}
    assert shown(old, new) == [
        '- orders[0] Order(id=1, total=2.0, note="")',
        "~ orders[0].total 3.0 → 3.5",
        '+ orders[1] Order(id=3, total=1.0, note="")',
        "~ colour Colour.RED → Colour.BLUE",
    ]


def test_models_are_compared_by_field_extra_and_private_attribute() -> None:
    old, new = Trip(city="Tokyo"), Trip(city="Osaka", hotel="Ritz")
    new._seen = 3
    new.stops.append("Nara")
    assert found({"trip": old}, {"trip": new}) == [
        ("changed", "trip.city"),
        ("added", "trip.stops[0]"),
        ("changed", "trip._seen"),
        ("added", "trip.hotel"),
    ]


def test_assigning_a_field_of_a_model_is_one_change() -> None:
    old, new = Trip(city="Tokyo"), Trip(city="Tokyo")
    new.paid = True
    assert found(old, new) == [("changed", "paid")]


def test_a_model_whose_given_fields_alone_differ_says_so() -> None:
    assert found(Trip(city="Tokyo"), Trip(city="Tokyo", paid=False)) == [("changed", "model_fields_set")]


def test_messages_of_langchain() -> None:
    old = [HumanMessage("hi", id="1"), AIMessage("hello", id="2")]
    new = [HumanMessage("hi", id="1"), AIMessage("hello there", id="2"), HumanMessage("bye", id="3")]
    assert found({"messages": old}, {"messages": new}) == [("changed", "messages[1].content"), ("added", "messages[2]")]


class Money:
    """A class that is compared by what its registration makes of it: it has no `__eq__`."""

    def __init__(self, amount: int, currency: str) -> None:
        self.amount, self.currency = amount, currency


@pytest.fixture
def _money_as_text() -> Any:
    registry.add(Money, encode=lambda m: f"{m.amount} {m.currency}", decode=lambda text: Money(1, text))
    yield
    del registry.by_name[registry.by_class.pop(Money).name]


@pytest.fixture
def _money_by_attribute() -> Any:
    registry.add(Money)
    yield
    del registry.by_name[registry.by_class.pop(Money).name]


@pytest.mark.usefixtures("_money_as_text")
def test_registered_classes_are_compared_by_their_encoded_state() -> None:
    assert not diff(Money(1, "EUR"), Money(1, "EUR"))
    assert shown({"m": Money(1, "EUR")}, {"m": Money(2, "EUR")}) == ['~ m Money("1 EUR") → Money("2 EUR")']


@pytest.mark.usefixtures("_money_by_attribute")
def test_registered_plain_classes_are_compared_by_attribute() -> None:
    assert not diff(Money(1, "EUR"), Money(1, "EUR"))
    assert shown({"m": Money(1, "EUR")}, {"m": Money(2, "EUR")}) == ["~ m.amount 1 → 2"]


def test_bytes_blobs_and_opaque_values_are_shown_by_size_and_digest() -> None:
    opaque = Opaque(5, b"payload", type_name="shop.Order", version=2, reason="not registered")
    assert short(Blob(b"x" * 12_000, media_type="image/png"), 80) == "Blob image/png 12.0 KB #6458e938"
    assert short(opaque, 80) == "Opaque shop.Order v2 7 B #f02fd29d"
    assert short(b"secret", 80) == "bytes 6 B #a89b013c"
    assert not diff(opaque, Opaque(5, b"payload", type_name="x", version=1, reason="other"))


# ---- sets, depth, cycles


def test_members_of_sets_come_and_go_in_a_stable_order() -> None:
    changes = diff({"tags": {"a", "b", "c"}}, {"tags": {"c", "e", "d"}})
    assert [str(change.where) for change in changes] == ['tags{"a"}', 'tags{"b"}', 'tags{"d"}', 'tags{"e"}']
    assert changes[0].path == ("tags", Member("a"))


@pytest.mark.parametrize("depth", [500, 20_000])
def test_depth_is_no_limit(depth: int) -> None:
    old: Any = 1
    new: Any = 2
    for _ in range(depth):
        old, new = [old], [new]
    changes = diff({"deep": old}, {"deep": new})
    assert [len(change.path) for change in changes] == [depth + 1]
    assert str(changes).endswith("1 → 2")
    assert columns(str(changes)) <= 120
    assert diff({}, {"deep": new}).as_json()[0]["kind"] == "added"
    assert columns(str(diff({}, {"deep": new}))) <= 120


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    with pytest.raises(BadInput, match="contains itself"):
        diff({"x": loop}, {"x": 1})


def test_the_same_object_in_two_places_is_no_cycle() -> None:
    shared = [1]
    assert found([shared, shared], [shared, [2]]) == [("changed", "[1][0]")]


# ---- texts


LINES = [f"Line {i} of the report, about nothing in particular." for i in range(1, 1001)]
REPORT = "\n".join(LINES)


def test_a_word_changed_in_a_long_report() -> None:
    new = REPORT.replace("Line 12 of the report", "Line 12 of the draft")
    assert str(diff({"report": REPORT}, {"report": new})) == (
        "~ report  @@ line 12 @@ Line 12 of the [-report-]{+draft+}, about nothing…"
    )


def test_lines_changed_in_two_places_are_shown_with_a_line_around_them() -> None:
    new = "\n".join([*LINES[:2], "Inserted.", *LINES[2:20], *LINES[22:]])
    assert str(diff({"report": REPORT}, {"report": new})).split("\n") == [
        "~ report  (52.9 KB → 52.8 KB)",
        "          @@ line 3 @@",
        "            Line 2 of the report, about nothing in particular.",
        "          + Inserted.",
        "            Line 3 of the report, about nothing in particular.",
        "          @@ line 22 @@",
        "            Line 20 of the report, about nothing in particular.",
        "          - Line 21 of the report, about nothing in particular.",
        "          - Line 22 of the report, about nothing in particular.",
        "            Line 23 of the report, about nothing in particular.",
    ]


def test_a_text_in_one_long_line() -> None:
    old = "lorem ipsum " * 3000 + "we fly to Tokyo on Monday, " + "dolor sit " * 3000
    new = old.replace("Tokyo on Monday", "Osaka on Tuesday")
    assert shown({"t": old}, {"t": new}) == [
        "~ t @@ char 36011 @@ …psum we fly to [-Tokyo-]{+Osaka+} on [-Monday-]{+Tuesday+}, dolor sit dol…"
    ]


def test_a_line_with_many_changed_words_is_cut() -> None:
    words = [f"word{i} stays" for i in range(60)]
    (line,) = str(diff({"t": " ".join(words)}, {"t": " ".join(words).replace("word", "name")})).split("\n")
    assert line.startswith("~ t  [-word0-]{+name0+} stays [-word1-]{+name1+} stays ")
    assert line.endswith("…")
    assert columns(line) <= 120


def test_a_text_replaced_by_an_unrelated_one_is_shown_by_both_beginnings() -> None:
    (line,) = str(diff({"t": "alpha beta\n" * 500}, {"t": "gamma delta\n" * 900})).split("\n")
    assert line.startswith('~ t  "alpha beta\\nalpha')
    assert "(5.5 KB) → " in line
    assert line.endswith("(10.8 KB)")


def test_many_changes_in_a_text_are_counted_not_listed() -> None:
    new = "\n".join(line.upper() if i % 100 == 5 else line for i, line in enumerate(LINES))
    texts = [text for _, _, text in diff({"t": REPORT}, {"t": new}).lines()]
    assert texts[-1] == "… 7 more places"
    assert len(texts) < 10


@pytest.mark.parametrize(
    "old", ["", "x" * 2_000_000, "x\n" * 500_000, "東京 " * 100_000, "\x1b[2J" * 1000, "\ud800" * 500]
)
@pytest.mark.parametrize("new", ["y", "x" * 1_999_999 + "y", "x\ny\n" * 200_000, "大阪 " * 100_000])
def test_texts_of_any_size_are_shown_on_bounded_printable_lines(old: str, new: str) -> None:
    lines = str(diff({"t": old}, {"t": new})).split("\n")
    assert len(lines) < 60
    assert all(columns(line) <= 120 and line.isprintable() for line in lines)


# ---- the rendering


def test_the_whole_picture() -> None:
    old = {"city": "Tokyo", "messages": [{"role": "system", "content": "You are kind. " * 90}, user("Hi")], "n": 1}
    new = {"city": "Osaka", "messages": [user("Hi"), user("And Osaka?")], "n": 1.0, "odd key": {1, 2}}
    assert str(diff(old, new)).split("\n") == [
        '~ city         "Tokyo" → "Osaka"',
        f'- messages[0]  {{role: "system", content: "{"You are kind. " * 4}You are ki…" (1.3 KB)}}',
        '+ messages[1]  {role: "user", content: "And Osaka?"}',
        "~ n            int 1 → float 1.0",
        '+ ["odd key"]  {1, 2}',
    ]


def test_lines_are_what_the_text_is_made_of() -> None:
    assert list(diff({"a": 1, "b": 2}, {"b": 3, "c": 4}).lines()) == [
        ("-", "a", "1"),
        ("~", "b", "2 → 3"),
        ("+", "c", "4"),
    ]


def test_states_of_other_types_differ_as_a_whole() -> None:
    assert shown({}, None) == ["~ (state) {} → None"]


def test_long_paths_are_cut_in_the_column_and_whole_in_where() -> None:
    name = "a_rather_long_name_for_a_key"
    change = diff({name: {name: {name: 1}}}, {name: {name: {name: 2}}})
    assert change[0].where == f"{name}.{name}.{name}"
    assert str(change) == f"~ …{f'{name}.{name}'[-47:]}  1 → 2"


def test_paths_are_written_so_that_they_can_be_read() -> None:
    path = ("messages", 12, "args", "odd key", Key(5), Key((1, "x")), 'quote"', Member("m"))
    assert Change(path, "added", new=1).where == 'messages[12].args["odd key"][5][(1, "x")]["quote\\""]{"m"}'
    assert Change(("odd key", "x"), "added", new=1).where == '["odd key"].x'


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        ({}, 40, "{}"),
        (set(), 40, "set()"),
        ((1,), 40, "(1,)"),
        (list(range(1000)), 40, "[0, 1, 2, 3, 4, 5, 6, 7, 8, … 991 more]"),
        ({"a": {"b": {"c": {"d": 1}}}}, 40, "{a: {b: {c: {… 1 key}}}}"),
        ("x" * 1234, 30, '"xxxxxxxxxxxxxxxxxx…" (1.2 KB)'),
        ("東京" * 20, 30, '"東京東京東京東京東…" (120 B)'),
        ('tab\t"quoted"\x1b\u202e', 40, '"tab\\t\\"quoted\\"\\x1b\\u202e"'),
        (10**500, 40, "int of 1661 bits"),
        (Order, 90, None),
        (object(), 40, "<object object>"),
    ],
)
def test_short_forms(value: object, width: int, text: str | None) -> None:
    form = short(value, width)
    assert text is None or form == text
    assert columns(form) <= width


# ---- as data


def test_json_is_whole_and_stable() -> None:
    old = {"a": 1, "t": (1, b"x"), "m": [{"k": float("nan")}]}
    new = {"a": 2, "t": None, "m": [], 5: {"$type": 1}, "s": {"y", "x"}}
    data = diff(old, new).as_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    by_where = {change["where"]: change for change in data}
    assert by_where["a"] == {"kind": "changed", "where": "a", "path": ["a"], "old": 1, "new": 2}
    assert by_where["t"]["old"] == {
        "$type": "tuple",
        "items": [1, {"$type": "bytes", "text": short(b"x", 80)}],
    }
    assert by_where["m[0]"]["old"] == {"k": {"$type": "float", "text": "nan"}}
    assert by_where["[5]"]["path"] == [{"key": 5}]
    assert by_where["[5]"]["new"] == {"$type": "dict", "items": [["$type", 1]]}
    assert by_where["s"]["new"] == {"$type": "set", "items": ["x", "y"]}


def test_a_diff_is_a_sequence_of_changes() -> None:
    changes = diff({"a": 1}, {"b": None})
    assert len(changes) == 2
    assert changes[0] == Change(("a",), "removed", 1, MISSING)
    assert changes[1].new is None
    assert changes[1].old is MISSING
    assert isinstance(changes[:1], Diff)
    assert repr(changes) == "<Diff: 1 added, 1 removed>"
    assert not Diff()
    assert str(Diff()) == ""


@pytest.mark.parametrize("module", [diff_module, diff_json, diff_align])
def test_examples_in_docstrings(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
