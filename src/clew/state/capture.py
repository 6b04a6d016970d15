"""What the items of a list consisted of when they were last read or saved, flattened so that C loops compare it.

Containers are taken down by what they hold: leaves, and the containers within them, by identity. While each of them
still holds the very same things, nothing has changed at any depth. So a conversation of a thousand messages is compared
without a step of Python for each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any

from clew.state.codec import IMMUTABLE, copy_models, copy_objects, is_in_its_dict

_DEEPEST = 8
_TEXTS = {str, type(None)}
_GIVEN, _EXTRA, _PRIVATE = (attrgetter(f"__pydantic_{name}__") for name in ("fields_set", "extra", "private"))


class Capture:
    """A list of plain dicts, or of objects that keep all they hold in their `__dict__`: messages, in short.

    Within them, at any depth, only dicts, lists and immutable leaves: `of` gives None for anything else.
    """

    __slots__ = ("_beside", "_holders", "_types")

    def __init__(self) -> None:
        self._types: list[type] = []
        self._holders = _Group(keyed=True)
        self._beside: _Beside | None = None

    @classmethod
    def of(cls, items: Sequence[Any]) -> Capture | None:
        capture = cls()
        types = capture._types = list(map(type, items))
        if {dict}.issuperset(types):
            return capture if capture._holders.take(items, _DEEPEST) else None
        sorts = set(map(is_in_its_dict, set(types)))
        if sorts == {"model"}:
            capture._beside = _Beside()
            if not capture._beside.take(items):
                return None
        elif sorts != {"object"}:
            return None
        return capture if capture._holders.take(list(map(vars, items)), _DEEPEST) else None

    def is_texts(self) -> bool:
        """Are all of them plain dicts with nothing but text in them? Then they are the same when they are equal."""
        return self._types[:1] == [dict] and self._holders.leaves() <= _TEXTS

    def join(self, more: Capture) -> bool:
        """Take in the items of another capture; False when they do not fit together."""
        if self._types and (self._kind() != more._kind()):
            return False
        self._types += more._types
        self._holders.join(more._holders)
        if self._beside is not None and more._beside is not None:
            self._beside.join(more._beside)
        else:
            self._beside = self._beside or more._beside
        return True

    def _kind(self) -> tuple[bool, bool]:
        return self._types[0] is dict, self._beside is None

    def same(self, items: list[Any]) -> bool:
        """Do the first items, as many as are here, consist of the very same leaves?"""
        count = len(self._types)
        head = items if len(items) == count else items[:count]
        if list(map(type, head)) != self._types:
            return False
        if self._beside is not None and not self._beside.same(head):
            return False
        plain = not head or self._types[0] is dict
        return self._holders.same(head if plain else list(map(vars, head)))

    def copies_of(self, items: list[Any]) -> list[Any]:
        """Copies of the items, which are still the same."""
        if self._types and self._types[0] is dict and self._holders.dicts is None and self._holders.lists is None:
            return list(map(dict.copy, items))
        return self.copies()

    def copies(self) -> list[Any]:
        """The items as they were, with the same leaves."""
        return self._made(self._holders.copies(), _Beside.extras)

    def renew(self) -> list[Any]:
        """Copies as well; from now on this is the capture of those."""
        return self._made(self._holders.renew(), _Beside.renew)

    def _made(self, holders: list[Any], extras: Callable[[_Beside], list[Any]]) -> list[Any]:
        if not holders or self._types[0] is dict:
            return holders
        if self._beside is None:
            return copy_objects(self._types, holders)
        return copy_models(self._types, holders, self._beside.given, extras(self._beside))


class _Group:
    """Dicts, or lists, that stand in like places: what they hold in a row, and groups of what is in there."""

    __slots__ = ("dicts", "held", "holders", "keys", "kinds", "lists", "sizes")

    def __init__(self, *, keyed: bool) -> None:
        self.holders: list[Any] = []
        self.sizes: list[int] = []
        self.keys: list[Any] | None = [] if keyed else None
        self.held: list[Any] = []
        self.kinds: set[type] = set()
        self.dicts: _Group | None = None
        self.lists: _Group | None = None

    def take(self, holders: Sequence[Any], depth: int) -> bool:
        if not depth:
            return False
        self.sizes += map(len, holders)
        if self.keys is not None:
            self.keys += chain.from_iterable(holders)
        held = list(self._within(holders))
        self.held += held
        kinds = set(map(type, held))
        self.kinds |= kinds
        kinds -= IMMUTABLE
        if not kinds:
            return True
        if not all(issubclass(kind, enum.Enum) for kind in kinds - {dict, list}):
            return False
        if dict in kinds:
            self.dicts = self.dicts or _Group(keyed=True)
            if not self.dicts.hold([kid for kid in held if type(kid) is dict], depth - 1):
                return False
        if list in kinds:
            self.lists = self.lists or _Group(keyed=False)
            return self.lists.hold([kid for kid in held if type(kid) is list], depth - 1)
        return True

    def hold(self, holders: list[Any], depth: int) -> bool:
        """Take, and remember whom to ask again."""
        self.holders += holders
        return self.take(holders, depth)

    def join(self, more: _Group) -> None:
        self.holders += more.holders
        self.sizes += more.sizes
        self.held += more.held
        self.kinds |= more.kinds
        if self.keys is not None and more.keys is not None:
            self.keys += more.keys
        for name in ("dicts", "lists"):
            mine, others = getattr(self, name), getattr(more, name)
            if mine is None:
                setattr(self, name, others)
            elif others is not None:
                mine.join(others)

    def _within(self, holders: Sequence[Any]) -> Iterator[Any]:
        return chain.from_iterable(holders if self.keys is None else map(dict.values, holders))

    def same(self, holders: Sequence[Any]) -> bool:
        if list(map(len, holders)) != self.sizes:
            return False
        return not self.held or (  # messages have dicts and lists that are mostly empty
            all(map(is_, self._within(holders), self.held))
            and (self.keys is None or all(map(is_, chain.from_iterable(holders), self.keys)))
            and (self.dicts is None or self.dicts.same(self.dicts.holders))
            and (self.lists is None or self.lists.same(self.lists.holders))
        )

    def leaves(self) -> set[type]:
        """What sorts of things are in it, at any depth."""
        within = [group.leaves() for group in (self.dicts, self.lists) if group is not None]
        return self.kinds.union(*within) - {dict, list}

    def copies(self) -> list[Any]:
        return self._made(self._with(_Group.copies))

    def renew(self) -> list[Any]:
        self.held = self._with(_Group.renew)
        made = self._made(self.held)
        if self.holders:
            self.holders = made
        return made

    def _with(self, anew: Callable[[_Group], list[Any]]) -> list[Any]:
        """What is held, with the containers among it made anew."""
        if self.dicts is None and self.lists is None:
            return self.held
        dicts = iter(anew(self.dicts) if self.dicts is not None else ())
        lists = iter(anew(self.lists) if self.lists is not None else ())
        return [next(dicts) if type(kid) is dict else next(lists) if type(kid) is list else kid for kid in self.held]

    def _made(self, held: list[Any]) -> list[Any]:
        left = iter(held)
        if self.keys is None:
            return [list(islice(left, size)) if size else [] for size in self.sizes]
        keys = iter(self.keys)
        return [dict(zip(islice(keys, size), islice(left, size), strict=True)) if size else {} for size in self.sizes]


class _Beside:
    """What a pydantic model keeps beside its fields: which of them were given; no extra and no private ones."""

    __slots__ = ("extra", "given")

    def __init__(self) -> None:
        self.given: list[frozenset[str]] = []
        self.extra: list[Any] = []

    def take(self, models: Sequence[Any]) -> bool:
        try:
            extra = list(map(_EXTRA, models))
            self.given += map(frozenset, map(_GIVEN, models))
            if any(extra) or list(map(_PRIVATE, models)) != [None] * len(models):
                return False
        except AttributeError:  # never initialised: whoever encodes it will say so
            return False
        self.extra += extra
        return True

    def join(self, more: _Beside) -> None:
        self.given += more.given
        self.extra += more.extra

    def same(self, models: Sequence[Any]) -> bool:
        try:
            extra = list(map(_EXTRA, models))
            return (
                not any(extra)
                and all(map(is_, extra, self.extra))
                and list(map(_GIVEN, models)) == self.given
                and list(map(_PRIVATE, models)) == [None] * len(models)
            )
        except AttributeError:
            return False

    def extras(self) -> list[Any]:
        """Where the extra fields go: nothing, or an empty dict for each."""
        return [None if extra is None else {} for extra in self.extra]

    def renew(self) -> list[Any]:
        self.extra = self.extras()
        return self.extra
