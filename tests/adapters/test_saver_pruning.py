"""Whatever is deleted of a thread, what is left reads as before."""

from __future__ import annotations

import random
import threading
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from playing import differences, plain

import clew
from clew.adapters.langgraph import ClewSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}
Kept = Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=9)]
Growing = TypedDict("Growing", {"messages": Kept})  # noqa: UP013 - a class's annotations would be texts


def graph_on(saver: Any, state: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("reply", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])} " * 20)]})
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def turn(graph: Any, number: int) -> str:
    """One turn, as a run of its own; the run's id."""
    run = str(uuid4())
    asked = HumanMessage(f"question {number} " * 20, id=f"q{number}")
    graph.invoke({"messages": [asked]}, {**CONFIG, "metadata": {"run_id": run}})
    return run


@pytest.mark.parametrize("seed", range(2))
def test_any_499_of_500_deleted_in_any_order(db: clew.Database, seed: int, long: bool) -> None:
    """Each checkpoint is a run of its own. They go one by one, or (to be quicker) some together."""
    saver, chance = ClewSaver(db), random.Random(seed)
    log: list[str] = []
    expected: dict[str, Any] = {}
    parent: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for number in range(500):
        match chance.randrange(10):
            case 0 if log:
                del log[chance.randrange(len(log))]
            case 1 if log:
                log[chance.randrange(len(log))] = f"changed {number} " * 5
            case _:
                log.append(f"item {number} " * chance.randrange(1, 30))
        values = {"log": list(log), "text": "x" * number, "n": number}
        versions = dict.fromkeys(values, number + 1)
        id_ = f"{number:05}"
        checkpoint: Any = {"v": 4, "id": id_, "ts": "", "channel_values": values, "channel_versions": versions}
        on = {**parent, "metadata": {"run_id": id_}}
        parent = saver.put(on, {**checkpoint, "versions_seen": {}}, {"step": number}, versions)
        expected[id_] = values
    doomed = sorted(expected)
    doomed.remove("00499" if seed == 0 else chance.choice(doomed))
    chance.shuffle(doomed)
    while doomed:
        together = 1 if long else chance.randrange(1, 60)
        saver.delete_for_runs(doomed[:together])
        for id_ in doomed[:together]:
            del expected[id_]
        del doomed[:together]
        if chance.randrange(5) == 0:
            left = chance.choice(sorted(expected))
            found = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": left}})
            assert found is not None
            assert found.checkpoint["channel_values"] == expected[left]
    (last,) = saver.list(CONFIG)
    assert last.checkpoint["channel_values"] == expected[last.checkpoint["id"]]
    assert saver.get_tuple(CONFIG).checkpoint == last.checkpoint
    assert db.thread("t").state() == last.checkpoint["channel_values"]


@pytest.mark.parametrize("state", [MessagesState, Growing], ids=["messages", "delta"])
def test_runs_deleted_in_any_order_leave_the_latest(db: clew.Database, state: Any, long: bool) -> None:
    saver, chance = ClewSaver(db), random.Random(7)
    graph = graph_on(saver, state)
    turns = 60 if long else 20
    runs = [turn(graph, number) for number in range(turns)]
    before = graph.get_state(CONFIG)
    assert len(before.values["messages"]) == 2 * turns
    doomed = runs[:-1]
    chance.shuffle(doomed)
    for run in doomed:
        saver.delete_for_runs([run])
        assert list(differences(plain(graph.get_state(CONFIG).values), plain(before.values))) == []
    turn(graph, turns)
    assert len(graph.get_state(CONFIG).values["messages"]) == 2 * turns + 2
    left = len(list(saver.list(CONFIG)))
    if state is MessagesState:
        assert left == 6
    else:
        assert 6 <= left < 3 * (turns + 1)


@pytest.mark.parametrize("state", [MessagesState, Growing], ids=["messages", "delta"])
def test_all_but_the_latest_pruned(db: clew.Database, state: Any) -> None:
    """Also in the middle of a `DeltaChannel`'s trail: whatever the latest is read from stays."""
    for turns in (1, 2, 5, 26):
        saver = ClewSaver(db)
        graph = graph_on(saver, state)
        for number in range(turns):
            turn(graph, number)
        before = graph.get_state(CONFIG)
        saver.prune(["t"])
        db.prune(keep_last=1)
        after = graph.get_state(CONFIG)
        assert (
            list(differences(plain(after._replace(parent_config=None)), plain(before._replace(parent_config=None))))
            == []
        )
        assert plain(graph_on(ClewSaver(db), state).get_state(CONFIG).values) == plain(before.values)
        turn(graph, turns)
        assert len(graph.get_state(CONFIG).values["messages"]) == 2 * turns + 2
        saver.delete_thread("t")


def test_langgraphs_own_saver_loses_a_delta_channel_by_it() -> None:
    """The control: deleting what the latest leans on loses messages, where nobody keeps it."""
    saver = InMemorySaver()
    graph = graph_on(saver, Growing)
    for number in range(5):
        turn(graph, number)
    assert len(graph.get_state(CONFIG).values["messages"]) == 10
    kept = graph.get_state(CONFIG).config["configurable"]["checkpoint_id"]
    for id_ in [id_ for id_ in saver.storage["t"][""] if id_ != kept]:
        del saver.storage["t"][""][id_]
        for key in [key for key in saver.writes if key[2] == id_]:
            del saver.writes[key]
    assert len(graph.get_state(CONFIG).values.get("messages", [])) < 10


@pytest.mark.parametrize("state", [MessagesState, Growing], ids=["messages", "delta"])
def test_pruning_while_runs_go_on(db: clew.Database, state: Any) -> None:
    saver = ClewSaver(db)
    graph = graph_on(saver, state)
    done = threading.Event()
    pruned: list[BaseException | int] = []

    def prune() -> None:
        other = ClewSaver(db)
        while not done.is_set():
            try:
                other.prune(["t"])
                db.prune(keep_last=2)
                pruned.append(1)
            except BaseException as error:
                pruned.append(error)

    pruning = threading.Thread(target=prune)
    pruning.start()
    try:
        for number in range(20):
            turn(graph, number)
    finally:
        done.set()
        pruning.join()
    assert [error for error in pruned if error != 1] == []
    assert pruned
    found = graph.get_state(CONFIG).values["messages"]
    assert [one.id for one in found[::2]] == [f"q{number}" for number in range(20)]
    assert [one.text.split()[1] for one in found[1::2]] == [str(2 * number + 1) for number in range(20)]
