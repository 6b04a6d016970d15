"""One saver used from everywhere at once: threads, tasks, loops, copies, forked processes; and closed under them."""

from __future__ import annotations

import asyncio
import copy
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from places import Place
from postgres_sessions import PassedAround
from racing import STATES, asked, graph_on, ids

import clew
from clew.adapters.langgraph import ClewSaver, RaceWarning
from clew.errors import Closed
from clew.testing.postgres import TestDatabase

TURNS = 6


def config(thread: object) -> Any:
    return {"configurable": {"thread_id": f"thread {thread}"}}


def chat(saver: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("reply", lambda state: {"messages": [AIMessage(f"answer to {state['messages'][-1].text}")]})
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def question(thread: object, turn: int) -> Any:
    return {"messages": [HumanMessage(f"{thread}/{turn}", id=f"{thread}/{turn}")]}


def whole(graph: Any, thread: object, turns: int = TURNS) -> None:
    texts = [message.text for message in graph.get_state(config(thread)).values["messages"]]
    assert texts == [text for turn in range(turns) for text in (f"{thread}/{turn}", f"answer to {thread}/{turn}")]
    assert len(list(graph.get_state_history(config(thread)))) == 3 * turns


@pytest.mark.filterwarnings("error::clew.adapters.langgraph.RaceWarning")
def test_threads_of_a_pool(db: clew.Database) -> None:
    """Each conversation by whichever thread is free; readers and a listing beside them."""
    graph = chat(ClewSaver(db))

    def conversation(thread: int) -> None:
        for turn in range(TURNS):
            graph.invoke(question(thread, turn), config(thread))
            list(graph.checkpointer.list(None, limit=5))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(conversation, range(12)))
    for thread in range(12):
        whole(graph, thread)


@pytest.mark.filterwarnings("error::clew.adapters.langgraph.RaceWarning")
def test_many_tasks(db: clew.Database) -> None:
    graph = chat(ClewSaver(db))

    async def conversation(thread: int) -> None:
        for turn in range(TURNS):
            await graph.ainvoke(question(thread, turn), config(thread))

    async def all_of_them() -> None:
        await asyncio.gather(*(conversation(thread) for thread in range(40)))

    asyncio.run(all_of_them())
    for thread in range(0, 40, 7):
        whole(graph, thread)


def test_one_loop_after_another_and_two_at_once(db: clew.Database) -> None:
    graph = chat(ClewSaver(db))
    for turn in range(3):
        asyncio.run(graph.ainvoke(question("a", turn), config("a")))

    def in_a_loop(thread: int) -> None:
        async def turns() -> None:
            for turn in range(TURNS):
                await graph.ainvoke(question(thread, turn), config(thread))

        asyncio.run(turns())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(in_a_loop, range(4)))
    for thread in range(4):
        whole(graph, thread)
    for turn in range(3, TURNS):
        graph.invoke(question("a", turn), config("a"))
    whole(graph, "a")


def test_a_cancelled_run_leaves_a_thread_that_goes_on(db: clew.Database) -> None:
    saver = ClewSaver(db)
    entered: list[asyncio.Event] = []

    async def stuck(state: Any) -> Any:
        entered[0].set()
        await asyncio.sleep(3600)

    builder = StateGraph(MessagesState)
    builder.add_node("stuck", stuck)
    builder.add_edge(START, "stuck")
    graph = builder.compile(checkpointer=saver)

    async def cancelled() -> None:
        entered.append(asyncio.Event())
        running = asyncio.create_task(graph.ainvoke(question("a", 0), config("a")))
        await entered[0].wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    chat(saver).invoke(question("a", 1), config("a"))
    assert ids(chat(saver).get_state(config("a")).values)[:2] == ["a/0", "a/1"]


def test_copies_are_the_same_saver(db: clew.Database) -> None:
    """LangGraph copies a checkpointer for what it compiles anew."""
    saver = ClewSaver(db)
    graphs = [chat(saver), chat(copy.copy(saver)), chat(saver.with_allowlist([]))]
    for turn in range(TURNS):
        graphs[turn % 3].invoke(question("a", turn), config("a"))
    for graph in graphs:
        whole(graph, "a")


def test_closed_under_it(place: Place) -> None:
    saver = ClewSaver(place.open())
    graph = chat(saver)
    graph.invoke(question("a", 0), config("a"))
    left = saver.list(config("a"))
    next(left)
    saver.close()
    saver.close()
    for use in (
        lambda: graph.invoke(question("a", 1), config("a")),
        lambda: saver.get_tuple(config("a")),
        lambda: list(saver.list(None)),
        lambda: asyncio.run(saver.aget_tuple(config("a"))),
    ):
        with pytest.raises(Closed):
            use()


@pytest.mark.parametrize("state", STATES)
def test_two_threads_of_one_process_race(db: clew.Database, state: str) -> None:
    """As two processes do: both are kept, the race is told, and no head mixes them."""
    saver = ClewSaver(db)
    graphs = {name: graph_on(saver, state, "input", name) for name in "abc"}
    met = 0
    with ThreadPoolExecutor(2) as pool:
        for trial in range(15):
            graphs["c"].invoke(asked("c", "input"), config(trial))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", RaceWarning)
                runs = [pool.submit(graphs[name].invoke, asked(name, "input"), config(trial)) for name in "ab"]
                came_to = [ids(run.result()) for run in runs]
            states = [ids(graphs["c"].get_state(one.config).values) for one in saver.list(config(trial))]
            assert all(one in states for one in came_to)
            assert ids(graphs["c"].get_state(config(trial)).values) in came_to
            met += any(issubclass(one.category, RaceWarning) for one in caught)
    assert met


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_after_a_fork_the_child_reads_and_the_parent_goes_on(place: Place) -> None:
    if place.memory is not None or place.url == "memory:":
        saver = ClewSaver(place.open())
    else:
        saver = ClewSaver(clew.open(place.url, durability="relaxed"))
    graph = chat(saver)
    graph.invoke(question("a", 0), config("a"))
    asyncio.run(saver.aget_tuple(config("a")))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            saver.get_tuple(config("a"))
            asyncio.run(saver.aget_tuple(config("a")))
            os.write(write, b"read")
        except Exception as error:
            os.write(write, repr(error).encode()[:100])
        finally:
            os._exit(0)
    os.close(write)
    told = os.read(read, 100)
    os.waitpid(child, 0)
    os.close(read)
    assert told == b"read"
    for turn in range(1, TURNS):
        graph.invoke(question("a", turn), config("a"))
    whole(graph, "a")


def test_behind_a_transaction_pooler(postgres: TestDatabase) -> None:
    """Each transaction may get a session that another client has used and left its settings in."""
    with ClewSaver.open(postgres.url) as saver:
        engine = saver.db._engine
        engine._pool.close()
        sessions: Any = PassedAround(postgres.url, engine)
        engine._pool = sessions
        graph = chat(saver)
        for turn in range(TURNS):
            graph.invoke(question("a", turn), config("a"))
        whole(graph, "a")
        asking = graph_on(saver, "delta", "resume", "x")
        asking.invoke(asked("x", "input"), config("b"))
        assert len(list(saver.db.requests())) == 1
        asking.invoke(Command(resume="yes"), config("b"))
        assert ids(asking.get_state(config("b")).values)[-1].startswith("x-second")
        saver.copy_thread("thread a", "thread c")
        saver.prune(["thread a", "thread b"])
        assert len(graph.get_state(config("c")).values["messages"]) == 2 * TURNS
        assert len(list(saver.list(None))) >= 3 * TURNS
        saver.delete_thread("thread c")
        assert sessions.served > 50
