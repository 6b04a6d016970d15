"""Log records say which run, thread and node they come from."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import clew
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


def test_a_record_keeps_what_it_says_itself() -> None:
    record = logging.makeLogRecord({"msg": "hello", "clew_run": "run-7"})
    assert RunFilter().filter(record)
    assert (record.__dict__["clew_run"], record.__dict__["clew_tenant"]) == ("run-7", "-")
