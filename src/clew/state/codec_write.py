"""From values to bytes: one call into ormsgpack, whose hook takes apart what is no JSON; the slow way for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import ormsgpack

from clew.state import codec_builtins as builtins
from clew.state import codec_format as f
from clew.state.codec_builtins import Reduced
from clew.state.codec_special import REDUCE_OWN, reduce_special
from clew.state.values import Blob, Opaque

REDUCE = builtins.REDUCE | REDUCE_OWN
SPILLED = frozenset({f.ARRAY, f.STR, f.BYTEARRAY})
SORTED = frozenset({f.SET, f.FROZENSET})

interrupts: list[BaseException] = []  # a KeyboardInterrupt inside the hook, which the C call swallows


class Spill(Protocol):
    """Takes large leaves out of the bytes: what its methods return stands in their place (a REF extension)."""

    def leaf(self, encoded: bytes) -> bytes:
        """For a str, bytes, bytearray or array whose own encoding is longer than SPILL_OVER."""
        ...

    def blob(self, blob: Blob) -> bytes:
        """For every Blob."""
        ...


class NeedsTheSlowWay(Exception):
    """ormsgpack would refuse this value, or not write it exactly."""


def hook(value: Any) -> Any:
    """What ormsgpack calls at the outermost level for each value that it does not write itself."""
    return Writer(None).hook(value)


class Writer:
    """One encoding the fast way: how many extension values are open, and where large leaves go."""

    __slots__ = ("depth", "spill")

    def __init__(self, spill: Spill | None, depth: int = 0) -> None:
        self.spill = spill
        self.depth = depth

    def pack(self, value: Any) -> bytes:
        """Encode, or NeedsTheSlowWay, or TypeError."""
        out = ormsgpack.packb(value, self.hook, f.OPTIONS)
        if (0xC4 in out or 0xC5 in out or 0xC6 in out) and holds_buffers(value):
            raise NeedsTheSlowWay
        if self.spill is not None and len(out) > f.SPILL_OVER and holds_large_leaves(value):
            raise NeedsTheSlowWay
        return out

    def hook(self, value: Any) -> Any:
        try:
            cls = type(value)
            reduce = REDUCE.get(cls)
            if reduce is not None:
                if cls is Blob and self.spill is not None:
                    return ormsgpack.Fragment(self.spill.blob(value))
                reduced: Reduced | None = reduce(value)
            elif cls is Opaque:
                return ormsgpack.Fragment(f.ext(value.tag, value.payload))
            else:
                reduced = reduce_special(value)
            tag, payload = reduced or _refuse()
            if type(payload) is list:
                payload = self._list(tag, payload)
            elif self.spill is not None and len(payload) > f.SPILL_OVER - 6 and tag in SPILLED:
                encoded = f.ext(tag, payload)
                return ormsgpack.Fragment(self.spill.leaf(encoded) if len(encoded) > f.SPILL_OVER else encoded)
            return ormsgpack.Ext(tag, payload)
        except Exception:
            raise
        except BaseException as interrupt:
            interrupts.append(interrupt)
            raise

    def _list(self, tag: int, parts: list[Any]) -> bytes:
        self.depth += 1
        if self.depth > f.MAX_EXTS:
            raise NeedsTheSlowWay
        if tag in SORTED:
            out = f.array_header(len(parts)) + b"".join(sorted(map(self.pack, parts)))
        else:
            out = self.pack(parts)
        if self.depth > f.FREE_EXTS and f.nests_too_deep(out):
            raise NeedsTheSlowWay
        self.depth -= 1
        return out


def _refuse() -> NoReturn:
    raise NeedsTheSlowWay


def holds_buffers(value: Any) -> bool:
    """Whether a bytearray or memoryview is in there, which ormsgpack would write as if it were bytes."""
    return _holds(value, _BUFFERS, None)


def holds_large_leaves(value: Any) -> bool:
    """Whether a leaf is in there that may be longer than SPILL_OVER when encoded."""
    return _holds(value, frozenset(), _large)


_BUFFERS = frozenset({bytearray, memoryview})
_TEXTS = frozenset({str, bytes})


def _large(items: Any) -> bool:
    return any(type(item) in _TEXTS and len(item) > f.SPILL_OVER // 4 - 8 for item in items)


def _holds(value: Any, wanted: frozenset[type], test: Callable[[Any], bool] | None) -> bool:
    """Look through the lists and dicts that ormsgpack writes itself; what the hook takes apart looks after itself."""
    waiting: list[Any] = [(value,)]
    while waiting:
        items = waiting.pop()
        types = set(map(type, items))
        if not types.isdisjoint(wanted) or (test is not None and test(items)):
            return True
        if list in types:
            waiting.extend(item for item in items if type(item) is list)
        if dict in types:
            waiting.extend(item.values() for item in items if type(item) is dict)
    return False
