"""What a schema asks for, told to people: a line, and one for each entry of an object."""

from __future__ import annotations

from typing import Any

from clew.state.shape import Schema, describe, resolve, shown

_BOUNDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "more than {}",
    "maximum": "{} or less",
    "exclusiveMaximum": "less than {}",
    "minLength": "{} or more letters",
    "maxLength": "{} or less letters",
    "minItems": "{} or more items",
    "maxItems": "{} or less items",
    "pattern": "like {}",
}
_DEEPEST = 8


def explain(schema: Schema | None) -> list[str]:
    """What a value may look like, in lines for people.

    >>> explain({"type": "object", "required": ["paid"], "properties": {
    ...     "paid": {"type": "boolean"}, "note": {"type": "string", "default": ""}}})
    ['an object', '  paid: true or false', '  note: text; "" if left out']
    """
    if schema is None:
        return ["anything: JSON or text"]
    return list(_Words(schema).lines(schema, 0))


class _Words:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def lines(self, schema: Schema, depth: int) -> list[str]:
        found = self._meant(schema)
        if not isinstance(found, bool) and (choices := self._but_null(found)):
            first, *rest = self.lines(choices[0], depth)
            return [f"{first} or null", *rest]
        if not isinstance(found, bool) and depth < _DEEPEST and (among := self._among_objects(found)):
            return ["one of", *(f"  {line}" for choice in among for line in self.lines(choice, depth + 1))]
        if isinstance(found, bool) or not found.get("properties") or depth > _DEEPEST:
            return [self._line(found)]
        required = found.get("required", ())
        lines = ["an object"]
        for name, part in found["properties"].items():
            first, *rest = self.lines(part, depth + 1)
            lines.append(f"  {name}: {first}{self._if_left_out(part, needed=name in required)}")
            lines += [f"  {line}" for line in rest]
        return lines

    def _meant(self, schema: Schema) -> Schema:
        """The schema that a reference leads to."""
        for _ in range(_DEEPEST):
            if isinstance(schema, bool) or "$ref" not in schema:
                break
            schema = resolve(self._root, schema["$ref"])
        return schema

    @staticmethod
    def _but_null(schema: dict[str, Any]) -> list[Schema]:
        """What else there is where null is one of two choices."""
        choices = schema.get("anyOf", schema.get("oneOf", []))
        others = [choice for choice in choices if choice != {"type": "null"}]
        return others if len(choices) == 2 and len(others) == 1 else []

    def _among_objects(self, schema: dict[str, Any]) -> list[Schema]:
        """The choices, where an object is one of them: it has no words for a single line."""
        choices = [self._meant(choice) for choice in schema.get("anyOf", schema.get("oneOf", []))]
        objects = any(isinstance(choice, dict) and choice.get("properties") for choice in choices)
        return choices if objects and len(choices) > 1 else []

    def _line(self, schema: Schema) -> str:
        if isinstance(schema, bool):
            return describe(schema)
        bounds = [text.format(schema[word]) for word, text in _BOUNDS.items() if word in schema]
        told = describe(schema) if schema.keys() & {"type", "enum", "const", "anyOf", "oneOf", "$ref"} else "anything"
        items = schema.get("items")
        if isinstance(items, dict):
            told += f" of: {self._line(self._meant(items))}"
        return ", ".join([told, *bounds])

    @staticmethod
    def _if_left_out(part: Any, *, needed: bool) -> str:
        if needed:
            return ""
        has_default = isinstance(part, dict) and "default" in part
        return f"; {shown(part['default'])} if left out" if has_default else "; may be left out"
