"""Effects: at most once by key, unknown when nobody knows, facts however late they come."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.errors import BadInput, EffectConflict, NoRun, Unserialisable
from clew.storage.ledger import ledger_of


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]
    turn: int


class Refused(Exception):
    pass


class Callee:
    """The other side: it keeps what was done to it, and answers as it is told to."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, str]] = []
        self.answers: list[Any] = []

    def __call__(self, amount: Any) -> str:
        self.done.append((amount, clew.call_key()))
        answer = self.answers.pop(0) if self.answers else f"receipt {len(self.done)}"
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)


def paying(callee: Callee, node: dict[str, Any] | None = None, **options: Any) -> clew.Agent:
    """An agent of one node with one effect."""
    agent = clew.Agent("pay", state=Trip)

    @clew.effect(key=lambda amount: ("charge", "trip-7"), **options)
    def charge(amount: Any) -> str:
        return callee(amount)

    @agent.node(**(node or {}))
    def pay(state: Trip) -> Any:
        return {"log": [charge(state.get("turn", 420))]}

    return agent


def states(db: clew.Database) -> list[tuple[int, str]]:
    return [(row.attempt, row.state) for row in ledger_of(db._storage).effects("trip-7")]


# -- at most once


def test_the_same_key_and_arguments_give_the_recorded_result(thread: clew.Thread) -> None:
    callee = Callee()
    agent = paying(callee)
    agent.run(thread)
    assert agent.run(thread).state["log"] == ["receipt 1", "receipt 1"]
    assert len(callee.done) == 1


def test_other_arguments_under_a_key_are_refused(thread: clew.Thread) -> None:
    callee = Callee()
    agent = paying(callee)
    agent.run(thread)
    with pytest.raises(EffectConflict, match="with other arguments") as raised:
        agent.run(thread, {"turn": 421})
    assert "make the arguments that tell two calls apart a part of it" in raised.value.hint
    assert len(callee.done) == 1


def test_the_spelling_of_a_call_does_not_matter(thread: clew.Thread) -> None:
    done: list[int] = []

    @clew.effect(key="mail")
    def mail(to: str, times: int) -> int:
        done.append(times)
        return len(done)

    @clew.agent
    def agent(state: Any) -> Any:
        return {"sent": [mail("a", 1), mail("a", times=1), mail(times=1, to="a")]}

    assert agent.run(thread).state == {"sent": [1, 1, 1]}


def test_a_turn_of_a_loop_is_one_effect_and_one_question(thread: clew.Thread) -> None:
    done: list[int] = []
    agent = clew.Agent("loop", state=Trip)
    turns = 6

    @clew.effect(key=lambda turn: ("charge", turn))
    def charge(turn: int) -> str:
        done.append(turn)
        return f"receipt {turn}"

    @agent.node(start=True, then=lambda state: "turn" if state["turn"] < turns else None)
    def turn(state: Trip) -> Any:
        receipt = charge(state["turn"])
        answer = clew.ask("Go on?", schema=str, id="next")
        return {"log": [(receipt, answer)], "turn": state["turn"] + 1}

    run = agent.run(thread, {"turn": 0})
    for number in range(turns):
        (request,) = run.requests
        request.answer(f"yes {number}", by="alice")
        agent.resume(thread)
    assert run.status == "done"
    assert run.state["log"] == [(f"receipt {number}", f"yes {number}") for number in range(turns)]
    assert done == list(range(turns))


def test_two_nodes_that_call_it_side_by_side_share_one_call(thread: clew.Thread) -> None:
    agent = clew.Agent("both", state=Trip)
    begun, done = threading.Barrier(2), []

    @clew.effect(key="charge")
    def charge() -> str:
        done.append(1)
        return "receipt"

    def add(name: str) -> None:
        @agent.node(name=name, start=True)
        def pay(state: Trip) -> Any:
            begun.wait()
            return {"log": [charge()]}

    add("one")
    add("two")
    assert agent.run(thread).state["log"] == ["receipt", "receipt"]
    assert done == [1]


def test_asynchronous_effects(thread: clew.Thread) -> None:
    agent = clew.Agent("both", state=Trip)
    done: list[str] = []

    @clew.effect(key=lambda what: what)
    async def charge(what: str) -> str:
        await asyncio.sleep(0)
        done.append(clew.call_key())
        return f"receipt for {what}"

    @agent.node
    async def pay(state: Trip) -> Any:
        return {"log": await asyncio.gather(charge("a"), charge("b"), charge("a"))}

    assert agent.run(thread).state["log"] == ["receipt for a", "receipt for b", "receipt for a"]
    assert len(done) == len(set(done)) == 2


# -- unknown


def test_a_timeout_is_asked_about_and_not_called_again(thread: clew.Thread, db: clew.Database) -> None:
    """The other side has done it, its answer was lost. The node's retries change nothing."""
    callee = Callee()
    callee.answers = [TimeoutError("no answer")]
    agent = paying(callee, {"retry": clew.Retry(attempts=5, delay=0)})
    run = agent.run(thread)
    assert run.status == "waiting"
    assert (len(callee.done), states(db)) == (1, [(1, "unknown")])
    (request,) = run.requests
    assert request.question["question"] == ("Was charge(amount=420) done? Nobody knows: TimeoutError: no answer.")
    assert request.question["arguments"] == {"amount": 420}
    assert agent.resume(thread).status == "waiting"
    request.answer({"done": "receipt 0"}, by="alice")
    assert agent.resume(thread).state["log"] == ["receipt 0"]
    assert (len(callee.done), states(db)) == (1, [(1, "done")])


def test_what_a_person_says_must_have_the_shape_of_a_result(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [TimeoutError("no answer")]
    (request,) = paying(callee).run(thread).requests
    for wrong in ({"done": 7}, {"done": None}, "done", {}, True, "reuse"):
        assert request.check(wrong) != []
    assert request.check({"done": "receipt"}) == request.check("again") == request.check("skip") == []


def test_a_result_that_a_person_tells_is_of_the_type_that_is_returned(thread: clew.Thread) -> None:
    @clew.effect(key="charge")
    def charge() -> Receipt:
        raise TimeoutError

    @clew.agent
    def agent(state: Any) -> Any:
        return {"number": charge().number}

    (request,) = agent.run(thread).requests
    request.answer({"done": {"number": 12}}, by="alice")
    assert agent.resume(thread).state == {"number": 12}


@clew.register("tests.Receipt")
@dataclass
class Receipt:
    number: int


def test_a_person_may_have_it_called_again(thread: clew.Thread, db: clew.Database) -> None:
    callee = Callee()
    callee.answers = [TimeoutError("no answer"), TimeoutError("again no answer")]
    agent = paying(callee)
    run = agent.run(thread)
    run.requests[0].answer("again", by="alice")
    run = agent.resume(thread)
    assert run.status == "waiting", "and is asked about anew"
    run.requests[0].answer("again", by="alice")
    assert agent.resume(thread).state["log"] == ["receipt 3"]
    assert states(db) == [(1, "unknown"), (2, "unknown"), (3, "done")]
    assert len({key for _, key in callee.done}) == 1, "the key that the other side gets is the same"


def test_a_person_may_go_on_without_it(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [TimeoutError("no answer")]
    agent = paying(callee)
    agent.run(thread).requests[0].answer("skip", by="alice")
    assert agent.resume(thread).state["log"] == [None]
    assert len(callee.done) == 1


def test_an_exception_that_is_declared_harmless_is_no_question(thread: clew.Thread, db: clew.Database) -> None:
    callee = Callee()
    callee.answers = [Refused("card declined")]
    agent = paying(callee, not_done=Refused)
    with pytest.raises(Refused):
        agent.run(thread)
    assert states(db) == [(1, "failed")]
    assert agent.resume(thread).state["log"] == ["receipt 2"], "it was not done, so it is called"
    assert states(db) == [(1, "failed"), (2, "done")]


def test_a_nodes_retry_calls_again_what_was_not_done(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [Refused("busy"), Refused("busy")]
    agent = paying(callee, {"retry": clew.Retry(attempts=3, delay=0)}, not_done=(Refused, KeyError))
    assert agent.run(thread).state["log"] == ["receipt 3"]


def test_retry_calls_again_with_the_same_key(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [TimeoutError(), TimeoutError()]
    agent = paying(callee, {"retry": clew.Retry(attempts=3, delay=0)}, on_unknown="retry")
    assert agent.run(thread).state["log"] == ["receipt 3"]
    assert len({key for _, key in callee.done}) == 1


def test_retry_is_the_nodes_not_the_effects(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [TimeoutError("no answer")]
    agent = paying(callee, on_unknown="retry")
    with pytest.raises(TimeoutError, match="no answer"):
        agent.run(thread)
    assert agent.resume(thread).state["log"] == ["receipt 2"]


@pytest.mark.parametrize("found", [clew.Done("found"), None])
def test_a_function_looks_for_itself(thread: clew.Thread, found: clew.Done | None) -> None:
    callee, looked = Callee(), []
    callee.answers = [TimeoutError("no answer")]

    def look(amount: int) -> clew.Done | None:
        looked.append((amount, clew.call_key()))
        return found

    agent = paying(callee, {"retry": clew.Retry(attempts=2, delay=0)}, on_unknown=look)
    assert agent.run(thread).state["log"] == ["found" if found else "receipt 2"]
    assert looked == callee.done[:1], "it is given what the effect was given, and its key"
    assert len(callee.done) == (1 if found else 2)


def test_what_looks_returns_an_answer(thread: clew.Thread) -> None:
    callee = Callee()
    callee.answers = [TimeoutError("no answer")]
    with pytest.raises(BadInput, match="returned bool") as raised:
        paying(callee, on_unknown=lambda amount: True).run(thread)
    assert "clew.Done(result)" in raised.value.hint


def test_a_result_that_cannot_be_stored_was_done_all_the_same(thread: clew.Thread) -> None:
    done: list[int] = []

    @clew.effect(key="charge")
    def charge() -> Any:
        done.append(1)
        return threading.Lock()

    @clew.agent
    def agent(state: Any) -> Any:
        return {"receipt": charge()}

    with pytest.raises(Unserialisable, match="charge returned"):
        agent.run(thread)
    assert agent.resume(thread).status == "waiting"
    assert done == [1]


# -- late


def test_a_late_result_is_taken(thread: clew.Thread, db: clew.Database) -> None:
    """The node ran out of time while the call went on. It is not called again: its result is waited for."""
    agent = clew.Agent("slow", state=Trip)
    answer, done = threading.Event(), []

    @clew.effect(key="charge")
    def charge() -> str:
        done.append(1)
        answer.wait()
        return "receipt"

    @agent.node(timeout=0.05)
    def pay(state: Trip) -> Any:
        return {"log": [charge()]}

    for _ in range(2):
        with pytest.raises(TimeoutError, match="node 'pay' took longer"):
            agent.run(thread) if not done else agent.resume(thread)
    assert states(db) != [(1, "done")]
    answer.set()
    assert paid(agent, thread)["log"] == ["receipt"]
    assert (done, states(db)) == ([1], [(1, "done")])


def paid(agent: clew.Agent, thread: clew.Thread) -> dict[str, Any]:
    """The state, once a resumed node was fast enough to see the result."""
    while True:
        try:
            return agent.resume(thread).state
        except TimeoutError:
            continue


def test_a_result_after_a_cancel_is_kept(thread: clew.Thread, db: clew.Database) -> None:
    agent = clew.Agent("slow", state=Trip)
    begun, answer = threading.Event(), threading.Event()

    @clew.effect(key="charge")
    def charge() -> str:
        begun.set()
        answer.wait()
        return "receipt"

    @agent.node
    def pay(state: Trip) -> Any:
        return {"log": [charge()]}

    running = threading.Thread(target=agent.run, args=(thread,))
    running.start()
    begun.wait()
    run = agent.cancel(db.thread("trip-7"))
    answer.set()
    running.join()
    assert run.status in ("cancelled", "done")
    assert states(db) == [(1, "done")]
    again = db.thread("trip-7")
    assert agent.run(again).state["log"][-1] == "receipt"


def test_an_asynchronous_call_that_is_cancelled_is_unknown(thread: clew.Thread, db: clew.Database) -> None:
    agent = clew.Agent("slow", state=Trip)
    done: list[int] = []

    @clew.effect(key="charge")
    async def charge() -> str:
        done.append(1)
        await asyncio.Event().wait()
        return "never"

    @agent.node(timeout=0.05, retry=clew.Retry(attempts=2, delay=0))
    async def pay(state: Trip) -> Any:
        return {"log": [await charge()]}

    run = agent.run(thread)
    assert (run.status, done, states(db)) == ("waiting", [1], [(1, "unknown")])


# -- within, and elsewhere


def test_an_effect_is_one_call(db: clew.Database) -> None:
    @clew.effect(key="inner")
    def inner() -> None: ...

    calls = {
        "effect": inner,
        "ask": lambda: clew.ask("Sure?"),
        "sleep": lambda: clew.sleep(1),
        "wait": lambda: clew.wait("paid"),
        "checkpoint": lambda: clew.checkpoint("here"),
    }

    @clew.effect(key=lambda what: what, not_done=BadInput)
    def outer(what: str) -> Any:
        clew.emit("calling")
        return calls[what]()

    @clew.agent
    def agent(state: Any) -> Any:
        return {"n": outer(state["what"])}

    for what in calls:
        with pytest.raises(BadInput, match="was called within the effect 'outer'"):
            agent.run(db.thread(what), {"what": what})
        assert list(db.requests(thread=what)) == []


def test_what_a_recorded_call_calls_is_counted_apart(thread: clew.Thread) -> None:
    calls: list[int] = []
    fail = [True]

    @clew.recorded
    def inner() -> int:
        calls.append(len(calls))
        return len(calls)

    @clew.recorded
    def outer() -> int:
        return inner()

    @clew.agent
    def agent(state: Any) -> Any:
        found = [outer(), inner()]
        if fail:
            fail.clear()
            raise RuntimeError
        return {"found": found}

    with pytest.raises(RuntimeError):
        agent.run(thread)
    assert agent.resume(thread).state == {"found": [1, 2]}
    assert len(calls) == 2


def test_outside_of_a_run() -> None:
    @clew.effect(key="charge")
    def charge() -> None: ...

    with pytest.raises(NoRun, match="the effect 'charge' was called outside of a run"):
        charge()


def test_a_key_is_of_the_thread_and_the_tenant(url: str) -> None:
    callee = Callee()
    agent = paying(callee)
    for tenant, thread_id in (("a", "t"), ("a", "u"), ("b", "t")):
        with clew.open(url, tenant=tenant) as db:
            agent.run(db.thread(thread_id))
    assert len({key for _, key in callee.done}) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_unknown": "call"},
        {"not_done": "TimeoutError"},
        {"not_done": (KeyboardInterrupt,)},
        {"compensate": "refund"},
    ],
    ids=str,
)
def test_declarations_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        clew.effect(lambda: None, key="k", **wrong)
    with pytest.raises(BadInput):
        clew.effect("charge", key="k")  # type: ignore[call-overload]


def test_a_key_that_is_none(thread: clew.Thread) -> None:
    @clew.effect(key=lambda: None)
    def charge() -> None: ...

    with pytest.raises(BadInput, match="is None"):
        clew.agent(lambda state: charge()).run(thread)


class Client:
    """What a function of a newcomer's is a method of, or gets as an argument."""

    @clew.recorded
    def read(self, what: str) -> str:
        return what

    @clew.recorded(key=lambda self, what: what)
    def keyed(self, what: str) -> str:
        return what

    @clew.effect(key=lambda self, what: what)
    def change(self, what: str) -> str:
        return what


def test_arguments_that_cannot_be_kept(thread: clew.Thread) -> None:
    def agent(call: Any) -> clew.Agent:
        made = clew.Agent("client")
        made.node(name="node")(lambda state: {"found": call(Client(), "it")})
        return made

    with pytest.raises(Unserialisable, match=r"clew.recorded\(key=…\)"):
        agent(Client.read).run(thread)
    with pytest.raises(Unserialisable, match="have the function find this itself"):
        agent(Client.change).run(thread)
    assert agent(Client.keyed).run(thread).state == {"found": "it"}
