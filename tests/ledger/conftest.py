"""Each test of the ledger runs on each backend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.storage.ledger_relational import RelationalLedger
from clew.storage.port import Storage

sys.path.insert(0, str(Path(__file__).parent))

from ledgers import Place, grown, ledger_of, make


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
def storage(db: clew.Database) -> Storage:
    """With one thread, `trip`, of one step."""
    grown(db._storage)
    return db._storage


@pytest.fixture
def ledger(storage: Storage, db: clew.Database) -> RelationalLedger:
    return ledger_of(db)
