"""Which schemas are taken: those that `shape.check` checks in full, and that come to an end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from clew.errors import BadInput
from clew.state.diff_path import Path, where
from clew.state.pattern import compile_pattern
from clew.state.shape import MAX_DEPTH, TYPES, Schema, resolve

MAX_NODES = 10_000


def check_schema(schema: Any) -> Schema:
    """The schema, if it is one that is understood in full; else `BadInput` with the place in it.

    >>> check_schema({"type": "object", "unevaluatedProperties": False})
    Traceback (most recent call last):
    clew.errors.BadInput: the schema has 'unevaluatedProperties', which is not understood (…)
    """
    work: list[tuple[Path, Any]] = [((), schema)]
    count, seen = 0, set[int]()
    while work:
        path, part = work.pop()
        count += 1
        if count > MAX_NODES or len(path) > MAX_DEPTH:
            raise BadInput("this schema is too large or too deep")
        if isinstance(part, bool) or id(part) in seen:
            continue
        seen.add(id(part))
        if not isinstance(part, dict):
            raise _bad(path, f"is {part!r:.60}, but a schema is an object, true or false")
        for word, given in part.items():
            fits = _WORDS.get(word) if word != "$id" or not path else None
            if fits is None:
                raise BadInput(
                    f"{_place(path)} has {word!r:.60}, which is not understood", hint=_HINTS.get(word, _HINT)
                )
            if not fits(given):
                raise _bad((*path, word), f"is {given!r:.60}, which cannot be")
            if word == "pattern":
                compile_pattern(given)
            elif word == "patternProperties":
                for pattern in given:
                    compile_pattern(pattern)
        work += _inner(path, part)
        if "$ref" in part:
            work.append(((part["$ref"],), resolve(schema, part["$ref"])))
    _check_ends(schema)
    return schema  # type: ignore[no-any-return]


def _inner(path: Path, schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The schemas that stand in this one."""
    for word, given in schema.items():
        if word in _ONE:
            yield (*path, word), given
        elif word in _LISTED:
            yield from (((*path, word, at), one) for at, one in enumerate(given))
        elif word in _NAMED:
            yield from (((*path, word, name), one) for name, one in given.items())


def _check_ends(root: Schema) -> None:
    """Refuse references that go round in circles without getting deeper into the value, and those that lead nowhere."""
    done: set[int] = set()
    for start in _all(root):
        active: list[int] = []
        work: list[tuple[Schema, bool]] = [(start, True)]
        while work:
            schema, enter = work.pop()
            if not enter:
                done.add(active.pop())
            elif isinstance(schema, dict) and id(schema) not in done:
                if id(schema) in active:
                    raise BadInput("a $ref in the schema leads back to itself")
                active.append(id(schema))
                work.append((schema, False))
                work += [(inner, True) for inner in _in_place(root, schema)]


def _all(root: Schema) -> Iterator[dict[str, Any]]:
    work: list[Any] = [root]
    while work:
        schema = work.pop()
        if isinstance(schema, dict):
            yield schema
            work += [inner for _, inner in _inner((), schema)]


def _in_place(root: Schema, schema: dict[str, Any]) -> Iterator[Schema]:
    """What checks the very value that this schema checks."""
    if "$ref" in schema:
        yield resolve(root, schema["$ref"])
    for word in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(word, ())
    if "not" in schema:
        yield schema["not"]


def _bad(path: Path, what: str) -> BadInput:
    return BadInput(f"{_place(path)} {what}")


def _place(path: Path) -> str:
    return f"the schema's {where(path)}" if path else "the schema"


# -- what each keyword takes


def _is_number(given: Any) -> bool:
    return type(given) is int or (type(given) is float and math.isfinite(given))


def _is_positive(given: Any) -> bool:
    return _is_number(given) and given > 0


def _is_count(given: Any) -> bool:
    return type(given) is int and given >= 0


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_flag(given: Any) -> bool:
    return isinstance(given, bool)


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def _are_types(given: Any) -> bool:
    named = given if isinstance(given, list) else [given]
    return bool(named) and all(isinstance(one, str) and one in TYPES for one in named)


def _is_list(given: Any) -> bool:
    return isinstance(given, list)


def _is_full(given: Any) -> bool:
    return isinstance(given, list) and bool(given)


def _is_object(given: Any) -> bool:
    return isinstance(given, dict)


def _anything(given: Any) -> bool:  # noqa: ARG001 - says nothing about the value
    return True


_ONE = ("items", "additionalProperties", "propertyNames", "not")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_DESCRIBES = (
    "$comment", "$id", "$schema", "contentEncoding", "contentMediaType", "default", "deprecated", "description",
    "discriminator", "example", "examples", "format", "readOnly", "title", "writeOnly",
)  # fmt: skip
_WORDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_DESCRIBES, _anything),
    **dict.fromkeys(_ONE, _anything),
    **dict.fromkeys(_LISTED, _is_full),
    **dict.fromkeys(_NAMED, _is_object),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    "$ref": _is_text,
    "type": _are_types,
    "const": _anything,
    "enum": _is_list,
    "required": _are_texts,
    "multipleOf": _is_positive,
    "pattern": _is_text,
    "uniqueItems": _is_flag,
}
_HINT = "a keyword that checks nothing would let wrong answers through; say it with others, or check it in your node"
_HINTS = {"$id": "only the outermost schema may have one", "nullable": 'write {"type": ["string", "null"]}'}
