"""What the workers of fault tests run, in processes of their own: `python errands.py URL OUTSIDE HOW …`.

An errand asks the world a question (recorded), does something to it (an effect), and does another thing. The world is a
file that is only appended to: a line for each thing that was really done.
"""

from __future__ import annotations

import logging
import operator
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.append(str(Path(__file__).parents[1]))

import clew
from clew.storage import postgres
from clew.storage.sqlite import SqliteEngine
from outsiders import pull_down


class State(TypedDict, total=False):
    name: str
    log: Annotated[list[str], clew.extend]


class GraphState(TypedDict, total=False):
    name: str
    log: Annotated[list[str], operator.add]


class Outside:
    """The world. Each line is one write, which a kill does not divide."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def do(self, line: str) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def done(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def errand(outside: Outside, *, careful: bool = True, seconds: float = 0.01, graph: bool = False) -> Any:
    """The agent, or a `graph` of LangGraph. Not `careful`: the negative control, whose effects are plain calls."""

    def look(what: str, name: str) -> Any:
        """Whoever meets an effect that was under way at a crash looks at the world."""
        return clew.Done(f"did {what}") if f"{what} {name}" in outside.done() else None

    @(clew.effect(key=lambda what, name: (what, name), on_unknown=look) if careful else lambda fn: fn)
    def do(what: str, name: str) -> str:
        outside.do(f"{what} {name}")
        time.sleep(random.uniform(0, seconds))
        return f"did {what}"

    @clew.recorded
    def ask(name: str) -> str:
        return f"asked {name}"

    def plan(state: Any) -> Any:
        return {"log": [ask(state["name"])]}

    def act(state: Any) -> Any:
        return {"log": [do("buy", state["name"])]}

    def finish(state: Any) -> Any:
        return {"log": [do("send", state["name"]), "finished"]}

    nodes = plan, act, finish
    if not graph:
        agent = clew.Agent("errand", state=State)
        for node, then in zip(nodes, ("act", "finish", None), strict=True):
            agent.node(start=node is plan, then=then)(node)
        return agent
    from langgraph.graph import START, StateGraph

    from clew.adapters.langgraph import LangGraphAgent

    builder = StateGraph(GraphState)
    builder.add_sequence(nodes)
    builder.add_edge(START, "plan")
    return LangGraphAgent(builder.compile(), name="errand")


def expected(name: str) -> list[str]:
    """What stands in the state for an errand that nothing has disturbed."""
    return [f"asked {name}", "did buy", "did send", "finished"]


def open_with(url: str, expiry: float, durability: Any = "relaxed") -> clew.Database:
    """A database whose leases last that long."""
    if url.startswith("postgres"):
        engine: Any = postgres.PostgresEngine(url, durability, expiry=expiry)
    else:
        engine = SqliteEngine(url, durability, expiry=expiry)
    return clew.Database(engine, "default")


def impatient(how: str) -> None:
    """Whether a call that lost its connection is not made again: each of those ends a stretch of its run then."""
    if "impatient" in how or ("mixed" in how and os.getpid() % 2):
        postgres.ATTEMPTS = 1


def warnings_of(outside: Path, pid: int) -> str:
    """What a worker has complained of."""
    path = Path(f"{outside}.log")
    return "\n".join(line for line in path.read_text().splitlines() if line.startswith(f"{pid} "))


def die_with_parent() -> None:
    """A test that is killed leaves nobody behind."""

    def watch() -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def tell_when_ready() -> None:
    """From now on SIGTERM is heard."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.005)
    print("ready", flush=True)


def main(url: str, outside: str, how: str = "", expiry: str = "10", seconds: str = "0.01") -> None:
    die_with_parent()
    logging.basicConfig(filename=f"{outside}.log", format="%(process)d %(message)s")
    impatient(how)
    world = Outside(outside)
    agent = errand(world, careful="careless" not in how, seconds=float(seconds), graph="graph" in how)
    with open_with(url, float(expiry), "strict" if "strict" in how else "relaxed") as db:
        if "unfenced" in how:
            pull_down(db._storage)
        threading.Thread(target=tell_when_ready, daemon=True).start()
        clew.Worker(db, [agent], concurrency=4, crashes=50).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
