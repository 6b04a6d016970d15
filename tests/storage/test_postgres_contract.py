"""The storage contract, kept by PostgreSQL for the application role, under row-level security."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clew.model import KINDS
from clew.storage.port import Storage
from clew.storage.postgres import PostgresEngine
from clew.testing.postgres import TestDatabase
from clew.testing.storage_contract import StorageContract
from clew.testing.storage_steps import STAMP, change


class TestPostgres(StorageContract):
    @pytest.fixture
    def engine(self, postgres: TestDatabase) -> Iterator[PostgresEngine]:
        engine = PostgresEngine(postgres.url)
        yield engine
        engine.close()

    def test_a_row_comes_back_as_it_was_written(self, storage: Storage) -> None:
        """As the contract has it, but for a NUL in the label: PostgreSQL's text holds none (test_postgres.py), and
        the layers above let only printable labels through."""
        written = [b"\0n", b"m", b"\0\xff", 2**32 - 1]
        sent = change(None, 0, id="abc", kind=KINDS[-1], label="lü\n", run="r", next=written[0], metadata=written[1])
        done = storage.commit(sent._replace(manifest=b"\0\xff", crc=2**32 - 1))
        with storage.snapshot() as snapshot:
            row = snapshot.row(done.thread, 1)
        assert row is not None
        assert tuple(row) == (1, "abc", None, 1, KINDS[-1], "lü\n", "r", *written[:1], STAMP, *written[1:])
        assert {type(value) for value in (row.next, row.metadata, row.manifest)} == {bytes}
