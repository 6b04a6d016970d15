"""Crews of worker processes, and what happens to them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from errands import Outside, expected

import clew

ERRANDS = Path(__file__).with_name("errands.py")
PATIENCE = 90.0


def until(done: Callable[[], Any], patience: float = PATIENCE, every: float = 0.02) -> Any:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := done():
            return found
        time.sleep(every)
    raise AssertionError("it did not come to that")


class Crew:
    """So many workers on one database; whoever is killed is replaced."""

    def __init__(
        self, size: int, *arguments: Any, prefix: Sequence[str] = (), env: Any = None, script: Path = ERRANDS
    ) -> None:
        self._command = [*prefix, sys.executable, str(script), *map(str, arguments)]
        self._env = env
        self.workers = [self.hire() for _ in range(size)]
        self.kills = 0
        self._heard: list[subprocess.Popen[str]] = []

    def hire(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=self._env)

    def ready(self) -> Crew:
        """Wait until each of them works, and would hear a signal."""
        for worker in self.workers:
            self._hear(worker)
        return self

    def _hear(self, worker: subprocess.Popen[str]) -> None:
        if worker not in self._heard:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            self._heard.append(worker)

    def kill_one(self) -> None:
        """Any of them, once it has begun to work."""
        at = random.randrange(len(self.workers))
        self._hear(self.workers[at])
        self.workers[at].kill()
        self.workers[at].wait()
        self.kills += 1
        self.workers[at] = self.hire()

    def tend(self) -> None:
        """Replace those that have ended, as a supervisor does."""
        self.workers = [self.hire() if worker.poll() is not None else worker for worker in self.workers]

    def drain(self) -> list[int]:
        """Let all of them stop in order; what they end with."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(PATIENCE) for worker in self.workers]

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
            worker.communicate()


def submit(db: clew.Database, agent: clew.Agent, count: int, threads: int) -> list[clew.Run]:
    """Errands on so many threads, several to each."""
    return [
        db.submit(agent, f"thread-{n % threads}", {"name": f"e{n}"}, key=f"k{n}", context={"n": n})
        for n in range(count)
    ]


def all_over(runs: list[clew.Run]) -> Callable[[], bool]:
    left = list(runs)

    def look() -> bool:
        while left and left[-1].status in ("done", "failed", "cancelled", "dead"):
            left.pop()
        return not left

    return look


def verdict(db: clew.Database, runs: list[clew.Run], outside: Outside, threads: int) -> dict[str, Any]:
    """What there is to say of a crew's work: nothing, if all is well."""
    told: dict[str, Any] = {}
    statuses = Counter(run.status for run in runs)
    if statuses != {"done": len(runs)}:
        told["not done"] = statuses, [str(run.error) for run in runs if run.status in ("failed", "dead")]
    twice = [line for line, count in Counter(outside.done()).items() if count > 1]
    if twice:
        told["twice"] = twice
    missing = {f"{what} e{n}" for n in range(len(runs)) for what in ("buy", "send")} - set(outside.done())
    if missing:
        told["missing"] = missing
    for thread in range(min(threads, len(runs))):
        names = [f"e{n}" for n in range(thread, len(runs), threads)]
        log = db.thread(f"thread-{thread}").state()["log"]
        if log != [line for name in names for line in expected(name)]:
            told[f"log of {thread}"] = log
    return told
