"""Threads of nodes that run side by side: used again, never too few, and a forked child has its own."""

from __future__ import annotations

import os
import threading
from typing import Annotated, Any, TypedDict

import clew


class Found(TypedDict):
    names: Annotated[list[str], clew.extend]


def fan(parts: dict[str, Any]) -> clew.Agent:
    agent = clew.Agent("fan", state=Found)
    for name, part in parts.items():
        agent.node(name=name, start=True)(part)
    return agent


def named(name: str) -> Any:
    return lambda _: {"names": [f"{name} on {threading.current_thread().name}"]}


def test_rounds_use_the_same_threads(db: clew.Database) -> None:
    agent = fan({name: named(name) for name in "abc"})
    for turn in range(10):
        state = agent.run(db.thread(f"then-{turn}")).state
        assert [name.split()[0] for name in state["names"]] == ["a", "b", "c"]
        assert all(name.endswith("clew-node") for name in state["names"])
    # One that has just finished may not be free yet when the next round begins.
    assert sum(thread.name == "clew-node" for thread in threading.enumerate()) <= 2 * len("abc")


def test_nodes_that_wait_for_nodes_are_never_short_of_threads(db: clew.Database) -> None:
    def deep(level: int) -> Any:
        def part(_: Any) -> dict[str, Any]:
            if level == 0:
                return {"names": ["end"]}
            inner = fan({"a": deep(level - 1), "b": deep(level - 1)})
            names = inner.run(db.thread(f"{level}-{os.urandom(4).hex()}")).state["names"]
            return {"names": names}

        return part

    state = fan({"a": deep(4), "b": deep(4)}).run(db.thread("top")).state
    assert state["names"] == ["end"] * 32


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    agent = fan({name: named(name) for name in "abc"})
    agent.run(clew.open("memory:").thread("parent"))
    child = os.fork()
    if child == 0:
        try:
            agent.run(clew.open("memory:").thread("child"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
