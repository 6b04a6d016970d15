"""Which items of an old and a new sequence belong together. Time is O(n log n) at worst, O(n) for usual changes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

Pairs: TypeAlias = list[tuple[int, int]]
Placed: TypeAlias = tuple[int, Hashable]  # a position and the item there
Identity: TypeAlias = Callable[[int], Hashable | None]
Likeness: TypeAlias = Callable[[int, int], float | None]

# A table of this many cells at most is filled for the items between two anchors. As a table needs an item on each side
# of it, all tables of one alignment together cost at most 32 steps an item.
_TABLE = 4096
_LIKENESS_TABLE = 1024


class Block(NamedTuple):
    """A stretch of the old sequence and the stretch of the new one that stands in its place."""

    old: int
    old_stop: int
    new: int
    new_stop: int

    def table(self) -> int:
        return (self.old_stop - self.old) * (self.new_stop - self.new)


def matches(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    """Pairs of positions of equal items, rising on both sides.

    >>> matches("abcd", "bcxd")
    [(1, 0), (2, 1), (3, 3)]
    """
    return _matches(old, new, Block(0, len(old), 0, len(new)), anchors=True)


def gaps(pairs: Pairs, whole: Block) -> Iterator[Block]:
    """The blocks before, between and after the pairs, also the empty ones: always one more than there are pairs."""
    old, new = whole.old, whole.new
    for i, j in pairs:
        yield Block(old, i, new, j)
        old, new = i + 1, j + 1
    yield Block(old, whole.old_stop, new, whole.new_stop)


def changed_in_place(block: Block, old_id: Identity, new_id: Identity, likeness: Likeness) -> Pairs:
    """Pairs within a block that has no equal items: the same item before and after a change.

    Items with the same id belong together. The others do where `likeness(i, j)` is a number; None forbids a pair.
    """
    if not block.table():
        return []
    old_named = [(i, old_id(i)) for i in range(block.old, block.old_stop)]
    new_named = [(j, new_id(j)) for j in range(block.new, block.new_stop)]
    same_id = _by_occurrence(
        [item for item in old_named if item[1] is not None], [item for item in new_named if item[1] is not None]
    )
    pairs: Pairs = []
    for gap, pair in zip(gaps(same_id, block), [*same_id, None], strict=True):
        pairs += _alike(gap, likeness)
        if pair:
            pairs.append(pair)
    return pairs


def _matches(old: Sequence[Hashable], new: Sequence[Hashable], block: Block, *, anchors: bool) -> Pairs:
    head, inner, end = _trimmed(old, new, block)
    if not inner.table():
        return head + end
    if inner.table() <= _TABLE:
        return head + _longest_common(old, new, inner) + end
    if anchors:
        unique = _unique_pairs(old, new, inner)
        if unique:
            middle: Pairs = []
            for gap, pair in zip(gaps(unique, inner), [*unique, None], strict=True):
                middle += _matches(old, new, gap, anchors=False)
                if pair:
                    middle.append(pair)
            return head + middle + end
    old_part = enumerate(old[inner.old : inner.old_stop], inner.old)
    new_part = enumerate(new[inner.new : inner.new_stop], inner.new)
    return head + _by_occurrence(list(old_part), list(new_part)) + end


def _trimmed(old: Sequence[Hashable], new: Sequence[Hashable], block: Block) -> tuple[Pairs, Block, Pairs]:
    """The common beginning, what is left in the middle, the common end."""
    i, i_stop, j, j_stop = block
    head: Pairs = []
    while i < i_stop and j < j_stop and old[i] == new[j]:
        head.append((i, j))
        i, j = i + 1, j + 1
    end: Pairs = []
    while i < i_stop and j < j_stop and old[i_stop - 1] == new[j_stop - 1]:
        i_stop, j_stop = i_stop - 1, j_stop - 1
        end.append((i_stop, j_stop))
    return head, Block(i, i_stop, j, j_stop), end[::-1]


def _unique_pairs(old: Sequence[Hashable], new: Sequence[Hashable], block: Block) -> Pairs:
    """Items that stand once on each side: almost surely the same item, so the rest is aligned around them."""
    old_counts = Counter(old[block.old : block.old_stop])
    new_counts = Counter(new[block.new : block.new_stop])
    places = {new[j]: j for j in range(block.new, block.new_stop)}
    return _rising(
        [
            (i, places[old[i]])
            for i in range(block.old, block.old_stop)
            if old_counts[old[i]] == 1 and new_counts.get(old[i]) == 1
        ]
    )


def _by_occurrence(old: Sequence[Placed], new: Sequence[Placed]) -> Pairs:
    """The n-th of several equal items on one side belongs to the n-th on the other, as far as that keeps the order."""
    waiting: dict[Hashable, list[int]] = {}
    for j, item in reversed(new):
        waiting.setdefault(item, []).append(j)
    return _rising([(i, waiting[item].pop()) for i, item in old if waiting.get(item)])


def _rising(pairs: Pairs) -> Pairs:
    """The longest selection of pairs, given by rising old position, whose new positions rise too."""
    ends: list[int] = []  # the least new position that ends a selection of length n + 1 …
    last: list[int] = []  # … and its pair
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(j)
            last.append(index)
        else:
            ends[length], last[length] = j, index
    chosen: Pairs = []
    index = last[-1] if last else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _longest_common(old: Sequence[Hashable], new: Sequence[Hashable], block: Block) -> Pairs:
    return _best_pairs(block, lambda i, j: 1.0 if old[i] == new[j] else None)


def _alike(block: Block, likeness: Likeness) -> Pairs:
    if block.table() <= _LIKENESS_TABLE:
        return _best_pairs(block, likeness)
    pairs: Pairs = []
    for i, j in zip(range(block.old, block.old_stop), range(block.new, block.new_stop), strict=False):
        if likeness(i, j) is not None:
            pairs.append((i, j))
    return pairs


def _best_pairs(block: Block, likeness: Likeness) -> Pairs:
    """The rising pairs with the greatest sum of likeness; the earliest of those that are equally good."""
    height, breadth = block.old_stop - block.old, block.new_stop - block.new
    scores = [[likeness(block.old + i, block.new + j) for j in range(breadth)] for i in range(height)]
    best = [[0.0] * (breadth + 1) for _ in range(height + 1)]  # best[i][j]: of what is left from i and j on
    for i in range(height - 1, -1, -1):
        for j in range(breadth - 1, -1, -1):
            score = scores[i][j]
            paired = best[i + 1][j + 1] + score if score is not None else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    pairs: Pairs = []
    i = j = 0
    while i < height and j < breadth:
        score = scores[i][j]
        if score is not None and best[i][j] == best[i + 1][j + 1] + score:
            pairs.append((block.old + i, block.new + j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
