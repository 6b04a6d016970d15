"""The official conformance suite of LangGraph's checkpointers: every capability, every test, each backend."""

from __future__ import annotations

import asyncio

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import ProgressCallbacks

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
