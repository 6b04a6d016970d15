"""Which writes a checkpoint was made from.

A `DeltaChannel` is read from the writes beside the ancestors of a checkpoint. When two runs go on from one checkpoint,
the writes of both stand beside it, or one's in place of the other's: "nothing records which child that was", LangGraph
says, and mixes them. So a checkpoint says itself which of its parent's writes it took, and keeps those of its run that
found their place taken.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from clew.placed import Place, Write

_PLACES = 1024
"""Checkpoints whose writes are remembered."""
_Key = tuple[str, int]


class _Seen:
    """What one run has seen beside one checkpoint."""

    __slots__ = ("came", "own", "run", "stood", "wrote")

    def __init__(self, run: object) -> None:
        self.run = run
        self.came = False
        """Whether it has read or placed the checkpoint. Every run has, so writes of any other are somebody's here."""
        self.stood: set[_Key] = set()
        self.wrote: set[_Key] = set()
        self.own: dict[_Key, Write] = {}


class Taken:
    """What the runs of this process have seen, by checkpoint."""

    def __init__(self) -> None:
        self._of: OrderedDict[Place, list[_Seen]] = OrderedDict()
        self._lock = threading.Lock()

    def found(self, place: Place, run: object, writes: Iterable[Write]) -> None:
        """A run has read a checkpoint, with these writes beside it."""
        with self._lock:
            seen = self._seen(place, run)
            seen.came = True
            seen.stood = {(write.task, write.idx) for write in writes}

    def placed(self, place: Place, run: object) -> None:
        """A run has made a checkpoint."""
        with self._lock:
            self._seen(place, run).came = True

    def wrote(self, place: Place, run: object, writes: Iterable[tuple[Write, bool]]) -> None:
        """A run has written; of each: whether what stands there now is what it wrote."""
        with self._lock:
            seen = self._seen(place, run)
            for write, stands in writes:
                key = (write.task, write.idx)
                if stands:
                    seen.wrote.add(key)
                elif key not in seen.stood:
                    seen.own[key] = write

    def by(self, place: Place, run: object) -> list[Any] | None:
        """What a run that goes on from a checkpoint has taken; None if nothing is known."""
        with self._lock:
            every = self._of.get(place)
            if not every:
                return None
            mine = [seen for seen in every if seen.run is run or not seen.came]
            if not any(seen.run is run for seen in mine):
                mine = every  # it cannot be told from the others
            keys = {key for seen in mine for key in seen.stood | seen.wrote}
            own = [write for seen in mine for write in seen.own.values()]
            return [*(list(key) for key in sorted(keys)), *(list(write) for write in own)]

    def _seen(self, place: Place, run: object) -> _Seen:
        every = self._of.setdefault(place, [])
        self._of.move_to_end(place)
        while len(self._of) > _PLACES:
            self._of.popitem(last=False)
        for seen in every:
            if seen.run is run:
                return seen
        every.append(_Seen(run))
        return every[-1]
