"""Submits 25 runs to one thread, for races: `python contenders.py URL NUMBER POLICY …`. It prints what was admitted."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, TypedDict

from errands import die_with_parent

import clew
from clew.errors import Busy


class State(TypedDict, total=False):
    log: Annotated[list[str], clew.extend]
    latest: str


def racer() -> clew.Agent:
    """Two rounds, so that there is something to interrupt and to inject into."""
    agent = clew.Agent("racer", state=State)

    @agent.node(start=True, then="second")
    def first(state: Any) -> Any:
        time.sleep(0.005)
        return {"log": [f"first of {state['latest']}"]}

    @agent.node
    def second(state: Any) -> Any:
        return {"log": [f"second of {state['latest']}"]}

    return agent


def main(url: str, number: str, *policies: Any) -> None:
    die_with_parent()
    agent = racer()
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
