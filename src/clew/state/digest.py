"""Digests of values: what tells calls with other arguments apart. That of a list can be continued as the list grows."""

from __future__ import annotations

import hashlib
from typing import Any

from clew.state.codec import encode

SIZE = 16


class ListDigest:
    """The digest of a list, taken in pieces.

    >>> whole, parts = ListDigest(), ListDigest()
    >>> whole.take([1, "two", [3]])
    >>> parts.take([1]); parts.take(["two", [3]])
    >>> whole.value() == parts.value()
    True
    """

    __slots__ = ("_hash", "count")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()  # a megabyte of messages is common, and processors have this one built in
        self.count = 0

    def take(self, items: list[Any], path: str = "") -> None:
        """Items that follow. They must be what Clew can store; `path` names the list if one is not."""
        if items:
            self._hash.update(memoryview(encode(items, path=path))[_head(len(items)) :])
            self.count += len(items)

    def value(self) -> bytes:
        whole = self._hash.copy()
        whole.update(self.count.to_bytes(8))
        return whole.digest()[:SIZE]


def digest(value: Any, path: str = "") -> bytes:
    """The digest of a value that Clew can store; of a list, as `ListDigest` takes it."""
    if type(value) is list:
        taken = ListDigest()
        taken.take(value, path)
        return taken.value()
    return hashlib.sha256(encode(value, path=path)).digest()[:SIZE]


def _head(count: int) -> int:
    """Bytes before the items of an encoded list."""
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5
