"""Clew's functions in a graph's nodes and tools: recorded calls, effects and questions, under a bare `ClewSaver`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt
from stories import Log

import clew
from clew.adapters.langgraph import ClewSaver, LangGraphAgent
from clew.errors import BadInput, EffectConflict, Rejected, WrongAnswer
from clew.storage.ledger import ledger_of
from clew.testing.outside import Fault, Outside, do, say

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class World:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: list[BaseException] = []

    def call(self, what: str) -> str:
        self.calls.append(what)
        return f"{what} {len(self.calls)}"

    def stumble(self) -> None:
        if self.fail:
            raise self.fail.pop(0)


def graph_of(db: clew.Database, *actions: Any, **options: Any) -> Any:
    builder = StateGraph(Log)
    names = [f"node{number}" for number in range(len(actions))]
    for name, action in zip(names, actions, strict=True):
        builder.add_node(name, action, **options)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=ClewSaver(db))


def effects(db: clew.Database, thread: str = "t") -> list[tuple[str, str]]:
    return [(row.key, row.state) for row in ledger_of(db._storage).effects(thread)]


def invoke(graph: Any, awaited: bool, given: Any) -> Any:
    if awaited:
        return asyncio.run(graph.ainvoke(given, CONFIG, durability="sync"))
    return graph.invoke(given, CONFIG, durability="sync")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_recorded_call_is_not_made_again(db: clew.Database, awaited: bool) -> None:
    world = World()
    world.fail = [RuntimeError("killed")]

    @clew.recorded
    def model(what: str) -> str:
        assert clew.call_key()
        return world.call(what)

    @clew.recorded
    async def amodel(what: str) -> str:
        await asyncio.sleep(0)
        return world.call(what)

    def plain(state: Log) -> Any:
        found = [model("a"), model("b"), model("a")]
        world.stumble()
        return {"log": found}

    async def node(state: Log) -> Any:
        found = [await amodel("a"), await asyncio.to_thread(model, "b"), await amodel("a")]
        world.stumble()
        return {"log": found}

    graph = graph_of(db, node if awaited else plain)
    with pytest.raises(RuntimeError, match="killed"):
        invoke(graph, awaited, {"log": []})
    # Another process: nothing is remembered.
    graph = graph_of(db, node if awaited else plain)
    assert invoke(graph, awaited, None)["log"] == ["a 1", "b 2", "a 3"]
    assert world.calls == ["a", "b", "a"]
    # The next turn is another task.
    assert invoke(graph, awaited, {"log": []})["log"][3:] == ["a 4", "b 5", "a 6"]


def test_what_was_recorded_goes_when_its_task_has_ended(db: clew.Database) -> None:
    world = World()
    world.fail = [RuntimeError("killed")]
    ids: list[str] = []

    @clew.recorded
    def model(what: str) -> str:
        return world.call(what)

    def node(state: Log) -> Any:
        ids.append(f"task {get_config()['configurable']['__pregel_task_id']}")
        found = model("a" * 1000)
        world.stumble()
        return {"log": [found]}

    def kept() -> int:
        with db._storage.snapshot() as snapshot:
            thread = snapshot.find_thread("t")
            assert thread is not None
            return len(snapshot.records(thread, ids))

    graph = graph_of(db, node)
    with pytest.raises(RuntimeError):
        invoke(graph, False, {"log": []})
    assert kept() == 1
    invoke(graph, False, None)
    assert (len(set(ids)), kept()) == (1, 0)


def test_a_retry_of_langgraphs_finds_what_was_recorded(db: clew.Database) -> None:
    world = World()
    world.fail = [ConnectionError("busy"), ConnectionError("busy")]

    @clew.recorded
    def model(what: str) -> str:
        return world.call(what)

    def node(state: Log) -> Any:
        found = [model("a"), model("a")]
        world.stumble()
        return {"log": found}

    policy = RetryPolicy(initial_interval=0.001, max_attempts=3, jitter=False)
    assert invoke(graph_of(db, node, retry_policy=policy), False, {"log": []})["log"] == ["a 1", "a 2"]
    assert world.calls == ["a", "a"]


def test_tasks_side_by_side_are_told_apart(db: clew.Database) -> None:
    world = World()

    @clew.recorded
    def model() -> int:
        world.calls.append("")
        return len(world.calls)

    builder = StateGraph(Log)
    builder.add_node("one", lambda state: {"log": [model()]})
    builder.add_conditional_edges(START, lambda state: [Send("one", {}), Send("one", {}), Send("one", {})])
    graph = builder.compile(checkpointer=ClewSaver(db))
    assert sorted(invoke(graph, False, {"log": []})["log"]) == [1, 2, 3]


@pytest.mark.parametrize("awaited", [False, True])
def test_an_effect_is_done_once(db: clew.Database, awaited: bool) -> None:
    world = World()
    world.fail = [RuntimeError("killed"), RuntimeError("killed")]

    @clew.effect(key=lambda amount: ("charge", amount))
    def charge(amount: int) -> str:
        return world.call("charge")

    @clew.effect(key=lambda amount: ("charge", amount))
    async def acharge(amount: int) -> str:
        await asyncio.sleep(0)
        return world.call("charge")

    def plain(state: Log) -> Any:
        receipt = charge(420)
        world.stumble()
        return {"log": [receipt]}

    async def node(state: Log) -> Any:
        receipt = await acharge(420)
        world.stumble()
        return {"log": [receipt]}

    graph = graph_of(db, node if awaited else plain)
    with pytest.raises(RuntimeError):
        invoke(graph, awaited, {"log": []})
    with pytest.raises(RuntimeError):
        invoke(graph, awaited, {"log": []})  # also in another turn of the thread
    assert invoke(graph, awaited, None)["log"] == ["charge 1"]
    assert (world.calls, [state for _, state in effects(db)]) == (["charge"], ["done"])


def test_other_arguments_under_a_key_are_refused(db: clew.Database) -> None:
    @clew.effect(key="charge")
    def charge(amount: int) -> str:
        return "receipt"

    graph = graph_of(db, lambda state: {"log": [charge(len(state["log"]))]})
    invoke(graph, False, {"log": []})
    with pytest.raises(EffectConflict):
        invoke(graph, False, {"log": []})


@dataclass
class Approval:
    approved: bool
    note: str = ""


@pytest.mark.parametrize("awaited", [False, True])
def test_a_question_is_an_interrupt_and_a_request(db: clew.Database, awaited: bool) -> None:
    def plain(state: Log) -> Any:
        answer = clew.ask("Book?", schema=Approval, assignee="finance")
        return {"log": [answer.approved, answer.note]}

    async def node(state: Log) -> Any:
        answer = await clew.aio.ask("Book?", schema=Approval, assignee="finance")
        return {"log": [answer.approved, answer.note]}

    graph = graph_of(db, node if awaited else plain)
    assert [one.value for one in invoke(graph, awaited, {"log": []})["__interrupt__"]] == ["Book?"]
    (request,) = db.requests()
    assert (request.question, request.assignee) == ("Book?", "finance")
    assert request.check({"approved": "maybe"}) != []
    with pytest.raises(WrongAnswer):
        invoke(graph, awaited, Command(resume={"approved": "maybe"}))
    assert invoke(graph, awaited, Command(resume={"approved": True, "note": "ok"}))["log"] == [True, "ok"]
    assert list(db.requests()) == []


def test_several_questions_of_a_node_among_interrupts_of_its_own(db: clew.Database) -> None:
    world = World()

    @clew.recorded
    def model(what: str) -> str:
        return world.call(what)

    def node(state: Log) -> Any:
        first = clew.ask("First?", schema=int)
        model("between")
        second = interrupt("second?")
        third = clew.ask("Third?", schema=str)
        return {"log": [first, second, third]}

    result = invoke(graph_of(db, node), False, {"log": []})
    for answer in (1, "two", "three"):
        assert len(result["__interrupt__"]) == 1
        assert len(db.requests()) == 1
        result = invoke(graph_of(db, node), False, Command(resume=answer))
    assert result["log"] == [1, "two", "three"]
    assert world.calls == ["between"]


def test_an_effect_that_nobody_knows_of_is_asked_about(db: clew.Database) -> None:
    """And what is asked after it gets its own answer, though the effect does not ask again."""
    world = World()

    @clew.effect(key=lambda what: what)
    def change(what: str) -> str:
        world.calls.append(what)
        world.stumble()
        return f"{what} done"

    def node(state: Log) -> Any:
        before = clew.ask("Before?")
        found = [change("a"), change("a")]
        after = clew.ask("After?")
        return {"log": [before, *found, after]}

    world.fail = [TimeoutError("no answer"), TimeoutError("no answer")]
    invoke(graph_of(db, node), False, {"log": []})
    result = invoke(graph_of(db, node), False, Command(resume="1"))
    (asked,) = result["__interrupt__"]
    assert asked.value["question"].startswith("Was change(what='a') done? Nobody knows")
    assert world.calls == ["a"]
    assert db.requests()[0].check("maybe") != []
    result = invoke(graph_of(db, node), False, Command(resume="again"))
    assert world.calls == ["a", "a"]
    assert result["__interrupt__"][0].value["question"].startswith("Was change(what='a') done?")
    result = invoke(graph_of(db, node), False, Command(resume={"done": "it was"}))
    assert result["__interrupt__"][0].value == "After?"
    result = invoke(graph_of(db, node), False, Command(resume="4"))
    assert result["log"] == ["1", "it was", "it was", "4"]
    assert world.calls == ["a", "a"]


def test_under_an_agent_answers_come_from_the_inbox(db: clew.Database) -> None:
    world = World()

    @clew.effect(key="charge")
    def charge(amount: int) -> str:
        world.calls.append("charge")
        world.stumble()
        return "receipt"

    def node(state: Log) -> Any:
        approval = clew.ask("Book?", schema=Approval, approvals=2)
        return {"log": [approval.approved, charge(420), clew.ask("And?", schema=str)]}

    world.fail = [TimeoutError("no answer")]
    agent = LangGraphAgent(graph_of(db, node), name="book")
    run = agent.run(db.thread("t"), {"log": []})
    (request,) = run.requests
    assert request.approvals == 2
    for name in ("alice", "bob"):
        db.requests()[0].approve(by=name)
    agent.resume(db.thread("t"))
    (request,) = run.requests
    assert request.question["effect"] == "charge"
    request.answer({"done": "receipt 0"}, by="alice")
    agent.resume(db.thread("t"))
    (request,) = run.requests
    request.reject(by="alice")
    with pytest.raises(Rejected):
        agent.resume(db.thread("t"))
    assert world.calls == ["charge"]
    assert {row.run for row in ledger_of(db._storage).effects("t")} == {run.id}


def test_in_tools(db: clew.Database) -> None:
    world = World()
    world.fail = [RuntimeError("killed")]

    @clew.effect(key=lambda city: ("book", city))
    def book(city: str) -> str:
        """Book a trip."""
        return world.call(f"book {city}")

    def call(state: Any) -> Any:
        cities = ["Tokyo", "Osaka", "Tokyo"]
        calls = [{"name": "book", "args": {"city": city}, "id": str(n)} for n, city in enumerate(cities)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    def end(state: Any) -> Any:
        world.stumble()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("call", call)
    builder.add_node("tools", ToolNode([book]))
    builder.add_node("end", end)
    for before, after in ((START, "call"), ("call", "tools"), ("tools", "end"), ("end", END)):
        builder.add_edge(before, after)
    graph = builder.compile(checkpointer=ClewSaver(db))
    with pytest.raises(RuntimeError):
        invoke(graph, False, {"messages": []})
    found = [one.content for one in invoke(graph, False, None)["messages"] if isinstance(one, ToolMessage)]
    assert found[0] == found[2] != found[1]
    assert sorted(world.calls) == ["book Osaka", "book Tokyo"]


def test_in_subgraphs_and_functional_tasks(db: clew.Database) -> None:
    world = World()
    world.fail = [RuntimeError("killed")]

    @clew.recorded
    def model(what: str) -> str:
        return world.call(what)

    def inner(state: Log) -> Any:
        found = model("inner")
        world.stumble()
        return {"log": [found, clew.ask("Sure?", schema=bool)]}

    sub = StateGraph(Log)
    sub.add_node("inner", inner)
    sub.add_edge(START, "inner")
    graph = graph_of(db, sub.compile())
    with pytest.raises(RuntimeError):
        invoke(graph, False, {"log": []})
    assert invoke(graph, False, None)["__interrupt__"][0].value == "Sure?"
    (request,) = db.requests()
    assert request.choices == (True, False)
    assert invoke(graph, False, Command(resume=True))["log"] == ["inner 1", True]

    @task
    def step(what: str) -> str:
        return model(what)

    @entrypoint(checkpointer=ClewSaver(db))
    def flow(what: str) -> Any:
        found = [step(what).result(), model(what)]
        world.stumble()
        return found

    world.fail = [RuntimeError("killed")]
    config: Any = {"configurable": {"thread_id": "flow"}}
    with pytest.raises(RuntimeError):
        flow.invoke("flow", config, durability="sync")
    assert flow.invoke(None, config, durability="sync") == ["flow 2", "flow 3"]
    assert world.calls == ["inner", "flow", "flow"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: clew.wait("paid"), "are for Clew's own agents"),
        (lambda: clew.sleep(1), "are for Clew's own agents"),
        (lambda: clew.checkpoint("half"), "is for Clew's own agents"),
        (lambda: clew.ask("?", expires=5), "needs a default in a graph"),
    ],
)
def test_what_a_graph_cannot_do_says_so(db: clew.Database, call: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        invoke(graph_of(db, lambda state: call()), False, {"log": []})


def test_context_and_emit_are_langgraphs(db: clew.Database) -> None:
    def node(state: Log) -> Any:
        clew.emit("token")
        return {"log": [clew.context()]}

    graph = graph_of(db, node)
    parts = list(graph.stream({"log": []}, CONFIG, context={"user": "42"}, stream_mode=["custom", "values"]))
    assert ("custom", "token") in parts
    assert parts[-1][1]["log"] == [{"user": "42"}]


def test_without_a_saver_of_ours_it_is_outside_of_a_run(db: clew.Database) -> None:
    world = World()

    @clew.recorded
    def model(what: str) -> str:
        return world.call(what)

    builder = StateGraph(Log)
    builder.add_node("node", lambda state: {"log": [model("a"), clew.ask("?")]})
    builder.add_edge(START, "node")
    with pytest.raises(clew.errors.NoRun):
        builder.compile().invoke({"log": []})
    assert world.calls == ["a"]


# -- killed


class Process:
    """Runs a graph on a database of its own, or goes on with it."""

    def __init__(self, url: str, *, effect: bool = True) -> None:
        self.url = url
        self.effect = effect

    def go(self, given: Any = None) -> Any:
        def work() -> Any:
            def charge() -> str:
                say("calling")
                receipt = do("charge", clew.call_key() if self.effect else "")
                say("answered")
                return receipt

            call = clew.effect(charge, key="charge") if self.effect else charge
            model = clew.recorded(say) if self.effect else say

            def node(state: Log) -> Any:
                found = [model("model"), call()]
                say("got")
                return {"log": found}

            with clew.open(self.url, durability="relaxed") as db:
                config: Any = {"configurable": {"thread_id": "t"}}
                result = graph_of(db, node).invoke(given, config, durability="sync")
                asked = result.get("__interrupt__")
                return {"log": result["log"], "asked": asked and asked[0].value["question"][:22]}

        return work


@pytest.fixture(params=["file", "postgres"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres").url)


@pytest.mark.parametrize(
    ("word", "asked"), [("model", False), ("calling", True), ("do:charge", True), ("answered", True), ("got", False)]
)
def test_killed_at_each_point(lasting: str, word: str, asked: bool) -> None:
    process = Process(lasting)
    with Outside() as outside:
        assert outside.live(process.go({"log": []}), Fault(word)).how == "killed"
        found = outside.live(process.go()).value
        if asked:
            assert found["asked"] == "Was charge() done? Nob"
            answer = {"done": "receipt"} if outside.done else "again"
            found = outside.live(process.go(Command(resume=answer))).value
        assert outside.done == ["charge"]
        assert found["log"][0].startswith("answer to model")
        assert len(found["log"]) == 2
        assert [heard.word for heard in outside.heard].count("model") == (2 if word == "model" else 1)


def test_without_clews_functions_it_is_done_twice(lasting: str) -> None:
    """The negative control."""
    process = Process(lasting, effect=False)
    with Outside() as outside:
        outside.live(process.go({"log": []}), Fault("do:charge"))
        outside.live(process.go())
        assert outside.done == ["charge", "charge"]
        assert [heard.word for heard in outside.heard].count("model") == 2


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_effect_is_done_once_however_checkpoints_are_kept(db: clew.Database, durability: Any) -> None:
    """Also where the thread is not there yet when its first effect is claimed."""
    world = World()
    world.fail = [RuntimeError("killed")]

    @clew.effect(key="charge")
    def charge() -> str:
        return world.call("charge")

    def node(state: Log) -> Any:
        receipt = charge()
        world.stumble()
        return {"log": [receipt]}

    graph = graph_of(db, node)
    with pytest.raises(RuntimeError):
        graph.invoke({"log": []}, CONFIG, durability=durability)
    assert graph.invoke({"log": []}, CONFIG, durability=durability)["log"] == ["charge 1"]
    assert world.calls == ["charge"]


def test_what_a_node_writes_to_a_store_comes_with_its_end(db: clew.Database) -> None:
    world = World()
    world.fail = [RuntimeError("killed")]

    def node(state: Log) -> Any:
        notes = clew.store(user="42")
        found = notes.get((), "n")
        notes.put((), "n", {"n": found.value["n"] + 1 if found else 1})
        world.stumble()
        return {"log": [notes.get((), "n").value["n"]]}  # type: ignore[union-attr]

    graph = graph_of(db, node)
    with pytest.raises(RuntimeError):
        invoke(graph, False, {"log": []})
    assert list(db.store(user="42").search()) == []
    assert invoke(graph, False, None)["log"] == [1]
    assert [item.value for item in db.store(user="42").search()] == [{"n": 1}]


@pytest.mark.parametrize("how", ["agent", "run", "awaited", "failed"])
def test_a_graphs_run_is_undone(db: clew.Database, how: str) -> None:
    world = World()
    world.fail = [ValueError("no room")] * (how == "failed")

    def give_back(result: str, what: str) -> None:
        world.calls.append(f"undo {what}")

    @clew.effect(key=lambda what: what, compensate=give_back)
    def book(what: str) -> str:
        return world.call(what)

    def both(state: Log) -> Any:
        found = [book("flight"), book("hotel")]
        world.stumble()
        return {"log": [*found, clew.ask("Sure?")]}

    agent = LangGraphAgent(graph_of(db, lambda state: {"log": ["first"]}, both), name="trip")
    thread = db.thread("t")
    try:
        agent.run(thread, {"log": []})
    except ValueError:
        assert how == "failed"
    (run,) = db.runs()
    if how == "awaited":
        asyncio.run(agent.acancel(thread, compensate=True))
    elif how == "run":
        run.cancel(compensate=True)
        agent.resume(thread)
    else:
        agent.cancel(thread, compensate=True)
    assert run.status == "cancelled"
    assert world.calls == ["flight", "hotel", "undo hotel", "undo flight"]
    assert thread.state()["log"] == ["first"]
    assert list(db.requests()) == []


def test_calls_of_one_key_side_by_side_share_one(db: clew.Database) -> None:
    """Whoever comes second waits for the first, or sees its result, however close they are: nobody is asked."""
    world = World()

    @clew.effect(key=lambda turn: turn)
    def change(turn: int) -> str:
        return world.call(f"{turn}")

    builder = StateGraph(Log)
    builder.add_node("one", lambda state: {"log": [change(state["turn"])]})
    sends = [Send("one", {"turn": turn}) for turn in range(8) for _ in range(4)]
    builder.add_conditional_edges(START, lambda state: sends)
    graph = builder.compile(checkpointer=ClewSaver(db))
    result = invoke(graph, False, {"log": []})
    assert "__interrupt__" not in result
    assert len(set(result["log"])) == 8
    assert len(world.calls) == 8
