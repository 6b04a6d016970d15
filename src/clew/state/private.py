"""Values lent to somebody who may change them: copies in containers of their own, and what tells whether they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.state.capture import Capture
from clew.state.codec import IMMUTABLE
from clew.state.digest import ListDigest
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

    def __init__(self, values: Mapping[str, Any], known: Mapping[str, Lent] | None = None) -> None:
        known = known or {}
        self._kept: dict[str, Any] = {key: known.get(key) or _keep(value) for key, value in values.items()}

    def changed(self, values: Mapping[str, Any]) -> str | None:
        """The first key whose value is not exactly what it was."""
        if values.keys() != self._kept.keys():
            return next(iter(values.keys() ^ self._kept.keys()))
        for key, kept in self._kept.items():
            value = values[key]
            if not (kept.same(value) if type(kept) is Lent else same(kept, value)):
                return key
        return None


def _keep(value: Any) -> Any:
    if type(value) is list and len(value) >= _FEW:
        lent = Lent()
        if lent.take(value):
            return lent
    return shadow(value)


class Lent:
    """Copies of the items of a long list, and what these consist of."""

    __slots__ = ("_capture", "_digest", "_texts", "items", "values")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.values: list[Any] = []
        """The list itself."""
        self._capture: Capture | None = None
        self._texts = False
        self._digest = ListDigest()

    def catch_up(self, values: list[Any]) -> bool:
        """Copy those of the values that are new; False if nothing can tell quickly what they consist of."""
        self.values = values
        more = values[len(self.items) :]
        if not more:
            return True
        capture = Capture.of(more)
        return capture is not None and self.take(capture.copies_of(more))

    def take(self, items: list[Any]) -> bool:
        """Take items as its own."""
        capture = Capture.of(items)
        if capture is None or not (self._capture is None or self._capture.join(capture)):
            return False
        self._capture = self._capture or capture
        self._texts = self._capture.is_texts()
        self.items += items
        return True

    def same(self, value: Any) -> bool:
        """Does a list still consist of what was lent?"""
        if type(value) is not list or len(value) != len(self.items):
            return False
        if self._texts and len(self.values) == len(value):
            return bool(value == self.values)
        return self._capture is None or self._capture.same(value)

    def digest(self, value: list[Any]) -> bytes | None:
        """That of the list, if it has the items that were lent. Whether these have been changed is not looked at.

        Only what is new since the last time is encoded.
        """
        if value != self.items:
            return None
        self._digest.take(self.values[self._digest.count :])
        return self._digest.value()


class Lender:
    """Lends a state that changes a little from one time to the next.

    Copies of long lists that came back unchanged are lent again, so that only what is new has to be copied.
    """

    def __init__(self) -> None:
        self._lists: dict[str, tuple[list[Any], list[Lent] | None]] = {}

    def lend(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Lent]]:
        """The state in containers of its own, and what a `Watch` of it may build on."""
        view: dict[str, Any] = {}
        known: dict[str, Lent] = {}
        for key, value in state.items():
            lent = self._of(key, value) if type(value) is list and len(value) >= _FEW else None
            if lent is None:
                view[key] = private(value)
            else:
                known[key] = lent
                view[key] = lent.items.copy()
        return view, known

    def _of(self, key: str, value: list[Any]) -> Lent | None:
        found = self._lists.get(key)
        if found is None or found[0] is not value:
            found = self._lists[key] = (value, [])
        free = found[1]
        if free is None:
            return None
        lent = free.pop() if free else Lent()
        if lent.catch_up(value):
            return lent
        self._lists[key] = (value, None)
        return None

    def take_back(self, state: Mapping[str, Any], known: Mapping[str, Lent]) -> None:
        """What was lent of this state has come back, unchanged: it may be lent again."""
        for key, lent in known.items():
            value, free = self._lists.get(key, (None, None))
            if free is not None and value is state.get(key):
                free.append(lent)

    def extended(self, key: str, old: Any, value: list[Any]) -> None:
        """A list of the state was `old`, and has more items behind them now."""
        found = self._lists.get(key)
        if found is not None and found[0] is old and found[1] is not None:
            self._lists[key] = (value, found[1])
