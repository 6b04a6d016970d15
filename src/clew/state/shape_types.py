"""From Python types to JSON Schema, from values to plain JSON, and back to values of the type."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from clew.errors import BadInput
from clew.state.diff_path import Path, where
from clew.state.shape import MAX_DEPTH, Schema, check
from clew.state.shape_schema import check_schema

_LARGEST = 10**300  # beyond it a whole number is no float any more
_SIMPLE: dict[Any, Schema] = {
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Any: {},
    object: {},
}
_QUALIFIERS = tuple(getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, name))


class NotPlain(ValueError):
    """A value that JSON has no form for, and where it stands."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.path = where(path)


def schema_of(kind: Any) -> Schema:
    """The JSON Schema of a type. A dict is taken for a schema itself.

    None, bool, int, float, str, Literal, Enum, list, dict with str keys, Optional and Union, TypedDict, dataclasses,
    pydantic models, and Any. `BadInput` for other types, and for schemas that would not be checked in full.

    >>> schema_of(list[int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    if isinstance(kind, dict):
        try:
            return check_schema(plain(kind))
        except NotPlain as error:
            raise BadInput(f"the schema's {error.path or 'value'} {error}", hint="a schema is plain JSON") from error
    if _is_model(kind):
        return check_schema(kind.model_json_schema())
    return check_schema(_Definitions().whole(kind))


def plain(value: Any) -> Any:
    """The value as JSON has it: of dicts, lists, str, int, float, bool and None alone. `NotPlain` tells what is not.

    Dataclasses and pydantic models become dicts, members of an Enum their values, tuples lists.
    """
    return _plain(value, ())


def build(kind: Any, value: Any) -> Any:
    """A plain value that fits the type's schema, as a value of the type.

    >>> build(tuple[()] | None, None) is None
    True
    """
    builder = _builder(kind)
    return value if builder is None else builder(value)


# -- to JSON


def _plain(value: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise NotPlain(path[:3], "is too deep, or contains itself")
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if isinstance(value, bool | int):
        if not -_LARGEST < value < _LARGEST:
            raise NotPlain(path, "is a number of more than 300 digits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotPlain(path, f"is {value}, which JSON does not have")
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(part, (*path, key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, at)) for at, item in enumerate(value)]
    if _is_model(type(value)):
        return _plain(value.model_dump(mode="json", by_alias=True), path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _plain(getattr(value, name), (*path, name)) for name in named}
    raise NotPlain(path, f"is of type {type(value).__name__}, which JSON does not have")


def _key(key: Any, path: Path) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise NotPlain(path, f"has the key {key!r:.40}; keys are str")
    return str(key)


# -- to a schema


class _Definitions:
    """The named types within a type. Each stands once among `$defs`, so a type may contain itself."""

    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}
        self._uses: dict[str, int] = {}

    def whole(self, kind: Any) -> Schema:
        """The schema of a type with all that it refers to; the type itself stands outside, if nothing refers to it."""
        root = self.schema(kind)
        name = self._names.get(_bare(kind)) if isinstance(root, dict) and "$ref" in root else None
        if name is not None and self._uses[name] == 1:
            root = self.made.pop(name)
        return {**root, "$defs": self.made} if self.made and isinstance(root, dict) else root

    def _reference(self, kind: Any) -> Schema:
        name = self._names[kind]
        self._uses[name] = self._uses.get(name, 0) + 1
        return {"$ref": f"#/$defs/{name}"}

    def schema(self, kind: Any) -> Schema:
        kind = _bare(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        simple = _simple(kind)
        if simple is not None:
            return simple
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.schema(arg) for arg in args]}
        if origin is typing.Literal:
            return {"enum": [_constant(arg) for arg in args]}
        if _is_listing(kind, origin):
            return {"type": "array", **({"items": self.schema(args[0])} if args else {})}
        if _is_mapping(kind, origin):
            if args and _bare(args[0]) is not str:
                raise _unknown(kind, "keys are str")
            return {"type": "object", **({"additionalProperties": self.schema(args[1])} if args else {})}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [_constant(member.value) for member in kind]}
        if _is_model(kind):
            return self._model(kind)
        if typing.is_typeddict(kind) or (dataclasses.is_dataclass(kind) and isinstance(kind, type)):
            return self._object(kind)
        raise _unknown(kind)

    def _object(self, kind: type) -> Schema:
        if kind not in self._names:
            name = self._free(kind.__name__)
            self._names[kind] = name
            self.made[name] = {}
            parts = _fields(kind)
            self.made[name] = {
                "type": "object",
                "properties": {part.name: self._field(part) for part in parts},
                "required": [part.name for part in parts if part.required],
                "additionalProperties": False,
            }
        return self._reference(kind)

    def _field(self, part: _Field) -> Schema:
        schema = self.schema(part.kind)
        if part.default is not dataclasses.MISSING and isinstance(schema, dict):
            try:
                return {**schema, "default": plain(part.default)}
            except NotPlain:
                return schema
        return schema

    def _model(self, kind: Any) -> Schema:
        """A model among other types: its own `$defs` join ours, under names that are free."""
        if kind not in self._names:
            prefix = self._free(kind.__name__)
            schema = kind.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
            for name, inner in schema.pop("$defs", {}).items():
                self.made[f"{prefix}.{name}"] = inner
            self._names[kind] = prefix
            self.made[prefix] = schema
        return self._reference(kind)

    def _free(self, name: str) -> str:
        number, found = 1, name
        while found in self.made:
            number += 1
            found = f"{name}_{number}"
        return found


class _Field(typing.NamedTuple):
    name: str
    kind: Any
    required: bool
    default: Any = dataclasses.MISSING


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a class, read."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise BadInput(
            f"the type {error.name!r} in {kind.__name__} is not known where that was defined",
            hint="define both at the top of a module",
        ) from error


def _fields(kind: Any) -> list[_Field]:
    """The fields of a dataclass or TypedDict, with their types read."""
    hints = hints_of(kind)
    if typing.is_typeddict(kind):
        return [_Field(name, hint, _is_required(kind, name, hint)) for name, hint in hints.items()]
    found = []
    for field in dataclasses.fields(kind):
        if field.init:
            has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            found.append(_Field(field.name, hints[field.name], not has_default, field.default))
    return found


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    # `__required_keys__` has not seen qualifiers that stood in strings, as all do under `from __future__`.
    while (origin := typing.get_origin(hint)) is not None:
        if origin is typing.Required:
            return True
        if origin is typing.NotRequired:
            return False
        if origin is not typing.Annotated and origin not in _QUALIFIERS:
            break
        hint = typing.get_args(hint)[0]
    return name in kind.__required_keys__


def _bare(kind: Any) -> Any:
    """The type without what only describes it: Annotated, NotRequired, NewType, `type X = …`."""
    while True:
        if typing.get_origin(kind) is typing.Annotated or typing.get_origin(kind) in _QUALIFIERS:
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def _simple(kind: Any) -> Schema | None:
    try:
        return _SIMPLE.get(kind)
    except TypeError:  # unhashable
        return None


def _is_listing(kind: Any, origin: Any) -> bool:
    return kind is list or origin in (list, Sequence)


def _is_mapping(kind: Any, origin: Any) -> bool:
    return kind is dict or origin in (dict, Mapping)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _constant(value: Any) -> Any:
    try:
        return plain(value)
    except NotPlain as error:
        raise BadInput(
            f"the choice {value!r:.60} {error}", hint="choices are text, numbers, True, False or None"
        ) from error


def _unknown(kind: Any, why: str = "") -> BadInput:
    return BadInput(
        f"an answer cannot be of type {getattr(kind, '__name__', kind)!s:.80}" + (f": {why}" if why else ""),
        hint="bool, int, float, str, Literal, Enum, list, dict, Optional, Union, TypedDict, dataclasses, "
        "pydantic models, or a JSON Schema as a dict",
    )


# -- to values of a type


def _builder(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this type; None where the plain value is one."""
    if isinstance(kind, dict):
        return None
    kind = _bare(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is float:
        return float
    if origin in (typing.Union, types.UnionType):
        return lambda value: _first_fitting(args, value)
    if origin is typing.Literal:
        return lambda value: _same_constant(args, [_constant(arg) for arg in args], value)
    if _is_listing(kind, origin) and args:
        return lambda value: [build(args[0], item) for item in value]
    if _is_mapping(kind, origin) and args:
        return lambda value: {key: build(args[1], part) for key, part in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = list(kind)
        return lambda value: _same_constant(members, [_constant(member.value) for member in members], value)
    if _is_model(kind):
        return kind.model_validate  # type: ignore[no-any-return]
    if typing.is_typeddict(kind) or (dataclasses.is_dataclass(kind) and isinstance(kind, type)):
        kinds = {part.name: part.kind for part in _fields(kind)}
        return lambda value: kind(**{name: build(kinds[name], part) for name, part in value.items()})
    return None


def _first_fitting(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        if not check(value, schema_of(kind)):
            return build(kind, value)
    raise ValueError(f"{value!r:.60} is none of the types that were asked for")


def _same_constant(values: Sequence[Any], plain_values: Sequence[Any], value: Any) -> Any:
    for one, form in zip(values, plain_values, strict=True):
        if form == value and type(form) is type(value):
            return one
    for one, form in zip(values, plain_values, strict=True):
        if form == value and bool not in (type(form), type(value)):
            return one
    raise ValueError(f"{value!r:.60} is none of the choices")
