"""SQLite keeps the storage contract, in memory and in a file, strict and relaxed."""

import pytest

from clew.storage.sqlite import SqliteEngine
from clew.testing.storage_contract import StorageContract


class TestMemory(StorageContract):
    @pytest.fixture
    def engine(self):
        engine = SqliteEngine("memory:")
        yield engine
        engine.close()


class TestFile(StorageContract):
    @pytest.fixture(params=["strict", "relaxed"])
    def engine(self, request, tmp_path):
        engine = SqliteEngine(tmp_path / "clew.db", request.param)
        yield engine
        engine.close()
