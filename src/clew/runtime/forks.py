"""What other paths of a thread have done past the point that a run began at: its forks ask about it, and do not repeat.

An effect of another run is *past the point* when the checkpoint that its node began on is that point or grew from it,
and the path of this run does not contain what that other run made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clew.state.codec import decode
from clew.storage.ledger import EffectRow, Ledger
from clew.storage.port import Row, Snapshot, Storage

_PAGE = 100
ASKED = "fork "
"""How the ids of questions about other paths begin."""


class Origin:
    """Where a run that did not begin at the end of its thread comes from: `step` is the checkpoint it began on."""

    def __init__(self, storage: Storage, ledger: Ledger, thread_id: str, run: str, step: int) -> None:
        self._storage = storage
        self._ledger = ledger
        self._thread_id = thread_id
        self._run = run
        self._step = step
        self._reused: set[str] = set()

    def reused(self, key: str) -> None:
        """This run has taken the result of a call of this key."""
        self._reused.add(key)

    def earlier(self, activation: str, at: int, key: str, name: str, args: bytes) -> list[EffectRow]:
        """Calls of other paths that a person has to compare with this one, made by an activation at step `at`.

        That is the one of the same key alone, if its arguments are others or it was undone; else all of the function,
        as long as more of them were made than this path has compared or repeated.
        """
        same = [row for row in self._ledger.effects(self._thread_id, key=key) if row.state != "failed"]
        alike = [row for row in same if row.args == args]
        if any(row.run == self._run or row.name != name for row in same):
            return []  # claimed here before; or a conflict, not a repetition
        if alike and alike[-1].state != "compensated":
            return []
        paths = _Paths(self._storage, self._thread_id, self._step, at)
        called = _newest(row for row in self._called(name) if row.run != self._run)
        theirs = [row for row in called if paths.elsewhere(row)]
        if same:
            return [row for row in theirs if row.key == key]
        count, taken = self._compared(name, {self._run, *paths.ours})
        repeated = self._reused & {row.key for row in theirs}
        if (
            len(theirs) <= count + len(repeated)
            and self._ledger.asked(self._thread_id, activation, ASKED + key) is None
        ):
            return []
        return [row for row in theirs if row.key not in repeated | taken] or theirs

    def _called(self, name: str) -> Iterator[EffectRow]:
        after: tuple[str, int] | None = None
        while page := self._ledger.effects(self._thread_id, name=name, after=after, limit=_PAGE):
            yield from page
            after = page[-1].key, page[-1].attempt

    def _compared(self, name: str, runs: set[str]) -> tuple[int, set[str]]:
        """How many calls a person has compared on this path, and the keys whose results were taken then."""
        count = 0
        taken: set[str] = set()
        after: int | None = None
        while page := self._ledger.requests(thread_id=self._thread_id, status="answered", after=after, limit=_PAGE):
            for row in page:
                if row.run in runs and row.ask.startswith(ASKED):
                    question: Any = decode(row.question)
                    if question["effect"] == name:
                        count += 1
                        reused = chosen(question, None if row.value is None else decode(row.value))
                        taken |= set() if reused is None else {reused["key"]}
            after = page[-1].number
        return count, taken


def chosen(question: Any, answer: Any) -> dict[str, Any] | None:
    """The earlier call whose result is to be taken, if that is the answer."""
    done: list[dict[str, Any]] = [call for call in question["earlier"] if call["state"] == "done"]
    if answer == "reuse":
        return done[0]
    return next(call for call in done if call["key"] == answer["reuse"]) if isinstance(answer, Mapping) else None


def _newest(rows: Iterable[EffectRow]) -> list[EffectRow]:
    """The newest claim of each key, but for those that were not done; in the order of the calls."""
    newest = {row.key: row for row in rows if row.state != "failed"}  # they come by attempt
    return sorted(newest.values(), key=lambda row: row.created)


class _Paths:
    """The path that a run has come since its point, and what grew from that point beside it."""

    def __init__(self, storage: Storage, thread_id: str, step: int, at: int) -> None:
        self._storage = storage
        self._thread_id = thread_id
        self._point = self._last_run(step)
        self._grown = {self._point}
        self.ours: dict[str, int] = {}
        """Runs on the path, and the last step that each has made there."""
        for row in self._path(at):
            if row.step < self._point:
                break
            if row.run is not None:
                self.ours.setdefault(row.run, row.step)

    def _last_run(self, step: int) -> int:
        """The point: the last checkpoint that a run has made. Edits of the fork itself come after it.

        0 if that was pruned: then anything may be past it.
        """
        for row in self._path(step):
            if row.run is not None:
                return row.step
            step = 0 if row.kind == "fork" and row.parent is None else row.step
        return step

    def elsewhere(self, row: EffectRow) -> bool:
        """Whether an effect is past the point, and not on the path."""
        if row.step is None or row.step < self._point:
            return False
        return self.ours.get(row.run or "", -1) <= row.step and self._grew(row.step)

    def _grew(self, step: int) -> bool:
        """Whether a checkpoint grew from the point. One that was pruned may have."""
        if not self._point:
            return True
        walked: list[int] = []
        for row in self._path(step):
            if row.step < self._point:
                return False
            walked.append(row.step)
            if row.step in self._grown:
                self._grown.update(walked)
                return True
        return not walked

    def _path(self, step: int) -> Iterator[Row]:
        """A checkpoint and those that it grew from."""
        at: int | None = step
        while at is not None:
            with self._storage.snapshot() as snapshot:
                found = _history(snapshot, self._thread_id, at)
            yield from found
            at = found[-1].parent if found else None


def _history(snapshot: Snapshot, thread_id: str, step: int) -> list[Row]:
    thread = snapshot.find_thread(thread_id)
    return [] if thread is None else snapshot.history(thread, step, _PAGE)
