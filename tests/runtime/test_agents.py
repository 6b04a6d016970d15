"""Agents: states, updates, edges, joins, sends, errors. What a run writes, and what it refuses."""

from __future__ import annotations

import asyncio
import copy
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

import clew
from clew.errors import ActivationClosed, BadInput, Busy, NotFound


class Trip(TypedDict, total=False):
    messages: Annotated[list[str], clew.extend]
    paid: bool
    notes: Annotated[dict[str, str], clew.merge]
    total: Annotated[int, lambda old, new: old + new]


def steps(thread: clew.Thread) -> list[tuple[int, str, str | None, tuple[str, ...]]]:
    return [(cp.step, cp.kind, cp.label, cp.next) for cp in reversed(thread.history())]


def test_one_checkpoint_for_the_input_and_one_for_each_round(thread: clew.Thread) -> None:
    trip = clew.Agent("trip", state=Trip)

    @trip.node(start=True, then="book")
    def plan(state: Trip) -> Any:
        return {"messages": [f"plan for {state['messages'][0]}"]}

    @trip.node
    def book(state: Trip) -> Any:
        return {"paid": True}

    run = trip.run(thread, {"messages": ["Tokyo"]})
    assert run.status == "done"
    assert run.state == {"messages": ["Tokyo", "plan for Tokyo"], "paid": True}
    assert steps(thread) == [
        (1, "input", None, ("plan",)),
        (2, "step", "plan", ("book",)),
        (3, "step", "book", ()),
    ]
    assert {cp.run for cp in thread.history()} == {run.id}
    assert thread.state(2) == {"messages": ["Tokyo", "plan for Tokyo"]}
    assert (run.step, run.agent, run.error, run.thread.id) == (3, "trip", None, "trip-7")


def test_a_thread_goes_on_with_its_state(thread: clew.Thread) -> None:
    @clew.agent(state=Trip)
    def chat(state: Trip) -> Any:
        return {"messages": [f"reply {len(state['messages'])}"]}

    for number in range(3):
        run = chat.run(thread, {"messages": [f"turn {number}"]})
    assert run.state["messages"] == ["turn 0", "reply 1", "turn 1", "reply 3", "turn 2", "reply 5"]
    # another handle, which has kept nothing
    again = chat.run(run.thread, {"messages": ["turn 3"]})
    assert again.state["messages"][-1] == "reply 7"


def test_what_a_handle_kept_is_not_used_once_the_branch_has_moved(thread: clew.Thread, db: clew.Database) -> None:
    @clew.agent
    def count(state: dict[str, Any]) -> Any:
        return {"n": state["n"] + 1}

    assert count.run(thread, {"n": 0}).state == {"n": 1}
    other = db.thread("trip-7")
    state = other.state()
    state["n"] = 10
    other.save(state)
    assert count.run(thread).state == {"n": 11}
    other.rewind(2)
    assert count.run(thread).state == {"n": 2}


@dataclass
class Plan:
    city: str
    days: int = 3
    log: Annotated[list[str], clew.extend] = field(default_factory=list)


class Model(pydantic.BaseModel):
    city: str
    days: int = 3
    log: Annotated[list[str], clew.extend] = []


@pytest.mark.parametrize("kind", [Plan, Model])
def test_states_that_are_classes(thread: clew.Thread, kind: type) -> None:
    agent = clew.Agent("plan", state=kind)

    @agent.node(start=True, then="more")
    def first(state: Any) -> Any:
        assert isinstance(state, kind)
        return {"log": [f"{state.city} for {state.days}"]}

    @agent.node
    def more(state: Any) -> Any:
        assert state.log == [f"{state.city} for {state.days}"]
        return {"days": 4}

    assert agent.run(thread, {"city": "Osaka"}).state == {"city": "Osaka", "log": ["Osaka for 3"], "days": 4}
    assert agent.run(db_thread(thread, "second"), kind(city="Nara", days=1)).state["days"] == 4


def db_thread(thread: clew.Thread, name: str) -> clew.Thread:
    return thread._db.thread(name)


def test_updates_of_a_round_are_reduced_in_the_order_of_the_nodes(thread: clew.Thread) -> None:
    agent = clew.Agent("wide", state=Trip)
    release = threading.Event()

    @agent.node(start=True)
    def slow(state: Trip) -> Any:
        assert release.wait(10)
        return {"messages": ["slow"], "notes": {"a": "slow"}, "total": 1}

    @agent.node(start=True)
    def fast(state: Trip) -> Any:
        release.set()
        return {"messages": ["fast"], "notes": {"a": "fast", "b": "fast"}, "total": 2}

    run = agent.run(thread, {"messages": [], "total": 10})
    assert run.state == {"messages": ["slow", "fast"], "notes": {"a": "fast", "b": "fast"}, "total": 13}
    assert steps(thread)[-1] == (2, "step", "slow, fast", ())


def test_two_writers_of_a_key_without_a_reducer_are_named(thread: clew.Thread) -> None:
    agent = clew.Agent("wide")

    @agent.node(start=True)
    def one(state: Any) -> Any:
        return {"n": 1}

    @agent.node(start=True)
    def two(state: Any) -> Any:
        return {"n": 2}

    with pytest.raises(BadInput, match="'one' and 'two' both write 'n'"):
        agent.run(thread)
    assert thread.head is not None
    assert thread.head.kind == "input"


def test_joins_wait_for_all_and_sends_fan_out(thread: clew.Thread) -> None:
    agent = clew.Agent("map", state=Trip)

    @agent.node(start=True, then=lambda state: [clew.Send("fetch", city) for city in state["messages"]])
    def split(state: Trip) -> Any:
        return None

    @agent.node(then="left")
    def fetch(city: str) -> Any:
        return {"notes": {city: city.upper()}}

    @agent.node
    def left(state: Trip) -> Any:
        return {"messages": [",".join(sorted(state["notes"]))]}

    @agent.node(start=True)
    def aside(state: Trip) -> Any:
        return {"total": 1}

    @agent.node(after=["left", "aside"])
    def end(state: Trip) -> Any:
        return {"paid": True}

    run = agent.run(thread, {"messages": ["a", "b"]})
    assert run.state == {"messages": ["a", "b", "a,b"], "notes": {"a": "A", "b": "B"}, "total": 1, "paid": True}
    assert [step[2] for step in steps(thread)] == [None, "split, aside", "fetch", "left", "end"]


def test_a_function_chooses_what_follows(thread: clew.Thread) -> None:
    agent = clew.Agent("loop")

    @agent.node(start=True, then=lambda state: "step" if state["n"] < 3 else None)
    def step(state: Any) -> Any:
        return {"n": state["n"] + 1}

    assert agent.run(thread, {"n": 0}).state == {"n": 3}


def test_too_many_rounds_fail_and_can_be_gone_on_with(thread: clew.Thread) -> None:
    def make(rounds: int) -> clew.Agent:
        agent = clew.Agent("loop", max_rounds=rounds)

        @agent.node(start=True, then=lambda state: "step" if state["n"] < 5 else None)
        def step(state: Any) -> Any:
            return {"n": state["n"] + 1}

        return agent

    with pytest.raises(BadInput, match="3 rounds without an end"):
        make(3).run(thread, {"n": 0})
    assert thread.state() == {"n": 3}
    assert make(30).resume(thread).state == {"n": 5}


def test_a_threads_name_is_no_thread() -> None:
    agent = clew.Agent("any")
    agent.node(name="any")(lambda state: {})
    for call in (agent.run, agent.resume, agent.cancel):
        with pytest.raises(BadInput, match=r"runs on a thread of a database, not on 'trip-7' \(db\.thread"):
            call("trip-7")  # type: ignore[arg-type]


def test_a_state_whose_types_cannot_be_read_says_which() -> None:
    class Local(TypedDict):
        items: Missing  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(BadInput, match="'Missing' in Local is not known where that was defined"):
        clew.Agent("local", state=Local)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda agent: None, "has no nodes"),
        (lambda agent: [node(agent, "a"), node(agent, "b")], "has no start"),
        (lambda agent: [node(agent, "plan", start=True, then="bok"), node(agent, "book")], "did you mean 'book'"),
        (lambda agent: [node(agent, "a", start=True, then="b"), node(agent, "b", then="a")], "has no end"),
        (lambda agent: [node(agent, "a", start=True), node(agent, "b")], "nothing leads to node 'b'"),
        (lambda agent: [node(agent, "a", start=True), node(agent, "b", after=["x"])], "comes after 'x'"),
        (lambda agent: [node(agent, "a", start=True, then=lambda state: "x")], "chose 'x'"),
        (lambda agent: [node(agent, "a", start=True, then=lambda state: 7)], "chose 7"),
        (lambda agent: [node(agent, "a"), node(agent, "a")], "has a node 'a' already"),
        (lambda agent: [node(agent, "a", gives=7)], "node 'a' gave int"),
        (lambda agent: [node(agent, "a", then=7)], "then=7 says nothing"),
        (lambda agent: [node(agent, "a", then=[7])], "then=.7. says nothing"),
        (lambda agent: [node(agent, "a", timeout="5")], "not a number of seconds"),
        (lambda agent: [node(agent, "a", timeout=0)], "not a number of seconds"),
        (lambda agent: [node(agent, "a", retry="3")], "attempts counts from 1"),
        (lambda agent: [node(agent, "a", ask_before=7)], "neither True nor a question"),
        (lambda agent: [agent.node(name="a")(generating)], "not a plain or async function"),
        (lambda agent: [node(agent, "a", gives=Lazy("abc"))], "takes a list of items"),
        (lambda agent: [node(agent, "a", gives=Lazy(None))], "takes a list of items"),
        (lambda agent: [node(agent, "a", gives={"mesages": 1})], "did you mean 'messages'"),
        (lambda agent: [node(agent, "a", gives={"messages": 1})], "extended by lists"),
    ],
)
def test_bad_agents_say_what_to_do(thread: clew.Thread, build: Any, words: str) -> None:
    agent = clew.Agent("bad", state=Trip)
    with pytest.raises(BadInput, match=words):
        built(agent, build).run(thread, {"messages": []})


def generating(state: Any) -> Any:
    yield {}


class Lazy:
    """What a node returns, made when it runs."""

    def __init__(self, items: Any) -> None:
        self.items = items


def built(agent: clew.Agent, build: Any) -> clew.Agent:
    build(agent)
    return agent


def node(agent: clew.Agent, name: str, gives: Any = None, **options: Any) -> None:
    agent.node(name=name, **options)(
        lambda state: {"messages": clew.extend(gives.items)} if isinstance(gives, Lazy) else gives
    )


def test_a_node_that_changes_the_state_in_place_is_refused_and_nothing_is_lost(thread: clew.Thread) -> None:
    agent = clew.Agent("careless")

    @agent.node(start=True)
    def careless(state: Any) -> Any:
        state["messages"].append({"role": "assistant"})
        return {"n": 1}

    with pytest.raises(BadInput, match=r"changed state\['messages'\] in place"):
        agent.run(thread, {"messages": [{"role": "user"}] * 10})
    assert thread.state() == {"messages": [{"role": "user"}] * 10}

    @agent.node(name="other", start=True)
    def deep(state: Any) -> Any:
        state["messages"][3]["role"] = "system"

    with pytest.raises(BadInput, match="in place"):
        agent.run(thread)
    assert thread.state() == {"messages": [{"role": "user"}] * 10}


def test_errors_carry_where_they_happened_and_resume_tries_again(thread: clew.Thread) -> None:
    failing = [True]
    ran: list[str] = []
    agent = clew.Agent("flaky", state=Trip)

    @agent.node(start=True, then="end")
    def fine(state: Trip) -> Any:
        ran.append("fine")
        return {"messages": ["fine"]}

    @agent.node(start=True)
    def flaky(state: Trip) -> Any:
        ran.append("flaky")
        if failing:
            raise ValueError("no luck")
        return {"messages": ["flaky"]}

    @agent.node
    def end(state: Trip) -> Any:
        return {"paid": True}

    with pytest.raises(ValueError, match="no luck") as caught:
        agent.run(thread, {"messages": []})
    (note,) = caught.value.__notes__
    assert "in node 'flaky' of run run-" in note
    assert "after step 1" in note
    run = thread._db.runs(thread="trip-7")[0]
    assert (run.status, run.error.message, run.error.type_name) == ("failed", "no luck", "ValueError")
    failing.clear()
    again = agent.resume(thread)
    assert again == run
    assert again.state == {"messages": ["fine", "flaky"], "paid": True}
    assert sorted(ran) == ["fine", "flaky", "flaky"]


def test_retries_of_a_node(thread: clew.Thread) -> None:
    tries: list[int] = []

    agent = clew.Agent("again")

    @agent.node(retry=clew.Retry(attempts=3, delay=0, on=(OSError,)))
    def flaky(state: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return {"n": len(tries)}

    assert agent.run(thread).state == {"n": 3}
    tries[:] = [1, 1, 1, 1]
    agent = clew.Agent("wrong")

    @agent.node(retry=5)
    def wrong(state: Any) -> Any:
        tries.append(1)
        raise BadInput("this does not mend itself")

    with pytest.raises(BadInput, match="mend itself"):
        agent.run(thread)
    assert len(tries) == 5


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_a_node_that_takes_too_long(thread: clew.Thread, flavour: str) -> None:
    agent = clew.Agent("slow")
    late: list[Any] = []
    over = threading.Event()
    tried = threading.Event()

    def try_late() -> None:
        over.wait(10)
        try:
            clew.checkpoint("late", {"n": 1})
        except BaseException as error:
            late.append(error)
        tried.set()

    if flavour == "sync":

        @agent.node(timeout=0.01)
        def slow(state: Any) -> Any:
            try_late()
    else:

        @agent.node(timeout=0.01)
        async def slow(state: Any) -> Any:
            threading.Thread(target=clew.bind(try_late)).start()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"'slow' took longer than 0\.01 s"):
        agent.run(thread, {"n": 0})
    over.set()
    assert tried.wait(10)
    assert [type(error) for error in late] == [ActivationClosed]
    assert thread.state() == {"n": 0}


def test_async_nodes_run_side_by_side_on_a_loop_of_ours(thread: clew.Thread) -> None:
    agent = clew.Agent("async", state=Trip)
    both = asyncio.Barrier(2)

    @agent.node(start=True)
    async def one(state: Trip) -> Any:
        await both.wait()
        return {"messages": ["one"]}

    @agent.node(start=True)
    async def two(state: Trip) -> Any:
        await both.wait()
        return {"messages": ["two"]}

    assert agent.run(thread, {"messages": []}).state == {"messages": ["one", "two"]}


def test_the_same_key_is_the_same_run(thread: clew.Thread) -> None:
    ran: list[int] = []

    @clew.agent
    def once(state: Any) -> Any:
        ran.append(1)
        return {"n": len(ran)}

    first = once.run(thread, key="order-1")
    again = once.run(thread, {"ignored": True}, key="order-1")
    assert (first, again.state, ran) == (again, {"n": 1}, [1])
    assert once.run(thread, key="order-2") != first


@pytest.mark.parametrize("key", ["", 7, "a\nb"])
def test_a_key_that_tells_nothing_apart_is_refused(thread: clew.Thread, key: Any) -> None:
    @clew.agent
    def chat(state: Any) -> Any:
        return {"n": 1}

    with pytest.raises(BadInput, match="key"):
        chat.run(thread, {}, key=key)
    assert thread.head is None


def test_nothing_to_resume_says_so_and_a_finished_run_is_returned(thread: clew.Thread) -> None:
    @clew.agent
    def once(state: Any) -> Any:
        return {"n": 1}

    with pytest.raises(NotFound, match="nothing is to be resumed"):
        once.resume(thread)
    run = once.run(thread)
    assert once.resume(thread) == run
    assert len(thread.history()) == 2


def test_a_branch_that_is_held_is_busy(thread: clew.Thread) -> None:
    @clew.agent
    def once(state: Any) -> Any:
        return {"n": 1}

    with thread.lease(), pytest.raises(Busy):
        once.run(thread._db.thread("trip-7"))
    assert thread.head is None
    assert once.run(thread).status == "done"


def test_one_checkpoint_for_a_whole_run(thread: clew.Thread) -> None:
    ran: list[str] = []
    agent = clew.Agent("long", checkpoint="run", state=Trip)

    @agent.node(start=True, then="second")
    def first(state: Trip) -> Any:
        ran.append("first")
        return {"messages": ["first"]}

    @agent.node(then="third")
    def second(state: Trip) -> Any:
        ran.append("second")
        return {"messages": ["second"]}

    @agent.node
    def third(state: Trip) -> Any:
        ran.append("third")
        if ran.count("third") == 1:
            raise OSError("again")
        return {"messages": [str(len(state["messages"]))]}

    with pytest.raises(OSError, match="again"):
        agent.run(thread, {"messages": []})
    assert len(thread.history()) == 1
    assert agent.resume(thread).state == {"messages": ["first", "second", "2"]}
    assert ran == ["first", "second", "third", "third"]
    assert [step[2] for step in steps(thread)] == [None, "third"]


def test_a_stream_tells_what_happens(thread: clew.Thread) -> None:
    agent = clew.Agent("talk")

    @agent.node(start=True, then="end")
    def speak(state: Any) -> Any:
        for word in ("hello", "there"):
            clew.emit(word)
        return {"said": 2}

    @agent.node
    def end(state: Any) -> Any:
        return None

    events = list(agent.stream(thread))
    told = [(event.kind, event.node) for event in events]
    assert told == [
        ("checkpoint", None), ("node", "speak"), ("emit", "speak"), ("emit", "speak"), ("update", "speak"),
        ("checkpoint", None), ("node", "end"), ("update", "end"), ("checkpoint", None), ("end", None),
    ]  # fmt: skip
    assert [event.value for event in events if event.kind == "emit"] == ["hello", "there"]
    assert events[-1].value.status == "done"


def test_who_stops_listening_leaves_the_run_to_be_resumed(thread: clew.Thread) -> None:
    agent = clew.Agent("talk")

    @agent.node(start=True, then="end")
    def speak(state: Any) -> Any:
        clew.emit("hello")
        return {"said": 1}

    @agent.node
    def end(state: Any) -> Any:
        return {"ended": True}

    for event in agent.stream(thread):
        if event.kind == "emit":
            break
    run = thread._db.runs(thread="trip-7")[0]
    assert run.status in ("paused", "done")
    assert agent.resume(thread).state == {"said": 1, "ended": True}


def test_checkpoints_within_a_long_node_are_written_once(thread: clew.Thread) -> None:
    agent = clew.Agent("long", state=Trip)
    tries: list[int] = []

    @agent.node
    def long(state: Trip) -> Any:
        clew.checkpoint("half", {"messages": ["half"]})
        tries.append(1)
        if len(tries) == 1:
            raise OSError("killed")
        return {"messages": ["whole"]}

    with pytest.raises(OSError, match="killed"):
        agent.run(thread, {"messages": []})
    assert agent.resume(thread).state == {"messages": ["half", "whole"]}
    assert [(step[2], step[3]) for step in steps(thread)] == [(None, ("long",)), ("half", ("long",)), ("long", ())]


def test_any_checkpoint_can_be_gone_on_from(thread: clew.Thread) -> None:
    ran: list[str] = []
    agent = clew.Agent("trip")

    @agent.node(start=True, then="book")
    def plan(state: Any) -> Any:
        ran.append("plan")
        return {"plan": f"{state['city']} by train"}

    @agent.node
    def book(state: Any) -> Any:
        ran.append("book")
        return {"booked": state["plan"]}

    first = agent.run(thread, {"city": "Tokyo"})
    fork = thread.fork(2, branch="osaka", update={"plan": "Osaka by bus"})
    assert fork.head is not None
    assert fork.head.next == ("book",)
    other = agent.resume(fork)
    assert other != first
    assert other.state == {"city": "Tokyo", "plan": "Osaka by bus", "booked": "Osaka by bus"}
    assert thread.state()["booked"] == "Tokyo by train"
    assert ran == ["plan", "book", "book"]
    again = agent.resume(thread, ref=1)
    assert again.state["booked"] == "Tokyo by train"
    assert ran == ["plan", "book", "book", "plan", "book"]


def test_a_node_that_is_missing_pauses_the_run(thread: clew.Thread) -> None:
    def make(*, whole: bool) -> clew.Agent:
        agent = clew.Agent("trip")
        agent.node(name="plan", start=True, then="book" if whole else None)(lambda state: {"n": 1})
        if whole:

            @agent.node
            def book(state: Any) -> Any:
                if not state.get("ready"):
                    raise OSError("not ready")
                return {"booked": True}

        return agent

    with pytest.raises(OSError, match="not ready"):
        make(whole=True).run(thread)
    with pytest.raises(BadInput, match="before node 'book', which agent 'trip' does not have"):
        make(whole=False).resume(thread)
    run = thread._db.runs(thread="trip-7")[0]
    assert run.status in ("paused", "failed")
    run.edit({"ready": True})
    assert make(whole=True).resume(thread).state["booked"]


def test_context_is_for_the_nodes(thread: clew.Thread) -> None:
    @clew.agent
    def who(state: Any) -> Any:
        return {"user": clew.context()["user"]}

    assert who.run(thread, context={"user": "42"}).state == {"user": "42"}


TOOL = {"role": "assistant", "content": None, "calls": [{"name": "find", "arguments": {"city": "Osaka", "n": [1, 2]}}]}


def test_long_conversations_of_nested_messages_go_on(thread: clew.Thread) -> None:
    @clew.agent(state=Trip)
    def chat(state: Any) -> Any:
        assert all(message["calls"][0]["arguments"]["n"] == [1, 2] for message in state["messages"])
        return {"messages": [copy.deepcopy(TOOL)]}

    for number in range(12):
        run = chat.run(thread, {"messages": [copy.deepcopy(TOOL)]})
        assert run.state["messages"] == [TOOL] * 2 * (number + 1)


def test_a_change_deep_within_a_long_list_is_refused_and_the_state_is_as_it_was(thread: clew.Thread) -> None:
    bad = [True]
    calls: list[int] = []

    @clew.recorded
    def model(messages: list[Any]) -> str:
        calls.append(messages[3]["calls"][0]["arguments"]["n"][0])
        return f"reply {len(calls)}"

    @clew.agent(state=Trip)
    def chat(state: Any) -> Any:
        if bad:
            state["messages"][3]["calls"][0]["arguments"]["n"][0] = 7
        return {"messages": [{**TOOL, "content": model(state["messages"])}]}

    with pytest.raises(BadInput, match=r"changed state\['messages'\] in place"):
        chat.run(thread, {"messages": [copy.deepcopy(TOOL) for _ in range(10)]})
    with pytest.raises(BadInput, match="in place"):
        chat.resume(thread)
    assert calls == [7, 7]
    bad.clear()
    # what was recorded of the changed list is no reply to this one
    assert chat.resume(thread).state["messages"][-1]["content"] == "reply 3"
    assert calls == [7, 7, 1]


def test_a_recorded_call_gets_its_reply_back_however_its_list_came_about(thread: clew.Thread) -> None:
    calls: list[int] = []
    fail = [True]

    @clew.recorded
    def model(messages: list[Any], *, more: Any = None) -> str:
        calls.append(len(messages))
        return f"{len(messages)} messages"

    @clew.agent(state=Trip)
    def chat(state: Any) -> Any:
        given = state["messages"] if fail else [*state["messages"]]
        told = [model(given), model([*given, "more"]), model(given, more=given), model(given)]
        if fail:
            raise OSError("killed")
        return {"messages": told}

    with pytest.raises(OSError, match="killed"):
        chat.run(thread, {"messages": [f"message {n}" for n in range(20)]})
    fail.clear()
    assert chat.resume(thread).state["messages"][20:] == ["20 messages", "21 messages", "20 messages", "20 messages"]
    assert calls == [20, 21, 20, 20]


def test_what_comes_after_a_nodes_time_is_not_recorded(thread: clew.Thread, db: clew.Database) -> None:
    over, ended = threading.Event(), threading.Event()
    late: list[BaseException] = []

    @clew.recorded
    def model() -> str:
        assert over.wait(10)
        return "late"

    agent = clew.Agent("slow")

    @agent.node(timeout=0.01)
    def slow(state: Any) -> Any:
        try:
            model()
        except BaseException as error:
            late.append(error)
        ended.set()

    with pytest.raises(TimeoutError):
        agent.run(thread)
    over.set()
    assert ended.wait(10)
    assert [type(error) for error in late] == [ActivationClosed]
    run = db.runs()[0].id
    with db._storage.snapshot() as snapshot:
        found = snapshot.find_thread(thread.id)
        assert found is not None
        assert snapshot.records(found, [f"run {run}"]) == []
