"""Random graphs, built for Clew and for LangGraph: nodes that log what they saw, edges of every kind, bounded loops."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypedDict

from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

import clew

WORKERS = ("w0", "w1")
"""Nodes that are only sent to."""


def add_up(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    return {**old, **{name: old.get(name, 0) + count for name, count in new.items()}}


class Ours(TypedDict):
    log: Annotated[list[str], clew.extend]
    visits: Annotated[dict[str, int], add_up]
    total: Annotated[int, operator.add]
    plain: str


class Theirs(TypedDict):
    log: Annotated[list[str], operator.add]
    visits: Annotated[dict[str, int], add_up]
    total: Annotated[int, operator.add]
    plain: str


def given() -> dict[str, Any]:
    return {"log": ["in"], "visits": {}, "total": 0, "plain": ""}


class To(NamedTuple):
    """A node that is chosen, or sent a value."""

    node: str
    value: int | None = None


class Spec(NamedTuple):
    """One node. `then`: names, or what its function chooses at its first visit, its second … and none after that."""

    name: str
    start: bool = False
    static: tuple[str, ...] = ()
    chosen: tuple[tuple[To, ...], ...] | None = None
    after: tuple[str, ...] = ()
    writes: bool = False
    """Whether it writes the key without a reducer."""
    awaits: bool = False


@st.composite
def graphs(draw: st.DrawFn) -> list[Spec]:
    names = [chr(ord("a") + at) for at in range(draw(st.integers(2, 6)))]
    everywhere = st.one_of(
        st.sampled_from(names).map(To), st.tuples(st.sampled_from(WORKERS), st.integers(0, 3)).map(lambda two: To(*two))
    )
    choices = st.lists(st.lists(everywhere, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
    specs: list[Spec] = []
    for at, name in enumerate(names):
        # Static edges and joins lead on, so that only choices make loops, and those run out.
        later, earlier = names[at + 1 :], (*names[:at], *WORKERS)
        static = draw(st.lists(st.sampled_from(later), unique=True, max_size=2)) if later else []
        chosen = draw(st.none() | choices)
        after = draw(st.one_of(st.just([]), st.lists(st.sampled_from(earlier), unique=True, min_size=2, max_size=3)))
        flags = draw(st.booleans()), draw(st.integers(0, 3)) == 0, draw(st.booleans())
        specs.append(Spec(name, flags[0], () if chosen else tuple(static), chosen, tuple(after), *flags[1:]))
    ends = [draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) for _ in WORKERS]
    workers = [Spec(name, static=tuple(end)) for name, end in zip(WORKERS, ends, strict=True)]
    return _reached([*specs, *workers])


def _reached(specs: list[Spec]) -> list[Spec]:
    """With further starts, so that something leads to each node; without workers that nobody sends to."""
    while lost := [spec for spec in specs if spec.name not in _led_to(specs)]:
        first = lost[0]
        if first.name not in WORKERS:
            specs = [spec._replace(start=spec.start or spec is first) for spec in specs]
        else:
            specs = [_without(spec, first.name) for spec in specs if spec is not first]
    return specs


def _without(spec: Spec, gone: str) -> Spec:
    return spec._replace(after=() if gone in spec.after else spec.after)


def _led_to(specs: list[Spec]) -> set[str]:
    named = {spec.name: spec for spec in specs}
    todo = [spec.name for spec in specs if spec.start]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += named[name].static
            todo += [to.node for turn in named[name].chosen or () for to in turn]
            todo += [spec.name for spec in specs if name in spec.after]
    return found


def work(spec: Spec) -> Callable[[Any], Any]:
    """What a node does: it logs how much it saw, so that the log tells of the rounds."""

    def node(seen: Any) -> Any:
        if spec.name in WORKERS:
            return {"log": [f"{spec.name}:{seen}"], "visits": {spec.name: 1}, "total": seen}
        update = {"log": [f"{spec.name}@{len(seen['log'])}"], "visits": {spec.name: 1}, "total": 1}
        return {**update, "plain": spec.name} if spec.writes else update

    return node


def choice(spec: Spec) -> Callable[[Any], tuple[To, ...]]:
    """What follows: by how often the node has run, which all planners see alike."""
    turns = spec.chosen or ()

    def choose(state: Any) -> tuple[To, ...]:
        visit = state["visits"][spec.name] - 1
        return turns[visit] if visit < len(turns) else ()

    return choose


def ours(specs: list[Spec]) -> clew.Agent:
    agent = clew.Agent("random", state=Ours)
    for spec in specs:
        agent.node(name=spec.name, start=spec.start, then=then(spec), after=spec.after)(_function(spec))
    return agent


def _function(spec: Spec) -> Callable[[Any], Any]:
    node = work(spec)
    if not spec.awaits:
        return node

    async def awaited(seen: Any) -> Any:
        return node(seen)

    return awaited


def then(spec: Spec) -> Any:
    if spec.chosen is None:
        return spec.static
    choose = choice(spec)
    return lambda state: [to.node if to.value is None else clew.Send(*to) for to in choose(state)]


def theirs(specs: list[Spec]) -> Any:
    builder: Any = StateGraph(Theirs)
    for spec in specs:
        builder.add_node(spec.name, work(spec))
    for spec in specs:
        if spec.start:
            builder.add_edge(START, spec.name)
        if spec.after:
            builder.add_edge(list(spec.after), spec.name)
        if spec.chosen is not None:
            builder.add_conditional_edges(spec.name, _chooser(spec))
        for target in spec.static:
            builder.add_edge(spec.name, target)
    return builder.compile()


def _chooser(spec: Spec) -> Callable[[Any], Any]:
    choose = choice(spec)
    return lambda state: [to.node if to.value is None else Send(*to) for to in choose(state)] or END
