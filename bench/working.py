"""A worker process for `bench.capacity`: `python -m bench.working URL`. It tells when it has begun."""

from __future__ import annotations

import sys

import clew

NODES = ("first", "second", "third")


def agent() -> clew.Agent:
    """Three nodes that do nothing but count."""
    made = clew.Agent("noop")
    for name, then in zip(NODES, [*NODES[1:], None], strict=True):
        made.node(lambda state: {"count": state.get("count", 0) + 1}, name=name, start=name == NODES[0], then=then)
    return made


def main(url: str) -> None:
    with clew.open(url) as db:
        print("ready", flush=True)
        clew.Worker(db, [agent()]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
