"""Pruning beside writers: how much of the file stays, and how long a writer waits."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import clew
from bench.content import message, payload, text
from bench.ground import Ground
from bench.rows import TIMES, Row
from bench.timing import percentile

MESSAGE, SCRATCH, KEPT, WRITERS = 1024, 5 * 1024, 10, 4
LEFT, WAIT = 1.5, 100.0
_ROOT = Path(__file__).resolve().parent.parent


def prune(ground: Ground) -> Iterator[Row]:
    """A thread of 1000 steps, a message and an overwritten 5 KB value each, is cut to its 10 newest steps."""
    what = f"SQLite: {ground.sizes.steps} steps pruned to {KEPT} beside {WRITERS} writers"
    if not hasattr(clew.Database, "prune"):
        yield Row("prune", what, None, target=LEFT, problem="this version of Clew has no `Database.prune` yet")
        return
    rounds = [_round(ground) for _ in range(1 if ground.sizes.quick else 3)]
    sizes = [(each["file"] / each["left"], each) for each in rounds]
    ratio, worst = max(sizes, key=lambda pair: pair[0])
    detail = f"{worst['file']:,} B of {worst['before']:,}; {worst['left']:,} B of payload are left"
    yield Row(
        "prune", f"{what}: file against what is left", ratio, TIMES, LEFT, detail=detail, numbers={"rounds": rounds}
    )
    during = [took for each in rounds for took in each["during"]]
    alone = [took for each in rounds for took in each["alone"]]
    detail = (
        f"{len(during)} saves while pruning for {sum(each['pruning_ms'] for each in rounds):.0f} ms in all: p50 "
        f"{percentile(during, 0.5) / 1000:.2f} ms; without pruning p50 {percentile(alone, 0.5) / 1000:.2f}, "
        f"longest {max(alone) / 1e6:.1f} ms"
    )
    for each in rounds:
        del each["during"], each["alone"]
    yield Row("prune", f"{what}: the longest save of a writer", max(during) / 1e6, "ms", WAIT, detail=detail)


def _round(ground: Ground) -> dict[str, Any]:
    path = ground.file()
    rng = random.Random(11)
    contents: list[str] = []
    scratch: list[str] = []
    state: dict[str, Any] = {"messages": [], "scratch": ""}
    with clew.open(str(path), durability="relaxed") as db:
        thread = db.thread("bench")
        for step in range(ground.sizes.steps):
            contents.append(text(rng, MESSAGE))
            scratch.append(text(rng, SCRATCH))
            state["messages"].append(message(contents[-1], step))
            state["scratch"] = scratch[-1]
            thread.save(state)
    before = path.stat().st_size
    with ExitStack() as stack:
        writers = [stack.enter_context(_start(path, f"writer-{number}")) for number in range(WRITERS)]
        db = stack.enter_context(clew.open(str(path), durability="relaxed"))
        _tell(writers, "go")
        time.sleep(0.3 if ground.sizes.quick else 1.0)
        begun = time.monotonic_ns()
        db.prune(keep_last=KEPT)
        ended = time.monotonic_ns()
        time.sleep(0.05)
        took = _finish(writers)
    written = len(took) + WRITERS
    left = payload(contents) + payload(scratch[-KEPT:]) + written * payload([text(rng, MESSAGE)])
    return {
        "before": before,
        "file": ground.discard(path),
        "left": left,
        "pruning_ms": (ended - begun) / 1e6,
        "during": [took for at, took in took if at + took >= begun and at <= ended],
        "alone": [took for at, took in took if at + took < begun],
    }


@contextmanager
def _start(path: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A writer that is ready; whatever happens, it does not outlive this."""
    command = [sys.executable, "-m", "bench.writer", str(path), name, str(MESSAGE)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    try:
        assert writer.stdout is not None
        if writer.stdout.readline() != "ready\n":
            raise RuntimeError("a writer did not start")
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def _tell(writers: list[subprocess.Popen[str]], word: str) -> None:
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(f"{word}\n")
        writer.stdin.flush()


def _finish(writers: list[subprocess.Popen[str]]) -> list[tuple[int, int]]:
    took: list[tuple[int, int]] = []
    for writer in writers:
        out, _ = writer.communicate("stop\n", timeout=60)
        if writer.returncode != 0:
            raise RuntimeError("a writer failed")
        took.extend((at, spent) for at, spent in json.loads(out))
    return took
