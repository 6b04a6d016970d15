"""The official conformance suite of LangGraph's checkpointers: every capability, every test, each backend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import clew
from clew.adapters.langgraph import ClewSaver


def test_every_capability_passes(db: clew.Database) -> None:
    @checkpointer_test(name="ClewSaver")
    async def made():
        yield ClewSaver(db)

    failed: list[str] = []
    passed: list[str] = []

    def note(capability: str, name: str, fine: bool, error: str | None) -> None:
        (passed if fine else failed).append(f"{capability}/{name}\n{error or ''}")

    report = asyncio.run(validate(made, progress=ProgressCallbacks(on_test_result=note)))
    assert failed == []
    assert {name for name, result in report.results.items() if result.passed} == {one.value for one in Capability}
    assert len(passed) >= 81


@pytest.mark.parametrize("name", ["InMemorySaver", "AsyncSqliteSaver", "AsyncPostgresSaver"])
def test_control_what_langgraphs_own_savers_pass(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The suite tells savers apart."""

    @checkpointer_test(name=name)
    async def made():
        if name == "InMemorySaver":
            yield InMemorySaver()
        elif name == "AsyncSqliteSaver":
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
                yield saver
        else:
            url = request.getfixturevalue("empty_postgres").admin_url
            async with AsyncPostgresSaver.from_conn_string(url) as saver:
                await saver.setup()
                yield saver

    report = asyncio.run(validate(made, progress=ProgressCallbacks()))
    passed = sorted(of for of, result in report.results.items() if result.passed)
    with capsys.disabled():
        print(f"\n{name}: {len(passed)} of {len(Capability)}: {', '.join(passed)}")
    assert 4 < len(passed) < len(Capability)
