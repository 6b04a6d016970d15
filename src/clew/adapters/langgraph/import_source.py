"""What an import reads: the tables of LangGraph's savers, without its code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from clew.adapters.langgraph.import_values import Decoder


class Point(NamedTuple):
    """A checkpoint's place in its thread. `parent` is the id of the one it stands on."""

    ns: str
    id: str
    parent: str | None


class RawWrite(NamedTuple):
    """A row of pending writes, its value not read yet."""

    task: str
    idx: int
    path: str
    channel: str
    kind: str | None
    data: bytes | None


class Source(Protocol):
    """A LangGraph database. Nothing in it is changed."""

    name: str

    def threads(self) -> list[tuple[str, int]]:
        """The ids of all threads and how many checkpoints each has, that with the newest one last."""

    def thread(self, thread_id: str) -> AbstractContextManager[None]:
        """While this is open, what is read of the thread is of one moment."""

    def points(self, thread_id: str) -> list[Point]:
        """All checkpoints of a thread."""

    def lone_writes(self, thread_id: str) -> list[tuple[str, str]]:
        """Namespaces and ids of checkpoints that are not there, though writes of theirs are."""

    def checkpoint(self, thread_id: str, point: Point, decoder: Decoder) -> tuple[Any, Any]:
        """A checkpoint and its metadata. Raises `Undecodable`."""

    def writes(self, thread_id: str, ns: str, id_: str) -> Sequence[RawWrite]:
        """What tasks have finished with beside a checkpoint, in LangGraph's order."""

    def items(self) -> int:
        """How many items LangGraph's store has in this database."""

    def close(self) -> None: ...
