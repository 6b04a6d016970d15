"""What the PostgreSQL tests have in common: steps that carry a nonce, and reading back what a thread holds."""

from __future__ import annotations

import secrets
from typing import Any

from clew.storage.port import Commit, Committed, Storage


def step(base: Committed | None = None, **values: Any) -> Commit:
    """A step on top of `base`, whose payload is a nonce of its own."""
    given: dict[str, Any] = {
        "thread_id": "t",
        "branch": "main",
        "id": secrets.token_hex(11),
        "base": base.step if base else None,
        "lane": base.lane if base else 0,
        "kind": "step",
        "label": None,
        "run": None,
        "next": None,
        "created": 1_700_000_000_000_000,
        "metadata": None,
        "manifest": b"manifest",
        "crc": 7,
        "payload": secrets.token_bytes(16),
        "blobs": [],
        "key": None,
        "epoch": None,
        "release": False,
    }
    return Commit(**{**given, **values})


def nonces(storage: Storage, thread_id: str = "t") -> list[bytes]:
    """The payload along the branch `main`, oldest first; each checkpoint must be there, and nothing else."""
    with storage.snapshot() as snapshot:
        head = snapshot.head(thread_id, "main")
        if head is None or head.ref.step is None:
            return []
        path = [row.step for row in reversed(snapshot.history(head.thread, head.ref.step, 10_000))]
        rows = snapshot.rows(head.thread, 0, 10_000, manifests=True)
        pieces = snapshot.pieces(head.thread, folded=False, after=0, limit=10_000)
    assert path == [row.step for row in rows] == [piece.step for piece in pieces] == list(range(1, len(path) + 1))
    return [piece.data for piece in pieces]
