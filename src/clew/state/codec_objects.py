"""Instances of registered and met classes: taken apart by fields, built again without running any of their code.

An object stands behind its tag as `[name, version, extras, {field: value}]`. *Fields* are what the class declares;
*extras* is nil or what the instance has besides: other attributes, and for a pydantic model
`[fields_set, extra, private, other]`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import eq
from typing import Any, NamedTuple, cast

from clew.state import codec_format as f
from clew.state.codec_builtins import NotStorable, Reduced, Unknown
from clew.state.registry import Entry, Registry, qualified_name
from clew.state.values import UNREGISTERED

MISSING = dataclasses.MISSING
_TYPE_HINTS = frozenset({"__orig_class__"})  # what `Box[int](1)` leaves on its instance


class Shape(NamedTuple):
    """What the codec needs to know of a class, worked out once."""

    names: tuple[str, ...]  # the declared fields, in order; of a plain class none: all its attributes are fields
    all_names: frozenset[str]
    defaults: dict[str, Callable[[], Any]]
    unset: frozenset[str]  # fields that may have no value of their own
    slots: dict[str, Any]
    recomputed: frozenset[str]  # cached properties: left out, computed again on demand
    has_dict: bool
    has_extra: bool  # of a model: it takes more fields than it declares
    has_private: bool


def shape_of(entry: Entry) -> Shape:
    shape = entry.shape.get("shape")
    if shape is None:
        shape = entry.shape["shape"] = _work_out(entry)
    return cast("Shape", shape)


def _work_out(entry: Entry) -> Shape:
    cls = entry.cls
    slots: dict[str, Any] = {}
    recomputed = set(_TYPE_HINTS)
    for base in cls.__mro__:
        for name, attribute in vars(base).items():
            if type(attribute) is types.MemberDescriptorType and not name.startswith("__pydantic_"):
                slots.setdefault(name, attribute)
            elif isinstance(attribute, functools.cached_property):
                recomputed.add(name)
    names: tuple[str, ...] = ()
    defaults: dict[str, Callable[[], Any]] = {}
    unset: set[str] = set()
    if entry.kind == "dataclass":
        for field in dataclasses.fields(cls):
            names += (field.name,)
            if field.default is not MISSING:
                defaults[field.name] = functools.partial(_same, field.default)
            elif field.default_factory is not MISSING:
                defaults[field.name] = field.default_factory
            descriptor = inspect.getattr_static(cls, field.name, None)
            computed = hasattr(type(descriptor), "__set__") and field.name not in slots
            if computed or (not field.init and field.default_factory is MISSING):
                unset.add(field.name)  # with init=False, a default stays on the class
    elif entry.kind == "model":
        names = tuple(cls.__pydantic_fields__)  # type: ignore[attr-defined]
    elif entry.kind == "namedtuple":
        names = cls._fields  # type: ignore[attr-defined]
        defaults = {name: functools.partial(_same, value) for name, value in cls._field_defaults.items()}  # type: ignore[attr-defined]
    has_dict = any("__dict__" in vars(base) for base in cls.__mro__)
    model: Any = cls if entry.kind == "model" else None
    return Shape(
        names,
        frozenset(names),
        defaults,
        frozenset(unset),
        slots,
        frozenset(recomputed),
        has_dict,
        has_extra=model is not None and model.model_config.get("extra") == "allow",
        has_private=model is not None and bool(model.__private_attributes__),
    )


def _same(value: Any) -> Any:
    return value


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
    if tag == f.MODEL and (model := _same_model(parts, registry)) is not None:
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


_NO_EXTRA = (dict, type(None))


def _same_model(parts: list[Any], registry: Registry) -> Any:
    """A model whose class is as it was when it was stored, nothing but declared fields in it; None for any other.

    It is what `_build_model` makes of it, without looking for what has changed: messages are read by the thousand.
    """
    if len(parts) != 4 or not (parts[2] is None or (type(parts[2]) is list and len(parts[2]) == 4)):
        return None
    name, version, extras, fields = parts
    entry = registry.by_name.get(name) if type(name) is str else None
    if entry is None or entry.kind != "model" or type(version) is not int or version != entry.version:
        return None
    shape: Shape = entry.shape.get("shape") or shape_of(entry)
    if type(fields) is not dict or fields.keys() != shape.all_names or shape.has_private:
        return None
    given, extra, private, others = (None, None, None, None) if extras is None else extras
    if extra or type(extra) not in _NO_EXTRA or private is not None or others is not None:
        return None
    if given is not None and not (type(given) is list and shape.all_names.issuperset(given)):
        return None
    return _model(entry.cls, fields, set(fields if given is None else given), {} if shape.has_extra else extra, None)


def same_models(every: Sequence[Any], registry: Registry) -> list[Any] | None:
    """What `_same_model` makes of each; None if one of them is another thing. The same checks, column by column."""
    if not (_LISTS.issuperset(map(type, every)) and _FOURS.issuperset(map(len, every))):
        return None
    names, versions, extras, fields = zip(*every, strict=True)
    if not (_STRS.issuperset(map(type, names)) and _INTS.issuperset(map(type, versions))):
        return None
    known: dict[str, tuple[type, frozenset[str], bool]] = {}
    for name, version in set(zip(names, versions, strict=True)):
        entry = registry.by_name.get(name)
        if entry is None or entry.kind != "model" or entry.version != version or (shape := shape_of(entry)).has_private:
            return None
        known[name] = entry.cls, shape.all_names, shape.has_extra
    classes = [known[name] for name in names]
    declared = [of_class[1] for of_class in classes]
    if not (_DICTS.issuperset(map(type, fields)) and all(map(eq, map(dict.keys, fields), declared))):
        return None
    given: Sequence[Any] = fields
    told = [extra for extra in extras if extra is not None]
    if told:
        if not (_LISTS.issuperset(map(type, told)) and _FOURS.issuperset(map(len, told))):
            return None
        named, extra_ones, *others = zip(*told, strict=True)
        if any(extra_ones) or not _NO_EXTRAS.issuperset(map(type, extra_ones)) or others != [(None,) * len(told)] * 2:
            return None
        if not _NAMED.issuperset(map(type, named)):
            return None
        given = [
            own if extra is None or extra[0] is None else extra[0] for own, extra in zip(fields, extras, strict=True)
        ]
        try:
            if not all(map(frozenset.issuperset, declared, given)):
                return None
        except TypeError:
            return None
    return copy_models([of[0] for of in classes], fields, given, [{} if of[2] else None for of in classes])


_LISTS, _DICTS, _STRS, _INTS, _FOURS = (frozenset({one}) for one in (list, dict, str, int, 4))
_NO_EXTRAS, _NAMED = frozenset(_NO_EXTRA), frozenset({list, type(None)})


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
        return _build_model(entry.cls, shape, state, extras)
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


def _build_model(cls: Any, shape: Shape, fields: dict[str, Any], extras: Any) -> Any:
    if extras is None:
        extras = [None, None, None, None]
    if type(extras) is not list or len(extras) != 4:
        raise ValueError("a model with malformed extras")
    given, extra, private, others = extras
    if not all(part is None or _text_dict(part) for part in (extra, private, others)):
        raise ValueError("a model with malformed extras")
    if given is not None and (type(given) is not list or not all(type(name) is str for name in given)):
        raise ValueError("a model with malformed extras")
    given = set(fields if given is None else given)
    for name, info in cls.__pydantic_fields__.items():
        if name not in fields:
            if info.is_required():
                raise Unknown(f"the field {name!r} has no stored value and no default", type_name="")
            try:
                fields[name] = _default_of(info, fields)
            except Exception as error:
                raise Unknown(f"the default of field {name!r} raised {error!r}", type_name="") from error
    allows_extra = shape.has_extra
    if extra and not allows_extra:
        raise Unknown(f"{qualified_name(cls)} allows no extra fields, as {next(iter(extra))!r}", type_name="")
    attributes = fields if others is None else {**fields, **others}
    return _model(cls, attributes, given, {} if extra is None and allows_extra else extra, _private(cls, private))


_new, _set_slot = object.__new__, object.__setattr__


def _model(cls: Any, attributes: dict[str, Any], given: set[str], extra: Any, private: Any) -> Any:
    """What pydantic's own `model_construct` makes, without its validation, hooks and defaults."""
    value = _new(cls)
    _set_slot(value, "__dict__", attributes)
    _set_slot(value, "__pydantic_fields_set__", given)
    _set_slot(value, "__pydantic_extra__", extra)
    _set_slot(value, "__pydantic_private__", private)
    return value


def copy_objects(types: Sequence[type], attributes: Sequence[dict[str, Any]]) -> list[Any]:
    """Instances with these attributes."""
    values: list[Any] = list(map(_new, types))
    for value, own in zip(values, attributes, strict=True):
        vars(value).update(own)
    return values


def copy_models(
    types: Sequence[type], attributes: Sequence[dict[str, Any]], given: Sequence[Iterable[str]], extra: Sequence[Any]
) -> list[Any]:
    """Models with these attributes, given fields and extra ones, as `_model` makes them: many in a few C loops."""
    values: list[Any] = list(map(_new, types))
    for name, of_each in (
        ("__dict__", attributes),
        ("__pydantic_fields_set__", map(set, given)),
        ("__pydantic_extra__", extra),
        ("__pydantic_private__", repeat(None)),
    ):
        deque(map(_set_slot, values, repeat(name), of_each), maxlen=0)
    return values


def _default_of(info: Any, fields: dict[str, Any]) -> Any:
    if info.default_factory is None:
        return info.get_default()
    return (
        info.default_factory(fields)
        if getattr(info, "default_factory_takes_validated_data", False)
        else info.default_factory()
    )


def _private(cls: Any, stored: dict[str, Any] | None) -> dict[str, Any] | None:
    declared = cls.__private_attributes__
    if stored is None and not declared:
        return None
    stored = {} if stored is None else stored
    for name, attribute in declared.items():
        if name not in stored and (
            attribute.default_factory is not None or repr(attribute.default) != "PydanticUndefined"
        ):
            stored[name] = attribute.get_default()
    gone = [name for name in stored if name not in declared]
    if gone:
        raise Unknown(f"{qualified_name(cls)} has no private attribute {gone[0]!r} (any more)", type_name="")
    return stored


def _text_dict(value: Any) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)
