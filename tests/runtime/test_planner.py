"""The planner: on random graphs, beside LangGraph's; and by itself, for it is pure."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from graphs import Spec, To, given, graphs, ours, theirs
from hypothesis import HealthCheck, event, settings
from hypothesis import given as each
from langgraph.errors import InvalidUpdateError

import clew
from clew.errors import BadInput
from clew.runtime.machine import Position, unpack

LIMIT = {"recursion_limit": 200}
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]


def run_ours(db: clew.Database, specs: list[Spec]) -> tuple[Any, int]:
    """The final state, or what was refused; and the number of rounds."""
    thread = db.thread("t")
    agent = ours(specs)
    assert agent.graph.nodes
    try:
        state: Any = agent.run(thread, given()).state
    except BadInput:
        state = "two writers"
    rounds = len(thread.history()) - 1
    db.delete("t")
    return state, rounds


def run_theirs(specs: list[Spec]) -> tuple[Any, int]:
    seen: list[Any] = []
    try:
        seen += theirs(specs).stream(given(), LIMIT, stream_mode="values")
    except InvalidUpdateError:
        return "two writers", -1
    return seen[-1], len(seen) - 1


def test_random_graphs_come_to_the_same_under_langgraph(examples: int) -> None:
    with clew.open("memory:") as db:

        @settings(max_examples=2 * examples, deadline=None, suppress_health_check=QUIET)
        @each(specs=graphs())
        def compare(specs: list[Spec]) -> None:
            state, rounds = run_ours(db, specs)
            expected, steps = run_theirs(specs)
            assert state == expected
            assert steps in (-1, rounds)
            event(f"{min(rounds, 9)} rounds")

        compare()


FAN = [
    Spec("a", start=True, static=("b", "c")),
    Spec("b", chosen=((To("w0", 1), To("w0", 2), To("d")), (To("b"),))),
    Spec("c", static=("d",), awaits=True),
    Spec("d", after=("b", "c")),
    Spec("e", after=("d", "w0")),
    Spec("w0", static=("b",)),
]


def test_one_of_each_kind_of_edge() -> None:
    """So that the random ones are known to compare something."""
    with clew.open("memory:") as db:
        state, rounds = run_ours(db, FAN)
    assert (state, rounds) == run_theirs(FAN)
    assert state["visits"] == {"a": 1, "b": 3, "c": 1, "d": 1, "w0": 2, "e": 1}
    assert state["log"][:5] == ["in", "a@1", "b@2", "c@2", "d@4"]


def test_a_planner_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: joins that do not wait."""
    from clew.runtime.machine import Graph

    plain = Graph.__init__

    def hasty(self: Any, agent: Any, nodes: Any, start: Any, then: Any, after: Any) -> None:
        plain(self, agent, nodes, start, then, {join: names[:1] for join, names in after.items()})

    monkeypatch.setattr(Graph, "__init__", hasty)
    with clew.open("memory:") as db:
        assert run_ours(db, FAN)[0] != run_theirs(FAN)[0]


# -- what must hold of any plan


@settings(deadline=None)
@each(specs=graphs())
def test_positions(specs: list[Spec]) -> None:
    graph = ours(specs).graph
    order = {name: at for at, name in enumerate(graph.nodes)}
    visits = dict.fromkeys(order, 0)
    seen: dict[str, set[str]] = {spec.name: set() for spec in specs if spec.after}
    position = graph.begin()
    assert [task.node for task in position.tasks] == [spec.name for spec in specs if spec.start]
    for number in range(60):
        assert position.round == number
        stored = position.pack()
        assert unpack(stored) == (position if position.tasks else Position(0, ()))
        if not position.tasks:
            return
        nodes = [task for task in position.tasks if task.sent < 0]
        assert [order[task.node] for task in nodes] == sorted({order[task.node] for task in nodes})
        assert [task.sent for task in position.tasks[len(nodes) :]] == list(range(len(position.tasks) - len(nodes)))
        assert len({task.name for task in position.tasks}) == len(position.tasks)
        ran = {task.node for task in position.tasks}
        for task in position.tasks:
            visits[task.node] += 1
        before = copy.deepcopy(position)
        following = graph.advance(position, lambda: {"visits": visits})
        assert position == before
        assert graph.advance(unpack(stored), lambda: {"visits": visits}) == following
        for join, names in seen.items():
            names |= ran & set(graph.after[join])
            whole = names == set(graph.after[join])
            if whole:
                assert join in {task.node for task in following.tasks if task.sent < 0}
                names.clear()
            if following.tasks:
                assert set(following.arrived.get(join, ())) == names
        position = following
    raise AssertionError("it goes on for ever")
