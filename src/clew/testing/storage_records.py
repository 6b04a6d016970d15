"""What every storage backend must do with records and changes. The numbers are those of changes.py."""

# ruff: noqa: S101
from __future__ import annotations

import pytest

from clew.errors import Conflict, Fenced
from clew.storage.changes import Change, Record, drop_records, put_record, set_record
from clew.storage.port import Storage
from clew.testing.storage_steps import Engine, change, grow, thread_key


def record(place: str = "p", task: str = "t", idx: int = 0, value: bytes = b"v", **other: object) -> Record:
    values: dict[str, object] = {"path": "", "name": "n", "beside": None, "crc": 7}
    return Record(place=place, task=task, idx=idx, value=value, **(values | other))  # type: ignore[arg-type]


def records(storage: Storage, *places: str) -> list[Record]:
    with storage.snapshot() as snapshot:
        return snapshot.records(thread_key(snapshot), places)


class RecordCases:
    """Records, with a checkpoint and without."""

    def test_the_first_stays_or_the_last_as_asked(self, storage: Storage) -> None:
        storage.apply("trip", [put_record(record(value=b"1")), set_record(record(idx=-1, value=b"1"))])
        storage.apply("trip", [put_record(record(value=b"2")), set_record(record(idx=-1, value=b"2", name="m"))])
        assert records(storage, "p") == [record(idx=-1, value=b"2", name="m"), record(value=b"1")]

    def test_they_come_in_order_of_path_task_and_index(self, storage: Storage) -> None:
        tasks = [("b", "d"), ("b", "c"), ("a", "f"), ("a", "e")]
        made = [record(path=path, task=task, idx=idx) for path, task in tasks for idx in (2, 10, -1)]
        storage.apply("trip", [put_record(row) for row in made])
        storage.apply("trip", [put_record(record("q"))])
        assert records(storage, "p") == sorted(made, key=lambda row: (row.path, row.task, row.idx))
        assert len(records(storage, "q", "p")) == len(made) + 1
        assert records(storage) == records(storage, "none") == []

    def test_they_may_come_before_the_first_checkpoint(self, storage: Storage) -> None:
        storage.apply("trip", [put_record(record())])
        with storage.snapshot() as snapshot:
            head = snapshot.head("trip", "main")
        assert head is not None
        assert head.row is None
        assert storage.commit(change()).step == 1
        assert records(storage, "p") == [record()]
        storage.release(storage.acquire("trip", "main"))

    def test_bytes_come_back_as_they_were(self, storage: Storage) -> None:
        odd = record("ä'%_", "\U0001f9f6", 2**31 - 1, bytes(range(256)), path='"', name=";--", crc=2**32 - 1)
        storage.apply("trip", [put_record(odd)])
        assert records(storage, "ä'%_") == [odd]

    def test_1_changes_are_written_with_the_commit_or_not_at_all(self, storage: Storage) -> None:
        grow(storage, 1)
        with pytest.raises(Conflict):
            storage.commit(change(None, changes=[put_record(record())]))
        assert records(storage, "p") == []
        storage.commit(change(1, 1, changes=[put_record(record()), put_record(record("q"))]))
        assert records(storage, "p", "q") == [record(), record("q")]
        storage.commit(change(2, 1, changes=[drop_records("p")]))
        assert records(storage, "p", "q") == [record("q")]

    def test_1_a_change_that_fails_undoes_the_commit(self, storage: Storage) -> None:
        grow(storage, 1)
        broken = Change("put_record", record()._asdict() | {"value": None})
        with pytest.raises(Exception, match=r"(?i)null"):
            storage.commit(change(1, 1, changes=[put_record(record("q")), broken]))
        assert records(storage, "p", "q") == []
        assert storage.commit(change(1, 1)).step == 2

    def test_3_a_commit_that_was_written_before_changes_nothing(self, storage: Storage) -> None:
        made = change(changes=[put_record(record())])
        storage.commit(made)
        storage.apply("trip", [drop_records("p")])
        assert storage.commit(made).replayed
        assert records(storage, "p") == []

    def test_a_lease_that_has_passed_on_writes_nothing(self, storage: Storage) -> None:
        lease = storage.acquire("trip", "main")
        storage.apply("trip", [put_record(record())], epoch=lease.epoch)
        storage.release(lease)
        with pytest.raises(Fenced):
            storage.apply("trip", [put_record(record("q"))], epoch=lease.epoch)
        storage.acquire("trip", "main")
        with pytest.raises(Fenced):
            storage.apply("trip", [put_record(record("q"))], epoch=lease.epoch)
        assert records(storage, "p", "q") == [record()]

    def test_they_go_with_their_checkpoint_and_with_their_thread(self, storage: Storage) -> None:
        grow(storage, 3)
        storage.apply(
            "trip", [put_record(record(beside=1)), put_record(record("q", beside=2)), put_record(record("r"))]
        )
        storage.forget("trip", [1], {2: (None, 7)})
        assert [row.place for row in records(storage, "p", "q", "r")] == ["q", "r"]
        storage.delete_thread("trip")
        grow(storage, 1)
        assert records(storage, "p", "q", "r") == []

    def test_tenants_do_not_meet_in_records(self, engine: Engine) -> None:
        one, two = engine.tenant("one"), engine.tenant("two")
        for storage in (one, two):
            grow(storage, 1)
        one.apply("trip", [put_record(record())])
        assert records(two, "p") == []
        two.apply("trip", [drop_records("p")])
        with one.snapshot() as snapshot:
            thread, bytes_of_one = thread_key(snapshot), snapshot.usage().payload_bytes
        with two.snapshot() as snapshot:
            assert snapshot.records(thread, ["p"]) == []
            assert snapshot.usage().payload_bytes == bytes_of_one - 1
        assert records(one, "p") == [record()]
