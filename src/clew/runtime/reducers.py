"""How what nodes return becomes the state: reducers, and the changes that are told to the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.errors import BadInput
from clew.state.draft import Extend


def merge(old: Mapping[Any, Any] | None, new: Mapping[Any, Any]) -> dict[Any, Any]:
    """A reducer: the keys of the update, over those that are there.

    >>> merge({"a": 1, "b": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    return {**(old or {}), **new}


def messages(old: Sequence[Any] | None, new: Any) -> Any:
    """A reducer for conversations: a message whose `id` is there already replaces it, others are appended.

    Messages are dicts with "id", or objects with `.id`; those without one are appended.

    >>> messages([{"id": "1", "text": "Hello"}], [{"id": "1", "text": "Hello!"}, {"id": "2", "text": "Tokyo"}])
    [{'id': '1', 'text': 'Hello!'}, {'id': '2', 'text': 'Tokyo'}]
    """
    before = list(old or ())
    given = list(new) if isinstance(new, (list, tuple)) else [new]
    ids = {identity for message in given if (identity := _id_of(message)) is not None}
    places = {identity: at for at, message in enumerate(before) if (identity := _id_of(message)) in ids} if ids else {}
    if not places and len(ids) == sum(_id_of(message) is not None for message in given):
        return Extend(given)
    for message in given:
        identity = _id_of(message)
        at = places.get(identity) if identity is not None else None
        if at is None:
            if identity is not None:
                places[identity] = len(before)
            before.append(message)
        else:
            before[at] = message
    return before


def _id_of(message: Any) -> Any:
    return message.get("id") if isinstance(message, dict) else getattr(message, "id", None)


class Changes:
    """Updates taken in, one after the other, in a fixed order. Neither they nor the state are changed."""

    def __init__(self, state: Mapping[str, Any], reducers: Mapping[str, Any], empties: Mapping[str, Any]) -> None:
        self.state: dict[str, Any] = dict(state)
        """The state with all updates in it."""
        self.told: dict[str, Any] = {}
        """The same as changes: `Extend` where items were only appended."""
        self._reducers = reducers
        self._empties = empties
        self._writers: dict[str, str] = {}

    def take(self, update: Mapping[str, Any], writer: str) -> None:
        """Take in what `writer` returned. Two that write one key need a reducer for it."""
        for key, value in update.items():
            reducer = self._reducers.get(key)
            if reducer is None and not isinstance(value, Extend):
                self._refuse_second(key, writer)
                self._set(key, value)
            elif reducer is None or reducer is Extend:
                self._extend(key, _items(key, value, writer), writer)
            else:
                self._reduce(key, reducer, value, writer)

    def _reduce(self, key: str, reducer: Any, value: Any, writer: str) -> None:
        if isinstance(value, Extend):
            value = value.items
        if key in self.state:
            old = self.state[key]
        elif key in self._empties:
            old = self._empties[key]()
        else:
            self._set(key, value)
            return
        new = reducer(old, value)
        if isinstance(new, Extend):
            self._extend(key, new.items, writer)
        else:
            self._set(key, new)

    def _set(self, key: str, value: Any) -> None:
        self.state[key] = self.told[key] = value

    def _extend(self, key: str, items: list[Any], writer: str) -> None:
        old = self.state.get(key)
        if old is not None and type(old) is not list:
            raise BadInput(
                f"node {writer!r} extends {key!r}, which is {type(old).__name__}, not a list",
                hint="return the whole new value instead",
            )
        self.state[key] = [*(old or ()), *items]
        told = self.told.get(key)
        if isinstance(told, Extend):
            self.told[key] = Extend([*told.items, *items])
        elif key in self.told:
            self.told[key] = self.state[key]
        else:
            self.told[key] = Extend(items)

    def _refuse_second(self, key: str, writer: str) -> None:
        first = self._writers.setdefault(key, writer)
        if first != writer:
            raise BadInput(
                f"nodes {first!r} and {writer!r} both write {key!r} in one round",
                hint="give the key a reducer: Annotated[list, clew.extend], clew.merge, or a function of (old, new)",
            )


def _items(key: str, value: Any, writer: str) -> list[Any]:
    if isinstance(value, Extend):
        return value.items
    if isinstance(value, (list, tuple)):
        return list(value)
    raise BadInput(
        f"node {writer!r} returned {type(value).__name__} for {key!r}, which is extended by lists",
        hint=f"return {{{key!r}: [value]}}",
    )
