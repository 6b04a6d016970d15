"""PostgreSQL for every test that asks for it: a real server, started at the first use and erased at the end.

`CLEW_TEST_POSTGRES_URL` names another server instead; its role must be allowed to create roles and databases. Tests
never skip because there is no server: they fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.testing.postgres import Databases, Server, TestDatabase

_ROOM = 1 << 30


def _fast_disk() -> Path | None:
    """Memory, if there is enough of it for a server's files: tests need real fsync calls, not a real disk."""
    shared = Path("/dev/shm")
    usable = shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > _ROOM
    return shared if usable else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="long fault sweeps and many more generated examples")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form was asked for (`scripts/test --long`)."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def examples(long: bool) -> int:
    """How many histories to generate."""
    return 400 if long else 40


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    """One server per test process (under pytest-xdist, one per worker: it starts in less than a second)."""
    url = os.environ.get("CLEW_TEST_POSTGRES_URL")
    if url:
        databases = Databases(url)
        yield databases
        databases.close()
        return
    with Server.start(_fast_disk()) as server:
        yield Databases(server.url())


@pytest.fixture
def postgres(postgres_databases: Databases) -> Iterator[TestDatabase]:
    """A database of this test's own, migrated by its owner; `.url` connects the application role."""
    made = postgres_databases.make()
    yield made
    postgres_databases.drop(made.name)


@pytest.fixture
def empty_postgres(postgres_databases: Databases) -> Iterator[TestDatabase]:
    """A database that holds no schema yet."""
    made = postgres_databases.make(empty=True)
    yield made
    postgres_databases.drop(made.name)


@pytest.fixture
def postgres_server() -> Iterator[Server]:
    """A server of this test's own, to be crashed and restarted."""
    with Server.start(_fast_disk()) as server:
        yield server


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one: a sweep opens thousands of files."""
    shared = Path("/dev/shm")
    if not (shared.is_dir() and os.access(shared, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="clew-faults-", dir=shared) as name:
        yield Path(name)
