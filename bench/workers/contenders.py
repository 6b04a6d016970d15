"""One worker process of a contender: `python -m bench.workers.contenders …`. Its agent has three nodes that do nothing.

    clew URL | dbos URL | langgraph URL NUMBER OF-SO-MANY RUNS

It prints "ready", and begins when it is told a line. Clew's and DBOS's work until they are killed.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any, TypedDict

import clew

QUEUE, WORKFLOW, VERSION = "bench", "noop", "1"
CONCURRENCY = 3
"""Runs that each of the processes drives at once."""


class State(TypedDict, total=False):
    n: int


def agent() -> clew.Agent:
    made = clew.Agent("noop", state=State)
    made.node(name="a", start=True, then="b")(step)
    made.node(name="b", then="c")(step)
    made.node(name="c")(step)
    return made


def step(_state: Any) -> dict[str, Any]:
    return {"n": 1}


def dbos_settings(url: str) -> Any:
    plain = url.replace("postgresql://", "postgresql+psycopg://")
    return {
        "name": "bench",
        "system_database_url": plain,
        "application_version": VERSION,
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": 0.02,
    }


def work_clew(url: str) -> None:
    with clew.open(url) as db:
        ready()
        clew.Worker(db, [agent()], concurrency=CONCURRENCY).run()


def work_dbos(url: str) -> None:
    from dbos import DBOS

    DBOS(config=dbos_settings(url))
    nothing = DBOS.step(name="nothing")(lambda n: n + 1)

    @DBOS.workflow(name=WORKFLOW)
    def noop(n: int) -> int:
        return nothing(nothing(nothing(n)))

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=0.05)  # its default is a second
    ready()
    threading.Event().wait()


def work_langgraph(url: str, number: str, workers: str, runs: str) -> None:
    """Nothing queues them: each process takes its share, and says how long each run took."""
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.graph import END, START, StateGraph

    with PostgresSaver.from_conn_string(url) as saver:
        builder: Any = StateGraph(State)
        for name in "abc":
            builder.add_node(name, step)
        for one, other in ((START, "a"), ("a", "b"), ("b", "c"), ("c", END)):
            builder.add_edge(one, other)
        graph = builder.compile(checkpointer=saver)
        ready()
        for n in range(int(number), int(runs), int(workers)):
            began = time.perf_counter()
            graph.invoke({"n": 0}, {"configurable": {"thread_id": f"t{n}"}}, durability="sync")
            print(time.perf_counter() - began)


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    {"clew": work_clew, "dbos": work_dbos, "langgraph": work_langgraph}[sys.argv[1]](*sys.argv[2:])
