"""One database per test, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

BACKENDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh database of each backend is."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres").url)


@pytest.fixture
def db(url: str) -> Iterator[clew.Database]:
    with clew.open(url, durability="relaxed") as database:
        yield database
