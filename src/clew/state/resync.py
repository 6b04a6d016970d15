"""Which parts of a new sequence are parts of the old one: plans for lists and texts that have changed in the middle."""

from __future__ import annotations

from typing import Any

from clew.state.codec import IMMUTABLE, encode, pack_dict, pack_list, put_together
from clew.state.shadow import DictNode, Encoded, ListNode, ObjectShadow, Run, TextNode, same

ANCHOR = 48
"""Characters that must agree for a stretch of a text to be taken for the same."""

ItemPlan = list[tuple[int | None, int | None]]
"""For each new item: the index of the old item that it is, or else of the one that it is a changed form of."""


def plan_items(old: ListNode, value: list[Any], prefix: int) -> ItemPlan:
    """Match new items with old ones. The first `prefix` are known to be the same.

    An item is found by identity, by standing at the end as before, or by its bytes. An old item that holds references
    is given away once only: two owners of one log would write over each other.
    """
    before = old.items
    suffix = 0
    limit = min(len(before), len(value)) - prefix
    while suffix < limit and same(before[-1 - suffix], value[-1 - suffix]):
        suffix += 1
    plan: ItemPlan = [(index, None) for index in range(prefix)]
    middle_old = range(prefix, len(before) - suffix)
    middle_new = value[prefix : len(value) - suffix]
    found = _by_identity(old, before, middle_old, middle_new)
    if any(source is None for source in found):
        _by_bytes(old, before, middle_old, middle_new, found)
    taken = {source for source in found if source is not None}
    bases = _bases(old, middle_old, middle_new, found, taken)
    plan.extend(zip(found, bases, strict=True))
    plan.extend((len(before) - suffix + index, None) for index in range(suffix))
    return plan


def _by_identity(old: ListNode, before: list[Any], span: range, new: list[Any]) -> list[int | None]:
    index = _mutable(old, span)
    taken: set[int] = set()
    found: list[int | None] = []
    for item in new:
        at = index.get(id(item))
        if at is None or (at in taken and at in old.with_refs) or not same(before[at], item):
            found.append(None)
            continue
        taken.add(at)
        found.append(at)
    return found


def _mutable(old: ListNode, span: range) -> dict[int, int]:
    """Where items of these identities were, if they are of a sort that has one. (Another item may have it by now.)"""
    return {old.ids[at]: at for at in span if old.types[at] not in IMMUTABLE}


def _by_bytes(old: ListNode, before: list[Any], span: range, new: list[Any], found: list[int | None]) -> None:
    """Fill the gaps of `found` with old items of the same encoding (only those without references)."""
    taken = {source for source in found if source is not None}
    index: dict[bytes, int] = {}
    for candidate in span:
        if candidate not in taken and candidate not in old.with_refs:
            data = encode_shadow(before[candidate])
            if data is not None:
                index.setdefault(data, candidate)
    if not index:
        return
    for position, item in enumerate(new):
        if found[position] is None and (at := index.get(encode(item))) is not None:
            found[position] = at


def _bases(old: ListNode, span: range, new: list[Any], found: list[int | None], taken: set[int]) -> list[int | None]:
    """For items that are new or changed: the old item they were, by identity or else by place. Each serves once."""
    index = _mutable(old, span)
    bases: list[int | None] = []
    for position, item in enumerate(new):
        if found[position] is not None:
            bases.append(None)
            continue
        at = index.get(id(item))
        if at is None or at in taken:
            at = span.start + position
            if at not in span or at in taken or type(item) is not old.types[at]:
                bases.append(None)
                continue
        taken.add(at)
        bases.append(at if type(item) not in IMMUTABLE else None)
    return bases


def encode_shadow(kid: Any) -> bytes | None:
    """The encoding that the remembered value had, whole; None when parts of it lie elsewhere."""
    kind = type(kid)
    if kind in IMMUTABLE:
        return encode(kid)
    if kind is Encoded:
        return bytes(kid.data)
    if kind in (ListNode, DictNode, TextNode):
        return None
    if kind is dict:
        parts = [encode_shadow(item) for item in kid.values()]
        return None if None in parts else pack_dict(list(kid), parts)  # type: ignore[arg-type]
    if kind is list:
        parts = [encode_shadow(item) for item in kid]
        return None if None in parts else pack_list(parts)  # type: ignore[arg-type]
    if kind is ObjectShadow:
        parts = [encode_shadow(item) for item in kid.fields.values()]
        return None if None in parts else put_together(kid.head, list(kid.fields), parts)  # type: ignore[arg-type]
    return encode(kid)


TextPlan = list["tuple[int, int] | bytes"]
"""Stretches of the old text's bytes, and new bytes between them."""


def plan_text(old: str | bytes | None, new: str | bytes) -> TextPlan | None:
    """How to write `new` as an edit of `old`; None when less than half of it would be kept."""
    if old is None or not new:
        return None
    prefix = _common(old, new, front=True)
    rest_old, rest_new = old[prefix:], new[prefix:]
    suffix = _common(rest_old, rest_new, front=False)
    middle_old = rest_old[: len(rest_old) - suffix]
    middle_new = rest_new[: len(rest_new) - suffix]
    kept: list[tuple[int, int] | str | bytes] = [(0, prefix)]
    kept += _anchored(middle_old, middle_new, prefix)
    kept.append((len(old) - suffix, len(old)))
    if sum(part[1] - part[0] for part in kept if isinstance(part, tuple)) * 2 < len(new):
        return None
    at = _byte_offsets(old)
    plan: TextPlan = []
    for part in kept:
        if isinstance(part, tuple):
            if part[0] < part[1]:
                plan.append((at(part[0]), at(part[1])))
        elif part:
            plan.append(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
    return plan


def _anchored(old: Any, new: Any, shift: int) -> list[tuple[int, int] | str | bytes]:
    """The middle of an edit: one long stretch that has moved (a window that slid), with new text around it."""
    if len(old) >= ANCHOR * 4 and len(new) >= ANCHOR * 4:
        for probe in (0, len(new) // 2, len(new) - ANCHOR):
            at = old.find(new[probe : probe + ANCHOR])
            if at < 0:
                continue
            back = _common(old[:at], new[:probe], front=False)
            ahead = _common(old[at:], new[probe:], front=True)
            if (back + ahead) * 2 >= len(new):
                return [new[: probe - back], (shift + at - back, shift + at + ahead), new[probe + ahead :]]
    return [new]


def _common(a: Any, b: Any, *, front: bool) -> int:
    """The length of the common prefix (or suffix), found by halving: comparing slices is C."""
    low, high = 0, min(len(a), len(b))
    if high == 0 or (a[0] != b[0] if front else a[-1] != b[-1]):
        return 0
    if front:
        while low < high:
            half = (low + high + 1) // 2
            if a[low:half] == b[low:half]:
                low = half
            else:
                high = half - 1
    else:
        while low < high:
            half = (low + high + 1) // 2
            if a[len(a) - half : len(a) - low] == b[len(b) - half : len(b) - low]:
                low = half
            else:
                high = half - 1
    return low


def _byte_offsets(text: str | bytes) -> Any:
    """A function from an index in the text to one in its bytes."""
    if isinstance(text, bytes) or text.isascii():
        return lambda index: index
    return lambda index: len(text[:index].encode("utf-8", "surrogatepass"))


def sub_runs(runs: tuple[Run, ...], start: int, stop: int) -> list[Run]:
    """The runs of the items `start` up to `stop` of a sequence."""
    found: list[Run] = []
    at = 0
    for lane, log, first, count in runs:
        low, high = max(start, at), min(stop, at + count)
        if low < high:
            found.append((lane, log, first + low - at, high - low))
        at += count
        if at >= stop:
            break
    return found


def add_run(runs: list[Run], run: Run) -> None:
    """Append a run, joining it to the last one where they are neighbours."""
    if runs:
        lane, log, start, count = runs[-1]
        if run[0] == lane and run[1] == log and run[2] == start + count:
            runs[-1] = (lane, log, start, count + run[3])
            return
    if run[3]:
        runs.append(run)
