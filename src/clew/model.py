"""What people hold in their hands: checkpoints, branches, pages and reports. Plain frozen values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar, overload

T = TypeVar("T")

Kind = Literal["input", "step", "edit", "fork", "repair"]
KINDS: tuple[Kind, ...] = ("input", "step", "edit", "fork", "repair")
Durability = Literal["strict", "relaxed", "volatile"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An immutable snapshot of a thread's state: what `history()` lists and `save()` returns.

    `step` counts on the thread and is never reused; `parent` is the step before it on its path (None for a root, and
    the nearest kept one after pruning); `id` is random and unique in its thread.
    """

    id: str
    step: int
    parent: int | None
    kind: Kind
    label: str | None
    run: str | None
    next: tuple[str, ...]
    created_at: datetime
    metadata: Mapping[str, Any]
    thread_id: str
    _load: Callable[[int], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    def state(self) -> dict[str, Any]:
        """The state at this checkpoint: fresh containers, yours to change."""
        if self._load is None:
            raise RuntimeError("this checkpoint is detached from its database")
        return self._load(self.step)


@dataclass(frozen=True, slots=True)
class Branch:
    """A named, movable pointer; `step` is its head (None while nothing has been saved on it)."""

    name: str
    step: int | None
    owner: str | None = None


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
    """What is stored, for one tenant; `file_bytes` and `free_bytes` are the whole database's."""

    threads: int
    checkpoints: int
    checkpoint_bytes: int
    payload_bytes: int
    blobs: int
    blob_bytes: int
    items: int
    item_bytes: int
    file_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed, or would remove on a dry run."""

    threads: int
    checkpoints: int
    kept: int
    bytes: int
    dry_run: bool


def from_microseconds(stamp: int) -> datetime:
    """The stored form of a time (microseconds since 1970, UTC) as people use it."""
    seconds, micro = divmod(stamp, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micro)
