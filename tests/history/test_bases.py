"""What a save stands on: the checkpoint whose state its handle holds, and nothing that was only looked at or told."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import clew
from clew.errors import Busy, Conflict

LOOKS: dict[str, Callable[[clew.Thread], object]] = {
    "nothing": lambda thread: None,
    "head": lambda thread: thread.head,
    "history": lambda thread: list(thread.history()),
    "checkpoint": lambda thread: thread.checkpoint("head"),
    "an old state": lambda thread: thread.state("~1"),
    "the state of a checkpoint": lambda thread: thread.checkpoint("head").state(),
    "diff": lambda thread: thread.diff("~1", "head"),
    "update": lambda thread: thread.update({"told": True}),
    "rewind": lambda thread: (thread.state(), thread.rewind("~1")),
    "state, then update": lambda thread: (thread.state(), thread.update({"told": True})),
    "save, then update": lambda thread: (thread.save(thread.state()), thread.update({"told": True})),
    "edit, then update": lambda thread: (edit(thread), thread.update({"told": True})),
}


def edit(thread: clew.Thread) -> None:
    with thread.edit() as state:
        state["edited"] = True


@pytest.mark.parametrize("look", LOOKS)
def test_what_gives_no_base(db: clew.Database, look: str) -> None:
    first = db.thread("t")
    first.save({"n": 1})
    first.save({"n": 2})
    thread = db.thread("t")
    LOOKS[look](thread)
    before = db.thread("t").state()
    with pytest.raises(Conflict, match="has not read it") as caught:
        thread.save({"n": 3})
    assert caught.value.base is None
    assert caught.value.head == thread.head
    assert db.thread("t").state() == before
    state = thread.state()
    state["n"] = 3
    thread.save(state)
    assert db.thread("t").state() == {**before, "n": 3}


@pytest.mark.parametrize("wrote", ["state", "save", "edit", "parent"])
def test_what_gives_a_base(db: clew.Database, wrote: str) -> None:
    db.thread("t").save({"n": 1})
    thread = db.thread("t")
    parent = None
    if wrote == "state":
        thread.state()
    elif wrote == "save":
        thread.save({"n": 1}, parent="head")
    elif wrote == "edit":
        edit(thread)
    else:
        thread.update({"told": True})
        parent = "head"
    thread.save({"n": 2}, parent=parent)
    assert db.thread("t").state() == {"n": 2}


def test_an_edit_that_would_undo_what_its_block_wrote_is_a_conflict(db: clew.Database) -> None:
    thread = db.thread("t")
    thread.save({"n": 1})
    with pytest.raises(Conflict, match="within this edit") as caught, thread.edit() as state:  # noqa: PT012
        state["n"] = 2
        thread.save({"n": 3, "saved": True})
    assert (caught.value.base.step, caught.value.head.step) == (1, 2)
    assert db.thread("t").state() == {"n": 3, "saved": True}
    with pytest.raises(Conflict), thread.edit() as state:  # noqa: PT012
        state["n"] = 4
        thread.update({"told": True})
    assert db.thread("t").state() == {"n": 3, "saved": True, "told": True}
    with thread.edit() as state:
        state["n"] = 5
        thread.save(state)
        state["n"] = 6
    assert db.thread("t").state()["n"] == 6
    assert thread.head is not None
    assert thread.head.step == 5


def test_update_with_a_parent_that_was_rewound_to_keeps_to_it(db: clew.Database) -> None:
    thread = db.thread("t")
    for number in range(1, 4):
        thread.save({"n": number})
    thread.rewind(2)
    thread.update({"told": 1}, parent=2)
    assert thread.state() == {"n": 2, "told": 1}
    with pytest.raises(Conflict):
        db.thread("t").update({"told": 2}, parent=2)
    assert thread.state() == {"n": 2, "told": 1}


def test_a_key_gives_its_checkpoint_whatever_the_handle_has_read(db: clew.Database) -> None:
    thread = db.thread("t")
    first = thread.save({"n": 1}, key="k")
    thread.save({"n": 2})
    for again in (db.thread("t"), thread):
        found = again.save({"n": 9}, key="k")
        assert (found.step, found.id) == (first.step, first.id)
    with pytest.raises(Conflict) as caught:
        again.save({"n": 3})  # the handle holds what was written then
    assert (caught.value.base.step, caught.value.head.step) == (1, 2)
    assert thread.state() == {"n": 2}


def test_threads_that_share_a_handle_get_a_conflict_and_no_merge(db: clew.Database) -> None:
    thread = db.thread("t")
    thread.save({"by": []})
    both = threading.Barrier(4)
    saved: list[str] = []
    refused: list[str] = []

    def work(name: str) -> None:
        for number in range(5):
            mine = f"{name}-{number}"
            state = thread.state()
            if number == 0:
                both.wait(60)
            state["by"].append(mine)
            try:
                thread.save(state)
            except (Conflict, Busy):
                refused.append(mine)
            else:
                saved.append(mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    by = db.thread("t").state()["by"]
    assert sorted(by) == sorted(saved)
    assert len(by) + len(refused) == 20
    assert len(refused) >= 3, "all had read the same state before the first of them saved"


USES: dict[str, Callable[[clew.Thread], object]] = {
    "reads": lambda thread: thread.state(),
    "saves": lambda thread: thread.save({**thread.state(), "n": 3}),
    "tells": lambda thread: thread.update({"n": 3}),
    "edits": edit,
    "reads a blob": lambda thread: thread.state()["photo"].read(),
    "keeps a list of checkpoints": lambda thread: list(thread.history()),
}


@pytest.mark.parametrize("use", USES)
def test_a_handle_that_nobody_holds_takes_its_state_with_it(db: clew.Database, use: str) -> None:
    """At once: the garbage collector is for cycles, and comes late for a large state."""
    db.thread("t").save({"photo": clew.Blob(bytes(100_000)), "n": 1})
    thread = db.thread("t")
    gc.disable()
    try:
        kept = USES[use](thread), thread.head
        gone = weakref.ref(thread)
        del thread
        assert gone() is None, "and the checkpoints that are still held do not hold it"
    finally:
        gc.enable()
    assert kept[1] is not None
    assert kept[1].state()["n"] in (1, 3)
