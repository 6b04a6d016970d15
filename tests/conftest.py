"""A database for every test that asks for one, on each backend: `db`, at `url`.

PostgreSQL (`postgres`) is a real server, started at the first use and erased at the end.

`CLEW_TEST_POSTGRES_URL` names another server instead; its role must be allowed to create roles and databases. Tests
never skip because there is no server: they fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import clew
from clew.testing.postgres import Databases, Server, TestDatabase
from outsiders import Ground

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


# -- on each backend


@pytest.fixture(params=["memory", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh database of each backend is."""
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


@pytest.fixture
def let_pass(db: clew.Database, url: str, request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Time passes: whatever waits for it is due so many seconds earlier."""
    engine: Any = db._engine

    def move(seconds: int) -> None:
        for table, column in (("run", "wake"), ("wait", "expires"), ("request", "expires")):
            statement = f"UPDATE {table} SET {column} = {column} - {seconds * 1_000_000}"
            if url.startswith("postgres"):
                admin = request.getfixturevalue("postgres").admin_url
                with psycopg.connect(admin, autocommit=True) as connection:
                    connection.execute(statement.replace("UPDATE ", "UPDATE clew.").encode())
            else:
                with engine.transaction() as execute:
                    execute(statement)

    return move


@pytest.fixture(params=["file", "postgres"])
def ground(request: pytest.FixtureRequest, ram: Path) -> Ground:
    """A database that several processes may open, and that a test may change behind their backs."""
    if request.param == "file":
        return Ground(str(ram / "agent.db"), None)
    made = request.getfixturevalue("postgres")
    return Ground(made.url, made.admin_url)


@pytest.fixture(params=["file", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that several processes may open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").url)
    return str(tmp_path / "shared.db")
