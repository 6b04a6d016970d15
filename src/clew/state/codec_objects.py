"""Instances of registered and met classes: taken apart by fields, built again without running any of their code.

An object stands behind its tag as `[name, version, extras, {field: value}]`. *Fields* are what the class declares;
*extras* is nil or what the instance has besides: other attributes, and for a pydantic model
`[fields_set, extra, private, other]`.
"""

from __future__ import annotations

import enum
from typing import Any

from clew.state import codec_format as f
from clew.state.codec_builtins import NotStorable, Reduced, Unknown
from clew.state.codec_classes import Shape, shape_of
from clew.state.codec_models import build_model, same_model
from clew.state.registry import Entry, Registry, qualified_name
from clew.state.values import UNREGISTERED

# --- taking apart ----------------------------------------------------------------------------------------------------


def reduce_object(value: Any, entry: Entry) -> Reduced:
    """(tag, [name, version, …]) of an instance."""
    if entry.kind == "custom":
        try:
            state = entry.encode(value)  # type: ignore[misc]
        except Exception as error:
            raise NotStorable(f"the registered encode raised {type(error).__name__}: {error}") from error
        return f.STATE, [entry.name, entry.version, state]
    if entry.kind == "enum":
        return f.ENUM, [entry.name, entry.version, _member_name(value)]
    extras, fields = object_parts(value, entry)
    return TAGS[entry.kind], [entry.name, entry.version, extras, fields]


TAGS = {"dataclass": f.OBJECT, "plain": f.OBJECT, "model": f.MODEL, "namedtuple": f.NAMEDTUPLE}


def object_parts(value: Any, entry: Entry) -> tuple[Any, dict[str, Any]]:
    """Extras and fields of an instance of a dataclass, model, named tuple or plain registered class."""
    shape = shape_of(entry)
    if entry.kind == "model":
        return _model_parts(value, shape)
    if entry.kind == "namedtuple":
        if tuple.__len__(value) != len(shape.names):
            raise NotStorable(f"it has {tuple.__len__(value)} items for {len(shape.names)} fields")
        return _others(_attributes(value, shape), shape), dict(zip(shape.names, tuple.__iter__(value), strict=True))
    attributes = _attributes(value, shape)
    if entry.kind == "plain":
        return None, {name: attributes[name] for name in sorted(attributes) if name not in shape.recomputed}
    fields = {}
    for name in shape.names:
        if name in attributes:
            fields[name] = attributes[name]
        elif name not in shape.unset:
            raise NotStorable(f"its field {name!r} has no value")
    return (_others(attributes, shape) if len(attributes) > len(fields) else None), fields


def _attributes(value: Any, shape: Shape) -> dict[str, Any]:
    attributes: dict[str, Any] = dict(vars(value)) if shape.has_dict else {}
    for name, slot in shape.slots.items():
        try:
            attributes[name] = slot.__get__(value)
        except AttributeError:
            continue
    return attributes


def _others(attributes: dict[str, Any], shape: Shape) -> dict[str, Any] | None:
    others = sorted(attributes.keys() - shape.all_names - shape.recomputed)
    return {name: attributes[name] for name in others} or None


def _model_parts(value: Any, shape: Shape) -> tuple[Any, dict[str, Any]]:
    attributes = vars(value)
    try:
        fields = {name: attributes[name] for name in shape.names}
    except KeyError:
        fields = {name: attributes[name] for name in shape.names if name in attributes}
    try:
        given, extra, private = (
            value.__pydantic_fields_set__,
            value.__pydantic_extra__,
            value.__pydantic_private__,
        )
    except AttributeError:
        raise NotStorable("it has not been initialised") from None
    others = _others(attributes, shape) if len(attributes) > len(fields) else None
    if given == fields.keys():
        if extra is None and private is None and others is None:
            return None, fields
        return [None, extra, private, others], fields
    return [sorted(given), extra, private, others], fields


def _member_name(member: enum.Enum) -> str | int:
    """A member's name; a combination of flags has none, but a number."""
    cls = type(member)
    name = member._name_
    if cls._member_map_.get(name) is member:
        return name
    if isinstance(member, enum.Flag) and type(member._value_) is int:
        return member._value_
    raise NotStorable("it is no member of its own enum")


# --- building --------------------------------------------------------------------------------------------------------

_KINDS = {
    f.OBJECT: ("dataclass", "plain"),
    f.MODEL: ("model",),
    f.NAMEDTUPLE: ("namedtuple",),
    f.ENUM: ("enum",),
    f.STATE: ("custom",),
}


def build_object(tag: int, parts: list[Any], registry: Registry) -> Any:
    """The instance that `reduce_object` took apart. `Unknown` when that cannot be, ValueError for a malformed list."""
    if tag == f.MODEL and (model := same_model(parts, registry)) is not None:
        return model
    wanted = 3 if tag in (f.ENUM, f.STATE) else 4
    if len(parts) != wanted or type(parts[0]) is not str or type(parts[1]) is not int or parts[1] < 1:
        raise ValueError("an object without name, version and content")
    name, version, state = parts[0], parts[1], parts[-1]
    if tag == f.ENUM and type(state) not in (str, int):
        raise ValueError("an enum member without a name")
    if wanted == 4 and (type(state) is not dict or not all(type(key) is str for key in state)):
        raise ValueError("an object without fields")
    try:
        return _build(tag, registry.find(name), version, state, parts[2], registry)
    except Unknown as unknown:
        unknown.type_name, unknown.version = name, version
        raise


def _build(tag: int, entry: Entry | None, version: int, state: Any, extras: Any, registry: Registry) -> Any:
    if entry is None:
        raise Unknown(UNREGISTERED, type_name="")
    if entry.kind not in _KINDS[tag]:
        raise Unknown(
            f"{qualified_name(entry.cls)} is registered under this name, now of kind {entry.kind}", type_name=""
        )
    if version != entry.version:
        state = _upcast(entry, version, state, registry)
    if entry.kind == "custom":
        return _build_custom(entry, state)
    if entry.kind == "enum":
        return _build_member(entry.cls, state)
    shape = shape_of(entry)
    value: Any
    if entry.kind != "plain":
        _same_fields(entry, shape, state)
    if entry.kind == "model":
        return build_model(entry.cls, shape, state, extras)
    if extras is not None and (type(extras) is not dict or not all(type(key) is str for key in extras)):
        raise ValueError("an object with malformed extras")
    if entry.kind == "namedtuple":
        _fill(shape, state)
        value = tuple.__new__(entry.cls, [state[name] for name in shape.names])
        return _set(value, shape, extras or {})
    _fill(shape, state)
    try:
        value = object.__new__(entry.cls)
    except TypeError as error:
        raise Unknown(f"no instance can be made: {error}", type_name="") from None
    return _set(value, shape, state if extras is None else {**extras, **state})


def _upcast(entry: Entry, version: int, state: Any, registry: Registry) -> Any:
    if version > entry.version:
        raise Unknown(f"it is newer than the registered version {entry.version}", type_name="")
    if entry.kind == "enum":
        state = {"name": state}
    for to in range(version + 1, entry.version + 1):
        step = registry.upcasts.get((entry.name, to))
        if step is None:
            raise Unknown(f"no upcast from version {to - 1} to {to} is registered", type_name="")
        try:
            state = step(state)
        except Exception as error:
            raise Unknown(f"its upcast to version {to} raised {type(error).__name__}: {error}", type_name="") from error
        if entry.kind != "custom" and type(state) is not dict:
            raise Unknown(f"its upcast to version {to} gave a {type(state).__name__}, not a dict", type_name="")
    return state.get("name") if entry.kind == "enum" else state


def _same_fields(entry: Entry, shape: Shape, state: dict[str, Any]) -> None:
    gone = [name for name in state if name not in shape.all_names]
    if gone:
        raise Unknown(
            f"{qualified_name(entry.cls)} has no field {gone[0]!r} (any more); "
            f"register it as version {entry.version + 1} with an upcast",
            type_name="",
        )


def _fill(shape: Shape, state: dict[str, Any]) -> None:
    """Give fields that the stored object did not have yet their defaults."""
    if len(state) == len(shape.names):
        return
    for name in shape.names:
        if name in state or name in shape.unset:
            continue
        default = shape.defaults.get(name)
        if default is None:
            raise Unknown(f"the field {name!r} has no stored value and no default", type_name="")
        try:
            state[name] = default()
        except Exception as error:
            raise Unknown(f"the default of field {name!r} raised {error!r}", type_name="") from error


def _set(value: Any, shape: Shape, attributes: dict[str, Any]) -> Any:
    """Put attributes where they are kept, past any `__setattr__`, property or freeze."""
    if not shape.slots:
        if attributes:
            if not shape.has_dict:
                raise Unknown(f"its class has no place for {next(iter(attributes))!r}", type_name="")
            vars(value).update(attributes)
        return value
    for name, attribute in attributes.items():
        slot = shape.slots.get(name)
        if slot is not None:
            slot.__set__(value, attribute)
        elif shape.has_dict:
            vars(value)[name] = attribute
        else:
            raise Unknown(f"its class has no place for {name!r}", type_name="")
    return value


def _build_custom(entry: Entry, state: Any) -> Any:
    try:
        value = entry.decode(state)  # type: ignore[misc]
    except Exception as error:
        raise Unknown(f"its registered decode raised {type(error).__name__}: {error}", type_name="") from error
    if type(value) is not entry.cls:
        raise Unknown(f"its registered decode gave a {type(value).__name__}", type_name="")
    return value


def _build_member(cls: type[enum.Enum], name: Any) -> enum.Enum:
    if type(name) is str:
        member = cls._member_map_.get(name)
        if member is None:
            raise Unknown(f"{qualified_name(cls)} has no member {name!r}", type_name="")
        return member
    if type(name) is int and issubclass(cls, enum.Flag):
        known = cls._value2member_map_.get(name)
        if known is not None:
            return known
        try:  # enum's own way to combine flags, not one that the class may define
            return enum.Flag._missing_.__func__(cls, name)  # type: ignore[attr-defined, no-any-return]
        except ValueError:
            raise Unknown(f"{qualified_name(cls)} has no flags that make {name}", type_name="") from None
    raise Unknown(f"{qualified_name(cls)} has no member {name!r}", type_name="")
