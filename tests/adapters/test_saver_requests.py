"""An interrupt is a durable request: opened in the commit that records it, and withdrawn once no run waits for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from stories import Log

import clew
from clew.adapters.langgraph import ClewSaver
from clew.placed import Place, PlacedThreads, Question, Write
from clew.state.codec import decode
from clew.storage.ledger import ledger_of

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def requests(db: clew.Database, status: Any = "open", thread_id: str | None = "t") -> list[Any]:
    found = ledger_of(db._storage).requests(status=status, thread_id=thread_id)
    return [decode(request.question) for request in found]


def node(*questions: Any):
    def ask(state: Any) -> Any:
        return {"log": [interrupt(question) for question in questions]}

    return ask


def graph_of(saver: ClewSaver, **asks: Any) -> Any:
    """Nodes that ask side by side, one that does not, and then an end."""
    builder = StateGraph(Log)
    builder.add_node("quiet", lambda state: {"log": ["quiet"]})
    builder.add_edge(START, "quiet")
    builder.add_node("end", lambda state: {"log": ["end"]})
    for name, action in asks.items():
        builder.add_node(name, action)
        builder.add_edge("quiet", name)
        builder.add_edge(name, "end")
    builder.add_edge("end", END)
    return builder.compile(checkpointer=saver)


def test_a_question_is_a_request_until_it_is_answered(db: clew.Database) -> None:
    graph = graph_of(ClewSaver(db), ask=node({"book": 420}))
    graph.invoke({"log": []}, CONFIG)
    assert requests(db) == [{"book": 420}]
    (request,) = ledger_of(db._storage).requests(status="open")
    (waiting,) = graph.get_state(CONFIG).interrupts
    assert request.ask == waiting.id
    assert db.thread("t").checkpoint("head").step == request.step
    graph.invoke(None, CONFIG)  # asks the same again
    assert [one.number for one in ledger_of(db._storage).requests(status="open")] == [request.number]
    graph.invoke(Command(resume="yes"), CONFIG)
    assert requests(db) == []
    assert requests(db, "withdrawn") == [{"book": 420}]
    assert graph.get_state(CONFIG).values["log"] == ["quiet", "yes", "end"]


def test_it_is_withdrawn_with_the_answer_not_with_the_end(db: clew.Database) -> None:
    """The request goes in the commit that records the answer, before the node runs again."""
    seen: list[Any] = []

    def ask(state: Any) -> Any:
        seen.append(requests(db))
        return {"log": [interrupt("one"), interrupt("two")]}

    graph = graph_of(ClewSaver(db), ask=ask)
    graph.invoke({"log": []}, CONFIG, durability="sync")
    assert requests(db) == ["one"]
    graph.invoke(Command(resume=1), CONFIG, durability="sync")
    assert requests(db) == ["two"]
    graph.invoke(Command(resume=2), CONFIG, durability="sync")
    assert requests(db) == []
    assert requests(db, None) == ["one", "two"]
    assert seen[0] == []


def test_the_same_question_after_an_answer_is_another_request(db: clew.Database) -> None:
    def ask(state: Any) -> Any:
        while not (name := interrupt("name?")):
            pass
        return {"log": [name]}

    graph = graph_of(ClewSaver(db), ask=ask)
    graph.invoke({"log": []}, CONFIG)
    first = [one.number for one in ledger_of(db._storage).requests(status="open")]
    graph.invoke(Command(resume=""), CONFIG)
    second = [one.number for one in ledger_of(db._storage).requests(status="open")]
    assert requests(db) == ["name?"]
    assert first != second
    graph.invoke(Command(resume="Ada"), CONFIG)
    assert requests(db) == []


def test_several_are_answered_one_by_one(db: clew.Database) -> None:
    graph = graph_of(ClewSaver(db), one=node("one?"), two=node("two?"))
    graph.invoke({"log": []}, CONFIG)
    assert sorted(requests(db)) == ["one?", "two?"]
    ids = {one.value: one.id for one in graph.get_state(CONFIG).interrupts}
    graph.invoke(Command(resume={ids["two?"]: "b"}), CONFIG)
    assert requests(db) == ["one?"]
    graph.invoke(Command(resume={ids["one?"]: "a"}), CONFIG)
    assert requests(db) == []
    assert sorted(requests(db, "withdrawn")) == ["one?", "two?"]


def test_a_question_from_within_is_one_request(db: clew.Database) -> None:
    """A subgraph's interrupt comes up through the tasks around it."""
    inner = StateGraph(Log)
    inner.add_node("deep", lambda state: {"log": [interrupt(state["log"][-1])]})
    inner.add_edge(START, "deep")
    builder = StateGraph(Log)
    builder.add_node("inner", inner.compile())
    builder.add_node("begin", lambda state: {"log": []})
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", lambda _: [Send("inner", {"log": [of]}) for of in "ab"], ["inner"])
    graph = builder.compile(checkpointer=ClewSaver(db))
    graph.invoke({"log": []}, CONFIG)
    assert sorted(requests(db)) == ["a", "b"]
    ids = {one.value: one.id for one in graph.get_state(CONFIG).interrupts}
    graph.invoke(Command(resume={ids["a"]: 1}), CONFIG)
    assert requests(db) == ["b"]
    graph.invoke(Command(resume={ids["b"]: 2}), CONFIG)
    assert requests(db) == []
    assert len(requests(db, None)) == 2


@pytest.mark.parametrize("leave", ["input", "update", "fork"])
def test_what_no_run_comes_back_to_is_withdrawn(db: clew.Database, leave: str) -> None:
    graph = graph_of(ClewSaver(db), ask=node("well?"))
    graph.invoke({"log": []}, CONFIG)
    before = list(graph.get_state_history(CONFIG))
    (request,) = ledger_of(db._storage).requests(status="open")
    if leave == "input":
        graph.invoke({"log": ["new"]}, CONFIG)
        assert requests(db) == ["well?"]  # that of the new run
    elif leave == "update":
        graph.update_state(CONFIG, {"log": ["edited"]})
        assert requests(db) == []
    else:
        graph.update_state(before[-1].config, {"log": ["from the start"]}, as_node="quiet")
        assert requests(db) == []
    row = ledger_of(db._storage).request(request.number)
    assert row is not None
    assert row.status == "withdrawn"


def test_threads_keep_their_own_requests(db: clew.Database) -> None:
    graph = graph_of(ClewSaver(db), ask=node("well?"))
    other: Any = {"configurable": {"thread_id": "other"}}
    graph.invoke({"log": []}, CONFIG)
    graph.invoke({"log": []}, other)
    graph.invoke(Command(resume="yes"), CONFIG)
    assert (requests(db), requests(db, thread_id="other")) == ([], ["well?"])
    ClewSaver(db).delete_thread("other")
    assert requests(db, None, None) == ["well?"]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_awaited_and_in_each_durability(db: clew.Database, durability: Any) -> None:
    graph = graph_of(ClewSaver(db), ask=node("one", "two"))

    async def run() -> None:
        await graph.ainvoke({"log": []}, CONFIG, durability=durability)
        assert requests(db) == ["one"]
        await graph.ainvoke(Command(resume=1), CONFIG, durability=durability)
        assert requests(db) == ["two"]
        await graph.ainvoke(Command(resume=2), CONFIG, durability=durability)
        assert requests(db) == []

    asyncio.run(run())


def test_a_waiting_thread_is_not_pruned_away(db: clew.Database) -> None:
    saver = ClewSaver(db)
    graph = graph_of(saver, ask=node("well?"))
    graph.invoke({"log": []}, CONFIG)
    saver.prune(["t"])
    db.prune(keep_last=1)
    assert requests(db) == ["well?"]
    assert graph.invoke(Command(resume="yes"), CONFIG)["log"] == ["quiet", "yes", "end"]


def test_request_and_record_are_one_commit(db: clew.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after the record was written undoes both."""
    from clew.storage import placed

    def fail(*_: Any) -> None:
        raise RuntimeError("cut off")

    saver = ClewSaver(db)
    graph = graph_of(saver, ask=node("well?"))
    monkeypatch.setattr(placed, "ask", fail)
    with pytest.raises(RuntimeError, match="cut off"):
        graph.invoke({"log": []}, CONFIG)
    monkeypatch.undo()
    assert requests(db, None) == []
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert [name for _, name, _ in found.pending_writes or []] == []


def test_static_breakpoints_are_next_not_requests(db: clew.Database) -> None:
    graph = graph_of(ClewSaver(db), ask=lambda state: {"log": ["asked nobody"]})
    graph.invoke({"log": []}, CONFIG, interrupt_before=["ask"])
    assert requests(db) == []
    assert db.thread("t").checkpoint("head").next == ("ask",)


def test_writes_before_their_checkpoint_open_requests_that_it_leaves_alone(db: clew.Database) -> None:
    """LangGraph may hand over what a task asks before the checkpoint that the task belongs to."""
    saver, first = ClewSaver(db), threading.Event()

    class Late(ClewSaver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if metadata["source"] == "loop" and metadata["step"] == 1:
                assert first.wait(30)
            return super().put(config, checkpoint, metadata, new_versions)

        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            super().put_writes(config, writes, task_id, task_path)
            if writes[0][0] == "__interrupt__":
                first.set()

    graph = graph_of(Late(db), ask=node("well?"))
    graph.invoke({"log": []}, CONFIG, durability="async")
    assert first.is_set()
    assert requests(db) == ["well?"]
    graph_of(saver, ask=node("well?")).invoke(Command(resume="yes"), CONFIG)
    assert requests(db) == []


def test_an_answer_never_closes_the_question_that_comes_after_it(db: clew.Database) -> None:
    """LangGraph hands the answer and the next question to threads of its own: the later one may get there first."""
    threads = PlacedThreads(db)
    here = Place("t", "", "0001")
    answer = threads.encoded(here, [Write("-", -4, "", "__resume__", "")], answered="")
    question = threads.encoded(here, [Write("a", -3, "", "__interrupt__", "?")], [Question("q", "name?")])
    later = threading.Thread(target=threads.record, args=(question,))
    later.start()
    later.join(0.2)  # time enough to write, if it did not wait
    threads.record(answer)
    later.join(30)
    assert requests(db) == ["name?"]
