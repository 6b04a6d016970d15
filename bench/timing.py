"""Times: taken in turns, without the garbage collector, compared pair by pair."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns

Prepare = Callable[[int], Callable[[], object]]
"""Makes, untimed, the call that is timed."""


@contextmanager
def no_garbage() -> Iterator[None]:
    """Keep the garbage collector out of a timed loop, for every contender alike."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def percentile(times: Sequence[int], part: float) -> float:
    """In microseconds; the nearest of the measured values."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1000


def clock(call: Callable[[], object]) -> int:
    begun = perf_counter_ns()
    call()
    return perf_counter_ns() - begun


@dataclass
class Pairs:
    """Times of two contenders that took turns."""

    ours: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """One for each repetition."""

    def add(self, ours: list[int], other: list[int]) -> None:
        """One repetition: its ratio is 1 + median of the paired differences / median of the other."""
        base = median(other)
        difference = median(a - b for a, b in zip(ours, other, strict=True))
        self.ratios.append((base + difference) / base)
        self.ours += ours
        self.other += other

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def spread(self) -> str:
        return f"{min(self.ratios):.2f} to {max(self.ratios):.2f}"


def take_turns(ours: Prepare, other: Prepare, count: int) -> tuple[list[int], list[int]]:
    """Time both, `count` times each, the order changing from one pair to the next."""
    mine: list[int] = []
    theirs: list[int] = []
    for turn in range(count):
        first, second = ours(turn), other(turn)
        if turn % 2:
            theirs.append(clock(second))
            mine.append(clock(first))
        else:
            mine.append(clock(first))
            theirs.append(clock(second))
    return mine, theirs


def alternate(pairs: Pairs, ours: Prepare, other: Prepare, count: int) -> None:
    """One repetition."""
    with no_garbage():
        pairs.add(*take_turns(ours, other, count))
