"""Any column of any row may hold anything: what is read is what was written, or a typed error. Nothing is imported,
run or connected to, and memory is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import hostile_rows_work as work
import pytest

import clew
from clew.errors import Corrupt


def problems(path: Path, seed: int, every_nth: int) -> tuple[list[Any], int]:
    """(what was wrong, how many rows were spoiled)."""
    done = subprocess.run(
        [sys.executable, work.__file__, str(path), str(seed), str(every_nth)],
        capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    *found, last = map(json.loads, done.stdout.splitlines())
    assert last[2] == "done"
    return found, last[3]


def test_rows_that_hold_anything(ram: Path, long: bool) -> None:
    for seed in range(5) if long else [4]:
        path = ram / f"{seed}.db"
        work.make(path)
        found, spoiled = problems(path, seed, 1 if long else 6)
        assert not found, found[:5]
        assert spoiled > (900 if long else 150)


def test_a_bomb_is_corrupt(ram: Path) -> None:
    """1 GiB of zeros in a few KB, with a checksum that holds."""
    path = ram / "a.db"
    work.make(path)
    with clew.open(str(path)) as db, db._engine.transaction() as execute:
        for table in ("payload", "chunk"):
            execute(f"UPDATE {table} SET data = ?", (work.bomb(),)).fetchall()
    with clew.open(str(path)) as db, pytest.raises(Corrupt, match="inflates"):
        db.thread("trip").state(20)


@pytest.mark.parametrize("parent", [6, 7, 0, -5, 1 << 40])
def test_parents_that_lead_in_circles_or_nowhere_are_corrupt(ram: Path, parent: int) -> None:
    path = ram / "a.db"
    with clew.open(str(path)) as db:
        for number in range(8):
            db.thread("trip").update({"n": number})
        with db._engine.transaction() as execute:
            execute("UPDATE checkpoint SET parent = ? WHERE key & 4294967295 = 6", (parent,)).fetchall()
        for read in (db.thread("trip").history, lambda: db.thread("trip").state("~5")):
            with pytest.raises(Corrupt, match="parent"):
                read()
        assert db.thread("trip").state("~1") == {"n": 6}


def test_control_a_reader_that_does_not_check_is_found_out(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checksum, a flipped bit in a manifest would be read as another state."""
    path = ram / "a.db"
    work.make(path)
    right = work.readings(path)["trip@20"]
    monkeypatch.setattr("clew.reading.row_crc", lambda *_: None)
    monkeypatch.setattr("clew.reading.verified", lambda row, _: row)
    with clew.open(str(path)) as db, db._engine.transaction() as execute:
        ((manifest,),) = execute("SELECT manifest FROM checkpoint WHERE key & 4294967295 = 20").fetchall()
        ((other,),) = execute("SELECT manifest FROM checkpoint WHERE key & 4294967295 = 19").fetchall()
        assert manifest != other
        execute("UPDATE checkpoint SET manifest = ? WHERE key & 4294967295 = 20", (other,)).fetchall()
    assert not work.exactly_equal(work.readings(path)["trip@20"], right)
