"""What aligning two sequences needs to know of their items: equal, the same by id, or alike."""

from __future__ import annotations

from collections.abc import Sequence

from clew.state.diff_shape import Numbers, Shape, shape_of

_FIELDS = 32  # of each item, that are compared to tell how alike two are
_ENDS = 256  # characters at both ends of texts, for the same purpose
_POSSIBLE = 0.1  # nothing in common, but one may have replaced the other


class Items:
    """The items of one sequence, with their numbers."""

    def __init__(self, parts: Sequence[object], numbers: Numbers) -> None:
        self.parts = parts
        self.numbers = [numbers.of(part) for part in parts]
        self._of = numbers.of
        self._shapes: dict[int, Shape | None] = {}
        self._fields: dict[int, dict[int, int]] = {}

    def id(self, index: int) -> int | None:
        """The number of the `id` of an object or dict; None where there is no id, or it is None."""
        shape = self._shape(index)
        if shape is None or shape.kind not in ("entries", "fields") or "id" not in shape.names:
            return None
        found = shape.parts[list(shape.names).index("id")]
        return None if found is None else self._of(found)

    def likeness(self, other: Items, index: int, other_index: int) -> float | None:
        """How alike an item and one of the other sequence are, neither being equal; None: not the same item changed."""
        ids = self.id(index), other.id(other_index)
        if None not in ids and ids[0] != ids[1]:
            return None
        one, two = self._shape(index), other._shape(other_index)
        if one is None or two is None:
            return self._leaf_likeness(other, index, other_index) if one is two else None
        if one[:2] != two[:2]:
            return None
        if one.kind == "members" or one.kind == "items":
            return 2 * _POSSIBLE
        return _shared(self._some_fields(index, one), other._some_fields(other_index, two))

    def _leaf_likeness(self, other: Items, index: int, other_index: int) -> float:
        old, new = self.parts[index], other.parts[other_index]
        if type(old) is str and type(new) is str:
            return _POSSIBLE + _text_likeness(old, new)
        return 2 * _POSSIBLE if type(old) is type(new) else _POSSIBLE

    def _shape(self, index: int) -> Shape | None:
        if index not in self._shapes:
            self._shapes[index] = shape_of(self.parts[index])
        return self._shapes[index]

    def _some_fields(self, index: int, shape: Shape) -> dict[int, int]:
        if index not in self._fields:
            some = zip(shape.names[:_FIELDS], shape.parts, strict=False)
            self._fields[index] = {self._of(name): self._of(part) for name, part in some}
        return self._fields[index]


def _shared(old: dict[int, int], new: dict[int, int]) -> float | None:
    """Items with an equal field are alike; items with the same names but other values may have replaced each other."""
    longest = max(len(old), len(new))
    equal = sum(new.get(name) == part for name, part in old.items())
    if equal:
        return 1 + equal / longest
    return _POSSIBLE if len(old.keys() & new.keys()) * 2 >= longest else None


def _text_likeness(old: str, new: str) -> float:
    heads, tails = (old[:_ENDS], new[:_ENDS]), (old[: -_ENDS - 1 : -1], new[: -_ENDS - 1 : -1])
    common = sum(_common_beginning(*ends) for ends in (heads, tails))
    return min(1.0, common / max(1, min(2 * _ENDS, len(old), len(new))))


def _common_beginning(old: str, new: str) -> int:
    return next(
        (at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new))
    )
