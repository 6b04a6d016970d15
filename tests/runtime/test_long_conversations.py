"""A conversation whose every model call is recorded: a reply is stored once, and a late turn writes no more.

The figures of a thousand turns are measured by `scripts/bench` (bench/runtime.py).
"""

from __future__ import annotations

import random
import string
from typing import Annotated, Any, TypedDict

import clew


class Chat(TypedDict):
    messages: Annotated[list[str], clew.extend]


def text(size: int) -> str:
    return "".join(random.choices(string.ascii_letters, k=size))


def talk(db: clew.Database, turns: int, size: int) -> list[str]:
    @clew.recorded
    def model(messages: list[str]) -> str:
        return text(size)

    @clew.agent(state=Chat)
    def chat(state: Chat) -> Any:
        return {"messages": [model(state["messages"])]}

    thread = db.thread("t")
    return [chat.run(thread, {"messages": [text(size)]}).id for _ in range(turns)]


def test_a_recorded_reply_is_stored_once(db: clew.Database) -> None:
    """Beside the state while its node runs; in the commit that takes it into the state, the record goes."""
    turns, size = 40, 2000
    runs = talk(db, turns, size)
    with db._storage.snapshot() as snapshot:
        thread = snapshot.find_thread("t")
        assert thread is not None
        assert snapshot.records(thread, [f"run {run}" for run in runs]) == []
    usage = db.usage()
    assert usage.payload_bytes < 1.1 * 2 * turns * size


def test_a_reply_that_no_commit_has_taken_in_is_kept(db: clew.Database) -> None:
    """The negative control: until then, the record is there."""

    @clew.recorded
    def model() -> str:
        return text(2000)

    @clew.agent
    def chat(state: Any) -> Any:
        return {"reply": model(), "answer": clew.ask("?")}

    run = chat.run(db.thread("t"))
    with db._storage.snapshot() as snapshot:
        thread = snapshot.find_thread("t")
        assert thread is not None
        assert len(snapshot.records(thread, [f"run {run.id}"])) == 1


def test_a_late_turn_writes_no_more_than_an_early_one(db: clew.Database) -> None:
    talk(db, 10, 500)
    before = db.usage().payload_bytes + db.usage().checkpoint_bytes
    talk(db, 10, 500)
    early = db.usage().payload_bytes + db.usage().checkpoint_bytes - before
    talk(db, 150, 500)
    before = db.usage().payload_bytes + db.usage().checkpoint_bytes
    talk(db, 10, 500)
    late = db.usage().payload_bytes + db.usage().checkpoint_bytes - before
    assert late < 1.3 * early
