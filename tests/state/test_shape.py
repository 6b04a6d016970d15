"""Shapes of answers: exact, with the path to what is wrong, and with the verdicts of another implementation."""

from __future__ import annotations

import copy
import json
import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import BadInput
from clew.state.shape import MAX_CHECKS, check
from clew.state.shape_schema import check_schema

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
SCALARS = [None, True, False, 0, 1, -2, 3, 0.5, -1.5, "", "a", "ab", "b1"]
"""No 1.0: that it is no integer is the one verdict that differs."""


class Chance:
    """Schemas and values at random. Quicker than a strategy of them, by far: verdicts differ in rare corners."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.one = self._random.choice

    def some(self, make, most=3, least=0):
        return [make() for _ in range(self._random.randint(least, most))]

    def value(self, depth=0):
        kind = self._random.random()
        if depth > 2 or kind < 0.5:
            return self.one(SCALARS)
        items = self.some(lambda: self.value(depth + 1))
        return items if kind < 0.75 else dict(zip(self._random.sample("abc", len(items)), items, strict=True))

    def schema(self, depth=0):
        """Any keywords together, whether or not they make sense together."""
        if depth > 2 or self._random.random() < 0.2:
            return self.one([True, False, {}, *({"type": name} for name in TYPES)])

        def inner():
            return self.schema(depth + 1)

        def several():
            return self.some(inner, least=1)

        def named():
            return {name: inner() for name in self.some(lambda: self.one("abc"))}

        words = {
            "type": lambda: self.one([self.one(TYPES), self._random.sample(TYPES, self._random.randint(1, 4))]),
            "enum": lambda: self.some(self.value, 4),
            "const": self.value,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "$ref": lambda: self.one(["#/$defs/x", "#/$defs/y"]),
            "pattern": lambda: self.one(["^a", "b$", "^[ab]*$", "1"]),
            "items": inner,
            "prefixItems": several,
            "uniqueItems": lambda: self.one([True, False]),
            "properties": named,
            "required": lambda: self._random.sample("abc", self._random.randint(0, 2)),
            "patternProperties": lambda: {self.one(["a", "^b"]): inner()},
            "additionalProperties": inner,
            "propertyNames": inner,
            "multipleOf": lambda: self.one([1, 2, 0.5, 0.25]),
            **dict.fromkeys(NUMBERS, lambda: self.one([-2, -0.5, 0, 1, 2, 4])),
            **dict.fromkeys(COUNTS, lambda: self._random.randint(0, 3)),
        }
        return {word: words[word]() for word in self._random.sample(list(words), self._random.randint(1, 4))}


NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def test_the_verdict_is_that_of_another_implementation(long):
    chance = Chance(seed=20261119)
    fitting = count = 0
    while count < (60_000 if long else 6_000):
        root = chance.schema()
        schema = {**(root if isinstance(root, dict) else {"not": not root}), "$defs": {"x": chance.schema(3)}}
        schema["$defs"]["y"] = {"items": {"$ref": "#/$defs/x"}, "minLength": 1}
        check_schema(schema)
        theirs = jsonschema.Draft202012Validator(schema)
        for _ in range(8):
            value = chance.value()
            valid = theirs.is_valid(value)
            assert bool(check(value, schema)) != valid, (schema, value, valid)
            fitting += valid
            count += 1
    assert 0.2 < fitting / count < 0.8


def well(value, schema) -> list[str]:
    return [str(problem) for problem in check(value, check_schema(schema))]


def _fitting(draw, depth: int = 0):
    """A schema, a value that fits it, and one that does not."""
    kind = draw(st.sampled_from(["boolean", "integer", "string", "enum", "null"] + ["array", "object"] * (depth < 3)))
    if kind == "boolean":
        return {"type": kind}, draw(st.booleans()), draw(st.sampled_from(["true", 1, 0, None, [], {}, "", 1.0]))
    if kind == "integer":
        low = draw(st.integers(-9, 9))
        wrong = draw(st.sampled_from([low - 1, low + 11, True, False, "1", None, float(low), [low]]))
        return {"type": kind, "minimum": low, "maximum": low + 10}, draw(st.integers(low, low + 10)), wrong
    if kind == "string":
        text = draw(st.text(min_size=1, max_size=5))
        return {"type": kind, "minLength": 1}, text, draw(st.sampled_from(["", 1, None, [text], {"text": text}, True]))
    if kind == "enum":
        choices = draw(st.lists(st.text("abc", max_size=2), min_size=1, max_size=3))
        return {"enum": choices}, draw(st.sampled_from(choices)), draw(st.sampled_from(["other", 1, None, choices]))
    if kind == "null":
        return {"type": kind}, None, draw(st.sampled_from([False, 0, "", [], {}, "null"]))
    parts = [_fitting(draw, depth + 1) for _ in range(draw(st.integers(1, 3)))]
    at = draw(st.integers(0, len(parts) - 1))
    if kind == "array":
        schema, _, wrong = parts[at]
        return {"type": kind, "items": schema}, [parts[at][1]] * 2, [parts[at][1], wrong]
    names = "abc"[: len(parts)]
    schema = {
        "type": kind,
        "properties": {name: part[0] for name, part in zip(names, parts, strict=True)},
        "required": list(names),
        "additionalProperties": False,
    }
    good = {name: part[1] for name, part in zip(names, parts, strict=True)}
    bad = copy.deepcopy(good)
    how = draw(st.sampled_from(["value", "missing", "more", "list"]))
    if how == "value":
        bad[names[at]] = parts[at][2]
    elif how == "missing":
        del bad[names[at]]
    elif how == "more":
        bad["d"] = good[names[at]]
    else:
        bad = [good]
    return schema, good, bad


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_was_made_to_fit_fits_and_what_was_changed_does_not(data):
    schema, good, bad = _fitting(data.draw)
    check_schema(schema)
    assert check(good, schema) == []
    assert check(json.loads(json.dumps(good)), schema) == []
    assert check(bad, schema) != []
    choice = {"anyOf": [{"type": "object", "required": ["never"]}, schema]}
    assert check(good, choice) == []
    assert check(bad, choice) != []


APPROVAL = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "amount": {"type": "integer", "minimum": 1}},
    "required": ["approved"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ("true", {"type": "boolean"}, 'true or false expected, not "true"'),
        (1, {"type": "boolean"}, "true or false expected, not 1"),
        (0, {"type": "boolean"}, "true or false expected, not 0"),
        (None, {"type": "boolean"}, "true or false expected, not null"),
        (True, {"type": "integer"}, "a whole number expected, not true"),
        (1.0, {"type": "integer"}, "a whole number expected, not 1.0"),
        (True, {"type": "number"}, "a number expected, not true"),
        (True, {"const": 1}, "1 expected, not true"),
        (1, {"enum": [True, "yes"]}, 'true or "yes" expected, not 1'),
        ([], APPROVAL, "an object with approved expected, not []"),
        (None, APPROVAL, "an object with approved expected, not null"),
        ({}, APPROVAL, "approved: true or false expected, but it is missing"),
        ({"approved": "yes"}, APPROVAL, 'approved: true or false expected, not "yes"'),
        ({"approved": True, "amount": 0}, APPROVAL, "amount: 1 or more expected, not 0"),
        ({"approved": True, "why": 1}, APPROVAL, "why: nothing of this name is asked for"),
        ({"a": [{"b": 1}]}, {"properties": {"a": {"items": {"required": ["c"]}}}},
         "a[0].c: anything expected, but it is missing"),
        ("a", {"minLength": 2}, '2 or more letters expected, not "a"'),
        ("ab", {"maxLength": 1}, '1 or less letters expected, not "ab"'),
        ("b", {"pattern": "^a"}, 'text like ^a expected, not "b"'),
        ([1, 1], {"uniqueItems": True}, "different items expected, not [1, 1]"),
        (3, {"multipleOf": 2}, "a multiple of 2 expected, not 3"),
        (None, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "text or a whole number expected, not null"),
        ({"approved": 1}, {"anyOf": [{"type": "null"}, APPROVAL]}, "approved: true or false expected, not 1"),
        (5, {"not": {"type": "integer"}}, "anything but a whole number expected, not 5"),
        ("x" * 99, {"type": "null"}, 'null expected, not "' + "x" * 58 + "…"),
    ],
)  # fmt: skip
def test_problems_tell_what_is_expected_and_where(value, schema, told):
    assert well(value, schema) == [told]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (True, {"type": "boolean"}),
        (None, {"type": ["string", "null"]}),
        (1, {"type": "number"}),
        (1.0, {"enum": [1]}),
        (0.3, {"multipleOf": 0.1}),
        ({"kids": [{"kids": []}]}, {"properties": {"kids": {"items": {"$ref": "#"}}}}),
        ([True, 1], {"uniqueItems": True}),
        ("anything", {"format": "email"}),
        ({"a/b": 1}, {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"required": ["a/b"]}}}),
    ],
)
def test_what_fits(value, schema):
    assert well(value, schema) == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"if": {}}, "'if', which is not understood"),
        ({"properties": {"a": {"unevaluatedProperties": False}}}, "properties.a has 'unevaluatedProperties'"),
        ({"type": "int"}, "type is 'int'"),
        ({"type": []}, "type is"),
        ({"minimum": "1"}, "minimum is '1'"),
        ({"maxLength": -1}, "maxLength is -1"),
        ({"multipleOf": 0}, "multipleOf is 0"),
        ({"required": "a"}, "required is 'a'"),
        ({"items": [{}]}, "a schema is an object"),
        ({"anyOf": []}, "anyOf is"),
        ({"pattern": "("}, "open group"),
        ({"patternProperties": {"(?<a": {}}}, "pattern"),
        ({"$ref": "https://example.com/schema.json"}, "leads into the same schema"),
        ({"$ref": "other.json#/a"}, "leads into the same schema"),
        ({"$ref": "#/$defs/none"}, "not there"),
        ({"$ref": "#/title", "title": "x"}, "no schema"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "back to itself"),
        ({"properties": {"a": {"$id": "x"}}}, "$id"),
        ("string", "a schema is an object"),
    ],
)
def test_schemas_that_would_not_be_checked_in_full_are_refused(schema, told):
    with pytest.raises(BadInput) as caught:
        check_schema(schema)
    assert told in str(caught.value)


def test_a_reference_into_what_is_no_schema_is_checked_as_one():
    with pytest.raises(BadInput, match="not understood"):
        check_schema({"$ref": "#/default", "default": {"if": {}}})


def test_work_is_bounded():
    doubled = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**doubled, "d40": {}}}
    check_schema(schema)
    with pytest.raises(BadInput, match="too large"):
        check(1, schema)
    with pytest.raises(BadInput, match="too large"):
        check([1] * (MAX_CHECKS + 1), {"items": {}})
    deep: dict = {}
    for _ in range(200):
        deep = {"not": deep}
    with pytest.raises(BadInput, match="too deep"):
        check_schema(deep)
    with pytest.raises(BadInput, match="too large"):
        check_schema({"enum": [], "anyOf": [{}] * 20_000})
