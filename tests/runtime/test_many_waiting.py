"""Threads that wait for a person: rows, and nothing else."""

from __future__ import annotations

import gc
import threading
from typing import Any

import clew
from clew.runtime.drive import Drive
from clew.runtime.executor import Held, live


def asking() -> clew.Agent:
    agent = clew.Agent("asking")

    @agent.node
    def ask(state: Any) -> dict[str, Any]:
        return {"answer": clew.ask(f"Go on with {state['n']}?", schema=bool, id="go")}

    return agent


def left(*kinds: type) -> list[Any]:
    """Objects of these types that somebody still holds."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, kinds)]


def test_what_waits_holds_nothing(db: clew.Database, long: bool) -> None:
    many = 10_000 if long else 300
    agent = asking()
    agent.run(db.thread("first"), {"n": -1})
    before, held = threading.active_count(), len(left(Held, Drive, clew.Thread))
    for n in range(many):
        agent.run(db.thread(f"t{n}"), {"n": n})
    assert not live
    assert not db._engine.leases
    assert len(left(Held, Drive, clew.Thread)) == held
    assert threading.active_count() <= before
    assert db.overview().requests == many + 1
    page = db.requests(limit=50)
    assert [request.question for request in page][:3] == [f"Go on with {n}?" for n in (-1, 0, 1)]
    page[7].answer(True, by="alice")
    assert agent.resume(db.thread("t6")).state["answer"] is True
