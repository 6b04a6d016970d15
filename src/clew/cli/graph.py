"""Branches as lanes: the drawing to the left of a log. Checkpoints come newest first; each has one parent."""

from __future__ import annotations

from typing import NamedTuple

_UNICODE = {"node": "●", "lane": "│", "across": "─", "start": "╭", "into": "├", "join": "┴", "end": "╯"}
_ASCII = {"node": "*", "lane": "|", "across": "-", "start": ".", "into": "|", "join": "'", "end": "'"}


class Drawn(NamedTuple):
    """The lines of one checkpoint: where lanes meet above it (or None), its own, and what goes on below."""

    meeting: str | None
    node: str
    below: str


class Lanes:
    """Draws one checkpoint after the other.

    >>> lanes = Lanes(first=4)
    >>> for step, parent in [(4, 2), (3, 2), (2, None)]:
    ...     drawn = lanes.draw(step, parent)
    ...     for line in filter(None, (drawn.meeting, drawn.node)):
    ...         print(line)
    ●
    │ ●
    ├─╯
    ●
    """

    def __init__(self, first: int | None = None, *, ascii_only: bool = False) -> None:
        """`first` is the head that the leftmost lane is kept for."""
        self._signs = _ASCII if ascii_only else _UNICODE
        self._awaited: list[int | None] = [] if first is None else [first]
        self._kept = first is not None

    def draw(self, step: int, parent: int | None) -> Drawn:
        meeting_lanes = [lane for lane, awaited in enumerate(self._awaited) if awaited == step]
        meeting = self._meeting(meeting_lanes) if len(meeting_lanes) > 1 else None
        lane = meeting_lanes[0] if meeting_lanes else self._free_lane()
        for ended in meeting_lanes[1:]:
            self._awaited[ended] = None
        if lane == 0:
            self._kept = False
        self._awaited[lane] = step
        node = self._line({lane: self._signs["node"]})
        self._awaited[lane] = parent
        while self._awaited and self._awaited[-1] is None:
            self._awaited.pop()
        return Drawn(meeting, node, self._line({}))

    def _free_lane(self) -> int:
        if None in self._awaited:
            return self._awaited.index(None)
        self._awaited.append(None)
        return len(self._awaited) - 1

    def _sign(self, lane: int) -> str:
        drawn = self._awaited[lane] is not None and not (lane == 0 and self._kept)
        return self._signs["lane"] if drawn else " "

    def _line(self, special: dict[int, str]) -> str:
        return " ".join(special.get(lane) or self._sign(lane) for lane in range(len(self._awaited))).rstrip()

    def _meeting(self, lanes: list[int]) -> str:
        signs, first, last = self._signs, lanes[0], lanes[-1]
        line = ""
        for lane in range(len(self._awaited)):
            between = first < lane <= last
            line += signs["across"] if between else " " if lane else ""
            if lane == first:
                line += signs["start"] if lane == 0 and self._kept else signs["into"]
            elif lane == last:
                line += signs["end"]
            elif lane in lanes:
                line += signs["join"]
            else:
                sign = self._sign(lane)
                line += signs["across"] if between and sign == " " else sign
        return line.rstrip()
