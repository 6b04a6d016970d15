"""From columns of queries to checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clew.model import KINDS
from clew.storage.port import Row


def listed_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    kinds, make = KINDS, Row._make
    return [make((*row[:4], kinds[row[4]], *row[5:10], b"", row[10])) for row in found]


def full_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Checkpoints with manifests, from the columns of the queries."""
    kinds, make = KINDS, Row._make
    return [make((*row[:4], kinds[row[4]], *row[5:])) for row in found]
