"""What a graph writes while somebody drives it: it bears the run's id, and is refused once the lease has passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from stories import Log

import clew
from clew.adapters.langgraph import ClewSaver
from clew.errors import Fenced
from clew.placed.under import Under
from clew.storage.ledger import Move, NewRun, Start, ledger_of

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def held(db: clew.Database) -> Iterator[Under]:
    """A run that is being driven here."""
    lease = db._storage.acquire("t", "main")
    ledger_of(db._storage).apply("t", [Start(NewRun("run-1", "main", "graph"))], lease=lease)
    yield Under("run-1", lease)
    db._storage.release(lease)


def graph_of(saver: ClewSaver, *actions: Any) -> Any:
    builder = StateGraph(Log)
    names = [f"node{number}" for number in range(len(actions))]
    for name, action in zip(names, actions, strict=True):
        builder.add_node(name, action)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def invoke(graph: Any, awaited: bool, log: Sequence[str] = ()) -> None:
    if awaited:
        asyncio.run(graph.ainvoke({"log": [*log]}, CONFIG, durability="sync"))
    else:
        graph.invoke({"log": [*log]}, CONFIG, durability="sync")


@pytest.mark.parametrize("awaited", [False, True])
def test_checkpoints_and_requests_bear_the_run(db: clew.Database, held: Under, awaited: bool) -> None:
    graph = graph_of(
        ClewSaver(db).held_by(held), lambda state: {"log": ["first"]}, lambda state: {"log": [interrupt("name?")]}
    )
    invoke(graph, awaited)
    assert {cp.run for cp in db.thread("t").history()} == {"run-1"}
    (request,) = db.requests(run="run-1")
    assert request.question == "name?"


def test_entries_ride_on_the_first_checkpoint_and_once(db: clew.Database, held: Under) -> None:
    held.entries = (Move("run-1", "sleeping"),)
    graph = graph_of(ClewSaver(db).held_by(held), lambda state: {"log": ["first"]}, lambda state: {"log": ["second"]})
    graph.invoke({"log": []}, CONFIG)
    assert held.entries == ()
    run = db.run("run-1")
    assert (run.status, run.info.step) == ("sleeping", 1)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_whoever_has_lost_the_lease_writes_no_more(db: clew.Database, held: Under, awaited: bool, asks: bool) -> None:
    def lose(state: Any) -> Any:
        db._storage.release(held.lease)
        before.append(len(db.thread("t").history()))
        return {"log": [interrupt("name?") if asks else "lost"]}

    before: list[int] = []
    graph = graph_of(ClewSaver(db).held_by(held), lambda state: {"log": ["first"]}, lose)
    with pytest.raises(Fenced):
        invoke(graph, awaited)
    assert len(db.thread("t").history()) == before[0]
    assert list(db.requests()) == []
    state = graph.get_state(CONFIG)
    assert not state.interrupts
    assert state.next == ("node1",)


def test_another_thread_is_not_concerned(db: clew.Database, held: Under) -> None:
    db._storage.release(held.lease)
    graph = graph_of(ClewSaver(db).held_by(held), lambda state: {"log": ["first"]})
    graph.invoke({"log": []}, {"configurable": {"thread_id": "other"}})
    assert {cp.run for cp in db.thread("other").history()} == {None}


@pytest.mark.parametrize("awaited", [False, True])
def test_tasks_side_by_side_write_under_it_too(db: clew.Database, held: Under, awaited: bool) -> None:
    """LangGraph hands over what they end with from threads that nobody's context reaches."""

    def ask(state: Any) -> Any:
        if state["log"][-1] == "b":
            db._storage.release(held.lease)
            interrupt("too late?")
        return {"log": [interrupt(state["log"][-1])]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_conditional_edges(START, lambda state: [Send("ask", {"log": [name]}) for name in state["log"]])
    graph = builder.compile(checkpointer=ClewSaver(db).held_by(held))
    invoke(graph, awaited, ["a", "c"])
    assert sorted(request.question for request in db.requests(run="run-1")) == ["a", "c"]
    with pytest.raises(Fenced):
        invoke(graph, awaited, ["b"])
    assert "too late?" not in {request.question for request in db.requests(status=None)}
