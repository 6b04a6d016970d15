"""What containers hold, in a row: C loops compare it, and make the containers again."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, repeat
from operator import is_
from typing import Any

from clew.state.codec import IMMUTABLE

DEEPEST = 8
"""Containers within each other that are looked into."""


class Held:
    """Values: immutable leaves, and groups of the dicts and lists among them."""

    __slots__ = ("dicts", "held", "kinds", "lists")

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.kinds: set[type] = set()
        self.dicts: Group | None = None
        self.lists: Group | None = None

    def take(
        self,
        values: list[Any],
        kinds: set[type],
        depth: int,
        dicts: list[Any] | None = None,
        lists: list[Any] | None = None,
    ) -> bool:
        """Take in values of these kinds; False if one of them is neither a leaf nor a container, or too deep.

        `dicts` and `lists` are those among them, in their order, if they are known.
        """
        self.held += values
        self.kinds |= kinds
        others = kinds - IMMUTABLE
        if not others:
            return True
        if not all(issubclass(kind, enum.Enum) for kind in others - {dict, list}):
            return False
        if dict in kinds:
            self.dicts = self.dicts or Group(keyed=True)
            if not self.dicts.hold(_of(dict, values, kinds) if dicts is None else dicts, depth - 1):
                return False
        if list in kinds:
            self.lists = self.lists or Group(keyed=False)
            return self.lists.hold(_of(list, values, kinds) if lists is None else lists, depth - 1)
        return True

    def join(self, more: Held) -> None:
        self.held += more.held
        self.kinds |= more.kinds
        for name in ("dicts", "lists"):
            mine, others = getattr(self, name), getattr(more, name)
            if mine is None:
                setattr(self, name, others)
            elif others is not None:
                mine.join(others)

    def same(self, values: Iterable[Any]) -> bool:
        """Are these, as many as are here, the very same ones, and hold the same?"""
        return (
            all(map(is_, values, self.held))
            and (self.dicts is None or self.dicts.same_as(self.dicts.holders))
            and (self.lists is None or self.lists.same_as(self.lists.holders))
        )

    def is_flat(self) -> bool:
        """No containers are among them."""
        return self.dicts is None and self.lists is None

    def leaves(self) -> set[type]:
        """What sorts of things are in it, at any depth."""
        within = [group.leaves() for group in (self.dicts, self.lists) if group is not None]
        return self.kinds.union(*within) - {dict, list}

    def values(self, *, keep: bool) -> list[Any]:
        """What was taken, its containers made anew. With `keep`, it is these that are compared from now on."""
        if self.is_flat():
            return self.held
        dicts = self.dicts.containers(keep=keep) if self.dicts is not None else []
        lists = self.lists.containers(keep=keep) if self.lists is not None else []
        if len(dicts) == len(self.held) or len(lists) == len(self.held):
            made = dicts or lists
        else:
            next_of: dict[type, Callable[[], Any]] = {dict: iter(dicts).__next__, list: iter(lists).__next__}
            made = [next_of[type(kid)]() if type(kid) in next_of else kid for kid in self.held]
        if keep:
            self.held = made
        return made


def _of(kind: type, values: list[Any], kinds: set[type]) -> list[Any]:
    return values if len(kinds) == 1 else [value for value in values if type(value) is kind]


class Group(Held):
    """Dicts, or lists, that stand in like places."""

    __slots__ = ("holders", "keys", "sizes")

    def __init__(self, *, keyed: bool) -> None:
        super().__init__()
        self.holders: list[Any] = []
        self.sizes: list[int] = []
        self.keys: list[Any] | None = [] if keyed else None

    def take_from(self, holders: Sequence[Any], depth: int) -> bool:
        """Take in what these hold."""
        if not depth:
            return False
        if not any(holders):  # as most dicts and lists in messages
            self.sizes += repeat(0, len(holders))
            return True
        self.sizes += map(len, holders)
        if self.keys is not None:
            self.keys += chain.from_iterable(holders)
        held = list(self._within(holders))
        return self.take(held, set(map(type, held)), depth)

    def hold(self, holders: list[Any], depth: int) -> bool:
        """Take, and remember whom to ask again."""
        self.holders += holders
        return self.take_from(holders, depth)

    def join(self, more: Held) -> None:
        super().join(more)
        if isinstance(more, Group):
            self.holders += more.holders
            self.sizes += more.sizes
            if self.keys is not None and more.keys is not None:
                self.keys += more.keys

    def _within(self, holders: Sequence[Any]) -> Iterable[Any]:
        return chain.from_iterable(holders if self.keys is None else map(dict.values, holders))

    def same_as(self, holders: Sequence[Any]) -> bool:
        """Do these still hold the very same things?"""
        if not self.held:
            return not any(holders)
        return (
            list(map(len, holders)) == self.sizes
            and (self.keys is None or all(map(is_, chain.from_iterable(holders), self.keys)))
            and self.same(self._within(holders))
        )

    def containers(self, *, keep: bool) -> list[Any]:
        """The containers anew; with `keep`, in place of those that were remembered."""
        made = self._made(self.values(keep=keep))
        if keep and self.holders:
            self.holders = made.copy()
        return made

    def _made(self, held: list[Any]) -> list[Any]:
        if not held:
            count = len(self.sizes)
            return list(map(list.copy, repeat([], count)) if self.keys is None else map(dict.copy, repeat({}, count)))
        left = iter(held)
        if self.keys is None:
            return [list(islice(left, size)) if size else [] for size in self.sizes]
        keys = iter(self.keys)
        return [dict(zip(islice(keys, size), islice(left, size), strict=True)) if size else {} for size in self.sizes]
