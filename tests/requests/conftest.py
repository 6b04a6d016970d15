"""Each test of requests runs on each backend; the tools are those of the ledger's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

sys.path.insert(0, str(Path(__file__).parents[1] / "ledger"))
sys.path.insert(0, str(Path(__file__).parent))

from asks import Asks, asking
from ledgers import Place, make


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    database = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return make(request.param, tmp_path, database)


@pytest.fixture(params=["file", "postgres"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One that several processes can open."""
    database = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return make(request.param, tmp_path, database)


@pytest.fixture
def db(place: Place) -> Iterator[clew.Database]:
    with place.open() as database:
        yield database


@pytest.fixture
def ask(db: clew.Database) -> Asks:
    return asking(db)
