"""The encoder for what ormsgpack refuses: the same bytes, in Python, with no recursion, and with paths for errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import ormsgpack

from clew.errors import Unserialisable
from clew.state import codec_format as f
from clew.state.codec_builtins import NotStorable, pairs
from clew.state.codec_special import reduce_special, refusal
from clew.state.codec_write import REDUCE, SORTED, SPILLED, Spill, Writer, interrupts
from clew.state.depth import contains_itself, too_deep
from clew.state.values import Blob, Opaque

_TRY_FAST = 8  # above this depth, parts are tried the fast way first


class _Open:
    """A container that is being written: what is left of it, and what its encoded parts will become."""

    __slots__ = ("at", "exts", "items", "keys", "labels", "lists", "parts", "tag", "value")

    def __init__(self, value: Any, tag: int | None, items: Iterable[Any], labels: str, lists: int, exts: int) -> None:
        self.value = value
        self.tag = tag  # None for a plain list or dict
        self.items: Iterator[Any] = iter(items)
        self.keys: list[bytes] | None = None  # a plain dict's keys, encoded
        self.parts: list[bytes] = []
        self.labels = labels
        self.lists = lists  # how many lists and dicts are open directly within each other
        self.exts = exts
        self.at: Any = None  # the key or index that is being written

    def close(self) -> bytes:
        if self.keys is not None:
            both = [part for pair in zip(self.keys, self.parts, strict=True) for part in pair]
            return f.map_header(len(self.parts)) + b"".join(both)
        if self.tag in SORTED:
            self.parts.sort()
        body = f.array_header(len(self.parts)) + b"".join(self.parts)
        return body if self.tag is None else f.ext(self.tag, body)


def encode_slowly(value: Any, *, path: str = "", spill: Spill | None = None, within: int = 0) -> bytes:
    """The same bytes as the fast way, for every value that can be stored; else the error that says where and why."""
    return _Slow(path, spill, within).encode(value)


class _Slow:
    def __init__(self, path: str, spill: Spill | None, within: int) -> None:
        self.path = path
        self.spill = spill
        self.within = within
        self.stack: list[_Open] = []
        self.open_ids: set[int] = set()

    def encode(self, value: Any) -> bytes:
        part = self._start(value)
        while True:
            if part is not None:
                if not self.stack:
                    return part
                self.stack[-1].parts.append(part)
            top = self.stack[-1]
            try:
                item = next(top.items)
            except StopIteration:
                part = self._finish()
                continue
            part = self._start(self._step(top, item))

    def _step(self, top: _Open, item: Any) -> Any:
        """Note where we are, and give the value there."""
        top.at, value = item
        return value

    def _finish(self) -> bytes:
        top = self.stack.pop()
        self.open_ids.discard(id(top.value))
        encoded = top.close()
        if top.tag is not None and top.exts > f.FREE_EXTS and f.nests_too_deep(encoded[-self._payload_size(top) :]):
            raise too_deep(self.where())
        return encoded

    @staticmethod
    def _payload_size(top: _Open) -> int:
        return len(f.array_header(len(top.parts))) + sum(map(len, top.parts))

    # --- one value ---

    def _start(self, value: Any) -> bytes | None:
        """The encoding of a leaf, or None after a container was opened."""
        cls = type(value)
        if cls is str or cls is bytes:
            return self._text(value)
        if value is None or cls is bool or cls is float or (cls is int and -(1 << 63) <= value < 1 << 64):
            return ormsgpack.packb(value)
        top = self.stack[-1] if self.stack else None
        lists, exts = (top.lists, top.exts) if top is not None else (0, self.within)
        if top is not None and len(self.stack) <= _TRY_FAST:
            fast = self._fast(value, lists, exts)
            if fast is not None:
                return fast
        if cls is list:
            self._open(_Open(value, None, enumerate(value), self._labels(top), lists + 1, exts))
            return None
        if cls is dict:
            self._open_dict(value, lists, exts)
            return None
        return self._reduced(value, exts)

    def _fast(self, value: Any, lists: int, exts: int) -> bytes | None:
        try:
            encoded = Writer(self.spill, exts).pack(value)
        except Exception:  # noqa: BLE001 - whatever it was, it is found again below, with its path
            if interrupts:
                raise interrupts.pop() from None
            return None
        return None if f.nests_too_deep(encoded, f.MAX_LISTS - lists) else encoded

    def _text(self, value: str | bytes) -> bytes:
        try:
            encoded = ormsgpack.packb(value)
        except TypeError:
            encoded = f.ext(f.STR, value.encode("utf-8", "surrogatepass"))  # type: ignore[union-attr]
        return self._spilled(encoded)

    def _spilled(self, encoded: bytes) -> bytes:
        if self.spill is None or len(encoded) <= f.SPILL_OVER or self._inside_key():
            return encoded
        return self.spill.leaf(encoded)

    def _inside_key(self) -> bool:
        return any(o.labels == "pairs" and o.at is not None and o.at[0] == "key" for o in self.stack)

    def _open_dict(self, value: dict[Any, Any], lists: int, exts: int) -> None:
        keys: list[bytes] | None = []
        try:
            for key in value:
                if type(key) is not str:
                    keys = None
                    break
                keys.append(ormsgpack.packb(key))  # type: ignore[union-attr]
        except TypeError:  # a lone surrogate
            keys = None
        if keys is None:
            self._open(_Open(value, f.DICT, _labelled_pairs(pairs(value)), "pairs", 1, exts + 1))
            return
        opened = _Open(value, None, value.items(), "key", lists + 1, exts)
        opened.keys = keys
        self._open(opened)

    def _reduced(self, value: Any, exts: int) -> bytes | None:
        cls = type(value)
        if cls is Opaque:
            return f.ext(value.tag, value.payload)
        if cls is Blob and self.spill is not None:
            return self.spill.blob(value)
        try:
            reduce = REDUCE.get(cls)
            reduced = reduce_special(value) if reduce is None else reduce(value)
        except (NotStorable, TypeError, ValueError, AttributeError, LookupError, RuntimeError) as error:
            name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
            where = self.where()
            raise Unserialisable(
                f"{where or 'the value'} is a {name} that cannot be stored: {error}", path=where
            ) from (error.__cause__ or error)
        if reduced is None:
            raise refusal(value, self.where())
        tag, payload = reduced
        if type(payload) is not list:
            encoded = f.ext(tag, payload)
            return self._spilled(encoded) if tag in SPILLED else encoded
        self._open(_Open(value, tag, _labelled(tag, payload), _labels_of(tag), 1, exts + 1))
        return None

    def _labels(self, top: _Open | None) -> str:
        """A model's extras are a list, but the value has no such list: its labels are left out."""
        return "quiet" if top is not None and top.labels == "object" else "index"

    def _open(self, opened: _Open) -> None:
        if id(opened.value) in self.open_ids:
            raise contains_itself(self.where())
        if opened.lists > f.MAX_LISTS or opened.exts > f.MAX_EXTS:
            raise too_deep(self.where())
        self.open_ids.add(id(opened.value))
        self.stack.append(opened)

    # --- where ---

    def where(self) -> str:
        """The path to the value that is being written."""
        path = self.path
        for opened in self.stack:
            path += _label(opened)
        return path.removeprefix(".")


def _label(opened: _Open) -> str:
    at, labels = opened.at, opened.labels
    if labels == "index":
        return f"[{at}]"
    if labels == "key":
        return step(at)
    if labels == "member":
        return "{…}"
    if labels == "pairs":
        side, key = at
        return "{key}" if side == "key" else step(key)
    return ""


def step(key: object) -> str:
    """One step of a path: `.when`, `["odd key"]`, `[3]`."""
    if type(key) is str:
        if key.isidentifier():
            return f".{key}"
        shown = key if len(key) <= 40 else f"{key[:40]}…"
        return '["' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"]'
    if type(key) in (int, bool, float, type(None), bytes):
        return f"[{repr(key)[:40]}]"
    return f"[<{type(key).__qualname__}>]"


def _labels_of(tag: int) -> str:
    if tag in (f.TUPLE, f.DEQUE):
        return "index"
    if tag in SORTED:
        return "member"
    if tag == f.ORDERED_DICT:
        return "pairs"
    return "object"


def _labelled(tag: int, payload: list[Any]) -> Iterable[tuple[Any, Any]]:
    if tag == f.ORDERED_DICT:
        return _labelled_pairs(payload)
    return enumerate(payload, -1 if tag == f.DEQUE else 0)


def _labelled_pairs(flat: list[Any]) -> Iterator[tuple[Any, Any]]:
    for at in range(0, len(flat), 2):
        yield ("key", flat[at]), flat[at]
        yield ("value", flat[at]), flat[at + 1]
