"""Each test of the runtime runs on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew


@pytest.fixture(params=["memory", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").url)
    return "memory:" if request.param == "memory" else str(tmp_path / "agent.db")


@pytest.fixture
def db(url: str) -> Iterator[clew.Database]:
    with clew.open(url, durability="relaxed") as database:
        yield database


@pytest.fixture
def thread(db: clew.Database) -> clew.Thread:
    return db.thread("trip-7")
