"""A process that drives errands from procrastinate: `python queue_errands.py URL OUTSIDE [HOW]`."""

from __future__ import annotations

import logging
import sys
import threading

import procrastinate
from errands import Outside, die_with_parent, errand, impatient, tell_when_ready

import clew
from clew.adapters.procrastinate import RunQueue


def main(url: str, outside: str, how: str = "") -> None:
    die_with_parent()
    logging.basicConfig(filename=f"{outside}.log", format="%(process)d %(message)s")
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    impatient(how)
    with clew.open(url, durability="strict" if "strict" in how else "relaxed") as db:
        RunQueue(app, db, [errand(Outside(outside))], crashes=50, sweep="* * * * * *")
        threading.Thread(target=tell_when_ready, daemon=True).start()
        app.run_worker(concurrency=4, delete_jobs="successful", shutdown_graceful_timeout=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
