"""Bells: how a worker hears, without a query, that a file has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from clew.storage.waking import FileBell


def test_a_change_within_one_tick_of_the_files_clock_is_heard(tmp_path: Path) -> None:
    """A log that was begun anew is written over: its size stays, and its time for some milliseconds."""
    log = tmp_path / "agent.db-wal"
    log.write_bytes(b"1111")
    bell = FileBell(str(tmp_path / "agent.db"))
    assert not bell.wait(0.1)
    log.write_bytes(b"22222")
    assert bell.wait(5)
    at = log.stat().st_mtime_ns
    log.write_bytes(b"33333")
    os.utime(log, ns=(at, at))
    assert bell.wait(5)


def test_a_change_is_asked_about_again_for_a_while_and_then_no_more(tmp_path: Path) -> None:
    """It stands in the log before it is synced; only after that do others read it."""
    log = tmp_path / "agent.db-wal"
    log.write_bytes(b"1")
    bell = FileBell(str(tmp_path / "agent.db"))
    assert not bell.wait(0.1)
    log.write_bytes(b"22")
    begun, rings = time.monotonic(), 0
    while bell.wait(3):
        rings += 1
        last = time.monotonic() - begun
    assert rings == 7
    assert last > 0.7
