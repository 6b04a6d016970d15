"""Submits 25 runs to one thread, for races: `python contenders.py URL KIND NUMBER POLICY …`.

It prints what was admitted, and with a "-" before it what was refused.
"""

from __future__ import annotations

import operator
import sys
import time
from typing import Annotated, Any, TypedDict

from errands import die_with_parent

import clew
from clew.errors import Busy


class State(TypedDict, total=False):
    log: Annotated[list[str], clew.extend]
    latest: str


class GraphState(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    latest: str


def first(state: Any) -> Any:
    time.sleep(0.005)
    return {"log": [f"first of {state['latest']}"]}


def second(state: Any) -> Any:
    return {"log": [f"second of {state['latest']}"]}


def racer(kind: str) -> Any:
    """Two rounds, so that there is something to interrupt and to inject into: an agent, or a graph of LangGraph."""
    if kind == "graph":
        from langgraph.graph import START, StateGraph

        from clew.adapters.langgraph import LangGraphAgent

        builder = StateGraph(GraphState)
        builder.add_sequence([first, second])
        builder.add_edge(START, "first")
        return LangGraphAgent(builder.compile(), name="racer")
    agent = clew.Agent("racer", state=State)
    agent.node(start=True, then="second")(first)
    agent.node(second)
    return agent


def main(url: str, kind: str, number: str, *policies: Any) -> None:
    die_with_parent()
    agent = racer(kind)
    with clew.open(url, durability="relaxed") as db:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(25):
            policy = policies[(n + int(number)) % len(policies)]
            key = f"{policy}:{number}.{n}"
            try:
                db.submit(agent, "t", {"log": [key], "latest": key}, key=key, if_busy=policy)
            except Busy:
                key = f"-{key}"
            print(key)
            time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
