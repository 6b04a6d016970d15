"""Values lent to somebody who may change them: copies in containers of their own, and what tells whether they were."""

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
            return capture.copies_of(value)
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

    def __init__(self, values: Mapping[str, Any], known: Mapping[str, Items] | None = None) -> None:
        known = known or {}
        self._kept: dict[str, Any] = {key: known.get(key) or _keep(value) for key, value in values.items()}

    def changed(self, values: Mapping[str, Any]) -> str | None:
        """The first key whose value is not exactly what it was."""
        if values.keys() != self._kept.keys():
            return next(iter(values.keys() ^ self._kept.keys()))
        for key, kept in self._kept.items():
            value = values[key]
            if not (kept.same(value) if type(kept) is Items else same(kept, value)):
                return key
        return None


def _keep(value: Any) -> Any:
    return Items.of(value) or shadow(value)


class Items:
    """A long list, and what its items consist of."""

    __slots__ = ("_capture", "_values")

    def __init__(self, values: list[Any], capture: Capture) -> None:
        self._values = values
        self._capture = capture

    @classmethod
    def of(cls, value: Any) -> Items | None:
        if type(value) is not list or len(value) < _FEW:
            return None
        capture = Capture.of(value)
        return None if capture is None else cls(value, capture)

    def same(self, value: Any) -> bool:
        return type(value) is list and len(value) == len(self._values) and self._capture.same(value)

    def copies(self) -> list[Any]:
        return self._capture.copies_of(self._values)

    def grown(self, value: list[Any], more: list[Any]) -> Items | None:
        """The list with `more` at its end. This one is used up."""
        capture = Capture.of(more)
        if capture is None or not self._capture.join(capture):
            return None
        self._values = value
        return self


class Lender:
    """Lends a state that changes a little from one time to the next: long lists are not looked through anew."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[list[Any], Items | None]] = {}

    def lend(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Items]]:
        """The state in containers of its own, and what a `Watch` of it may build on."""
        lent: dict[str, Any] = {}
        known: dict[str, Items] = {}
        for key, value in state.items():
            items = self._of(key, value) if type(value) is list and len(value) >= _FEW else None
            if items is not None:
                known[key] = items
            lent[key] = private(value) if items is None else items.copies()
        return lent, known

    def _of(self, key: str, value: list[Any]) -> Items | None:
        found = self._items.get(key)
        if found is None or found[0] is not value:
            found = self._items[key] = (value, Items.of(value))
        return found[1]

    def extended(self, key: str, old: Any, value: list[Any], more: list[Any]) -> None:
        """A list of the state is `old` with `more` behind it now."""
        found = self._items.get(key)
        if found is not None and found[0] is old and found[1] is not None:
            self._items[key] = (value, found[1].grown(value, more))
