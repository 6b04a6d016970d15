"""Cancelling with `compensate=True`: what was done is undone, newest first, at most once, wherever the process dies."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.errors import BadInput, RunNotFound
from clew.runtime import undoing
from clew.storage.ledger import Want, ledger_of
from clew.testing.outside import Fault, Outside, do, say
from clew.testing.points import storage_calls
from outsiders import Ground


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]


class World:
    """What was done, and undone, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: list[BaseException] = []

    def say(self, what: str) -> str:
        self.log.append(what)
        if self.errors:
            raise self.errors.pop(0)
        return f"receipt for {what}"


def booking(world: World, *, after: Any = None, asynchronous: bool = False) -> clew.Agent:
    """A flight, a hotel, and something that cannot be undone; then `after`."""
    agent = clew.Agent("trip", state=Trip)

    def cancel(result: str, what: str, nights: int = 1) -> None:
        assert result == f"receipt for {what}"
        world.say(f"cancel {what} {nights}")

    async def cancel_async(result: str, what: str, nights: int = 1) -> None:
        await asyncio.sleep(0)
        cancel(result, what, nights)

    @clew.effect(key=lambda what, nights=1: what, compensate=cancel_async if asynchronous else cancel)
    def book(what: str, nights: int = 1) -> str:
        return world.say(what)

    @clew.effect(key="mail")
    def mail() -> str:
        return world.say("mail")

    @agent.node(start=True, then="hotel")
    def flight(state: Trip) -> Any:
        return {"log": [book("flight"), mail()]}

    @agent.node
    def hotel(state: Trip) -> Any:
        found = book("hotel", nights=3)
        if after is not None:
            after()
        return {"log": [found, clew.ask("Go on?", schema=bool)]}

    return agent


def states(db: clew.Database) -> dict[str, str]:
    return {f"{row.key} #{row.attempt}": row.state for row in ledger_of(db._storage).effects("trip-7")}


DONE = ["flight", "mail", "hotel"]
UNDONE = ["cancel hotel 3", "cancel flight 1"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_waiting_run_is_undone_newest_first(thread: clew.Thread, db: clew.Database, *, asynchronous: bool) -> None:
    world = World()
    agent = booking(world, asynchronous=asynchronous)
    run = agent.run(thread)
    assert (run.status, world.log) == ("waiting", DONE)
    again = agent.cancel(thread, compensate=True)
    assert (again, again.status, world.log) == (run, "cancelled", DONE + UNDONE)
    assert states(db) == {
        "flight #1": "compensated",
        "hotel #1": "compensated",
        "mail #1": "done",
        "undo flight #1 #1": "done",
        "undo hotel #1 #1": "done",
    }
    assert list(db.requests()) == []
    assert thread.state()["log"] == ["receipt for flight", "receipt for mail"], "what had finished stays"
    with pytest.raises(RunNotFound):
        agent.cancel(thread, compensate=True)


def test_nothing_is_undone_unasked(thread: clew.Thread, db: clew.Database) -> None:
    world = World()
    agent = booking(world)
    agent.run(thread)
    assert agent.cancel(thread).status == "cancelled"
    assert world.log == DONE
    assert set(states(db).values()) == {"done"}


def test_what_was_undone_is_done_anew_when_it_comes_again(thread: clew.Thread, db: clew.Database) -> None:
    world = World()
    agent = booking(world)
    agent.run(thread)
    agent.cancel(thread, compensate=True)
    world.log.clear()
    agent.run(thread)
    assert world.log == ["flight", "hotel"], "mail was never undone: its result is taken"
    agent.cancel(thread, compensate=True)
    assert world.log == ["flight", "hotel", *UNDONE]


def test_a_run_that_failed_can_be_undone(thread: clew.Thread) -> None:
    def fail() -> None:
        raise ValueError("no room")

    world = World()
    agent = booking(world, after=fail)
    with pytest.raises(ValueError, match="no room"):
        agent.run(thread)
    with pytest.raises(RunNotFound):
        agent.cancel(thread)
    assert agent.cancel(thread, compensate=True).status == "cancelled"
    assert world.log == DONE + UNDONE


@pytest.mark.parametrize("failed", [False, True])
def test_word_is_left_for_whoever_has_the_code(thread: clew.Thread, db: clew.Database, *, failed: bool) -> None:
    world = World()

    def fail() -> None:
        if failed:
            raise ValueError("no room")

    agent = booking(world, after=fail)
    try:
        agent.run(thread)
    except ValueError:
        assert failed
    run = db.runs()[0]
    run.cancel(compensate=True)
    assert (run.status, run.info.wanted, world.log) == ("paused" if failed else "waiting", "compensate", DONE)
    assert agent.resume(thread).status == "cancelled"
    assert world.log == DONE + UNDONE


def test_whoever_drives_a_run_undoes_it(thread: clew.Thread, db: clew.Database) -> None:
    world, reached, go_on = World(), threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go_on.wait(10)

    agent = booking(world, after=hold)
    driving = threading.Thread(target=agent.run, args=(thread,))
    driving.start()
    assert reached.wait(10)
    run = agent.cancel(db.thread("trip-7"), compensate=True)
    go_on.set()
    driving.join(10)
    assert (run.status, world.log) == ("cancelled", DONE + UNDONE)


def test_what_nobody_knows_is_asked_before_it_is_undone(thread: clew.Thread, db: clew.Database) -> None:
    world = World()
    agent = booking(world)
    world.errors = [TimeoutError("no answer")]
    assert agent.run(thread).status == "waiting", "nobody knows whether the flight was booked"
    run = agent.cancel(thread, compensate=True)
    assert (run.status, world.log) == ("waiting", ["flight"])
    (request,) = run.requests
    assert request.question["question"] == (
        "Was book(what='flight') done? Its run is cancelled, and what was done is undone."
    )
    assert agent.resume(thread).status == "waiting", "not due before somebody has answered"
    request.answer({"done": "receipt for flight"}, by="alice")
    assert agent.resume(thread).status == "cancelled"
    assert world.log == ["flight", "cancel flight 1"]


def test_what_was_not_done_is_not_undone(thread: clew.Thread, db: clew.Database) -> None:
    world = World()
    agent = booking(world)
    world.errors = [TimeoutError("no answer")]
    agent.run(thread)
    agent.cancel(thread, compensate=True).requests[0].answer("not done", by="alice")
    assert agent.resume(thread).status == "cancelled"
    assert (world.log, states(db)) == (["flight"], {"flight #1": "failed"})


@pytest.mark.parametrize("answer", [{"done": None}, "again", "skip"])
def test_an_undoing_that_nobody_knows_of_is_asked_about(thread: clew.Thread, db: clew.Database, answer: Any) -> None:
    world = World()
    agent = booking(world)
    agent.run(thread)
    world.errors = [TimeoutError("no answer")]
    run = agent.cancel(thread, compensate=True)
    assert (run.status, world.log) == ("waiting", [*DONE, "cancel hotel 3"])
    (request,) = run.requests
    assert request.question["question"].startswith("Was undo book(result='receipt for hotel', what='hotel', nights=3)")
    request.answer(answer, by="alice")
    assert agent.resume(thread).status == "cancelled"
    again = ["cancel hotel 3"] * (answer == "again")
    assert world.log == [*DONE, "cancel hotel 3", *again, "cancel flight 1"]
    assert states(db)["hotel #1"] == ("done" if answer == "skip" else "compensated")


def test_an_effect_that_this_process_does_not_know_pauses_the_undoing(thread: clew.Thread, db: clew.Database) -> None:
    from clew.runtime import effects

    world = World()
    agent = booking(world)
    agent.run(thread)
    known = effects.declared.pop("book")
    with pytest.raises(BadInput, match="knows no effect 'book'") as raised:
        agent.cancel(thread, compensate=True)
    assert "import the module that declares it" in raised.value.hint
    run = db.runs()[0]
    assert (run.status, run.error.type_name) == ("paused", "BadInput")  # type: ignore[union-attr]
    effects.declared["book"] = known
    assert agent.resume(thread).status == "cancelled"
    assert world.log == DONE + UNDONE


def test_awaited(url: str) -> None:
    async def work() -> None:
        world = World()
        agent = clew.aio.Agent.of(booking(world, asynchronous=True))
        async with clew.aio.open(url, durability="relaxed") as db:
            thread = db.thread("trip-7")
            run = await agent.run(thread)
            assert await run.status == "waiting"
            assert await (await agent.cancel(thread, compensate=True)).status == "cancelled"
            assert world.log == DONE + UNDONE
            run = await agent.run(thread)
            await run.cancel(compensate=True)
            assert await (await agent.resume(thread)).status == "cancelled"
            assert world.log == DONE + UNDONE + ["flight", "hotel"] + UNDONE

    asyncio.run(work())


def test_a_weaker_word_does_not_take_the_place_of_a_stronger(thread: clew.Thread, db: clew.Database) -> None:
    agent = booking(World())
    run = agent.run(thread)
    ledger = ledger_of(db._storage)
    for word, left in (("cancel", "cancel"), ("compensate", "compensate"), ("cancel", "compensate"), (None, None)):
        ledger.apply("trip-7", [Want(run.id, word)])
        assert (run.status, run.info.wanted) == ("waiting", left)


# -- killed


def outside_agent() -> clew.Agent:
    agent = clew.Agent("trip", state=Trip)

    def cancel(result: str, what: str) -> None:
        do(f"cancel {what}")

    @clew.effect(key=lambda what: what, compensate=cancel)
    def book(what: str) -> str:
        return do(what)

    @agent.node
    def both(state: Trip) -> Any:
        return {"log": [book("flight"), book("hotel"), clew.ask("Go on?")]}

    return agent


class Process:
    def __init__(self, ground: Ground, *, plain: bool = False) -> None:
        self.ground = ground
        self.plain = plain

    def run(self) -> str:
        with self.ground.open() as db:
            return outside_agent().run(db.thread("trip-7")).status

    def undo(self) -> str:
        """Cancel the run, or go on with that; told at each write."""
        if self.plain:
            undoing.called = lambda of: of.fn  # type: ignore[attr-defined]
        with (
            storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")),
            self.ground.open() as db,
        ):
            agent, thread = outside_agent(), db.thread("trip-7")
            run = db.runs()[0]
            if run.status == "cancelled":
                return "cancelled"
            if run.info.wanted is None:
                return agent.cancel(thread, compensate=True).status
            return agent.resume(thread).status

    def answer(self, value: Any) -> Any:
        def work() -> None:
            with self.ground.open() as db:
                (request,) = db.requests(status="open")
                request.answer(value, by="alice")

        return work

    def look(self) -> Any:
        with self.ground.open() as db:
            return {f"{row.key} #{row.attempt}": row.state for row in ledger_of(db._storage).effects("trip-7")}


def test_undoing_that_is_no_effect_is_done_twice(ground: Ground) -> None:
    """The negative control."""
    process = Process(ground, plain=True)
    with Outside() as outside:
        outside.live(process.run)
        outside.live(process.undo, Fault("do:cancel hotel"))
        outside.live(process.undo)
        assert outside.done == ["flight", "hotel", "cancel hotel", "cancel hotel", "cancel flight"]


def test_killed_while_undoing(ground: Ground, long: bool) -> None:
    """Killed at the n-th write, and at each call: nothing is undone twice, nothing is left, and only what nobody knows
    is asked."""
    faults = [Fault(f"do:cancel {what}") for what in ("flight", "hotel")]
    step = 1 if long else 3
    faults += [Fault(when, number) for when in ("storing", "stored") for number in range(1, 20, step)]
    struck = 0
    for fault in faults:
        process = Process(ground)
        with Outside() as outside:
            assert outside.live(process.run).value == "waiting"
            ended = outside.live(process.undo, fault)
            struck += fault.struck
            status = ended.value if ended.how == "returned" else outside.live(process.undo).value
            while status == "waiting":
                asked = [word for word in outside.done if word.startswith("cancel")]
                claims = outside.live(process.look).value
                unknown = [key for key, state in claims.items() if state == "unknown"]
                assert len(unknown) == 1
                what = unknown[0].split()[1]
                outside.live(process.answer({"done": None} if f"cancel {what}" in asked else "again"))
                status = outside.live(process.undo).value
            assert status == "cancelled", (fault, ended)
            assert outside.done == ["flight", "hotel", "cancel hotel", "cancel flight"], fault
            assert outside.live(process.look).value["flight #1"] == "compensated"
            outside.live(lambda: ground.open().delete("trip-7"))
    assert struck > 8


def test_a_run_that_is_rolled_back_is_undone(thread: clew.Thread, db: clew.Database) -> None:
    """By the input that takes its place: that one begins when all is undone, on what was there before."""
    world = World()
    agent = booking(world)
    agent.run(thread, {"log": ["first"]})
    world.errors = [TimeoutError("no answer")]
    second = db.submit(agent, thread, {"log": ["second"]}, if_busy="rollback")
    clew.Worker(db, [agent]).run(until_idle=True)
    first = db.runs()[1]
    assert (first.status, second.status) == ("waiting", "queued"), "nobody knows whether the hotel was given back"
    assert world.log == [*DONE, "cancel hotel 3"]
    first.requests[0].answer({"done": None}, by="alice")
    clew.Worker(db, [agent]).run(until_idle=True)
    assert (first.status, second.status) == ("cancelled", "waiting")
    assert world.log == [*DONE, *UNDONE, "flight", "hotel"]
    assert thread.state()["log"] == ["second", "receipt for flight", "receipt for mail"]
