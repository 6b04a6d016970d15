"""Words for tests of storage: make a change, grow a thread, look at everything."""

# ruff: noqa: S101
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from clew.storage.port import Commit, Committed, Snapshot, Storage

STAMP = 1_700_000_000_000_000


class Engine(Protocol):
    """What opens tenants: one database."""

    def tenant(self, name: str) -> Storage: ...
    def close(self) -> None: ...


def change(base: int | None = None, lane: int = 0, /, **other: Any) -> Commit:
    """A commit to be, with everything that a test does not care about filled in. The id is fresh unless given."""
    values: dict[str, Any] = {
        "thread_id": "trip",
        "branch": "main",
        "id": f"id-{next(_numbers):08d}",
        "base": base,
        "lane": lane,
        "kind": "step",
        "label": None,
        "run": None,
        "next": None,
        "created": STAMP,
        "metadata": None,
        "manifest": b"manifest",
        "crc": 7,
        "payload": b"payload",
        "blobs": (),
        "key": None,
        "epoch": None,
        "release": False,
    }
    return Commit(**{**values, **other})


def _count() -> Iterable[int]:
    number = 0
    while True:
        number += 1
        yield number


_numbers = iter(_count())


def grow(storage: Storage, count: int, **other: Any) -> list[Committed]:
    """Commit `count` steps in a row on a branch that is empty."""
    done: list[Committed] = []
    for _ in range(count):
        base, lane = (done[-1].step, done[-1].lane) if done else (None, 0)
        done.append(storage.commit(change(base, lane, **other)))
    return done


def steps(storage: Storage, thread_id: str = "trip", branch: str = "main") -> list[int]:
    """The steps on a branch, newest first."""
    with storage.snapshot() as snapshot:
        head = snapshot.head(thread_id, branch)
        if head is None or head.row is None:
            return []
        return [row.step for row in snapshot.history(head.thread, head.row.step, 10_000)]


def names(storage: Storage, thread_id: str = "trip") -> dict[str, tuple[str, int | None]]:
    """The refs of a thread: name → (kind, step)."""
    with storage.snapshot() as snapshot:
        thread = snapshot.find_thread(thread_id)
        assert thread is not None
        return {ref.name: (ref.kind, ref.step) for ref in snapshot.refs(thread)}


def everything(storage: Storage) -> list[Any]:
    """All that a tenant can see, for "nothing has changed" comparisons."""
    with storage.snapshot() as snapshot:
        listed = snapshot.threads(order="id", after=None, limit=1000)
        found: list[Any] = [entry._replace(busy=False) for entry in listed]
        for entry in listed:
            found += [ref._replace(owner=None) for ref in snapshot.refs(entry.thread)]
            found += snapshot.rows(entry.thread, 0, 1000, manifests=True)
            found += snapshot.pieces(entry.thread, folded=False, after=0, limit=1000)
            found += snapshot.pieces(entry.thread, folded=True, after=0, limit=1000)
        return found


def thread_key(snapshot: Snapshot, thread_id: str = "trip") -> int:
    """The row key of a thread that exists."""
    thread = snapshot.find_thread(thread_id)
    assert thread is not None
    return thread
