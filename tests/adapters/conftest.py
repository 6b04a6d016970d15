"""Each test of an adapter runs on each backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import clew

sys.path.insert(0, str(Path(__file__).parents[1] / "items"))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parent))

from places import Place, make


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    database = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return make(request.param, tmp_path, database)


@pytest.fixture
def db(place: Place) -> Iterator[clew.Database]:
    with place.open() as database:
        yield database


@pytest.fixture(scope="module")
def shared_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], clew.Database]]:
    """One database per backend for all tests of a module: each uses threads of its own."""
    folder = tmp_path_factory.mktemp("shared")
    opened: dict[str, clew.Database] = {}
    made: list[str] = []

    def database(backend: str) -> clew.Database:
        if backend not in opened:
            of = request.getfixturevalue("postgres_databases").make() if backend == "postgres" else None
            if of is not None:
                made.append(of.name)
            opened[backend] = make(backend, folder, of).open()
        return opened[backend]

    yield database
    for one in opened.values():
        one.close()
    for name in made:
        request.getfixturevalue("postgres_databases").drop(name)


@pytest.fixture(params=["memory", "file", "postgres"])
def shared(request: pytest.FixtureRequest, shared_on: Callable[[str], clew.Database]) -> clew.Database:
    return shared_on(request.param)
