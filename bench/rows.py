"""What a benchmark found: rows with a figure and, mostly, a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from bench.timing import Pairs, percentile

TIMES = "×"  # noqa: RUF001 - the sign for "times"


@dataclass
class Row:
    """One figure. It meets its target when it is not above it; without a target it is for information."""

    bench: str
    what: str
    figure: float | None
    unit: str = TIMES
    target: float | None = None
    target_text: str = ""
    detail: str = ""
    peer: bool = False
    """Whether the target is what a peer needs."""
    numbers: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why there is no figure."""

    @property
    def met(self) -> bool | None:
        if self.problem:
            return False
        return None if self.target is None or self.figure is None else self.figure <= self.target

    @property
    def unsure(self) -> bool:
        """Whether repetitions fall on both sides of the target."""
        ratios = self.numbers.get("ratios")
        return bool(ratios) and self.target is not None and min(ratios) <= self.target < max(ratios)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met, "unsure": self.unsure}


def spent(times: Sequence[int]) -> dict[str, float]:
    middle, late = percentile(times, 0.5), percentile(times, 0.99)
    return {"p50_us": round(middle, 1), "p99_us": round(late, 1), "mean_us": round(mean(times) / 1000, 1)}


def shown(times: Sequence[int]) -> str:
    """p50 / p99 / mean, in a fitting unit. The mean shows what p50 hides: a fold now and then."""
    three = percentile(times, 0.5), percentile(times, 0.99), mean(times) / 1000
    if three[0] >= 1000:
        return " / ".join(f"{time / 1000:.2f}" for time in three) + " ms"
    return " / ".join(f"{time:.0f}" for time in three) + " µs"


def ratio_row(bench: str, what: str, pairs: Pairs, target: float | None, other: str, note: str = "") -> Row:
    """A row for two contenders that took turns."""
    detail = f"{shown(pairs.ours)}; {other} {shown(pairs.other)}; ratios {pairs.spread}"
    numbers = {"ours": spent(pairs.ours), "other": spent(pairs.other), "ratios": [round(r, 3) for r in pairs.ratios]}
    return Row(bench, what, pairs.ratio, TIMES, target, detail=f"{detail}{note}", numbers=numbers)
