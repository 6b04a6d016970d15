"""Reading many checkpoints of one thread: the items that their lists share are decoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clew.state.capture import Building
from clew.state.codec import encode, pack_list
from clew.state.layout import Stretch, pack_manifest, unpack_manifest
from clew.state.private import private
from clew.state.reader import Reader
from clew.state.shadow import Run

_CONTAINERS = frozenset({dict, list, set, bytearray, tuple})
_EMPTY = pack_manifest(1, 0, encode({}))
_Known = tuple[int, list[Any], bool]
"""(the first position, the items from there on, whether containers are among them)."""


class Items:
    """Decoded items of one thread, by where they stand: a position never gets another item."""

    def __init__(self) -> None:
        self._thread = 0
        self._logs: dict[tuple[int, int], list[_Known]] = {}

    def of(self, thread: int) -> Items:
        """These, for the thread with this key: none, if they were another one's until now."""
        if thread != self._thread:
            self._thread = thread
            self._logs = {}
        return self

    def has(self, run: Run) -> bool:
        return self._find(run) is not None

    def get(self, run: Run) -> list[Any] | None:
        """The items of a run, if they are all known: objects are shared, containers are fresh."""
        found = self._find(run)
        if found is None:
            return None
        first, items, contains = found
        part = items[run[2] - first : run[2] - first + run[3]]
        return [private(item) for item in part] if contains else part

    def keep(self, run: Run, items: list[Any]) -> None:
        lane, log, start, _ = run
        contains = not _CONTAINERS.isdisjoint(map(type, items))
        kept = [private(item) for item in items] if contains else list(items)
        self._logs.setdefault((lane, log), []).append((start, kept, contains))

    def _find(self, run: Run) -> _Known | None:
        lane, log, start, count = run
        for known in self._logs.get((lane, log), ()):
            if known[0] <= start and start + count <= known[0] + len(known[1]):
                return known
        return None


class Many(Reader):
    """Reads the states of many checkpoints, each once it has been fed what `needs()` names after `add_manifest`.

    What `items` know is neither asked for nor decoded again.
    """

    def __init__(self, seal: int, items: Items, open_blob: Callable[[str], bytes]) -> None:
        super().__init__(_EMPTY, 0, seal, open_blob=open_blob)
        self._known = items
        self._wanted: dict[tuple[int, int], list[Stretch]] = {}

    def states_of(self, manifests: Sequence[bytes], lane: int) -> list[Any]:
        """The states of checkpoints of one lane; `Corrupt`, also if something that one of them needs was not fed."""
        roots = [unpack_manifest(manifest)[2] for manifest in manifests]
        states: list[Any] = self._decode(pack_list(roots), lane, lane)
        return states

    def _want(self, runs: Iterable[Run]) -> None:
        for run in runs:
            lane, log, start, count = run
            wanted = self._wanted.setdefault((lane, log), [])
            if any(low <= start and start + count <= high for _, _, low, high in wanted) or self._known.has(run):
                continue
            stretch = (lane, log, start, start + count)
            wanted.append(stretch)
            self._waiting.append(stretch)

    def _items(
        self, runs: Iterable[Run], with_refs: set[int], alias: int, building: Building | None = None
    ) -> list[Any]:
        found: list[Any] = []
        for run in runs:
            items = self._known.get(run)
            if items is None:
                items = super()._items((run,), with_refs, alias, building)
                self._known.keep(run, items)
            found = found + items if found else items
        return found
