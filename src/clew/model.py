"""What people hold in their hands: checkpoints, branches, pages and reports. Plain frozen values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar, overload

from clew.errors import Corrupt

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Kind = Literal["input", "step", "edit", "fork", "repair"]
KINDS: tuple[Kind, ...] = ("input", "step", "edit", "fork", "repair")
Durability = Literal["strict", "relaxed", "volatile"]


class Checkpoint:
    """An immutable snapshot of a thread's state: what `history()` lists and `save()` returns.

    `step` counts on the thread and is never reused; `parent` is the step before it on its path (None for a root, and
    the nearest kept one after pruning); `id` is random and unique in its thread.
    """

    # A plain class, because a page of history makes a thousand: a frozen dataclass takes five times as long to make.
    __slots__ = (
        "_load",
        "created_at",
        "id",
        "kind",
        "label",
        "metadata",
        "next",
        "parent",
        "run",
        "step",
        "thread_id",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the word of the glossary
        step: int,
        parent: int | None,
        kind: Kind,
        label: str | None,
        run: str | None,
        next: tuple[str, ...],  # noqa: A002 - the word of the glossary
        created_at: datetime,
        metadata: Mapping[str, Any],
        thread_id: str,
        load: Callable[[int], dict[str, Any]],
    ) -> None:
        self.id: Final = id
        self.step: Final = step
        self.parent: Final = parent
        self.kind: Final = kind
        self.label: Final = label
        self.run: Final = run
        self.next: Final = next
        self.created_at: Final = created_at
        self.metadata: Final = metadata
        self.thread_id: Final = thread_id
        self._load: Final = load

    def state(self) -> dict[str, Any]:
        """The state at this checkpoint: fresh containers, yours to change."""
        return self._load(self.step)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return (self.thread_id, self.id, self.step) == (other.thread_id, other.id, other.step)

    def __hash__(self) -> int:
        return hash((self.thread_id, self.id, self.step))

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<Checkpoint {self.thread_id}@{self.step} {self.kind}{label} {self.id}>"


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One line of `db.threads()`."""

    id: str
    created_at: datetime
    updated_at: datetime
    steps: int
    branches: int
    label: str | None
    metadata: Mapping[str, Any]
    busy: bool


class Page(Sequence[T], Generic[T]):
    """Some rows, and the `cursor` that fetches the next ones (None on the last page)."""

    __slots__ = ("_rows", "cursor")

    def __init__(self, rows: Sequence[T], cursor: str | None = None) -> None:
        self._rows = tuple(rows)
        self.cursor = cursor

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Page({list(self._rows)!r}, cursor={self.cursor!r})"


@dataclass(frozen=True, slots=True)
class Usage:
    """What is stored, for one tenant; `file_bytes` and `free_bytes` are the whole database's.

    `ledger_bytes` are those of runs, effects, requests, answers and signals.
    """

    threads: int
    checkpoints: int
    checkpoint_bytes: int
    payload_bytes: int
    blobs: int
    blob_bytes: int
    items: int
    item_bytes: int
    runs: int
    effects: int
    requests: int
    ledger_bytes: int
    file_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Overview:
    """What somebody may have to look at: `db.overview()`.

    `runs` counts those of each status, but for what is done or cancelled. `due` runs could go on now; `left` ones were
    left by a process that is gone; `requests` are open.
    """

    runs: Mapping[Any, int]
    due: int
    left: int
    requests: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed, or would remove on a dry run."""

    threads: int
    checkpoints: int
    kept: int
    bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Notified:
    """What `notify` came to: requests that the command was told of, and those that it failed for."""

    told: int
    failed: int


def from_microseconds(stamp: int) -> datetime:
    """The stored form of a time (microseconds since 1970, UTC) as people use it."""
    try:
        return _EPOCH + timedelta(0, 0, stamp)
    except OverflowError:
        raise Corrupt(f"a stored time is impossible: {stamp}") from None
