"""What being observable costs: `python -m bench.observing`. Processor time of a run of ten rounds, in turns.

Three contenders: without the hooks, with them and nobody looking, and with OpenTelemetry keeping what it is told.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import thread_time_ns
from typing import Any
from unittest import mock

import clew
from clew import observing
from clew.adapters.otel import instrument

ROUNDS, REPETITIONS = 10, 400


def agent() -> clew.Agent:
    made = clew.Agent("rounds")

    @made.node(start=True, then=lambda state: "step" if state["n"] < ROUNDS else None)
    def step(state: Any) -> Any:
        return {"n": state["n"] + 1}

    return made


def spent(run: Callable[[], object]) -> int:
    begun = thread_time_ns()
    run()
    return thread_time_ns() - begun


def main() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    rounds = agent()
    with clew.open("memory:") as db:
        threads = iter(range(1 << 30))

        def run() -> None:
            rounds.run(db.thread(f"t{next(threads)}"), {"n": 0})

        def without() -> int:
            with mock.patch.multiple(
                observing,
                span=lambda *_, **__: observing.UNOBSERVED,
                began=lambda: 0.0,
                committed=lambda *_: None,
                log=mock.NonCallableMock(debug=lambda *_: None, info=lambda *_: None),
            ):
                return spent(run)

        def traced() -> int:
            with instrument(tracer_provider=TracerProvider(), meter_provider=MeterProvider()):
                return spent(run)

        times: dict[str, list[int]] = {"without": [], "idle": [], "traced": []}
        contenders = {"without": without, "idle": lambda: spent(run), "traced": traced}
        for turn in range(REPETITIONS):
            order = list(contenders) if turn % 2 else list(reversed(contenders))
            for name in order:
                times[name].append(contenders[name]())
    base = median(times["without"])
    for name, found in times.items():
        extra = median(one - other for one, other in zip(found, times["without"], strict=True))
        print(f"{name:8} {median(found) / ROUNDS / 1000:7.1f} µs a round, {extra / base:+.1%}")
    print(f"import   {imported():7.2f} ms for clew.observing, of {imported('clew'):.0f} ms for clew")


def imported(module: str = "clew.observing") -> float:
    """The time that `import clew` spends in a module (cumulative for the package), in milliseconds."""
    found = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import clew"], capture_output=True, text=True, check=True
        )
        for line in done.stderr.splitlines():
            own, cumulative, name = line.removeprefix("import time:").split("|")
            if name.strip() == module:
                found.append(int(own if module != "clew" else cumulative))
    return median(found) / 1000


if __name__ == "__main__":
    main()
