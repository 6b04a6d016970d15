"""Leases as users meet them: what happens to one that could not be given back."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew.errors import Busy, StorageError


@pytest.fixture
def failing(db: clew.Database, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Switches the releasing of leases off and on: the database cannot be reached then."""
    storage = db._rows
    leasing = type(storage)._leasing

    def fail(*_: Any) -> Any:
        raise StorageError("the database is out of reach", retryable=True)

    def switch(*, off: bool) -> None:
        monkeypatch.setattr(type(storage), "_leasing", fail if off else leasing)

    return switch


def leave_one_behind(thread: clew.Thread, failing: Any) -> None:
    with pytest.raises(StorageError, match="out of reach"), thread.lease():
        failing(off=True)
    failing(off=False)


def test_a_lease_that_could_not_be_released_does_not_lock_this_process_out(db: clew.Database, failing: Any) -> None:
    thread = db.thread("t")
    thread.save({"n": 1})
    leave_one_behind(thread, failing)
    thread.save({"n": 2})
    leave_one_behind(thread, failing)
    with thread.edit(wait=0) as state:
        state["n"] = 3
    leave_one_behind(thread, failing)
    thread.rewind(2)
    leave_one_behind(thread, failing)
    db.delete("t")
    assert list(db.threads()) == []


def test_while_it_is_held_it_still_keeps_others_away(db: clew.Database, failing: Any) -> None:
    thread = db.thread("t")
    thread.save({"n": 1})
    leave_one_behind(thread, failing)
    with thread.lease():
        other = db.thread("t")
        state = other.state()
        for write in (
            lambda: other.save(state),
            lambda: other.update({"n": 2}),
            lambda: other.lease().__enter__(),
            lambda: other.rewind(1),
            lambda: db.delete("t"),
        ):
            with pytest.raises(Busy):
                write()


def test_the_next_beat_gives_it_back(url: str, tmp_path: Any, failing: Any, db: clew.Database) -> None:
    thread = db.thread("t")
    thread.save({"n": 1})
    leave_one_behind(thread, failing)
    with db.thread("u").lease():
        db._engine._beat()
        if url != "memory:":
            with clew.open(url) as other, other.thread("t").edit(wait=0) as state:
                state["n"] = 2
    assert db._engine._unreleased == set()


def test_a_lease_whose_commit_failed_is_not_held(db: clew.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.thread("t").save({"n": 1})
    storage = type(db._rows)
    taken: list[Any] = []
    take = storage._take

    def taken_and_undone(self: Any, *arguments: Any) -> Any:
        taken.append(take(self, *arguments))
        return taken[-1]

    hold = db._engine.hold

    def fail(*arguments: Any, held: bool) -> None:
        hold(*arguments, held=held)
        if held:
            raise StorageError("the commit failed")

    monkeypatch.setattr(storage, "_take", taken_and_undone)
    monkeypatch.setattr(db._engine, "hold", fail)
    with pytest.raises(StorageError, match="failed"):
        db.thread("t").lease().__enter__()
    monkeypatch.undo()
    assert len(taken) == 1
    assert db._engine.leases == set()
    with db.thread("t").edit(wait=0) as state:
        state["n"] = 2
