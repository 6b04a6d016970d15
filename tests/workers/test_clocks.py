"""Workers whose clock is wrong by an hour: nobody takes over too early, and the order stays. And idle workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import libfaketime
import psycopg
import pytest
from crews import ERRANDS, Crew, all_over, submit, until, verdict
from errands import Outside, errand, open_with

import clew

LIBRARY = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
EXPIRY = 3.0


def shifted(offset: str, *, boot: bool = False) -> dict[str, str]:
    """An environment whose wall clock is wrong; `boot`: and the clock since boot, which no system lets happen."""
    given = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "0" if boot else "1"}
    return {**os.environ, **given}


def test_the_clock_is_shifted() -> None:
    told = subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"], env=shifted("+1h"))
    assert 3500 < float(told) - time.time() < 3700


SUBMIT = """
import sys; sys.path.insert(0, sys.argv[1])
import clew
from errands import Outside, errand
agent = errand(Outside("unused"))
with clew.open(sys.argv[2], durability="relaxed") as db:
    for n in range(int(sys.argv[3]), int(sys.argv[4])):
        db.submit(agent, f"thread-{n % 3}", {"name": f"e{n}"}, key=f"k{n}")
"""


def test_no_early_take_over_and_no_wrong_order(shared_url, tmp_path):
    outside = Outside(tmp_path / "outside")
    agent = errand(outside)

    def submit_from(offset: str, first: int, last: int) -> None:
        command = [sys.executable, "-c", SUBMIT, str(ERRANDS.parent), shared_url, str(first), str(last)]
        subprocess.run(command, env=shifted(offset), check=True, timeout=60)

    slow = (shared_url, tmp_path / "outside", "", EXPIRY, 0.4)
    with open_with(shared_url, EXPIRY) as db:
        for at, offset in enumerate(("+1h", "-1h", "+0h")):
            submit_from(offset, 3 * at, 3 * at + 3)
        with Crew(1, *slow), Crew(1, *slow, env=shifted("+1h")), Crew(1, *slow, env=shifted("-1h")):
            runs = submit(db, agent, 9, 3)
            until(all_over(runs))
        assert verdict(db, runs, outside, 3) == {}
        assert {(run.info.attempts, run.info.crashes) for run in runs} == {(1, 0)}


def test_the_control_takes_over_early(tmp_path):
    """Were leases counted by a clock that can be wrong, the run would be taken while its worker lives."""
    url, path = str(tmp_path / "shared.db"), tmp_path / "outside"
    slow = (url, path, "", EXPIRY, 4)
    with open_with(url, EXPIRY) as db, Crew(1, *slow).ready():
        [run] = submit(db, errand(Outside(path)), 1, 1)
        until(lambda: run.status == "running" and run.info.attempts == 1)
        with Crew(1, *slow, env=shifted("+1h", boot=True)):
            until(lambda: run.status and run.info.attempts > 1)


def used(process: subprocess.Popen[Any]) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(request: pytest.FixtureRequest) -> int:
    """How many transactions the server counts for this test's database. It counts a little late."""
    made = request.getfixturevalue("postgres")
    with psycopg.connect(made.databases.url(None), autocommit=True) as connection:
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        found = connection.execute(query, (made.name,)).fetchone()
    assert found is not None
    return int(found[0])


def test_an_idle_worker_asks_little(shared_url, tmp_path, request):
    """Once it has come to rest: at most one query a second, and next to no processor time."""
    window = 4.0
    with Crew(1, shared_url, tmp_path / "outside").ready() as crew:
        for _ in range(6):
            before = asked(request) if shared_url.startswith("postgres") else 0
            began, cpu = time.monotonic(), used(crew.workers[0])
            time.sleep(window)
            took, spent = time.monotonic() - began, used(crew.workers[0]) - cpu
            after = asked(request) if shared_url.startswith("postgres") else 0
            if spent / took < 0.02 and after - before <= took:
                return
    raise AssertionError(f"{after - before} queries and {spent} s of processor time in {took} s")


def test_an_idle_worker_asks_sqlite_little(tmp_path):
    url = str(tmp_path / "idle.db")
    with clew.open(url) as db:
        agent = errand(Outside(tmp_path / "outside"))
        looks: list[float] = []
        worker = clew.Worker(db, [agent])
        room = worker._rooms[0]
        look = room.look
        room.look = lambda served: (looks.append(time.monotonic()), look(served))[1]
        with worker:
            until(lambda: len(looks) >= 2)
            began = len(looks)
            time.sleep(4)
            assert len(looks) - began <= 4
