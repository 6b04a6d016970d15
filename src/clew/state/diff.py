"""What differs between two states, as people think of it: messages added, a field changed, a word in a document.

>>> print(diff({"city": "Tokyo", "n": 1}, {"city": "Osaka", "n": 1.0}))
~ city  "Tokyo" → "Osaka"
~ n     int 1 → float 1.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, overload

from clew.state.diff_align import Block, changed_in_place, gaps, matches
from clew.state.diff_items import Items
from clew.state.diff_json import change_as_json
from clew.state.diff_path import MISSING, Key, Member, Path, Step, key_step, where
from clew.state.diff_shape import Numbers, Shape, shape_of
from clew.state.diff_short import columns, distinguished, order_key, short, tail
from clew.state.diff_text import changed_text

__all__ = ["diff", "Diff", "Change", "Key", "Member", "MISSING"]

Kind: TypeAlias = Literal["added", "removed", "changed"]

_WIDTH = 120
_WHERE_WIDTH = 48  # a longer path is shown cut in front; `Change.where` is always whole
_FEW_NUMBERS = 8  # a list of numbers in which more changed, and more than half, is shown as one change


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    The positions in `path` are those of the new state, except that a removed list item, always the last step, has the
    position it had in the old state. `MISSING` stands for the absent side. `old` and `new` are the values themselves,
    not copies.
    """

    path: Path
    kind: Kind
    old: object = MISSING
    new: object = MISSING

    @property
    def where(self) -> str:
        """The path as people write it, `messages[12].args.when`; empty for the state as a whole."""
        return where(self.path)

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "-", "changed": "~"}[self.kind]


class Diff(Sequence[Change]):
    """The changes that lead from an old state to a new one, in the order of the states. Truthy when there are any.

    `print(diff)` shows each on a line or few; values are shortened, `change.old` and `change.new` have them whole.
    """

    def __init__(self, changes: Sequence[Change] = ()) -> None:
        self._changes = tuple(changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> Diff: ...
    def __getitem__(self, index: int | slice) -> Change | Diff:
        return Diff(self._changes[index]) if isinstance(index, slice) else self._changes[index]

    def __repr__(self) -> str:
        counts = [(kind, sum(change.kind == kind for change in self)) for kind in ("added", "removed", "changed")]
        return f"<Diff: {', '.join(f'{count} {kind}' for kind, count in counts if count) or 'no changes'}>"

    def __str__(self) -> str:
        column = self._where_width()
        lines = []
        for sign, place, text in self.lines():
            lines.append(f"{sign or ' '} {place}{' ' * (column - columns(place))}  {text}".rstrip())
        return "\n".join(lines)

    def lines(self, width: int = _WIDTH) -> Iterator[tuple[str, str, str]]:
        """Triples (sign, where, text) to be shown in columns, with two spaces between where and text.

        The sign is `+`, `-` or `~`. A changed text may bring more lines: their sign and where are empty, and their text
        starts with `- `, `+ `, two spaces, `@@` or `…`. With `where` padded to the widest, no line is wider than
        `width` (at least 80).
        """
        width = max(width, 80)
        room = width - self._where_width() - 4
        for change in self:
            first, *more = _texts(change, room)
            yield change.sign, _shown_where(change), first
            for text in more:
                yield "", "", text

    def _where_width(self) -> int:
        return max((columns(_shown_where(change)) for change in self), default=0)

    def as_json(self) -> list[dict[str, Any]]:
        """A list of `{"kind", "where", "path", "old", "new"}` that `json.dumps` takes; an absent side has no entry.

        Values are whole. What JSON lacks is an object with `"$type"`: `{"$type": "tuple", "items": […]}`; bytes and
        arrays are given by size and digest.
        """
        return [change_as_json(change.path, change.kind, change.old, change.new) for change in self]


def diff(old: object, new: object) -> Diff:
    """What changed from `old` to `new`. Empty exactly when both are the same value.

    Exact: `1`, `1.0` and `True` differ, so do `0.0` and `-0.0`, a tuple and a list; a NaN equals a NaN of the same
    bits.
    The order of dict keys is not a difference. An item that moved within a list is shown as removed and added.

    Items of lists are aligned: equal ones first, then those with the same `id`, then those that look like each other
    before and after a change. Objects are compared field by field when they are of the same class. For pydantic models
    a field that changed counts as given; a `model_fields_set` that says otherwise is a change of its own.

    Raises `BadInput` for a value that contains itself.

        >>> [change.where for change in diff({"m": [{"x": 1}, 2]}, {"m": [{"x": 3}, 2, 4]})]
        ['m[0].x', 'm[2]']
    """
    return Diff(_Comparison().run(old, new))


def _texts(change: Change, width: int) -> list[str]:
    if change.kind == "added":
        return [short(change.new, width)]
    if change.kind == "removed":
        return [short(change.old, width)]
    if type(change.old) is str and type(change.new) is str:
        return changed_text(change.old, change.new, width)
    return [" → ".join(distinguished(change.old, change.new, width))]


def _shown_where(change: Change) -> str:
    return tail(change.where, _WHERE_WIDTH) or "(state)"


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two values that differ and are to be compared part by part."""

    path: Path
    old: object
    new: object
    old_shape: Shape
    new_shape: Shape


class _Comparison:
    """One walk over two states, with a list of what is still to do instead of recursion."""

    def __init__(self) -> None:
        self._numbers = Numbers()

    def run(self, old: object, new: object) -> list[Change]:
        changes: list[Change] = []
        stack = self._compared((), old, new)
        while stack:
            step = stack.pop()
            if isinstance(step, Change):
                changes.append(step)
            else:
                stack += reversed(self._parts(step))
        return changes

    def _compared(self, path: Path, old: object, new: object) -> list[Change | _Pair]:
        if old is new or self._numbers.of(old) == self._numbers.of(new):
            return []
        old_shape, new_shape = shape_of(old), shape_of(new)
        if old_shape and new_shape and old_shape[:2] == new_shape[:2] and not self._is_ambiguous(old_shape, new_shape):
            return [_Pair(path, old, new, old_shape, new_shape)]
        return [Change(path, "changed", old, new)]

    def _is_ambiguous(self, *shapes: Shape) -> bool:
        """Whether keys or members repeat: only NaNs can, since no NaN equals itself."""
        for shape in shapes:
            keys = shape.names if shape.kind == "entries" else shape.parts if shape.kind == "members" else ()
            if len({self._numbers.of(key) for key in keys}) < len(keys):
                return True
        return False

    def _parts(self, pair: _Pair) -> list[Change | _Pair]:
        kind = pair.old_shape.kind
        if kind == "items":
            return self._items(pair)
        if kind == "members":
            return self._members(pair)
        return self._named(pair, key_step) if kind == "entries" else self._fields(pair)

    def _named(self, pair: _Pair, step: Callable[[object], Step]) -> list[Change | _Pair]:
        """The parts that have names: what the old state has in its order, then what the new one adds in its order."""
        old, new = self._by_name(pair.old_shape), self._by_name(pair.new_shape)
        found: list[Change | _Pair] = []
        for number, (name, part) in old.items():
            if number in new:
                found += self._compared((*pair.path, step(new[number][0])), part, new[number][1])
            else:
                found.append(Change((*pair.path, step(name)), "removed", old=part))
        for number, (name, part) in new.items():
            if number not in old:
                found.append(Change((*pair.path, step(name)), "added", new=part))
        return found

    def _by_name(self, shape: Shape) -> dict[int, tuple[object, object]]:
        return {self._numbers.of(name): (name, part) for name, part in zip(shape.names, shape.parts, strict=True)}

    def _fields(self, pair: _Pair) -> list[Change | _Pair]:
        found = self._named(pair, str)
        old, new = pair.old_shape.assigned, pair.new_shape.assigned
        if old is not None and new is not None:
            direct = [(step.kind, str(step.path[-1])) for step in found if isinstance(step, Change)]
            given = {name for kind, name in direct if kind != "removed" and not name.startswith("_")}
            if new != (old | given) - {name for kind, name in direct if kind == "removed"}:
                found.append(Change((*pair.path, "model_fields_set"), "changed", old, new))
        return found

    def _members(self, pair: _Pair) -> list[Change | _Pair]:
        old = {self._numbers.of(member): member for member in pair.old_shape.parts}
        new = {self._numbers.of(member): member for member in pair.new_shape.parts}
        gone = sorted((old[number] for number in old.keys() - new.keys()), key=order_key)
        came = sorted((new[number] for number in new.keys() - old.keys()), key=order_key)
        return [
            *(Change((*pair.path, Member(member)), "removed", old=member) for member in gone),
            *(Change((*pair.path, Member(member)), "added", new=member) for member in came),
        ]

    def _items(self, pair: _Pair) -> list[Change | _Pair]:
        old, new = Items(pair.old_shape.parts, self._numbers), Items(pair.new_shape.parts, self._numbers)
        whole = Block(0, len(old.parts), 0, len(new.parts))
        equal = matches(old.numbers, new.numbers)
        if len(equal) * 2 <= len(old.parts) and self._is_vector(old, new, len(equal)):
            return [Change(pair.path, "changed", pair.old, pair.new)]
        found: list[Change | _Pair] = []
        for block in gaps(equal, whole):
            edited = changed_in_place(block, old.id, new.id, partial(old.likeness, new))
            for gap, (i, j) in zip(gaps(edited, block), [*edited, (-1, -1)], strict=True):
                gone, came = range(gap.old, gap.old_stop), range(gap.new, gap.new_stop)
                found += (Change((*pair.path, at), "removed", old=old.parts[at]) for at in gone)
                found += (Change((*pair.path, at), "added", new=new.parts[at]) for at in came)
                if i >= 0:
                    found += self._compared((*pair.path, j), old.parts[i], new.parts[j])
        return found

    @staticmethod
    def _is_vector(old: Items, new: Items, equal: int) -> bool:
        """Whether this is a list of numbers of which little stayed: an embedding, not items that people tell apart."""
        longest = max(len(old.parts), len(new.parts))
        return longest - equal > _FEW_NUMBERS and all(type(part) in (int, float) for part in (*old.parts, *new.parts))
