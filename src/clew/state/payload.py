"""What a commit brings: items, bytes, slots and blobs, gathered by log until they are packed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from clew.state.layout import SLOT_LOG, lazy_ref, place_ref, slot_ref, value_ref
from clew.state.pieces import BYTES, ITEMS, Segment, pack
from clew.state.shadow import Place, Run
from clew.state.values import Blob


class Payload:
    """The new payload of one commit. Positions are given here; nothing is written."""

    def __init__(self, next_log: int, slot_tail: int) -> None:
        self._next_log = next_log
        self._slot_tail = slot_tail
        self._slots: list[bytes] = []
        self._items: dict[int, tuple[int, list[int], list[bytes]]] = {}
        self._bytes: dict[int, tuple[int, list[bytes]]] = {}
        self._refs = 0
        self.blobs: dict[str, bytes] = {}

    def payload(self, seal: int) -> bytes | None:
        """The commit's payload row, or None when the step brings nothing new."""
        segments: list[Segment] = []
        if self._slots:
            sizes = [len(item) << 1 for item in self._slots]
            segments.append((SLOT_LOG, ITEMS, self._slot_tail, sizes, b"".join(self._slots), False))
        for log, (start, sizes, items) in self._items.items():
            segments.append((log, ITEMS, start, sizes, b"".join(items), True))
        for log, (start, parts) in self._bytes.items():
            data = b"".join(parts)
            segments.append((log, BYTES, start, len(data), data, False))
        return pack(segments, seal) if segments else None

    def _next_slot(self) -> int:
        return self._slot_tail + len(self._slots)

    def _append_slot(self, data: bytes) -> bytes:
        """Keep an encoded value in a slot; returns what refers to it."""
        ref = slot_ref(0, self._next_slot())
        self._slots.append(data)
        self._refs += 1
        return ref

    def _new_log(self) -> int:
        log = self._next_log
        self._next_log += 1
        return log

    def _append_items(self, place: Place, items: Sequence[bytes], flags: Sequence[int]) -> tuple[Run, Place]:
        """Put items at the tail of the place's log; returns their run, and the place with its tail moved."""
        log, tail = (place.log, place.tail) if place.log else (self._new_log(), 0)
        sizes = [len(item) << 1 | flag for item, flag in zip(items, flags, strict=True)]
        self._log_items(log, tail, sizes, items)
        return (0, log, tail, len(items)), place._replace(log=log, tail=tail + len(items))

    def _log_items(self, log: int, tail: int, sizes: list[int], items: Sequence[bytes]) -> None:
        if log in self._items:
            self._items[log][1].extend(sizes)
            self._items[log][2].extend(items)
        else:
            self._items[log] = (tail, sizes, list(items))

    def _append_bytes(self, place: Place, data: bytes) -> tuple[Run, Place]:
        log, tail = (place.log, place.tail) if place.log else (self._new_log(), 0)
        if log in self._bytes:
            self._bytes[log][1].append(data)
        else:
            self._bytes[log] = (tail, [data])
        return (0, log, tail, len(data)), place._replace(log=log, tail=tail + len(data))

    def _ref(self, tag: int, place: Place) -> bytes:
        self._refs += 1
        return place_ref(tag, place)

    def _extended(self, place: Place, sizes: list[int], items: list[bytes]) -> Place:
        """The place with more items at its end."""
        runs, log, tail = place.runs, place.log, place.tail
        if not log:
            log, tail = self._new_log(), 0
        self._log_items(log, tail, sizes, items)
        count = len(sizes)
        if runs:
            lane, run_log, start, length = runs[-1]
            if lane == 0 and run_log == log and start + length == tail:
                return Place((*runs[:-1], (0, log, start, length + count)), log, tail + count)
        return Place((*runs, (0, log, tail, count)), log, tail + count)

    # codec.Spill: single leaves too large for a row

    def leaf(self, encoded: bytes) -> bytes:
        digest = blake2b(encoded, digest_size=32).hexdigest()
        self.blobs[digest] = encoded
        self._refs += 1
        return value_ref(digest)

    def blob(self, blob: Blob) -> bytes:
        if blob.digest not in self.blobs:
            self.blobs[blob.digest] = blob.read()
        self._refs += 1
        return lazy_ref(blob)
