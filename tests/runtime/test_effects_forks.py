"""Effects on forks: the same call is reused, a changed one is asked about, and nothing is called twice unasked."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.errors import EffectConflict
from clew.storage.ledger import ledger_of


class Trip(TypedDict, total=False):
    city: str
    amount: int
    log: Annotated[list[Any], clew.extend]
    turn: int


class World:
    """An agent that plans, pays (an effect) and asks whether to go on; and what was paid."""

    def __init__(self, key: Any = None) -> None:
        self.done: list[tuple[str, int]] = []
        self.agent = clew.Agent("trip", state=Trip)

        @clew.effect(key=key or (lambda city, amount: ("charge", "trip-7")))
        def charge(city: str, amount: int) -> str:
            self.done.append((city, amount))
            return f"receipt {len(self.done)} for {city}"

        @self.agent.node(start=True, then="pay")
        def plan(state: Trip) -> Any:
            return {"log": [f"plan for {state['city']}"]}

        @self.agent.node(then="confirm")
        def pay(state: Trip) -> Any:
            return {"log": [charge(state["city"], state["amount"])]}

        @self.agent.node
        def confirm(state: Trip) -> Any:
            return {"log": [clew.ask(f"Fine with {state['city']}?", schema=str, id="fine")]}


TOKYO: Any = {"city": "Tokyo", "amount": 420}


def by_city(city: str, amount: int) -> Any:
    return "charge", city


@pytest.fixture
def world() -> World:
    return World()


def pay_step(thread: clew.Thread) -> int:
    """The checkpoint before the payment."""
    return next(one.step for one in thread.history() if one.next == ("pay",))


@pytest.mark.parametrize("moved", ["fork", "rewind"])
def test_before_an_effect_with_the_same_state_it_is_reused(world: World, thread: clew.Thread, moved: str) -> None:
    run = world.agent.run(thread, TOKYO)
    if moved == "fork":
        other = world.agent.resume(thread.fork(pay_step(thread), branch="again"))
    else:
        run.cancel()
        other = world.agent.resume(thread, pay_step(thread))
    assert other.id != run.id
    assert other.state["log"] == ["plan for Tokyo", "receipt 1 for Tokyo"]
    assert [request.question for request in other.requests] == ["Fine with Tokyo?"]
    assert len(world.done) == 1


@pytest.mark.parametrize("key", [None, by_city], ids=["same key", "other key"])
@pytest.mark.parametrize("answer", ["reuse", "again", "skip"])
def test_before_an_effect_with_another_state_it_is_asked(thread: clew.Thread, key: Any, answer: str) -> None:
    world = World(key)
    origin = world.agent.run(thread, TOKYO)
    osaka = thread.fork(pay_step(thread), branch="osaka", update={"city": "Osaka"})
    run = world.agent.resume(osaka)
    assert (run.status, world.done) == ("waiting", [("Tokyo", 420)])
    (request,) = run.requests
    assert request.question["question"] == (
        "Call charge(city='Osaka', amount=420)? Past the point where this path began, another one has called "
        "charge(city='Tokyo', amount=420): 'receipt 1 for Tokyo'."
    )
    assert request.question["arguments"] == {"city": "Osaka", "amount": 420}
    assert [call["result"] for call in request.question["earlier"]] == ["receipt 1 for Tokyo"]
    assert request.choices == ("reuse", "again", "skip")
    request.answer(answer, by="alice")
    run = world.agent.resume(osaka)
    expected = {"reuse": "receipt 1 for Tokyo", "again": "receipt 2 for Osaka", "skip": None}[answer]
    assert run.state["log"] == ["plan for Tokyo", expected]
    assert len(world.done) == (2 if answer == "again" else 1)
    # The origin has its own result still, and goes on beside it.
    assert origin.state["log"] == ["plan for Tokyo", "receipt 1 for Tokyo"]
    for each, city in ((origin, "Tokyo"), (run, "Osaka")):
        each.requests[0].answer(f"{city} it is", by="alice")
    assert world.agent.resume(thread).state["log"][-1] == "Tokyo it is"
    assert world.agent.resume(osaka).state["log"][-1] == "Osaka it is"
    assert len(world.done) == (2 if answer == "again" else 1)
    shown = str(thread.diff("main", "osaka"))
    assert "Tokyo it is" in shown
    assert "Osaka it is" in shown


def test_after_an_effect_nothing_is_asked(world: World, thread: clew.Thread) -> None:
    world.agent.run(thread, TOKYO)
    other = world.agent.resume(thread.fork("head", branch="osaka", update={"city": "Osaka"}))
    assert [request.question for request in other.requests] == ["Fine with Osaka?"]
    assert other.state["log"] == ["plan for Tokyo", "receipt 1 for Tokyo"]
    assert len(world.done) == 1


def test_what_was_done_on_the_path_itself_is_a_conflict_still(world: World, thread: clew.Thread) -> None:
    run = world.agent.run(thread, TOKYO)
    run.requests[0].answer("yes", by="alice")
    world.agent.resume(thread)
    osaka = thread.fork("head", branch="osaka")
    with pytest.raises(EffectConflict):
        world.agent.run(osaka, {"city": "Osaka"})


@pytest.mark.parametrize("key", [None, by_city], ids=["same key", "other key"])
def test_a_new_input_on_a_fork_is_asked_about(thread: clew.Thread, key: Any) -> None:
    world = World(key)
    world.agent.run(thread, TOKYO)
    osaka = thread.fork(1, branch="osaka")
    run = world.agent.run(osaka, {"city": "Osaka"})
    (request,) = run.requests
    assert request.question["effect"] == "charge"
    assert len(world.done) == 1


def test_a_later_turn_of_a_fork_is_asked_about(thread: clew.Thread) -> None:
    """The first turn on the fork pays nothing; the second one would pay what the origin has paid."""
    agent, done = clew.Agent("chat", state=Trip), []

    @clew.effect(key=lambda city: ("charge", city))
    def charge(city: str) -> str:
        done.append(city)
        return f"receipt for {city}"

    @agent.node
    def turn(state: Trip) -> Any:
        return {"log": [charge(state["city"]) if state["turn"] else "shall I pay?"]}

    for branch, city in (("main", "Tokyo"), ("osaka", "Osaka")):
        on = thread if branch == "main" else thread.fork(1, branch=branch)
        agent.run(on, {"city": city, "turn": 0})
        run = agent.run(on, {"turn": 1})
    assert (run.status, done) == ("waiting", ["Tokyo"])
    run.requests[0].answer("again", by="alice")
    assert agent.resume(run.thread).state["log"][-1] == "receipt for Osaka"
    agent.run(run.thread, {"city": "Kyoto"})
    assert done == ["Tokyo", "Osaka", "Kyoto"], "each call of the origin is compared once"


def looping() -> tuple[clew.Agent, list[Any]]:
    agent, done = clew.Agent("loop", state=Trip), []

    @clew.effect(key=lambda city, turn: ("charge", city, turn))
    def charge(city: str, turn: int) -> str:
        done.append((city, turn))
        return f"{city} {turn}"

    @agent.node(start=True, then=lambda state: "turn" if state["turn"] < 3 else None)
    def turn(state: Trip) -> Any:
        return {"log": [charge(state["city"], state["turn"])], "turn": state["turn"] + 1}

    return agent, done


def test_a_loop_is_compared_call_by_call(thread: clew.Thread) -> None:
    agent, done = looping()
    agent.run(thread, {"city": "Tokyo", "turn": 0})
    osaka = thread.fork(2, branch="osaka", update={"city": "Osaka"})
    run = agent.resume(osaka)
    assert [call["result"] for call in run.requests[0].question["earlier"]] == ["Tokyo 1", "Tokyo 2"]
    run.requests[0].answer({"reuse": "('charge', 'Tokyo', 1)"}, by="alice")
    run = agent.resume(osaka)
    assert [call["result"] for call in run.requests[0].question["earlier"]] == ["Tokyo 2"]
    run.requests[0].answer("again", by="alice")
    assert agent.resume(osaka).state["log"] == ["Tokyo 0", "Tokyo 1", "Osaka 2"]
    assert done == [("Tokyo", 0), ("Tokyo", 1), ("Tokyo", 2), ("Osaka", 2)]


def test_a_call_that_nobody_knows_of_cannot_be_reused(thread: clew.Thread) -> None:
    world = World(by_city)
    fine = world.done.append

    def lost(paid: Any) -> None:
        fine(paid)
        raise TimeoutError("no answer")

    world.done = Paid(lost)
    assert world.agent.run(thread, TOKYO).status == "waiting"
    run = world.agent.resume(thread.fork(pay_step(thread), branch="osaka", update={"city": "Osaka"}))
    (request,) = run.requests
    assert request.choices == ("again", "skip")
    assert request.question["earlier"][0]["state"] == "unknown"


class Paid(list[Any]):
    def __init__(self, append: Any) -> None:
        self.append = append  # type: ignore[method-assign]


def test_the_question_stays_as_it_was_asked(world: World, thread: clew.Thread) -> None:
    """The origin does more meanwhile; the answer is to what was shown."""
    world.agent.run(thread, TOKYO)
    osaka = thread.fork(pay_step(thread), branch="osaka", update={"city": "Osaka"})
    run = world.agent.resume(osaka)
    number = run.requests[0].number
    kyoto = world.agent.resume(thread.fork(pay_step(thread), branch="kyoto", update={"city": "Kyoto"}))
    kyoto.requests[0].answer("again", by="alice")
    world.agent.resume(kyoto.thread)
    run.edit({"log": clew.extend(["a note"])})
    world.agent.resume(osaka)
    assert [request.number for request in run.requests] == [number]
    run.edit({"city": "Kobe"})
    world.agent.resume(osaka)
    assert [request.number for request in run.requests] != [number], "another call is another question"


def test_a_fork_of_a_claim_that_failed_is_not_asked(thread: clew.Thread, db: clew.Database) -> None:
    agent = clew.Agent("pay", state=Trip)
    cities: list[str] = []

    @clew.effect(key=lambda city: ("charge", city), not_done=ValueError)
    def charge(city: str) -> str:
        cities.append(city)
        if city == "Tokyo":
            raise ValueError("sold out")
        return city

    @agent.node
    def pay(state: Trip) -> Any:
        return {"log": [charge(state["city"])]}

    with pytest.raises(ValueError, match="sold out"):
        agent.run(thread, {"city": "Tokyo"})
    run = agent.resume(thread.fork("head", branch="osaka", update={"city": "Osaka"}))
    assert run.state["log"] == ["Osaka"]
    assert [row.state for row in ledger_of(db._storage).effects("trip-7")] == ["done", "failed"]


def test_pruned_checkpoints_do_not_make_a_fork_forget(thread: clew.Thread, db: clew.Database) -> None:
    agent, done = looping()
    agent.run(thread, {"city": "Tokyo", "turn": 0})
    osaka = thread.fork(2, branch="osaka", update={"city": "Osaka"})
    assert db.prune(keep_last=1).checkpoints
    run = agent.resume(osaka)
    assert run.requests[0].question["effect"] == "charge"
    assert len(done) == 3
