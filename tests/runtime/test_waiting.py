"""Questions, signals, time: a run waits without a process and goes on with what has come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest

import clew
from clew.errors import ActivationClosed, BadInput, Busy, Conflict, NoRun, Rejected, RequestExpired
from clew.storage.ledger import ledger_of


class Trip(TypedDict, total=False):
    messages: Annotated[list[str], clew.extend]
    paid: bool


@dataclass
class Approval:
    approved: bool
    note: str = ""


def booking() -> tuple[clew.Agent, list[str]]:
    calls: list[str] = []
    trip = clew.Agent("trip", state=Trip)

    @clew.recorded
    def model(text: str) -> str:
        calls.append(text)
        return f"plan for {text}"

    @trip.node(start=True, then="book")
    def plan(state: Trip) -> Any:
        return {"messages": [model(state["messages"][0])]}

    @trip.node
    def book(state: Trip) -> Any:
        price = model("the price")
        answer = clew.ask(f"Book: {price}?", schema=Approval, id="book")
        return {"messages": ["booked" if answer.approved else f"not booked: {answer.note}"], "paid": answer.approved}

    return trip, calls


def test_a_question_is_answered_and_the_node_goes_on(thread: clew.Thread, db: clew.Database) -> None:
    trip, calls = booking()
    run = trip.run(thread, {"messages": ["Tokyo"]})
    assert run.status == "waiting"
    (request,) = run.requests
    assert (request.question, request.thread_id, request.run) == ("Book: plan for the price?", "trip-7", run.id)
    assert trip.resume(thread).status == "waiting"  # nobody has answered: nothing is run
    request.answer(Approval(approved=True), by="alice")
    assert trip.resume(db.thread("trip-7")).state["messages"] == ["Tokyo", "plan for Tokyo", "booked"]
    assert calls == ["Tokyo", "the price"]
    assert run.status == "done"
    assert run.requests == []


def test_new_input_meanwhile_is_refused(thread: clew.Thread) -> None:
    trip, _ = booking()
    run = trip.run(thread, {"messages": ["Tokyo"]})
    with pytest.raises(Busy, match=f"belongs to run {run.id}, which is waiting"):
        trip.run(thread, {"messages": ["Osaka"]})
    assert len(thread.history()) == 2


def test_answers_in_any_order_reach_their_questions(thread: clew.Thread) -> None:
    agent = clew.Agent("three", state=Trip)
    ran: list[str] = []

    def asker(name: str) -> None:
        @agent.node(name=name, start=True)
        def ask(state: Trip) -> Any:
            ran.append(name)
            return {"messages": [f"{name}: {clew.ask(f'{name}?', schema=str)}"]}

    for name in "abc":
        asker(name)
    run = agent.run(thread, {"messages": []})
    requests = {request.question: request for request in run.requests}
    requests["c?"].answer("three", by="carol")
    assert agent.resume(thread).status == "waiting"
    assert len(run.requests) == 2
    requests["a?"].answer("one", by="alice")
    requests["b?"].answer("two", by="bob")
    assert agent.resume(thread).state["messages"] == ["a: one", "b: two", "c: three"]
    assert sorted(ran) == ["a", "a", "a", "b", "b", "b", "c", "c"]
    with pytest.raises(Conflict):
        requests["a?"].answer("another", by="dave")


def test_each_turn_of_a_loop_asks_its_own_question(thread: clew.Thread) -> None:
    agent = clew.Agent("loop", state=Trip)

    @agent.node(start=True, then=lambda state: "turn" if len(state["messages"]) < 4 else None)
    def turn(state: Trip) -> Any:
        return {"messages": [clew.ask("Next?", schema=str, id="next")]}

    run = agent.run(thread, {"messages": []})
    for number in range(4):
        (request,) = run.requests
        request.answer(str(number), by="alice")
        agent.resume(thread)
    assert run.state["messages"] == ["0", "1", "2", "3"]
    assert run.status == "done"


def test_several_questions_of_one_node(thread: clew.Thread) -> None:
    @clew.agent
    def form(state: Any) -> Any:
        return {"answers": [clew.ask("Again?", schema=bool) for _ in range(3)]}

    run = form.run(thread)
    for answer in (True, False, True):
        (request,) = run.requests
        request.answer(answer, by="alice")
        form.resume(thread)
    assert run.state == {"answers": [True, False, True]}


@pytest.mark.parametrize("how", ["gather", "group"])
def test_a_pause_among_tasks_cancels_and_awaits_the_others(thread: clew.Thread, how: str) -> None:
    ended: list[str] = []
    late: list[BaseException] = []
    agent = clew.Agent("tasks")

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                clew.checkpoint("late", {"late": True})
            except BaseException as error:
                late.append(error)
            ended.append("other")

    async def asks(name: str) -> str:
        return clew.ask(f"{name}?", schema=str)

    @agent.node
    async def both(state: Any) -> Any:
        if state.get("over"):
            ended.clear()
        if how == "gather":
            if not state.get("over"):
                answers = await asyncio.gather(asks("a"), asks("b"), other())
            else:
                answers = await asyncio.gather(asks("a"), asks("b"))
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(asks(name)) for name in "ab"]
                if not state.get("over"):
                    group.create_task(other())
            answers = [task.result() for task in tasks]
        return {"answers": list(answers)}

    run = agent.run(thread, {})
    assert run.status == "waiting"
    assert ended == ["other"]
    assert [type(error) for error in late] == [ActivationClosed]
    assert sorted(request.question for request in run.requests) == ["a?", "b?"]
    run.edit({"over": True})
    for request in run.requests:
        request.answer(request.question.upper(), by="alice")
    assert agent.resume(thread).state["answers"] == ["A?", "B?"]


def test_swallowing_the_signal_does_not_go_on(thread: clew.Thread) -> None:
    @clew.agent
    def stubborn(state: Any) -> Any:
        try:
            clew.ask("Sure?", schema=bool)
        except BaseException:
            return {"swallowed": True}

    run = stubborn.run(thread, {"n": 1})
    assert (run.status, run.state) == ("waiting", {"n": 1})


def test_an_exception_handler_of_the_node_does_not_see_it(thread: clew.Thread) -> None:
    @clew.agent
    def careful(state: Any) -> Any:
        try:
            return {"sure": clew.ask("Sure?", schema=bool)}
        except Exception:
            return {"swallowed": True}

    run = careful.run(thread)
    run.requests[0].answer(True, by="alice")
    assert careful.resume(thread).state == {"sure": True}


def test_edit_of_a_waiting_run(thread: clew.Thread) -> None:
    ran: list[str] = []
    agent = clew.Agent("edit", state=Trip)

    @agent.node(start=True)
    def sibling(state: Trip) -> Any:
        ran.append("sibling")
        return {"messages": ["sibling"]}

    @agent.node(start=True)
    def asks(state: Trip) -> Any:
        ran.append("asks")
        fine = clew.ask(f"{state['messages'][0]}?", schema=bool, id="city")
        same = clew.ask("Window seat?", schema=bool, id="seat") if fine else False
        return {"messages": [f"{state['messages'][0]} {fine} {same}"]}

    run = agent.run(thread, {"messages": ["Tokyo"]})
    (old,) = run.requests
    edited = run.edit({"messages": ["Osaka"]}, label="other city")
    assert (edited.kind, edited.label, edited.next) == ("edit", "other city", ("sibling", "asks"))
    assert agent.resume(thread).status == "waiting"
    (new,) = run.requests
    assert (new.question, new.number != old.number) == ("Osaka?", True)
    with pytest.raises(Conflict):
        old.answer(True, by="alice")
    new.answer(True, by="alice")
    agent.resume(thread)
    (seat,) = run.requests
    run.edit({"messages": clew.extend(["quickly"])})
    agent.resume(thread)
    assert run.requests == [seat]  # it came out the same
    seat.answer(False, by="alice")
    assert agent.resume(thread).state["messages"] == ["Osaka", "quickly", "sibling", "Osaka True False"]
    assert ran.count("sibling") == 1


def test_only_runs_that_do_nothing_can_be_edited(thread: clew.Thread) -> None:
    @clew.agent
    def once(state: Any) -> Any:
        return None

    with pytest.raises(Conflict, match="is done"):
        once.run(thread).edit({"n": 1})


def test_a_question_that_a_changed_node_does_not_ask_any_more_is_withdrawn(thread: clew.Thread) -> None:
    @clew.agent
    def maybe(state: Any) -> Any:
        return {"sure": True if state.get("sure") else clew.ask("Sure?", schema=bool)}

    run = maybe.run(thread)
    (request,) = run.requests
    run.edit({"sure": True})
    assert maybe.resume(thread).status == "done"
    assert thread._db.request(request.id).status == "withdrawn"


def test_gates_ask_before_a_node_begins(thread: clew.Thread) -> None:
    ran: list[str] = []
    agent = clew.Agent("gate")

    @agent.node(ask_before="Send the mail?")
    def send(state: Any) -> Any:
        ran.append("send")
        return {"sent": True}

    run = agent.run(thread)
    assert ([request.question for request in run.requests], ran) == (["Send the mail?"], [])
    run.requests[0].answer(True, by="alice")
    assert agent.resume(thread).state == {"sent": True}
    other = thread._db.thread("other")
    run = agent.run(other)
    run.requests[0].answer(False, by="alice")
    with pytest.raises(Rejected):
        agent.resume(other)
    assert ran == ["send"]


def test_a_default_decides_when_time_is_over(thread: clew.Thread) -> None:
    agent = clew.Agent("late")

    @agent.node(start=True)
    def ask(state: Any) -> Any:
        return {"seat": clew.ask("Seat?", schema=Literal["window", "aisle"], expires=0, default="aisle")}

    assert agent.run(thread).state == {"seat": "aisle"}

    @clew.agent
    def none(state: Any) -> Any:
        try:
            clew.ask("Seat?", schema=str, expires=0)
        except RequestExpired:
            return {"seat": None}

    assert none.run(thread._db.thread("other")).state == {"seat": None}


def test_signals(thread: clew.Thread, db: clew.Database) -> None:
    agent = clew.Agent("paid")

    @agent.node(start=True)
    def pay(state: Any) -> Any:
        return {"paid": clew.wait("paid:42")}

    db.signal("paid:7", "for somebody else")
    run = agent.run(thread)
    assert (run.status, agent.resume(thread).status) == ("waiting", "waiting")
    db.signal("paid:42", {"amount": 420}, key="psp-1")
    db.signal("paid:42", {"amount": 420}, key="psp-1")
    assert agent.resume(thread).state == {"paid": {"amount": 420}}
    assert agent.run(thread).status == "waiting"  # it was taken
    db.signal("paid:42", 2)
    assert agent.resume(thread).state == {"paid": 2}


def test_a_signal_that_does_not_come(thread: clew.Thread) -> None:
    @clew.agent
    def pay(state: Any) -> Any:
        try:
            return {"paid": clew.wait("paid:42", timeout=0)}
        except TimeoutError:
            return {"paid": None}

    assert pay.run(thread).state == {"paid": None}


def test_sleep_is_over_by_the_databases_clock(
    thread: clew.Thread, db: clew.Database, let_pass: Callable[[int], None]
) -> None:
    ran: list[int] = []

    @clew.agent
    def nap(state: Any) -> Any:
        ran.append(1)
        clew.sleep(3600)
        return {"rested": True}

    run = nap.run(thread)
    assert run.status == "sleeping"
    assert ledger_of(db._storage).due() == []
    assert nap.resume(thread).status == "sleeping"
    let_pass(3601)
    assert [row.id for row in ledger_of(db._storage).due()] == [run.id]
    assert nap.resume(thread).state == {"rested": True}


def test_outside_of_a_run() -> None:
    for call in (
        lambda: clew.ask("?"),
        lambda: clew.sleep(1),
        lambda: clew.wait("x"),
        lambda: clew.emit(1),
        clew.call_key,
    ):
        with pytest.raises(NoRun):
            call()
    assert clew.recorded(lambda: 7)() == 7


# -- cancelling


def test_cancelling_a_run_that_waits(thread: clew.Thread) -> None:
    trip, _ = booking()
    run = trip.run(thread, {"messages": ["Tokyo"]})
    (request,) = run.requests
    trip.cancel(thread)
    assert (run.status, run.requests) == ("cancelled", [])
    with pytest.raises(Conflict):
        request.answer(Approval(approved=True), by="alice")
    assert trip.run(thread, {"messages": ["Osaka"]}).status == "waiting"


def test_cancelling_keeps_what_has_finished(thread: clew.Thread) -> None:
    agent = clew.Agent("two", state=Trip)
    finished, begun = threading.Event(), threading.Event()

    @agent.node(start=True)
    def fast(state: Trip) -> Any:
        return {"messages": ["fast"]}

    @agent.node(start=True)
    async def slow(state: Trip) -> Any:
        begun.set()
        await asyncio.Event().wait()

    def listen() -> Iterator[None]:
        for event in agent.stream(thread, {"messages": []}):
            if event.kind == "update":
                finished.set()
            yield

    worker = threading.Thread(target=lambda: list(listen()))
    worker.start()
    assert finished.wait(10)
    assert begun.wait(10)
    run = agent.cancel(thread._db.thread("trip-7"))
    worker.join(10)
    assert (run.status, run.state) == ("cancelled", {"messages": ["fast"]})
    head = thread.head
    assert head is not None
    assert (head.label, head.next) == ("cancelled", ("fast", "slow"))


def test_a_plain_node_stops_at_its_next_call(thread: clew.Thread) -> None:
    begun, go_on = threading.Event(), threading.Event()
    reached: list[str] = []

    @clew.agent
    def plain(state: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        clew.emit("still here?")
        reached.append("beyond")

    worker = threading.Thread(target=lambda: plain.run(thread))
    worker.start()
    assert begun.wait(10)
    run = plain.cancel(thread._db.thread("trip-7"))
    go_on.set()
    worker.join(10)
    assert (run.status, reached) == ("cancelled", [])


def test_bad_questions(thread: clew.Thread) -> None:
    cases = ({"approvals": 0}, {"schema": {"frobnicate": 1}}, {"schema": bool, "expires": 5, "default": "x"})
    for number, bad in enumerate(cases):
        agent = clew.Agent("bad")
        agent.node(name="ask")(lambda state, bad=bad: {"n": clew.ask("?", **bad)})
        with pytest.raises(BadInput):
            agent.run(thread._db.thread(f"t{number}"))


def test_a_run_that_waits_stands_on_its_last_checkpoint(thread: clew.Thread) -> None:
    agent, ran = clew.Agent("two"), []

    @agent.node(start=True, then="asks")
    def plans(state: Any) -> Any:
        ran.append("plans")
        return {"plan": "Tokyo"}

    @agent.node
    def asks(state: Any) -> Any:
        return {"answer": clew.ask(f"{state['plan']}?", schema=str)}

    run = agent.run(thread)
    assert (run.step, run.state) == (2, {"plan": "Tokyo"})
    run.edit({"plan": "Osaka"})
    assert agent.resume(thread).requests[0].question == "Osaka?"
    assert ran == ["plans"], "an edit changes the state, not where the run stands"


@pytest.mark.parametrize("how", ["rewind", "resume", "delete"])
def test_a_waiting_run_whose_branch_goes_elsewhere_is_over(thread: clew.Thread, db: clew.Database, how: str) -> None:
    agent, ran = clew.Agent("two"), []

    @agent.node(start=True, then="asks")
    def plans(state: Any) -> Any:
        ran.append(state["city"])
        return {"plan": state["city"]}

    @agent.node
    def asks(state: Any) -> Any:
        return {"answer": clew.ask(f"{state['plan']}?", schema=str)}

    thread.save({"city": "Kyoto"})
    branch = thread.fork("head", branch="other")
    run = agent.run(branch, {"city": "Tokyo"})
    (request,) = run.requests
    branch.rewind("head")
    assert run.status == "waiting", "it stands where it stood"
    if how == "delete":
        thread.delete_branch("other")
    elif how == "rewind":
        branch.rewind(1)
    else:
        again = agent.resume(branch, ref=2)
        assert again != run
        assert (again.status, ran) == ("waiting", ["Tokyo", "Tokyo"])
    assert (run.status, db.request(request.id).status) == ("cancelled", "withdrawn")
    with pytest.raises(Conflict):
        request.answer("yes", by="alice")
    if how == "rewind":
        assert agent.run(branch, {"city": "Osaka"}).requests[0].question == "Osaka?"
