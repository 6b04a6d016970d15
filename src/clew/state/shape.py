"""What a value may look like, as JSON Schema: checking values, and refusing schemas that would not be checked in full.

Understood is what `shape_schema.check_schema` lists, as JSON Schema 2020-12 defines it, but for these: `1.0` is not an
integer; `format` and what else only describes checks nothing; `$ref` leads into the same schema; a `pattern`
neither looks nor refers back (see pattern.py). Any other keyword is refused, not ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple
from urllib.parse import unquote

from clew.errors import BadInput
from clew.state.diff_path import Path, where
from clew.state.pattern import compile_pattern

Schema = dict[str, Any] | bool

MAX_DEPTH = 100
MAX_CHECKS = 200_000
_SHOWN = 60
TYPES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
"""What each type is called in a problem."""


class Problem(NamedTuple):
    """Where a value is not what it should be. `given` is empty for what is missing, `expected` for what is too much."""

    path: str
    expected: str
    given: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        if not self.expected:
            return f"{place}nothing of this name is asked for"
        return f"{place}{self.expected} expected, " + (f"not {self.given}" if self.given else "but it is missing")


def check(value: Any, schema: Schema) -> list[Problem]:
    """What is wrong with a JSON value; nothing, if it fits. The schema is one that `check_schema` has taken.

    >>> [str(problem) for problem in check({"approved": 1}, {"properties": {"approved": {"type": "boolean"}}})]
    ['approved: true or false expected, not 1']
    """
    return _Check(schema).problems(value, schema, ())


def is_type(value: Any, name: str) -> bool:
    """Whether a JSON value is of a JSON type. True is no number, and 1.0 no integer."""
    if name == "number":
        return type(value) in (int, float)
    return type(value) is _PYTHON.get(name)


_PYTHON: dict[str, type] = {
    "null": type(None),
    "boolean": bool,
    "integer": int,
    "string": str,
    "array": list,
    "object": dict,
}


def describe(schema: Schema, root: Schema | None = None) -> str:
    """What a schema asks for, in a few words. With its `root`, a reference is what it leads to, and not its name."""
    if isinstance(schema, bool):
        return "anything" if schema else "nothing"
    if "const" in schema:
        return shown(schema["const"])
    if "enum" in schema:
        return " or ".join(shown(value) for value in schema["enum"])
    if "type" in schema:
        if schema["type"] == "object" and schema.get("required"):
            return f"an object with {', '.join(schema['required'])}"
        return " or ".join(TYPES[name] for name in _list(schema["type"]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(describe(one, root) for one in schema[word]))
    if "$ref" in schema:
        if root is not None and not isinstance(meant := resolve(root, str(schema["$ref"])), bool) and "type" in meant:
            return describe(meant)
        return str(schema["$ref"]).rsplit("/", maxsplit=1)[-1]
    return "something else"


def shown(value: Any) -> str:
    """A JSON value, cut to what fits in a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def resolve(root: Schema, ref: str) -> Schema:
    """What a `$ref` within the schema means."""
    found: Any = root
    if ref != "#":
        if not ref.startswith("#/"):
            raise BadInput(f"the schema refers to {ref!r:.80}", hint="a $ref leads into the same schema: #/$defs/Name")
        for part in ref[2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise BadInput(f"the schema refers to {ref!r:.80}, which is not there")
    if not isinstance(found, dict | bool):
        raise BadInput(f"the schema refers to {ref!r:.80}, which is no schema")
    return found


def canonical(value: Any) -> Any:
    """Equal and hashable for values that JSON takes for equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, list):
        return "array", tuple(canonical(item) for item in value)
    return "object", frozenset((key, canonical(part)) for key, part in value.items())


class _Check:
    """One value against one schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_CHECKS

    def problems(self, value: Any, schema: Schema, path: Path) -> list[Problem]:
        self._left -= 1
        if self._left < 0 or len(path) > MAX_DEPTH:
            raise BadInput("this value is too large or too deep to be checked")
        if isinstance(schema, bool):
            return [] if schema else [self._problem(value, "", path)]
        if "type" in schema and not any(is_type(value, name) for name in _list(schema["type"])):
            return [self._problem(value, describe(schema, self._root), path)]
        found: list[Problem] = []
        for word, given in schema.items():
            checker = _CHECKERS.get(word)
            if checker is not None:
                found += checker(self, value, given, path, schema)
        return found

    def _problem(self, value: Any, expected: str, path: Path) -> Problem:
        return Problem(where(path), expected, shown(value))

    def _unless(self, fits: bool, value: Any, expected: str, path: Path) -> list[Problem]:  # noqa: FBT001
        return [] if fits else [self._problem(value, expected, path)]

    # -- any value

    def _ref(self, value: Any, ref: str, path: Path, _: Any) -> list[Problem]:
        return self.problems(value, resolve(self._root, ref), path)

    def _const(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        return self._unless(canonical(value) == canonical(given), value, shown(given), path)

    def _enum(self, value: Any, given: list[Any], path: Path, _: Any) -> list[Problem]:
        fits = canonical(value) in [canonical(one) for one in given]
        return self._unless(fits, value, " or ".join(map(shown, given)) or "nothing", path)

    def _all_of(self, value: Any, given: list[Schema], path: Path, _: Any) -> list[Problem]:
        return [problem for one in given for problem in self.problems(value, one, path)]

    def _any_of(self, value: Any, given: list[Schema], path: Path, _: Any) -> list[Problem]:
        outcomes = []
        for one in given:
            outcomes.append(self.problems(value, one, path))
            if not outcomes[-1]:
                return []
        return self._nearest(value, given, outcomes, path)

    def _one_of(self, value: Any, given: list[Schema], path: Path, _: Any) -> list[Problem]:
        outcomes = [self.problems(value, one, path) for one in given]
        fitting = sum(not outcome for outcome in outcomes)
        if fitting == 0:
            return self._nearest(value, given, outcomes, path)
        return self._unless(fitting == 1, value, "what fits only one of " + " or ".join(map(describe, given)), path)

    def _nearest(self, value: Any, given: list[Schema], outcomes: list[list[Problem]], path: Path) -> list[Problem]:
        """If all but one of the choices are quite different things, what that one misses; else all that is asked."""
        here = where(path)
        near = [outcome for outcome in outcomes if any(problem.path != here for problem in outcome)]
        if len(near) == 1:
            return near[0]
        return [self._problem(value, " or ".join(dict.fromkeys(describe(one, self._root) for one in given)), path)]

    def _not(self, value: Any, given: Schema, path: Path, _: Any) -> list[Problem]:
        fits = bool(self.problems(value, given, path))
        return self._unless(fits, value, f"anything but {describe(given)}", path)

    # -- numbers

    def _minimum(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        return self._unless(not _number(value) or value >= given, value, f"{given} or more", path)

    def _maximum(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        return self._unless(not _number(value) or value <= given, value, f"{given} or less", path)

    def _above(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        return self._unless(not _number(value) or value > given, value, f"more than {given}", path)

    def _below(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        return self._unless(not _number(value) or value < given, value, f"less than {given}", path)

    def _multiple_of(self, value: Any, given: Any, path: Path, _: Any) -> list[Problem]:
        fits = not _number(value) or (_exact(value) / _exact(given)).denominator == 1
        return self._unless(fits, value, f"a multiple of {given}", path)

    # -- text

    def _min_length(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, str) or len(value) >= given, value, f"{given} or more letters", path)

    def _max_length(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, str) or len(value) <= given, value, f"{given} or less letters", path)

    def _pattern(self, value: Any, given: str, path: Path, _: Any) -> list[Problem]:
        if not isinstance(value, str):
            return []
        pattern = compile_pattern(given)
        if not pattern.fits(value):
            return [self._problem(value, "a shorter text", path)]
        return self._unless(pattern.found_in(value), value, f"text like {given}", path)

    # -- lists

    def _items(self, value: Any, given: Schema, path: Path, schema: Any) -> list[Problem]:
        if not isinstance(value, list):
            return []
        first = len(schema.get("prefixItems", ()))
        rest = enumerate(value[first:], first)
        return [problem for at, item in rest for problem in self.problems(item, given, (*path, at))]

    def _prefix_items(self, value: Any, given: list[Schema], path: Path, _: Any) -> list[Problem]:
        if not isinstance(value, list):
            return []
        pairs = enumerate(zip(value, given, strict=False))
        return [problem for at, (item, one) in pairs for problem in self.problems(item, one, (*path, at))]

    def _min_items(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, list) or len(value) >= given, value, f"{given} or more items", path)

    def _max_items(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, list) or len(value) <= given, value, f"{given} or less items", path)

    def _unique_items(self, value: Any, given: bool, path: Path, _: Any) -> list[Problem]:  # noqa: FBT001
        if not (given and isinstance(value, list)):
            return []
        return self._unless(len({canonical(item) for item in value}) == len(value), value, "different items", path)

    # -- objects

    def _properties(self, value: Any, given: dict[str, Schema], path: Path, _: Any) -> list[Problem]:
        if not isinstance(value, dict):
            return []
        present = [name for name in given if name in value]
        return [problem for name in present for problem in self.problems(value[name], given[name], (*path, name))]

    def _required(self, value: Any, given: list[str], path: Path, schema: Any) -> list[Problem]:
        if not isinstance(value, dict):
            return []
        properties = schema.get("properties", {})
        missing = [name for name in given if name not in value]
        return [Problem(where((*path, name)), describe(properties.get(name, True)), "") for name in missing]

    def _pattern_properties(self, value: Any, given: dict[str, Schema], path: Path, _: Any) -> list[Problem]:
        if not isinstance(value, dict):
            return []
        pairs = [(name, one) for name in value for pattern, one in given.items() if _like(name, pattern)]
        return [problem for name, one in pairs for problem in self.problems(value[name], one, (*path, name))]

    def _additional(self, value: Any, given: Schema, path: Path, schema: Any) -> list[Problem]:
        if not isinstance(value, dict):
            return []
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        more = [name for name in value if name not in named and not any(_like(name, one) for one in patterns)]
        return [problem for name in more for problem in self.problems(value[name], given, (*path, name))]

    def _property_names(self, value: Any, given: Schema, path: Path, _: Any) -> list[Problem]:
        if not isinstance(value, dict):
            return []
        return [problem for name in value for problem in self.problems(name, given, (*path, name))]

    def _min_properties(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, dict) or len(value) >= given, value, f"{given} or more entries", path)

    def _max_properties(self, value: Any, given: int, path: Path, _: Any) -> list[Problem]:
        return self._unless(not isinstance(value, dict) or len(value) <= given, value, f"{given} or less entries", path)


_Checker = Callable[[_Check, Any, Any, Path, Any], list[Problem]]
_CHECKERS: dict[str, _Checker] = {
    "$ref": _Check._ref,
    "const": _Check._const,
    "enum": _Check._enum,
    "allOf": _Check._all_of,
    "anyOf": _Check._any_of,
    "oneOf": _Check._one_of,
    "not": _Check._not,
    "minimum": _Check._minimum,
    "maximum": _Check._maximum,
    "exclusiveMinimum": _Check._above,
    "exclusiveMaximum": _Check._below,
    "multipleOf": _Check._multiple_of,
    "minLength": _Check._min_length,
    "maxLength": _Check._max_length,
    "pattern": _Check._pattern,
    "items": _Check._items,
    "prefixItems": _Check._prefix_items,
    "minItems": _Check._min_items,
    "maxItems": _Check._max_items,
    "uniqueItems": _Check._unique_items,
    "properties": _Check._properties,
    "required": _Check._required,
    "patternProperties": _Check._pattern_properties,
    "additionalProperties": _Check._additional,
    "propertyNames": _Check._property_names,
    "minProperties": _Check._min_properties,
    "maxProperties": _Check._max_properties,
}


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _exact(number: Any) -> Fraction:
    """As it is written: 0.1 is a tenth."""
    return Fraction(repr(number))


def _like(name: str, pattern: str) -> bool:
    compiled = compile_pattern(pattern)
    return compiled.fits(name) and compiled.found_in(name)
