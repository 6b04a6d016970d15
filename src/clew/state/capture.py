"""What the items of a list consisted of when they were last read or saved, flattened so that C loops compare it.

Containers are taken down by what they hold: leaves, and the containers within them, by identity. While each of them
still holds the very same things, nothing has changed at any depth. So a conversation of a thousand messages is compared
without a step of Python for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter, is_, setitem
from typing import Any

from clew.state.codec import Built, have_keys, is_in_its_dict, models_of, objects_of, put_at
from clew.state.held import DEEPEST, Group, Held

_MOST = 64
"""Sorts of objects in one list."""
_TEXTS = {str, type(None)}
_GIVEN, _EXTRA, _PRIVATE = (attrgetter(f"__pydantic_{name}__") for name in ("fields_set", "extra", "private"))
_Sort = tuple[type, tuple[str, ...]]
"""A class, and the attributes that an object of it has."""


class Capture:
    """A list of plain dicts, or of objects that keep all they hold in their `__dict__`: messages, in short.

    Within them, at any depth, only dicts, lists and immutable leaves: `of` gives None for anything else.
    """

    __slots__ = ("_dicts", "_sorts", "_types")

    def __init__(self) -> None:
        self._types: list[type] = []
        self._dicts: Group | None = None
        self._sorts: dict[_Sort, _Alike] = {}

    @classmethod
    def of(cls, items: Sequence[Any]) -> Capture | None:
        capture = cls()
        types = capture._types = list(map(type, items))
        if {dict}.issuperset(types):
            capture._dicts = Group(keyed=True)
            return capture if capture._dicts.take_from(items, DEEPEST) else None
        kinds = set(map(is_in_its_dict, set(types)))
        if kinds not in ({"model"}, {"object"}):
            return None
        holders: list[dict[str, Any]] = list(map(vars, items))
        for sort, which in _sorts(types, holders):
            alike = capture._sorts[sort] = _Alike(*sort, which, models=kinds == {"model"})
            if len(capture._sorts) > _MOST or not alike.take(alike.own(items), alike.own(holders)):
                return None
        return capture

    @classmethod
    def of_built(cls, built: Sequence[Built]) -> Capture | None:
        """`of` models that were just built."""
        capture = cls()
        capture._types = [type(None)] * len(built[0].which)
        for one in built:
            sort = one.cls, tuple(one.fields[0])
            if is_in_its_dict(one.cls) != "model" or sort in capture._sorts:
                return None
            put_at(capture._types, one.which, repeat(one.cls))
            alike = capture._sorts[sort] = _Alike(*sort, one.which, models=True)
            if not alike.take_built(one):
                return None
        return capture

    def is_texts(self) -> bool:
        """Are all of them plain dicts with nothing but text in them? Then they are the same when they are equal."""
        return bool(self._types) and self._dicts is not None and self._dicts.leaves() <= _TEXTS

    def join(self, more: Capture) -> bool:
        """Take in the items of another capture; False when they do not fit together."""
        if not self._types:
            self._types, self._dicts, self._sorts = more._types, more._dicts, more._sorts
            return True
        if not more._types:
            return True
        if self._kinds() != more._kinds() or len(self._sorts.keys() | more._sorts.keys()) > _MOST:
            return False
        if self._dicts is not None and more._dicts is not None:
            self._dicts.join(more._dicts)
        before, added = len(self._types), len(more._types)
        self._types += more._types
        for sort, alike in self._sorts.items():
            alike.join(more._sorts.get(sort), added)
        for sort in more._sorts.keys() - self._sorts.keys():
            self._sorts[sort] = alike = more._sorts[sort]
            alike.which = [False] * before + alike.which
        return True

    def _kinds(self) -> set[bool | None]:
        return {alike.models for alike in self._sorts.values()} or {None}

    def same(self, items: list[Any]) -> bool:
        """Do the first items, as many as are here, consist of the very same leaves?"""
        count = len(self._types)
        head = items if len(items) == count else items[:count]
        if list(map(type, head)) != self._types:
            return False
        if self._dicts is not None:
            return self._dicts.same_as(head)
        holders: list[dict[str, Any]] = list(map(vars, head))
        return all(alike.same(alike.own(head), alike.own(holders)) for alike in self._sorts.values())

    def copies_of(self, items: list[Any]) -> list[Any]:
        """Copies of the items, which are still the same."""
        if self._dicts is not None and self._dicts.is_flat():
            return list(map(dict.copy, items))
        return self.copies()

    def copies(self) -> list[Any]:
        """The items as they were, with the same leaves."""
        return self._made(keep=False)

    def renew(self) -> list[Any]:
        """Copies as well; from now on this is the capture of those."""
        return self._made(keep=True)

    def _made(self, *, keep: bool) -> list[Any]:
        if self._dicts is not None:
            return self._dicts.containers(keep=keep)
        made: list[Any] = [None] * len(self._types)
        for alike in self._sorts.values():
            items = alike.items(keep=keep)
            if len(items) == len(made):
                return items
            put_at(made, alike.which, items)
        return made


def _sorts(types: list[type], holders: list[dict[str, Any]]) -> Iterator[tuple[_Sort, list[bool]]]:
    """The sorts of some objects, with where they are."""
    for cls in dict.fromkeys(types):
        which = list(map(is_, types, repeat(cls)))
        own = list(compress(holders, which))
        names = tuple(own[0])
        if have_keys(own, names):
            yield (cls, names), which
            continue
        for names in dict.fromkeys(map(tuple, own)):
            here = map(names.__eq__, map(tuple, holders))
            yield (cls, names), [one and other for one, other in zip(which, here, strict=True)]


class _Alike:
    """Objects of one class with the same attributes: what all of them have in one of these is a column."""

    __slots__ = ("_at", "_cls", "_extra", "_given", "_held", "_names", "models", "which")

    def __init__(self, cls: type, names: tuple[str, ...], which: list[bool], *, models: bool) -> None:
        self.models = models
        self.which = which
        """Of all items of the list."""
        self._cls = cls
        self._names = names
        self._held = Held()
        """What they hold, object by object."""
        self._at: tuple[list[int], list[int]] | None = ([], [])
        """The columns that are all dicts, and all lists; None where some of a column are and others are not."""
        # What a model keeps beside its fields: which of them were given; nothing where extra and private ones go.
        self._given: list[frozenset[str]] = []
        self._extra: list[Any] = []

    def own(self, items: Sequence[Any]) -> list[Any]:
        """Those of all items that are of this sort."""
        return list(compress(items, self.which))

    def take(self, items: list[Any], holders: list[dict[str, Any]]) -> bool:
        return (not self.models or self._take_beside(items)) and self._take_fields(holders)

    def take_built(self, built: Built) -> bool:
        self._given, self._extra = built.given, built.extra
        return self._take_fields(built.fields)

    def _take_fields(self, holders: list[dict[str, Any]]) -> bool:
        values = list(self._values(holders))
        width, types = len(self._names), list(map(type, values))
        kinds = [set(types[at::width]) for at in range(width)]
        dicts, lists = ([at for at, of_column in enumerate(kinds) if of_column == one] for one in ({dict}, {list}))
        if any(len(of_column) > 1 and not of_column.isdisjoint((dict, list)) for of_column in kinds):
            self._at = None
            return self._held.take(values, set().union(*kinds), DEEPEST)
        self._at = dicts, lists
        within = (list(chain.from_iterable(zip(*[values[at::width] for at in one], strict=True))) for one in self._at)
        return self._held.take(values, set().union(*kinds), DEEPEST, *within)

    def _take_beside(self, models: list[Any]) -> bool:
        try:
            given, self._extra = list(map(_GIVEN, models)), list(map(_EXTRA, models))
            if any(self._extra) or list(map(_PRIVATE, models)) != [None] * len(models):
                return False
        except AttributeError:  # never initialised: whoever encodes it will say so
            return False
        first = frozenset(given[0])
        self._given = [first] * len(given) if given.count(first) == len(given) else list(map(frozenset, given))
        return True

    def _values(self, holders: list[dict[str, Any]]) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, holders))

    def join(self, more: _Alike | None, added: int) -> None:
        """As many items were `added` to the list, with `more` of this sort among them."""
        if more is None:
            self.which += repeat(False, added)
            return
        self.which += more.which
        self._given += more._given
        self._extra += more._extra
        self._held.join(more._held)
        if self._at != more._at:
            self._at = None

    def same(self, items: list[Any], holders: list[dict[str, Any]]) -> bool:
        return (
            have_keys(holders, self._names)
            and self._held.same(self._values(holders))
            and (not self.models or self._same_beside(items))
        )

    def _same_beside(self, models: list[Any]) -> bool:
        try:
            extra = list(map(_EXTRA, models))
            return (
                not any(extra)
                and all(map(is_, extra, self._extra))
                and list(map(_GIVEN, models)) == self._given
                and list(map(_PRIVATE, models)) == [None] * len(models)
            )
        except AttributeError:
            return False

    def items(self, *, keep: bool) -> list[Any]:
        """These objects anew; with `keep`, it is they that are compared from now on."""
        count = sum(self.which)
        holders = list(map(dict.copy, repeat(dict.fromkeys(self._names), count)))
        for name, column in zip(self._names, self._columns(keep=keep), strict=True):
            if column[0] is not None or column.count(None) < count:
                deque(map(setitem, holders, repeat(name), column), maxlen=0)
        if not self.models:
            return objects_of(self._cls, holders)
        extra: list[Any] = [None if one is None else {} for one in self._extra]
        if keep:
            self._extra = extra
        return models_of(self._cls, holders, self._given, extra)

    def _columns(self, *, keep: bool) -> list[list[Any]]:
        """What is in each attribute, its containers made anew."""
        width, held = len(self._names), self._held
        if self._at is None:
            values = held.values(keep=keep)
            return [values[at::width] for at in range(width)]
        columns: dict[int, list[Any]] = {}
        for group, of_group in zip((held.dicts, held.lists), self._at, strict=True):
            made = group.containers(keep=keep) if group is not None else []
            for first, at in enumerate(of_group):
                columns[at] = made[first :: len(of_group)]
                if keep:
                    held.held[at::width] = columns[at]
        return [columns[at] if at in columns else held.held[at::width] for at in range(width)]


class Building:
    """Takes down the items of a list as they are read: what was just built need not be looked into for it."""

    def __init__(self) -> None:
        self.capture: Capture | None = Capture()
        """Of all items; None if it cannot be had this way."""

    def take(self, items: list[Any], built: list[Built]) -> None:
        """These are the next items; `built` is empty if they were not built together."""
        if self.capture is None:
            return
        # The last few of many are read one by one. What begins so is looked into as a whole, if at all.
        more = Capture.of_built(built) if built else Capture.of(items) if self.capture._types else None
        if more is None or not self.capture.join(more):
            self.capture = None
