"""Values lent to somebody who may change them: a copy in containers of its own, and a watch that tells what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.state.capture import Capture
from clew.state.codec import IMMUTABLE
from clew.state.shadow import is_flat, same, shadow

_FEW = 8


def private(value: Any) -> Any:
    """The value in containers of its own, sharing leaves.

    Objects are shared as well, but for messages and the like in a list: a `Watch` tells whether they were changed.

    >>> given = {"messages": [{"role": "user"}]}
    >>> mine = private(given)
    >>> mine["messages"].append("more")
    >>> given
    {'messages': [{'role': 'user'}]}
    """
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is dict:
        return value.copy() if is_flat(value) else {key: private(item) for key, item in value.items()}
    if kind is list:
        if len(value) >= _FEW and (capture := Capture.of(value)) is not None:
            return capture.copies()
        return [private(item) for item in value]
    if kind is set or kind is bytearray:
        return value.copy()
    if kind is tuple:
        return tuple(map(private, value))
    return value


class Watch:
    """What values were at one moment.

    >>> values = {"city": "Tokyo", "days": [1, 2]}
    >>> watch = Watch(values)
    >>> values["days"].append(3)
    >>> watch.changed(values)
    'days'
    """

    __slots__ = ("_kept",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._kept: dict[str, Any] = {key: self._keep(value) for key, value in values.items()}

    @staticmethod
    def _keep(value: Any) -> Any:
        if type(value) is list and len(value) >= _FEW and (capture := Capture.of(value)) is not None:
            return _Items(capture, len(value))
        return shadow(value)

    def changed(self, values: Mapping[str, Any]) -> str | None:
        """The first key whose value is not exactly what it was."""
        if values.keys() != self._kept.keys():
            return next(iter(values.keys() ^ self._kept.keys()))
        for key, kept in self._kept.items():
            value = values[key]
            if not (kept.same(value) if type(kept) is _Items else same(kept, value)):
                return key
        return None


class _Items:
    """A list, as its items were."""

    __slots__ = ("_capture", "_count")

    def __init__(self, capture: Capture, count: int) -> None:
        self._capture = capture
        self._count = count

    def same(self, value: Any) -> bool:
        return type(value) is list and len(value) == self._count and self._capture.same(value)
