"""From the columns of the queries to checkpoints. Numbers that were never stored are `Corrupt`, not another value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clew.errors import Corrupt
from clew.model import KINDS
from clew.storage.port import Row

_LAST_THREAD = (1 << 31) - 1
_KIND = dict(enumerate(KINDS))


def full_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Checkpoints with manifests."""
    kinds, make = _KIND, Row._make
    try:
        return [make((*row[:4], kinds[row[4]], *row[5:])) for row in found]
    except KeyError as unknown:
        raise _unknown_kind(unknown) from None


def listed_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Checkpoints without manifests."""
    kinds, make = _KIND, Row._make
    try:
        return [make((*row[:4], kinds[row[4]], *row[5:10], b"", row[10])) for row in found]
    except KeyError as unknown:
        raise _unknown_kind(unknown) from None


def _unknown_kind(kind: KeyError) -> Corrupt:
    return Corrupt(f"a checkpoint is of the unknown kind {kind}")


def thread_key(stored: int) -> int:
    """A thread's key; checkpoints' keys are made of it, and have to fit into 63 bits."""
    if not 0 < stored <= _LAST_THREAD:
        raise Corrupt(f"a thread has the impossible key {stored}")
    return stored
