"""Pydantic models: built from stored fields without running any of their code, and by the thousand in a few C loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain, compress, repeat
from operator import eq, setitem
from typing import Any, NamedTuple

from clew.state.codec_builtins import Unknown
from clew.state.codec_classes import Shape, shape_of
from clew.state.registry import Entry, Registry, qualified_name

_NO_EXTRA = frozenset({dict, type(None)})
_NAMED = frozenset({list, type(None)})
_LISTS, _DICTS, _STRS, _INTS, _FOURS = (frozenset({one}) for one in (list, dict, str, int, 4))


def same_model(parts: list[Any], registry: Registry) -> Any:
    """A model whose class is as it was when it was stored, nothing but declared fields in it; None for any other.

    It is what `build_model` makes of it, without looking for what has changed.
    """
    if len(parts) != 4 or not (parts[2] is None or (type(parts[2]) is list and len(parts[2]) == 4)):
        return None
    name, version, extras, fields = parts
    entry = _unchanged(registry, name, version) if type(name) is str and type(version) is int else None
    if entry is None:
        return None
    shape: Shape = entry.shape.get("shape") or shape_of(entry)
    if type(fields) is not dict or fields.keys() != shape.all_names:
        return None
    given, extra, private, others = (None, None, None, None) if extras is None else extras
    if extra or type(extra) not in _NO_EXTRA or private is not None or others is not None:
        return None
    if given is not None and not (type(given) is list and shape.all_names.issuperset(given)):
        return None
    return _model(entry.cls, fields, set(fields if given is None else given), {} if shape.has_extra else extra, None)


def _unchanged(registry: Registry, name: str, version: int) -> Entry | None:
    """The model class that is registered under a name, if this version is its present one and it hides nothing."""
    entry = registry.by_name.get(name)
    if entry is None or entry.kind != "model" or entry.version != version or shape_of(entry).has_private:
        return None
    return entry


class Built(NamedTuple):
    """Models of one class that were built together."""

    cls: type
    which: list[bool]
    """Of all models that were built, these."""
    fields: list[dict[str, Any]]
    """Their `__dict__`: in all of them the same keys in the same order."""
    given: list[frozenset[str]]
    extra: list[Any]


def same_models(every: Sequence[Any], registry: Registry, built: list[Built] | None = None) -> list[Any] | None:
    """What `same_model` makes of each; None if one of them is another thing. The same checks, class by class.

    What they consist of is added to `built`.
    """
    if not _LISTS.issuperset(map(type, every)):
        return None
    columns = list(zip(*every, strict=True))  # ValueError, too, where one has other parts
    if len(columns) != 4:
        return None
    names, versions, extras, fields = columns
    if not (_STRS.issuperset(map(type, names)) and _INTS.issuperset(map(type, versions))):
        return None
    if not _DICTS.issuperset(map(type, fields)):
        return None
    made: list[Any] = [None] * len(names)
    for name, version in set(zip(names, versions, strict=True)):
        entry = _unchanged(registry, name, version)
        if entry is None:
            return None
        which = list(map(eq, names, repeat(name)))
        own, shape = list(compress(fields, which)), shape_of(entry)
        given = _given(own, list(compress(extras, which)), shape)
        if given is None:
            return None
        extra: list[Any] = [{} for _ in own] if shape.has_extra else [None] * len(own)
        put_at(made, which, models_of(entry.cls, own, given, extra))
        if built is not None:
            built.append(Built(entry.cls, which, own, given, extra))
    return made


def _given(fields: list[dict[str, Any]], extras: list[Any], shape: Shape) -> list[frozenset[str]] | None:
    """Which fields of each model of one class were given; None if one of them has other fields, or more than these."""
    if not have_keys(fields, shape.names):
        return None
    told = [extra for extra in extras if extra is not None]
    if not told:
        return [shape.all_names] * len(fields)
    if not (_LISTS.issuperset(map(type, told)) and _FOURS.issuperset(map(len, told))):
        return None
    named, extra_ones, *others = zip(*told, strict=True)
    if any(extra_ones) or not _NO_EXTRA.issuperset(map(type, extra_ones)) or others != [(None,) * len(told)] * 2:
        return None
    if not _are_among(named, shape.all_names):
        return None
    if len(told) == len(extras) and None not in named and named.count(named[0]) == len(named):
        return [frozenset(named[0])] * len(named)  # as most messages
    return [shape.all_names if extra is None or extra[0] is None else frozenset(extra[0]) for extra in extras]


def have_keys(dicts: Sequence[dict[Any, Any]], keys: tuple[Any, ...]) -> bool:
    """Whether all of these, of which there are some, have just these keys in this order."""
    own = list(dicts[0])  # mostly the same objects as in the others: identity is compared first
    # As many keys in all as they can have, and all of them right: so none has fewer.
    return tuple(own) == keys and list(chain.from_iterable(dicts)) == own * len(dicts)


def _are_among(named: Sequence[Any], names: frozenset[str]) -> bool:
    """Whether each of these is a list of such names, or None. They are mostly alike."""
    first = named[0]
    if not _NAMED.issuperset(map(type, named)):
        return False
    if first is not None and _STRS.issuperset(map(type, first)) and names.issuperset(first):
        named = [one for one in named if one != first]
    try:
        return all(names.issuperset(one) for one in named if one is not None)
    except TypeError:  # not even hashable
        return False


def put_at(items: list[Any], which: Iterable[bool], values: Iterable[Any]) -> None:
    """Put values, in their order, where `which` says so."""
    deque(map(setitem, repeat(items), compress(range(len(items)), which), values), maxlen=0)


def build_model(cls: Any, shape: Shape, fields: dict[str, Any], extras: Any) -> Any:
    """A model from its fields, whatever its class has become since. `Unknown` when that cannot be."""
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


_new, _set_slot = object.__new__, object.__setattr__


def _model(cls: Any, attributes: dict[str, Any], given: set[str], extra: Any, private: Any) -> Any:
    """What pydantic's own `model_construct` makes, without its validation, hooks and defaults."""
    value = _new(cls)
    _set_slot(value, "__dict__", attributes)
    _set_slot(value, "__pydantic_fields_set__", given)
    _set_slot(value, "__pydantic_extra__", extra)
    _set_slot(value, "__pydantic_private__", private)
    return value


def models_of(
    cls: type, attributes: Sequence[dict[str, Any]], given: Iterable[Iterable[str]], extra: Iterable[Any]
) -> list[Any]:
    """Models with these attributes, given fields and extra ones, as `_model` makes them: many in a few C loops."""
    values: list[Any] = list(map(_new, repeat(cls, len(attributes))))
    parts = (attributes, map(set, given), extra, repeat(None))
    for put, of_each in zip(_setters(cls), parts, strict=True):
        deque(map(put, values, of_each), maxlen=0)
    return values


@lru_cache(maxsize=1024)
def _setters(cls: type) -> tuple[Callable[[Any, Any], None], ...]:
    """What sets the four parts of a model: `object.__setattr__` would look for these each time."""
    found: list[Callable[[Any, Any], None]] = []
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        slots: Iterable[Any] = (vars(base).get(name) for base in cls.__mro__)
        found.append(next(slot.__set__ for slot in slots if hasattr(slot, "__set__")))
    return tuple(found)


def objects_of(cls: type, attributes: Sequence[dict[str, Any]]) -> list[Any]:
    """Instances with these attributes."""
    values: list[Any] = list(map(_new, repeat(cls, len(attributes))))
    deque(map(dict.update, map(vars, values), attributes), maxlen=0)
    return values
