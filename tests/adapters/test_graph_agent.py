"""A compiled graph as an agent: run, asked, answered, failed, resumed, cancelled; and what a busy thread does."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Overwrite, Send, interrupt
from pydantic import BaseModel
from stories import Log
from typing_extensions import TypedDict

import clew
from clew import aio
from clew.adapters.langgraph import ClewSaver, LangGraphAgent
from clew.errors import BadInput, Busy, NotFound
from clew.hop import Hop
from clew.runtime.executor import claim, execute, live

IN = {"log": ["in"]}


def chain(*actions: Any, saver: Any = None, **options: Any) -> Any:
    """Nodes one after the other: node0, node1, …"""
    builder = StateGraph(Log)
    names = [f"node{number}" for number in range(len(actions))]
    for name, action in zip(names, actions, strict=True):
        builder.add_node(name, action)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver, **options)


def says(word: str) -> Any:
    return lambda state: {"log": [word]}


def asks(*questions: Any) -> Any:
    return lambda state: {"log": [interrupt(question) for question in questions]}


def agent_of(*actions: Any, **options: Any) -> LangGraphAgent:
    return LangGraphAgent(chain(*actions, **options), name="graph")


def recorded(db: clew.Database) -> list[Any]:
    """What tasks of the superstep under way have ended with."""
    found = ClewSaver(db).get_tuple({"configurable": {"thread_id": "t"}})
    return [] if found is None else list(found.pending_writes or [])


def work(db: clew.Database, agent: LangGraphAgent, run: clew.Run) -> Any:
    """As a worker does it."""
    held = claim(db, [agent], run=run.id)
    return None if held is None else execute(held)


# -- running


def test_a_run_from_input_to_end(db: clew.Database) -> None:
    agent = agent_of(says("one"), says("two"))
    run = agent.run(db.thread("t"), IN, key="message-1")
    assert (run.status, run.agent, run.state["log"]) == ("done", "graph", ["in", "one", "two"])
    assert {cp.run for cp in db.thread("t").history()} == {run.id}
    begun = db.thread("t").checkpoint(run.info.input_step or 0)
    assert (begun.kind, begun.parent) == ("input", None)
    assert agent.run(db.thread("t"), {"log": ["another"]}, key="message-1").id == run.id
    assert agent.run(db.thread("t"), {"log": ["next"]}).state["log"] == ["in", "one", "two", "next", "one", "two"]
    assert agent.graph.checkpointer is None


def test_it_is_what_the_graph_does_without(db: clew.Database) -> None:
    """The same checkpoints, as LangGraph has them, as when it is invoked."""
    actions = says("one"), says("two")
    run = agent_of(*actions).run(db.thread("t"), IN)
    plain = chain(*actions, saver=ClewSaver(db))
    plain.invoke(IN, {"configurable": {"thread_id": "plain"}})
    seen = []
    for thread_id in ("t", "plain"):
        history = plain.get_state_history({"configurable": {"thread_id": thread_id}})
        seen.append([(at.values, at.next, at.metadata["source"], at.metadata["step"]) for at in history])
    assert seen[0] == seen[1]
    assert run.status == "done"


def test_a_thread_by_name(db: clew.Database) -> None:
    agent = LangGraphAgent(chain(says("one"), saver=ClewSaver(db)), name="graph")
    assert agent.run("t", IN).state == db.thread("t").state()
    with pytest.raises(BadInput, match="compiled without a database"):
        agent_of(says("one")).run("t", IN)


def test_what_is_asked_is_answered_from_anywhere(db: clew.Database) -> None:
    agent = agent_of(says("one"), asks("name?", "city?"), says("end"))
    run = agent.run(db.thread("t"), IN)
    assert (run.status, [request.question for request in run.requests]) == ("waiting", ["name?"])
    assert agent.resume(db.thread("t")).id == run.id
    assert run.status == "waiting"
    run.requests[0].answer("Ada", by="alice")
    assert work(db, agent, run) == "waiting"
    assert [request.question for request in run.requests] == ["city?"]
    run.requests[0].answer("Nara", by="bob")
    assert agent.resume(db.thread("t")).status == "done"
    assert run.state["log"] == ["in", "one", "Ada", "Nara", "end"]
    assert [request.status for request in db.requests(run=run.id, status=None)] == ["answered", "answered"]


def test_a_waiting_graph_is_edited_by_its_own_means(db: clew.Database) -> None:
    agent = LangGraphAgent(chain(says("one"), asks("name?"), says("end"), saver=ClewSaver(db)), name="graph")
    run = agent.run(db.thread("t"), IN)
    with pytest.raises(BadInput, match="update_state"):
        run.edit({"log": ["edited"]})
    assert (run.status, len(run.requests)) == ("waiting", 1)
    agent.graph.update_state({"configurable": {"thread_id": "t"}}, {"log": ["edited"]}, as_node="node0")
    assert agent.resume(db.thread("t")).status == "waiting"
    run.requests[0].answer("Ada", by="alice")
    assert agent.resume(db.thread("t")).status == "done"
    assert run.state["log"] == ["in", "one", "edited", "Ada", "end"]


def test_several_are_answered_one_by_one_and_none_is_asked_again(db: clew.Database) -> None:
    ran: list[str] = []

    def ask(state: Any) -> Any:
        ran.append(state["log"][-1])
        return {"log": [f"{state['log'][-1]}: {interrupt(state['log'][-1])}"]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_node("quiet", lambda state: ran.append("quiet") or {"log": ["quiet"]})
    builder.add_conditional_edges(START, lambda _: ["quiet", *(Send("ask", {"log": [name]}) for name in "abc")])
    agent = LangGraphAgent(builder.compile(), name="graph")
    run = agent.run(db.thread("t"), IN)
    asked = {request.question: request for request in run.requests}
    assert sorted(asked) == ["a", "b", "c"]
    asked["b"].answer(2, by="alice")
    assert work(db, agent, run) == "waiting"
    assert sorted(request.question for request in run.requests) == ["a", "c"]
    asked["c"].reject(by="alice")
    asked["a"].answer(None, by="alice")
    assert work(db, agent, run) == "done"
    assert sorted(run.state["log"]) == ["a: None", "b: 2", "c: False", "in", "quiet"]
    assert ran.count("quiet") == 1
    assert ran.count("b") == 2  # once to ask, once with the answer


def test_the_same_question_is_asked_twice(db: clew.Database) -> None:
    def ask(state: Any) -> Any:
        while not (name := interrupt("name?")):
            pass
        return {"log": [name]}

    agent = agent_of(ask)
    run = agent.run(db.thread("t"), IN)
    for answer, then in (("", "waiting"), ("", "waiting"), ("Ada", "done")):
        (request,) = run.requests
        request.answer(answer, by="alice")
        assert agent.resume(db.thread("t")).status == then
    assert run.state["log"] == ["in", "Ada"]


def test_a_question_from_a_subgraph(db: clew.Database) -> None:
    inner = StateGraph(Log)
    inner.add_node("deep", asks("deep?"))
    inner.add_edge(START, "deep")
    agent = agent_of(says("one"), inner.compile(), says("end"))
    run = agent.run(db.thread("t"), IN)
    (request,) = run.requests
    request.answer("yes", by="alice")
    assert agent.resume(db.thread("t")).status == "done"
    assert run.state["log"][-2:] == ["yes", "end"]


def test_a_failed_run_is_tried_again_from_where_it_stood(db: clew.Database) -> None:
    broken = [True]
    ran: list[str] = []

    def flaky(state: Any) -> Any:
        ran.append("flaky")
        if broken:
            raise ValueError("no answer")
        return {"log": ["flaky"]}

    def sound(state: Any) -> Any:
        ran.append("sound")
        return {"log": ["sound"]}

    builder = StateGraph(Log)
    builder.add_node("flaky", flaky)
    builder.add_node("sound", sound)
    for node in ("flaky", "sound"):
        builder.add_edge(START, node)
    agent = LangGraphAgent(builder.compile(), name="graph")
    with pytest.raises(ValueError, match="no answer") as raised:
        agent.run(db.thread("t"), IN)
    assert "thread 't'" in raised.value.__notes__[-1]
    (run,) = db.runs()
    assert run.status == "failed"
    assert "no answer" in str(run.error)
    broken.clear()
    assert agent.resume(db.thread("t")).id == run.id
    assert (run.status, sorted(run.state["log"])) == ("done", ["flaky", "in", "sound"])
    assert ran.count("flaky") == 2


def test_a_breakpoint_pauses_until_it_is_resumed(db: clew.Database) -> None:
    agent = agent_of(says("one"), says("two"), interrupt_before=["node1"])
    run = agent.run(db.thread("t"), IN)
    assert (run.status, run.state["log"]) == ("paused", ["in", "one"])
    assert agent.resume(db.thread("t")).status == "done"
    assert run.state["log"] == ["in", "one", "two"]


def test_what_the_graph_stands_at_is_gone_on_with(db: clew.Database) -> None:
    """A thread that was left by the graph itself, without the agent."""
    with pytest.raises(NotFound):
        agent_of(says("one")).resume(db.thread("t"))
    graph = chain(says("one"), asks("well?"), saver=ClewSaver(db), interrupt_before=["node1"])
    graph.invoke(IN, {"configurable": {"thread_id": "t"}})
    agent = LangGraphAgent(graph, name="graph")
    run = agent.resume(db.thread("t"))
    assert run.status == "waiting"
    run.requests[0].answer("fine", by="alice")
    assert agent.resume(db.thread("t")).state["log"] == ["in", "one", "fine"]
    assert agent.resume(db.thread("t")).id == run.id


def test_a_node_that_is_gone_pauses_the_run(db: clew.Database) -> None:
    run = agent_of(says("one"), asks("well?")).run(db.thread("t"), IN)
    run.requests[0].answer("fine", by="alice")
    with pytest.raises(BadInput, match="node 'node1'"):
        agent_of(says("one")).resume(db.thread("t"))
    assert run.status == "paused"
    assert agent_of(says("one"), asks("well?")).resume(db.thread("t")).status == "done"


def test_context_and_config_reach_the_nodes(db: clew.Database) -> None:
    def tell(state: Any, runtime: Any) -> Any:
        return {"log": [runtime.context["user"]]}

    from langgraph.runtime import Runtime

    tell.__annotations__["runtime"] = Runtime[dict]
    builder = StateGraph(Log, context_schema=dict)
    builder.add_node("tell", tell)
    builder.add_node("again", lambda state: Command(goto="again" if len(state["log"]) < 9 else END, update=IN))
    builder.add_edge(START, "tell")
    builder.add_edge("tell", "again")
    agent = LangGraphAgent(builder.compile(), name="graph", config={"recursion_limit": 4})
    with pytest.raises(RecursionError):
        agent.run(db.thread("t"), IN, context={"user": "ada"})
    assert db.thread("t").state()["log"][:2] == ["in", "ada"]
    (run,) = db.runs()
    while run.status == "failed":
        try:
            agent.resume(db.thread("t"))
        except RecursionError:
            continue
    assert len(run.state["log"]) >= 9


# -- what is refused


def test_what_is_no_agent(db: clew.Database, tmp_path: Any) -> None:
    with pytest.raises(BadInput, match="compiled graph"):
        LangGraphAgent(StateGraph(Log), name="graph")
    with pytest.raises(BadInput, match="InMemorySaver"):
        LangGraphAgent(chain(says("one"), saver=InMemorySaver()), name="graph")
    with pytest.raises(BadInput, match="name"):
        LangGraphAgent(chain(says("one")), name="")
    with clew.open(str(tmp_path / "other.db")) as other:
        elsewhere = LangGraphAgent(chain(says("one"), saver=ClewSaver(other)), name="graph")
        with pytest.raises(BadInput, match="same database"):
            elsewhere.run(db.thread("t"), IN)
    assert list(db.runs()) == []


def test_inputs_that_are_none(db: clew.Database) -> None:
    agent = agent_of(says("one"))
    for given in (None, Command(resume="yes"), "text", 3):
        with pytest.raises(BadInput):
            agent.run(db.thread("t"), given)
        with pytest.raises(BadInput):
            db.submit(agent, "t", given)

    class Order(BaseModel):
        item: str

    builder = StateGraph(Order)
    builder.add_node("take", lambda state: {"item": state.item.upper()})
    builder.add_edge(START, "take")
    orders = LangGraphAgent(builder.compile(), name="orders")
    with pytest.raises(BadInput, match="item"):
        db.submit(orders, "t", {"item": 3})
    assert orders.run(db.thread("t"), {"item": "tea"}).state["item"] == "TEA"
    db.thread("t").fork("head", branch="b")
    with pytest.raises(BadInput, match="branch 'main'"):
        orders.run(db.thread("t", branch="b"), {"item": "tea"})


def test_a_functional_graph_is_one_too(db: clew.Database) -> None:
    @entrypoint()
    def greet(name: str) -> str:
        return f"{interrupt('title?')} {name}"

    agent = LangGraphAgent(greet, name="greet")
    run = agent.run(db.thread("t"), "Ada")
    run.requests[0].answer("Countess", by="alice")
    assert agent.resume(db.thread("t")).status == "done"
    assert "Countess Ada" in run.state.values()


# -- streamed, awaited


def test_streamed(db: clew.Database) -> None:
    agent = agent_of(says("one"), says("two"))
    assert list(agent.stream(db.thread("t"), IN)) == [{"node0": {"log": ["one"]}}, {"node1": {"log": ["two"]}}]
    parts = list(agent.stream(db.thread("u"), IN, stream_mode=["values", "updates"]))
    assert parts[-1] == ("values", {"log": ["in", "one", "two"]})
    assert [run.status for run in db.runs()] == ["done", "done"]


def test_whoever_stops_listening_leaves_it_paused(db: clew.Database) -> None:
    go = threading.Event()

    def slow(state: Any) -> Any:
        assert go.wait(30)
        return {"log": ["two"]}

    agent = agent_of(says("one"), slow, says("three"))
    parts = agent.stream(db.thread("t"), IN)
    assert next(parts) == {"node0": {"log": ["one"]}}
    closing = threading.Thread(target=parts.close)
    closing.start()
    go.set()
    closing.join(30)
    (run,) = db.runs()
    assert run.status == "paused"
    assert agent.resume(db.thread("t")).state["log"] == ["in", "one", "two", "three"]


async def _async_says(state: Any) -> Any:
    await asyncio.sleep(0)
    return {"log": ["awaited"]}


def test_asynchronous_nodes_are_awaited_wherever_they_are_run(db: clew.Database) -> None:
    agent = agent_of(_async_says, asks("well?"))
    run = agent.run(db.thread("t"), IN)
    run.requests[0].answer("fine", by="alice")
    assert work(db, agent, run) == "done"
    assert run.state["log"] == ["in", "awaited", "fine"]


def test_awaited(db: clew.Database) -> None:
    agent = agent_of(_async_says, asks("well?"), says("end"))

    async def main() -> Any:
        thread = aio.Database(db, Hop()).thread("t")
        run = await agent.arun(thread, IN)
        assert await run.status == "waiting"
        (request,) = await run.requests
        await request.answer("fine", by="alice")
        assert await (await agent.aresume(thread)).status == "done"
        parts = [part async for part in agent.astream(db.thread("u"), IN)]
        assert parts[0] == {"node0": {"log": ["awaited"]}}
        assert (await agent.acancel(db.thread("u"))).status == "cancelled"
        return await run.state

    assert asyncio.run(main())["log"] == ["in", "awaited", "fine", "end"]


# -- cancelled


def test_cancelled_between_supersteps(db: clew.Database) -> None:
    agent = agent_of(says("one"), lambda state: agent.cancel(db.thread("t")) and {"log": ["two"]}, says("three"))
    run = agent.run(db.thread("t"), IN)
    assert (run.status, run.state["log"]) == ("cancelled", ["in", "one", "two"])
    waiting = agent_of(asks("well?"))
    run = waiting.run(db.thread("t"), IN)
    assert waiting.cancel(db.thread("t")).id == run.id
    assert (run.status, list(db.requests())) == ("cancelled", [])


def test_cancelling_the_await_cancels_asynchronous_nodes(db: clew.Database) -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    async def long(state: Any) -> Any:
        while not recorded(db):
            await asyncio.sleep(0.01)
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return {"log": ["never"]}

    builder = StateGraph(Log)
    builder.add_node("long", long)
    builder.add_node("short", _async_says)
    for node in ("long", "short"):
        builder.add_edge(START, node)
    agent = LangGraphAgent(builder.compile(), name="graph")

    async def main() -> None:
        running = asyncio.ensure_future(agent.arun(db.thread("t"), IN))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    (run,) = db.runs()
    assert (run.status, ended) == ("cancelled", ["cancelled"])
    assert run.state["log"] == ["in", "awaited"]  # what had finished is kept


# -- a busy thread


@pytest.fixture
def waits(db: clew.Database) -> tuple[LangGraphAgent, clew.Run]:
    """A thread with a past, whose run waits for somebody."""
    agent = LangGraphAgent(
        chain(says("one"), lambda state: asks("well?")(state) if "calm" not in state["log"][-2] else {}), name="graph"
    )
    agent.run(db.thread("t"), {"log": ["calm"]})
    return agent, agent.run(db.thread("t"), {"log": ["first"]})


def test_refused(db: clew.Database, waits: Any) -> None:
    agent, first = waits
    with pytest.raises(Busy, match=first.id):
        agent.run(db.thread("t"), {"log": ["calm"]})
    with pytest.raises(Busy):
        db.submit(agent, "t", {"log": ["calm"]}, if_busy="reject")
    assert len(list(db.runs())) == 2


def test_in_line(db: clew.Database, waits: Any) -> None:
    agent, first = waits
    queued = db.submit(agent, "t", {"log": ["calm"]})
    found: list[clew.Run] = []
    calls = threading.Thread(
        target=lambda: found.append(agent.run(db.thread("t"), {"log": ["calm, too"]}, if_busy="enqueue"))
    )
    calls.start()
    assert (queued.status, work(db, agent, queued)) == ("queued", None)
    first.requests[0].answer("fine", by="alice")
    assert work(db, agent, first) == "done"
    assert work(db, agent, queued) == "done"
    calls.join(30)
    assert found[0].status == "done"
    assert found[0].state["log"] == ["calm", "one", "first", "one", "fine", "calm", "one", "calm, too", "one"]


def test_rolled_back_without_a_trace(db: clew.Database, waits: Any) -> None:
    agent, first = waits
    before = db.thread("t").state(first.info.input_step - 1)
    run = agent.run(db.thread("t"), {"log": ["calm"]}, if_busy="rollback")
    assert (run.status, first.status) == ("done", "cancelled")
    assert run.state["log"] == [*before["log"], "calm", "one"]
    assert list(db.requests()) == []
    assert len(db.thread("t").tips) == 1  # it has a name still


def test_the_first_run_of_a_thread_is_rolled_back_to_nothing(db: clew.Database) -> None:
    agent = LangGraphAgent(
        chain(lambda state: {"log": [len(state["log"])]}, lambda s: asks("well?")(s) if s["log"][0] == "first" else {}),
        name="graph",
    )
    first = agent.run(db.thread("t"), {"log": ["first"], "count": 3})
    run = agent.run(db.thread("t"), {"log": ["second"]}, if_busy="rollback")
    assert (run.status, first.status, run.state) == ("done", "cancelled", {"log": ["second", 1]})


def test_what_a_subgraph_keeps_for_itself_is_rolled_back_too(db: clew.Database) -> None:
    builder = StateGraph(Log)
    builder.add_node("grow", lambda state: {"log": [f"grown {len(state['log'])}"]})
    builder.add_edge(START, "grow")
    inner = builder.compile(checkpointer=True)
    agent = agent_of(
        lambda state: {"log": [inner.invoke({"log": [state["log"][-1]]})["log"]]},
        lambda state: asks("well?")(state) if state["log"][-2].startswith("ask") else {},
    )

    def remembered(word: str) -> Any:
        return agent.run(db.thread("t"), {"log": [word]}, if_busy="rollback").state["log"][-1]

    assert remembered("ask first") == ["ask first", "grown 1"]
    assert remembered("one") == ["one", "grown 1"]
    assert remembered("ask second") == ["one", "grown 1", "ask second", "grown 3"]
    assert remembered("ask third") == ["one", "grown 1", "ask third", "grown 3"]
    assert remembered("two") == ["one", "grown 1", "two", "grown 3"]
    assert db.thread("t").state()["log"][0::2] == ["one", "two"]
    assert list(db.requests()) == []


def test_interrupted_keeps_what_had_finished(db: clew.Database, waits: Any) -> None:
    agent, first = waits
    run = agent.run(db.thread("t"), {"log": ["calm"]}, if_busy="interrupt")
    assert (run.status, first.status) == ("done", "cancelled")
    assert run.state["log"] == ["calm", "one", "first", "one", "calm", "one"]


def test_those_in_line_are_taken_in_by_whoever_interrupts(db: clew.Database, waits: Any) -> None:
    agent, first = waits
    in_line = [db.submit(agent, "t", {"log": [word]}) for word in ("second", "third")]
    run = (
        agent.run(db.thread("t"), {"log": ["calm"]}, if_busy="interrupt")
        if False
        else db.submit(agent, "t", {"log": ["calm"]}, if_busy="interrupt")
    )
    for one in (first, *in_line, run):
        work(db, agent, one)
    assert [one.status for one in (first, *in_line, run)] == ["cancelled", "cancelled", "cancelled", "done"]
    assert run.state["log"] == ["calm", "one", "first", "one", "second", "third", "calm", "one"]


def test_injected_before_the_next_superstep(db: clew.Database) -> None:
    """It changes the state that the next nodes see. They are the same ones, and what had finished is not run again."""
    ran: list[str] = []
    sent: list[clew.Run] = []

    def first(state: Any) -> Any:
        ran.append("first")
        sent.append(db.submit(agent, "t", {"log": ["more"]}, if_busy="inject"))
        sent.append(db.submit(agent, "t", {"log": ["and more"], "count": 7}, if_busy="inject"))
        for held in live.values():
            held.want("inject")  # as a worker tells it; else it looks now and then
        return {"log": ["one"]}

    def second(state: Any) -> Any:
        ran.append("second")
        return {"log": [f"saw {len(state['log'])}"]}

    agent = agent_of(first, second)
    run = agent.run(db.thread("t"), IN)
    assert [one.status for one in (run, *sent)] == ["done", "done", "done"]
    assert run.state == {"log": ["in", "one", "more", "and more", "saw 4"], "count": 7}
    assert ran == ["first", "second"]


class Sprung:
    """Something happens when it is read."""

    springs: Any = None


clew.register(
    Sprung, name="test.Sprung", encode=lambda _: 0, decode=lambda _: (Sprung.springs and Sprung.springs()) or Sprung()
)


def test_what_is_cancelled_while_it_is_being_injected_is_left_out(db: clew.Database) -> None:
    """Somebody rolls all of it back, between the look at what was sent and the commit that takes it in."""
    sent: list[clew.Run] = []

    def roll_back() -> None:
        Sprung.springs = None
        sent.append(db.submit(agent, "t", {"log": ["calm"]}, if_busy="rollback"))

    def first(state: Any) -> Any:
        if state["log"] == ["in"]:
            sent.append(db.submit(agent, "t", {"log": [Sprung()]}, if_busy="inject"))
            Sprung.springs = roll_back
            for held in live.values():
                held.want("inject")
        return {"log": ["one"]}

    def second(state: Any) -> Any:
        for held in live.values() if state["log"][0] == "in" else ():
            held.want("rollback")
        return {"log": ["two"]}

    agent = agent_of(first, second)
    run = agent.run(db.thread("t"), IN)
    assert [one.status for one in (run, *sent)] == ["cancelled", "cancelled", "queued"]
    assert work(db, agent, sent[-1]) == "done"
    assert db.thread("t").state()["log"] == ["calm", "one", "two"]


def test_injected_into_a_run_that_waits(db: clew.Database) -> None:
    agent = agent_of(lambda state: {"log": [interrupt(f"{len(state['log'])}?")]})
    run = agent.run(db.thread("t"), IN)
    more = db.submit(agent, "t", {"log": ["more"]}, if_busy="inject")
    assert work(db, agent, run) == "waiting"
    assert more.status == "done"
    (request,) = run.requests
    assert request.question == "2?"
    request.answer("fine", by="alice")
    assert agent.resume(db.thread("t")).state["log"] == ["in", "more", "fine"]


def test_inputs_that_are_injected_together_change_the_state_one_after_the_other(db: clew.Database) -> None:
    """In one superstep, a channel without a reducer takes one value, and one with a reducer takes one `Overwrite`."""
    agent = agent_of(lambda state: {"log": [interrupt("well?")]})
    run = agent.run(db.thread("t"), {"log": ["in"], "count": 1})
    inputs: list[Any] = [
        {"log": ["a"], "count": 2},
        {"log": Overwrite(["b"]), "count": 3},
        {"log": ["c"]},
        {"count": 4},
        {"log": Overwrite(["d"])},
        {"log": ["e"], "count": 5},
    ]
    for together in ((0, 1, 2), (3,), (4, 5)):
        sent = [db.submit(agent, "t", inputs[at], if_busy="inject") for at in together]
        assert work(db, agent, run) == "waiting", run.error
        assert {one.status for one in sent} == {"done"}
    run.requests[0].answer("fine", by="alice")
    assert agent.resume(db.thread("t")).state == {"log": ["d", "e", "fine"], "count": 5}


def test_an_injected_message_has_an_id_that_stays(db: clew.Database) -> None:
    """What is read from a `DeltaChannel` is reduced anew each time, and by a reducer that gives no ids."""
    builder = StateGraph(TypedDict("Talk", {"messages": Annotated[list, DeltaChannel(_messages_delta_reducer)]}))
    builder.add_node("node", lambda state: {"messages": [AIMessage(interrupt("well?"))]})
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=ClewSaver(db))
    agent = LangGraphAgent(graph, name="graph")
    run = agent.run(db.thread("t"), {"messages": [HumanMessage("in")]})
    db.submit(agent, "t", {"messages": [HumanMessage("more")]}, if_busy="inject")
    assert work(db, agent, run) == "waiting"
    run.requests[0].answer("fine", by="alice")
    assert work(db, agent, run) == "done"
    once, again = (graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"] for _ in range(2))
    assert [message.content for message in once] == ["in", "more", "fine"]
    assert [message.id for message in once] == [message.id for message in again]
    assert all(message.id for message in once)


def test_without_a_next_superstep_what_is_injected_runs_by_itself(db: clew.Database) -> None:
    sent: list[clew.Run] = []

    def only(state: Any) -> Any:
        if not sent:
            sent.append(db.submit(agent, "t", {"log": ["more"]}, if_busy="inject"))
        return {"log": ["one"]}

    agent = agent_of(only)
    run = agent.run(db.thread("t"), IN)
    assert (run.status, sent[0].status) == ("done", "queued")
    assert work(db, agent, sent[0]) == "done"
    assert sent[0].state["log"] == ["in", "one", "more", "one"]


def test_a_run_at_a_time_to_come(db: clew.Database) -> None:
    agent = agent_of(says("one"))
    later = db.submit(agent, "t", IN, at=timedelta(hours=1))
    assert agent.run(db.thread("t"), {"log": ["now"]}).status == "done"
    assert (later.status, later.info.due_at is not None) == ("queued", True)
