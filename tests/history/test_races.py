"""Two processes on one thread: no step is lost or doubled, and who loses is told so."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import clew

WRITER = """
    import json, sys
    import clew
    from clew.errors import Busy, Conflict, Fenced

    url, thread_id, name, count, how = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    lost = {"Conflict": 0, "Busy": 0, "Fenced": 0}
    db = clew.open(url, durability="relaxed")
    thread = db.thread(thread_id)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        nonce = f"{name}-{number}"
        while True:
            try:
                if how == "edit" or (how == "both" and number % 2):
                    with thread.edit(nonce, wait=0) as state:
                        state.setdefault("nonces", []).append(nonce)
                    step = None
                else:
                    state = thread.state()
                    state.setdefault("nonces", []).append(nonce)
                    step = thread.save(state, label=nonce).step
                break
            except (Conflict, Busy) as error:
                lost[type(error).__name__] += 1
        print(json.dumps([nonce, step]), flush=True)
    print(json.dumps(lost), flush=True)
"""

CARELESS = WRITER.replace(
    "step = thread.save(state, label=nonce).step", "step = thread.update(state, label=nonce).step"
)
"""The control: `update` applies to whatever the head is, so that a whole state told by it undoes others' steps."""


def race(
    url: str, thread_id: str, count: int, how: str, code: str = WRITER
) -> tuple[list[list[Any]], list[dict[str, int]]]:
    """(what was acknowledged, how often each kind of refusal came)."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), url, thread_id, name, str(count), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in "ab"
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    acked, lost = [], []
    for writer in writers:
        output, _ = writer.communicate(timeout=500)
        assert writer.returncode == 0
        *lines, last = map(json.loads, output.splitlines())
        acked += lines
        lost.append(last)
    return acked, lost


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres").url)


@pytest.mark.parametrize("how", ["save", "edit", "both"])
def test_no_step_is_lost_or_doubled(shared_url: str, how: str, long: bool) -> None:
    """On a busy machine one writer may be done before the other begins: then they race again, elsewhere."""
    count = 1000 if long else 60
    for attempt in range(20):
        acked, lost = race(shared_url, f"trip-{attempt}", count, how)
        assert len(acked) == 2 * count
        check(shared_url, f"trip-{attempt}", acked)
        if sum(sum(kinds.values()) for kinds in lost):
            return
    pytest.fail("they never met")


def check(url: str, thread_id: str, acked: list[list[Any]]) -> None:
    with clew.open(url, durability="relaxed") as db:
        thread = db.thread(thread_id)
        history = thread.history()
        assert [checkpoint.step for checkpoint in history] == list(range(len(acked), 0, -1))
        labels = [str(checkpoint.label) for checkpoint in reversed(history)]
        assert sorted(labels) == sorted(nonce for nonce, _ in acked)
        assert all(labels[step - 1] == nonce for nonce, step in acked if step is not None)
        # Each step stands on the one before it, with its content.
        assert thread.state()["nonces"] == labels
        for step in range(1, len(acked) + 1, 7):
            assert thread.state(step)["nonces"] == labels[:step]


def test_control_writers_that_do_not_look_lose_steps(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    for attempt in range(20):
        acked, _ = race(url, f"trip-{attempt}", 60, "save", CARELESS)
        with clew.open(url) as db:
            if len(db.thread(f"trip-{attempt}").state()["nonces"]) < len(acked):
                return
    pytest.fail("nothing was lost")
