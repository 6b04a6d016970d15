"""A thread is pruned while somebody deletes it, and another one takes its name."""

from __future__ import annotations

from typing import Any, cast

from clew.retention import ThreadRetention
from clew.storage.port import Storage


class Meanwhile:
    """A storage in which something happens right before checkpoints go, or blobs."""

    def __init__(self, storage: Storage, name: str, happens: Any) -> None:
        self._storage = storage
        self._name = name
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._happens()
        return getattr(self._storage, name)


def grown(db: Any, what: str) -> None:
    thread = db.thread("trip")
    for number in range(4):
        thread.save({"what": what, "n": number, "big": what * 50_000})


def test_the_new_thread_stays_as_it_is(db: Any) -> None:
    for name in ("forget", "forget_blobs"):
        grown(db, "old")

        def replace(name: str = name) -> None:
            db.delete("trip")
            grown(db, f"new {name}")

        storage = cast("Storage", Meanwhile(db._storage, name, replace))
        ThreadRetention(storage, db.tenant_name, "trip").prune(1, None, dry_run=False)
        assert [state["n"] for state in (cp.state() for cp in db.thread("trip").history())] == [3, 2, 1, 0]
        assert {cp.state()["what"] for cp in db.thread("trip").history()} == {f"new {name}"}
        db.delete("trip")
