"""Whatever stands in a row of a LangGraph thread, reading it through the saver runs nothing, and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import placed_rows_work as work

from clew.adapters.langgraph import ClewSaver


def test_rows_that_hold_anything(ram: Path, long: bool) -> None:
    """In a process of its own: an audit hook stays for ever."""
    for seed in range(4) if long else [1]:
        path = ram / f"{seed}.db"
        work.make(path)
        done = subprocess.run(
            [sys.executable, work.__file__, str(path), str(seed), "1" if long else "7"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        *found, last = map(json.loads, done.stdout.splitlines())
        assert found == [], found[:5]
        spoilt, forged = last[3]
        assert spoilt > (400 if long else 50)
        assert forged > (1000 if long else 120)


def test_control_the_forgeries_are_read(ram: Path) -> None:
    """Their checksums hold: what was put there comes to the reader."""
    path = ram / "a.db"
    work.make(path)
    with ClewSaver.open(str(path)) as saver:
        before = saver.get_tuple(work.config("messages"))
        assert before is not None
    changes = dict(work.forgeries(path, ram / "pwned"))
    connection = apsw.Connection(str(path))
    for statement, values in changes["write: json 0"]:
        connection.execute(statement, values)
    connection.close()
    with ClewSaver.open(str(path)) as saver:
        after = saver.get_tuple(work.config("messages"))
        assert after is not None
        (forged,) = [write for write in after.pending_writes if write[0] == "task"]
        assert forged[2]["id"] == ["os", "system"]
        assert len(after.pending_writes) == len(before.pending_writes) + 1
