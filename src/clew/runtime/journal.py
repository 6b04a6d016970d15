"""The journal of a run: what its nodes and recorded calls have come to, until a checkpoint has taken it in.

Records stand beside the checkpoints of the thread, under the run's id. Those of a round go with the commit that ends
it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from clew.errors import Corrupt
from clew.state.codec import decode, encode
from clew.state.draft import Extend
from clew.state.seal import record_crc, seal_of
from clew.storage.changes import Change, Record, drop_records, set_record
from clew.storage.ledger import Entry
from clew.storage.port import Lease, Storage

_FINISHED = -1


class Journal:
    """Records of one run, or of whatever `place` names. Safe to use from the threads of its nodes."""

    def __init__(self, storage: Storage, tenant: str, thread_id: str, place: str, lease: Lease | None) -> None:
        self._storage = storage
        self._thread_id = thread_id
        self._seal = seal_of(tenant, thread_id)
        self._place = place
        self._lease = lease
        self._known: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read what an earlier attempt has left."""
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(self._thread_id)
            records = [] if thread is None else snapshot.records(thread, [self._place])
        for place, task, idx, path, name, value, _, crc in records:
            if crc != record_crc(self._seal, place, task, idx, path, name, value):
                raise Corrupt(f"a record of {task!r} of {self._place} does not match its checksum")
            self._known[task, idx] = bytes(value)

    def find(self, task: str, idx: int) -> bytes | None:
        return self._known.get((task, idx)) or None

    def keep(self, task: str, idx: int, value: bytes, name: str = "", beside: Sequence[Entry] = ()) -> None:
        """Write a record, and what goes with it; durable when this returns. `Fenced` when the run has passed on."""
        record = self.record(task, idx, value, name)
        branch, epoch = ("main", None) if self._lease is None else (self._lease.branch, self._lease.epoch)
        self._storage.apply(self._thread_id, [record, *beside], branch=branch, epoch=epoch)
        self.note(task, idx, value)

    def record(self, task: str, idx: int, value: bytes, name: str = "") -> Change:
        """The same, to ride on a commit; `note` it when that is written."""
        crc = record_crc(self._seal, self._place, task, idx, "", name, value)
        return set_record(Record(self._place, task, idx, "", name, value, None, crc))

    def void(self, task: str, idx: int) -> None:
        """Take a record back: an empty one stands for none."""
        if self.find(task, idx) is not None:
            self.keep(task, idx, b"")

    def note(self, task: str, idx: int, value: bytes) -> None:
        with self._lock:
            self._known[task, idx] = value

    # -- nodes

    def finished(self, task: str) -> dict[str, Any] | None:
        """The update of a task that has finished."""
        stored = self.find(task, _FINISHED)
        if stored is None:
            return None
        return unpack_update(stored)

    def finish(self, task: str, update: dict[str, Any], beside: Sequence[Entry] = ()) -> None:
        """Keep the update of a task, so that it is not run again."""
        self.keep(task, _FINISHED, pack_update(update, task), "finished", beside)

    # -- the end of a round

    def emptied(self) -> list[Change]:
        """What the commit that ends a round does with the records."""
        return [drop_records(self._place)] if self._known else []

    def forget(self) -> None:
        """The round has ended."""
        self._known = {}


def pack_update(update: dict[str, Any], path: str) -> bytes:
    """An update of the state, as stored until a checkpoint has taken it in."""
    plain = {key: value for key, value in update.items() if not isinstance(value, Extend)}
    extended = {key: value.items for key, value in update.items() if isinstance(value, Extend)}
    return encode({"set": plain, "extend": extended}, path=path)


def unpack_update(stored: bytes) -> dict[str, Any]:
    kept = decode(stored)
    return {**kept["set"], **{key: Extend(items) for key, items in kept["extend"].items()}}
