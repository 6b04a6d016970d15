"""Values that another library has stored by the name of their class: on the closed list, or kept as `Opaque`."""

from __future__ import annotations

from typing import Any

from clew.state import codec_format
from clew.state.codec import encode
from clew.state.codec_format import nests_too_deep
from clew.state.registry import Entry, registry
from clew.state.values import UNREGISTERED, Opaque

__all__ = ["known", "of_fields", "of_state", "nests_too_deep"]


def known(name: str) -> Entry | None:
    """What is registered, or was met, under this name. Nothing is imported."""
    return registry.find(name)


def of_fields(name: str, fields: dict[str, Any]) -> Opaque:
    """An object whose class is not known, by its fields. Once a class is registered by the name, it is read as one."""
    return _opaque(codec_format.OBJECT, name, [name, 1, None, fields])


def of_state(name: str, state: Any) -> Opaque:
    """An object whose class is not known, by what it is made from: for a class registered with `decode=`."""
    return _opaque(codec_format.STATE, name, [name, 1, state])


def _opaque(tag: int, name: str, parts: list[Any]) -> Opaque:
    return Opaque(tag, encode(parts), type_name=name, version=1, reason=UNREGISTERED)
