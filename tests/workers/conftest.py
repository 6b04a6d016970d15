"""Each test of workers runs on each backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
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
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that several processes may open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").url)
    return str(tmp_path / "shared.db")
