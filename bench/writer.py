"""A process that keeps writing to a thread of its own, and tells how long each save took.

It says `ready`, writes from the line `go` to the line `stop`, and then prints [begin, duration] of each save, in
nanoseconds of the clock that all processes of a machine share. Run by bench/pruning.py.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import clew
from bench.content import message, text

PAUSE = 0.002
"""Seconds that an agent thinks between two steps."""


def main(url: str, name: str, size: int) -> None:
    rng = random.Random(name)
    stop = threading.Event()
    took: list[tuple[int, int]] = []
    with clew.open(url, durability="relaxed") as db:
        thread = db.thread(name)
        thread.save({"messages": [message(text(rng, size), 0)]})
        print("ready", flush=True)
        sys.stdin.readline()
        threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
        while not stop.is_set():
            change = {"messages": clew.extend([message(text(rng, size), len(took))])}
            begun = time.monotonic_ns()
            thread.update(change)
            took.append((begun, time.monotonic_ns() - begun))
            time.sleep(PAUSE)
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
