"""Log records say which run, thread and node they come from."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from stories import Log

import clew
from clew.adapters.langgraph import LangGraphAgent
from clew.adapters.logs import RunFilter

app = logging.getLogger("app")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a program's handler writes, with the filter on it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RunFilter())
    handler.setFormatter(logging.Formatter("%(clew_thread)s/%(clew_branch)s %(clew_agent)s.%(clew_node)s %(message)s"))
    loggers = app, logging.getLogger("clew")
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield stream
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def test_records_have_their_place(db: clew.Database, written: io.StringIO) -> None:
    agent = clew.Agent("trip")

    @agent.node(start=True, then="beside")
    def plain(state: Any) -> None:
        app.info("in plain")

    @agent.node
    async def beside(state: Any) -> None:
        await asyncio.to_thread(app.info, "in a thread of beside")

    app.info("before")
    run = agent.run(db.thread("t"))
    app.info("after")
    assert written.getvalue().splitlines() == [
        "-/- -.- before",
        "t/main trip.plain in plain",
        "t/main trip.beside in a thread of beside",
        f"t/main trip.- run {run.id} is done",
        "-/- -.- after",
    ]


@pytest.mark.parametrize("awaited", [False, True])
def test_records_of_a_graph_that_a_worker_drives(db: clew.Database, written: io.StringIO, awaited: bool) -> None:
    def plain(state: Any) -> Any:
        app.info("in a node")
        return {"log": ["one"]}

    async def waits(state: Any) -> Any:
        return await asyncio.to_thread(plain, state)

    builder = StateGraph(Log)
    for name in ("left", "right", "last"):
        builder.add_node(name, waits if awaited else plain)
    for name in ("left", "right"):
        builder.add_edge(START, name)
    builder.add_edge(["left", "right"], "last")
    agent = LangGraphAgent(builder.compile(), name="graph")
    run = db.submit(agent, "t", {"log": []})
    clew.Worker(db, agent).run(until_idle=True)
    lines = written.getvalue().splitlines()
    assert sorted(lines[:2]) == ["t/main graph.left in a node", "t/main graph.right in a node"]
    assert lines[2:] == ["t/main graph.last in a node", f"t/main graph.- run {run.id} is done"]


def test_a_record_keeps_what_it_says_itself() -> None:
    record = logging.makeLogRecord({"msg": "hello", "clew_run": "run-7"})
    assert RunFilter().filter(record)
    assert (record.__dict__["clew_run"], record.__dict__["clew_tenant"]) == ("run-7", "-")
