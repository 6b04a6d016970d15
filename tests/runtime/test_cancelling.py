"""Cancelling, wherever a run is just then: what had finished is kept, and the thread takes the next message."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.storage.ledger import ledger_of
from clew.testing.points import storage_calls


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]


class Moment:
    """Cancels the run at the n-th place that its nodes come by."""

    def __init__(self, thread: clew.Thread, agent: clew.Agent, at: int) -> None:
        self._thread = thread
        self._agent = agent
        self._at = at
        self._lock = threading.Lock()
        self.passed = 0

    def come_by(self) -> None:
        with self._lock:
            self.passed += 1
            now = self.passed == self._at
        if now:
            self._agent.cancel(self._thread._db.thread(self._thread.id))


def sweeping(thread: clew.Thread, at: int) -> tuple[clew.Agent, Moment, dict[str, list[str]]]:
    """One node that ends, then three side by side that await and call all there is."""
    agent = clew.Agent("sweep", state=Trip)
    moment = Moment(thread, agent, at)
    ended: dict[str, list[str]] = {"begun": [], "over": []}
    siblings = threading.Event()

    @clew.recorded
    def model(what: str) -> str:
        moment.come_by()
        return f"reply to {what}"

    @clew.recorded
    async def amodel(what: str) -> str:
        await asyncio.sleep(0)
        moment.come_by()
        return f"reply to {what}"

    @clew.effect(key=lambda what: what)
    def change(what: str) -> str:
        moment.come_by()
        return f"changed {what}"

    @clew.effect(key=lambda what: what)
    async def achange(what: str) -> str:
        await asyncio.sleep(0)
        moment.come_by()
        return f"changed {what}"

    @agent.node(start=True, then=["quick", "plain", "awaiting"])
    def first(state: Trip) -> Any:
        return {"log": ["first"]}

    @agent.node
    def quick(state: Trip) -> Any:
        siblings.set()
        return {"log": ["quick"]}

    @agent.node
    def plain(state: Trip) -> Any:
        assert siblings.wait(10)
        ended["begun"].append("plain")
        moment.come_by()
        model("plain")
        moment.come_by()
        change("plain")
        moment.come_by()
        clew.checkpoint("plain", {"log": ["half"]})
        moment.come_by()
        clew.emit("plain")
        ended["over"].append("plain")
        return {"log": ["plain"]}

    @agent.node
    async def awaiting(state: Trip) -> Any:
        ended["begun"].append("awaiting")
        moment.come_by()
        await asyncio.sleep(0)
        await amodel("awaiting")
        moment.come_by()
        await asyncio.sleep(0)
        await achange("awaiting")
        moment.come_by()
        async with asyncio.TaskGroup() as group:
            group.create_task(amodel("one"))
            group.create_task(achange("two"))
        moment.come_by()
        await asyncio.to_thread(model, "threaded")
        moment.come_by()
        ended["over"].append("awaiting")
        return {"log": ["awaiting"]}

    return agent, moment, ended


def test_at_every_place(db: clew.Database) -> None:
    at, cancelled = 1, 0
    while True:
        thread = db.thread(f"trip-{at}")
        agent, moment, ended = sweeping(thread, at)
        run = agent.run(thread, {"log": []})
        log = thread.state()["log"]
        if moment.passed < at:
            assert run.status == "done"
            break
        assert run.status in ("cancelled", "done"), at
        cancelled += run.status == "cancelled"
        assert log[0] == "first"
        assert [name for name in ("plain", "awaiting") if name in log] == sorted(ended["over"], reverse=True), at
        assert "quick" in log, "it had finished, or came to its end while the others were stopped"
        # The next message begins anew, on what was kept.
        agent, moment, ended = sweeping(thread, 0)
        run = agent.run(thread, {"log": ["next"]})
        while run.status == "waiting":  # an effect was interrupted: nobody knows whether it was done
            for request in run.requests:
                assert request.question["effect"] == "achange"
                request.answer("again", by="alice")
            agent.resume(thread)
        assert run.status == "done"
        after = thread.state()["log"]
        assert after[: len(log) + 2] == [*log, "next", "first"]
        assert len(after) == len(log) + 2 + 4
        at += 1
    assert cancelled > 10


def test_what_siblings_had_finished_before_a_question_is_kept(thread: clew.Thread) -> None:
    agent = clew.Agent("ask", state=Trip)
    agent.node(name="quick", start=True)(lambda state: {"log": ["quick"]})
    agent.node(name="asks", start=True)(lambda state: {"log": [clew.ask("Sure?", schema=bool)]})
    run = agent.run(thread)
    assert (run.status, thread.state()) == ("waiting", {})
    assert agent.cancel(thread) == run
    assert (run.status, thread.state(), list(run.requests)) == ("cancelled", {"log": ["quick"]}, [])


@pytest.mark.parametrize("finished", [True, False])
def test_rounds_that_share_a_checkpoint_are_kept(thread: clew.Thread, *, finished: bool) -> None:
    agent = clew.Agent("long", state=Trip, checkpoint="run")
    agent.node(name="one", start=True, then=["two", "asks"])(lambda state: {"log": ["one"]})
    if finished:
        agent.node(name="two")(lambda state: {"log": ["two"]})
    else:
        agent.node(name="two")(lambda state: {"log": [clew.ask("Two?")]})
    agent.node(name="asks")(lambda state: {"log": [clew.ask("Sure?", schema=bool)]})
    agent.run(thread)
    assert thread.state() == {}
    assert agent.cancel(thread).status == "cancelled"
    assert thread.state()["log"][:1] == ["one"]


def test_a_claim_whose_call_is_not_made_any_more_is_given_up(thread: clew.Thread, db: clew.Database) -> None:
    """Cancelled between the claim and the call: it is known that nothing was done, so nobody is asked."""
    agent = clew.Agent("late", state=Trip)
    done: list[int] = []
    cancel = [True]

    def stored(name: str) -> None:
        if name == "claim" and cancel:
            cancel.clear()
            agent.cancel(db.thread(thread.id))

    @clew.effect(key="change")
    async def change() -> str:
        done.append(1)
        return "changed"

    @agent.node
    async def node(state: Trip) -> Any:
        return {"log": [await change()]}

    with storage_calls(lambda name: None, stored):
        assert agent.run(thread).status == "cancelled"
    assert ([row.state for row in ledger_of(db._storage).effects(thread.id)], done) == (["failed"], [])
    assert agent.run(thread).state == {"log": ["changed"]}
    assert done == [1]
