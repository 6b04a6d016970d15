"""What every storage backend must do. A backend's test file inherits the cases and supplies one fixture:

    class TestMyBackend(StorageContract):
        @pytest.fixture
        def engine(self):
            engine = MyEngine(...)
            yield engine
            engine.close()

`engine.tenant(name)` gives a `Storage`. Numbers in the names are those of the promises in `clew.storage.port`.
"""

# ruff: noqa: S101
from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from clew.errors import ThreadNotFound
from clew.storage.port import Chunk, Folding, Piece, Storage, Want
from clew.testing.storage_cases import CommitCases, LeaseCases, NameCases
from clew.testing.storage_records import RecordCases
from clew.testing.storage_steps import STAMP, Engine, change, everything, grow, names, steps, thread_key


class SnapshotCases:
    """Promise 5, and what a snapshot reads."""

    def test_5_a_snapshot_sees_one_state(self, storage: Storage) -> None:
        grow(storage, 2)
        begun = threading.Event()

        def write() -> None:
            begun.set()
            storage.commit(change(2, 1))
            storage.set_tag("trip", "late", 3)

        writer = threading.Thread(target=write)
        with storage.snapshot() as snapshot:
            thread = thread_key(snapshot)
            writer.start()
            begun.wait()
            # In memory one connection both reads and writes: there the writer waits for the snapshot to end.
            volatile = storage.durability == "volatile"
            writer.join(0.05 if volatile else None)
            assert writer.is_alive() == volatile
            head = snapshot.head("trip", "main")
            assert head is not None
            assert head.ref.step == 2
            assert snapshot.row(thread, 3) is None
            assert len(snapshot.refs(thread)) == 1
        writer.join()
        assert steps(storage) == [3, 2, 1]
        assert names(storage)["late"] == ("tag", 3)

    def test_what_is_not_there(self, storage: Storage) -> None:
        grow(storage, 1)
        with storage.snapshot() as snapshot:
            assert snapshot.find_thread("none") is None
            assert snapshot.head("none", "main") is None
            assert snapshot.head("trip", "none") is None
            thread = thread_key(snapshot)
            for step in (0, -1, 2, 2**32, 2**40):
                assert snapshot.row(thread, step) is None
                assert snapshot.history(thread, step, 5) == []
            assert snapshot.rows_by_id(thread, "zzz", 5) == []
            assert snapshot.blob("none") is None
            assert snapshot.payload(thread, [], 5) == []

    def test_history_follows_parents(self, storage: Storage) -> None:
        grow(storage, 3)
        storage.create_branch("trip", "side", 2)
        storage.commit(change(2, branch="side"))
        storage.commit(change(3, 1))
        assert steps(storage, branch="side") == [4, 2, 1]
        assert steps(storage) == [5, 3, 2, 1]
        with storage.snapshot() as snapshot:
            rows = snapshot.history(thread_key(snapshot), 5, 2)
            assert [(row.step, row.parent, row.kind, row.manifest) for row in rows] == [
                (5, 3, "step", b""), (3, 2, "step", b""),
            ]  # fmt: skip

    def test_rows_by_step(self, storage: Storage) -> None:
        grow(storage, 5)
        with storage.snapshot() as snapshot:
            thread = thread_key(snapshot)
            assert [row.step for row in snapshot.rows(thread, 2, 2, manifests=False)] == [3, 4]
            rows = snapshot.rows(thread, 4, 9, manifests=True)
            assert [(row.step, row.manifest) for row in rows] == [(5, b"manifest")]

    def test_ids_by_prefix(self, storage: Storage) -> None:
        ids = ["ab", "abc", "ab%", "ab_", "b"]
        base, lane = None, 0
        for id_ in ids:
            done = storage.commit(change(base, lane, id=id_))
            base, lane = done.step, done.lane
        storage.commit(change(id="abz", thread_id="tour"))
        with storage.snapshot() as snapshot:
            thread = thread_key(snapshot)
            found = [row.id for row in snapshot.rows_by_id(thread, "ab", 9)]
            assert found[0] == "ab"
            assert sorted(found) == sorted(ids[:4])
            assert [row.id for row in snapshot.rows_by_id(thread, "ab%", 9)] == ["ab%"]
            assert [row.id for row in snapshot.rows_by_id(thread, "ab_", 9)] == ["ab_"]
            assert len(snapshot.rows_by_id(thread, "ab", 2)) == 2

    def test_payload_up_to_a_step_and_of_the_wanted_lanes(self, storage: Storage) -> None:
        for base, data in ((None, b"one"), (1, b"two"), (2, b"three")):
            done = storage.commit(change(base, 0 if base is None else 1, payload=data))
        storage.create_branch("trip", "side", 1)
        storage.commit(change(1, branch="side", payload=b"four"))
        with storage.snapshot() as snapshot:

            def read(lanes: Sequence[int], upto: int) -> list[tuple[int, int, bytes]]:
                wants = [Want(lane, 0, 0, 9) for lane in lanes]
                found = snapshot.payload(done.thread, wants, upto)
                return sorted((piece.step, piece.lane, bytes(piece.data)) for piece in found)

            assert read([1], 2) == [(1, 1, b"one"), (2, 1, b"two")]
            assert read([2], 9) == [(4, 2, b"four")]
            assert len(read([1, 2], 9)) == 4

    def test_threads_page_by_page(self, storage: Storage) -> None:
        for number, id_ in enumerate("cabed"):
            storage.commit(change(thread_id=id_, created=STAMP + number // 2, label=id_))
        storage.commit(change(1, 1, thread_id="c", created=STAMP + 9, metadata=b"newest"))
        orders: dict[str, list[str]] = {"id": list("abcde"), "created": list("debca"), "updated": list("cdeba")}
        for order, expected in orders.items():
            found: list[str] = []
            after: tuple[Any, ...] | None = None
            while True:
                with storage.snapshot() as snapshot:
                    page = snapshot.threads(order=order, after=after, limit=2)
                found += [entry.id for entry in page]
                if len(page) < 2:
                    break
                last = page[-1]
                after = (last.id,) if order == "id" else (getattr(last, order), last.id)
            assert found == expected, order
        with storage.snapshot() as snapshot:
            first = snapshot.threads(order="updated", after=None, limit=1)[0]
        assert first[2:] == (STAMP, STAMP + 9, 2, 1, None, b"newest", False, STAMP + 9)

    def test_usage_counts(self, storage: Storage) -> None:
        grow(storage, 2, blobs=[("d", b"12345")])
        with storage.snapshot() as snapshot:
            usage = snapshot.usage()
        assert (usage.threads, usage.checkpoints, usage.payload_bytes, usage.blobs, usage.blob_bytes) == (
            1,
            2,
            14,
            1,
            5,
        )
        assert usage.checkpoint_bytes > 0
        assert usage.file_bytes > usage.free_bytes >= 0


class UpkeepCases:
    """Folding, forgetting, erasing."""

    def test_a_fold_replaces_rows_by_chunks(self, storage: Storage) -> None:
        done = grow(storage, 3)[-1]
        seen: list[tuple[Sequence[Piece], Sequence[Piece]]] = []

        def merge(rows: Sequence[Piece], tails: Sequence[Piece]) -> Folding:
            seen.append((rows, tails))
            length = 10 * len(seen)
            chunk = Chunk(1, 4, length - 10, length, b"folded")
            return Folding([row.key for row in rows], [], [chunk])

        storage.fold(done.thread, 1, merge)
        assert [(row.step, row.lane, bytes(row.data)) for row in seen[0][0]] == [(n, 1, b"payload") for n in (1, 2, 3)]
        assert list(seen[0][1]) == []
        with storage.snapshot() as snapshot:
            assert snapshot.pieces(done.thread, folded=False, after=0, limit=9) == []
            assert len(snapshot.pieces(done.thread, folded=True, after=0, limit=9)) == 1
        assert storage.commit(change(3, 1)).unfolded == 1
        storage.fold(done.thread, 1, merge)
        assert [bytes(tail.data) for tail in seen[1][1]] == [b"folded"]
        with storage.snapshot() as snapshot:

            def read(start: int, stop: int, log: int = 4) -> int:
                return len(snapshot.payload(done.thread, [Want(1, log, start, stop)], 9))

            assert [read(0, 5), read(5, 15), read(10, 12), read(20, 30), read(9, 11), read(0, 5, 3)] == [
                1,
                2,
                1,
                0,
                2,
                0,
            ]

    def test_a_fold_is_offered_the_last_chunk_while_it_is_small(self, storage: Storage) -> None:
        done = storage.commit(change())
        chunks = [Chunk(1, 1, 0, 5, b"old"), Chunk(1, 1, 5, 9, b"new"), Chunk(1, 2, 0, 9, bytes(24 * 1024))]
        storage.fold(done.thread, 1, lambda rows, _: Folding([row.key for row in rows], [], chunks))
        offered: list[bytes] = []

        def merge(_: Sequence[Piece], tails: Sequence[Piece]) -> Folding:
            offered.extend(bytes(tail.data) for tail in tails)
            return Folding([], [tail.key for tail in tails], [Chunk(1, 1, 5, 12, b"newer")])

        storage.fold(done.thread, 1, merge)
        assert offered == [b"new"]
        with storage.snapshot() as snapshot:
            found = snapshot.pieces(done.thread, folded=True, after=0, limit=9)
        assert sorted(len(piece.data) for piece in found) == [3, 5, 24 * 1024]

    def test_a_fold_that_fails_changes_nothing(self, storage: Storage) -> None:
        done = grow(storage, 2)[-1]
        before = everything(storage)

        class Stop(BaseException):
            pass

        def stop(_: Sequence[Piece], __: Sequence[Piece]) -> Folding:
            raise Stop

        with pytest.raises(Stop):
            storage.fold(done.thread, 1, stop)
        with pytest.raises(ValueError, match="given"):
            storage.fold(done.thread, 1, lambda rows, _: Folding([rows[0].key, rows[0].key + 99], [], []))
        assert everything(storage) == before
        assert storage.commit(change(2, 1)).step == 3

    def test_forget_spares_what_a_branch_or_tag_names(self, storage: Storage) -> None:
        grow(storage, 6)
        storage.set_tag("trip", "mark", 2)
        storage.create_branch("trip", "side", 3)
        storage.move_branch("trip", "main", 5, old_tip="old", epoch=None)
        assert storage.forget("trip", [1, 2, 3, 4, 5, 6, 99], {5: (3, 70), 3: (2, 71), 2: (1, 72)}) == 3
        assert steps(storage) == [5, 3, 2]
        assert names(storage) == {"main": ("branch", 5), "side": ("branch", 3), "mark": ("tag", 2)}
        with storage.snapshot() as snapshot:
            thread = thread_key(snapshot)
            crcs = [row.crc for row in snapshot.history(thread, 5, 9)]
        assert crcs == [70, 71, 7], "a link to a parent that does not exist must not be made"
        assert storage.forget("trip", [], {}) == 0
        assert storage.forget("none", [1], {}) == 0

    def test_forget_can_make_a_root(self, storage: Storage) -> None:
        grow(storage, 3)
        assert storage.forget("trip", [1], {2: (None, 70)}) == 1
        with storage.snapshot() as snapshot:
            row = snapshot.row(thread_key(snapshot), 2)
        assert row is not None
        assert (row.parent, row.crc) == (None, 70)

    def test_nothing_goes_of_a_thread_that_has_taken_the_place_of_the_one_that_was_read(self, storage: Storage) -> None:
        read = grow(storage, 3, blobs=[("one", b"1")])[-1].thread
        assert storage.delete_thread("trip")
        grow(storage, 3, blobs=[("one", b"1")])
        before = everything(storage)
        assert storage.forget("trip", [1], {2: (None, 70)}, thread=read) == 0
        assert storage.forget_blobs("trip", set(), 3, thread=read) == 0
        assert everything(storage) == before

    def test_rewrite_needs_the_row_as_it_was_read(self, storage: Storage) -> None:
        done = grow(storage, 2)[-1]
        with storage.snapshot() as snapshot:
            first = snapshot.pieces(done.thread, folded=False, after=0, limit=1)[0]
        chunk = Chunk(1, 1, 0, 2, b"small")
        assert not storage.rewrite("trip", first.key, first._replace(data=b"other"), [chunk], folded=False)
        assert storage.rewrite("trip", first.key, first, [chunk], folded=False)
        assert not storage.rewrite("trip", first.key, first, [chunk], folded=False)
        with storage.snapshot() as snapshot:
            rows = snapshot.pieces(done.thread, folded=False, after=first.key, limit=9)
            (folded,) = snapshot.pieces(done.thread, folded=True, after=0, limit=9)
        assert [row.step for row in rows] == [2]
        assert folded.data == b"small"
        assert not storage.rewrite("none", folded.key, folded, [], folded=True)
        assert storage.rewrite("trip", folded.key, folded, [], folded=True)
        with storage.snapshot() as snapshot:
            assert snapshot.pieces(done.thread, folded=True, after=0, limit=9) == []

    def test_blobs_are_kept_once_and_as_long_as_a_thread_uses_them(self, storage: Storage) -> None:
        storage.commit(change(blobs=[("one", b"1"), ("two", b"22")]))
        storage.commit(change(thread_id="tour", blobs=[("two", b"22"), ("two", b"22")]))
        with storage.snapshot() as snapshot:
            assert snapshot.usage().blobs == 2
            assert snapshot.blob("two") == b"22"
            assert sorted(snapshot.blob_sizes(thread_key(snapshot))) == [("one", 1), ("two", 2)]
        assert storage.forget_blobs("trip", {"one"}, 0) == 0, "the thread has grown since: it may use them again"
        with storage.snapshot() as snapshot:
            assert len(snapshot.blob_sizes(thread_key(snapshot))) == 2
        assert storage.forget_blobs("trip", {"one"}, 1) == 0, "another thread uses it"
        assert storage.forget_blobs("tour", {"one"}, 1) == 2
        assert storage.forget_blobs("none", set(), 0) == 0
        with storage.snapshot() as snapshot:
            assert snapshot.blob("two") is None
            assert snapshot.blob("one") == b"1"
        assert storage.delete_thread("trip")
        with storage.snapshot() as snapshot:
            assert snapshot.blob("one") is None

    def test_an_erased_thread_is_gone(self, storage: Storage) -> None:
        done = grow(storage, 3, blobs=[("one", b"1")])[-1]
        grow(storage, 1, thread_id="tour", blobs=[("one", b"1")])
        storage.fold(done.thread, 1, lambda rows, _: Folding([rows[0].key], [], [Chunk(1, 1, 0, 1, b"x")]))
        assert storage.delete_thread("trip")
        assert not storage.delete_thread("trip")
        with storage.snapshot() as snapshot:
            assert snapshot.find_thread("trip") is None
            assert snapshot.blob("one") == b"1"
            usage = snapshot.usage()
            assert (usage.threads, usage.checkpoints, usage.payload_bytes) == (1, 1, 7)
        again = storage.commit(change())
        assert again.step == 1
        assert again.thread != done.thread

    def test_shrink_gives_a_count_of_bytes(self, storage: Storage) -> None:
        grow(storage, 1, payload=bytes(1_000_000))
        storage.delete_thread("trip")
        assert storage.shrink(1 << 30) >= 0
        grow(storage, 1)


class TenantCases:
    """Promise 6: nobody sees or touches what another tenant owns."""

    def test_6_tenants_do_not_meet(self, engine: Engine) -> None:
        mine, other = engine.tenant("mine"), engine.tenant("other")
        done = grow(mine, 3, blobs=[("d", b"data")], key=None)[-1]
        mine.set_tag("trip", "mark", 1)
        with other.snapshot() as snapshot:
            assert snapshot.find_thread("trip") is None
            assert snapshot.head("trip", "main") is None
            assert snapshot.row(done.thread, 1) is None
            assert snapshot.rows_by_id(done.thread, "id", 9) == []
            assert snapshot.history(done.thread, 3, 9) == []
            assert snapshot.rows(done.thread, 0, 9, manifests=True) == []
            assert snapshot.refs(done.thread) == []
            assert snapshot.payload(done.thread, [Want(1, 0, 0, 9)], 9) == []
            assert snapshot.pieces(done.thread, folded=False, after=0, limit=9) == []
            assert snapshot.pieces(done.thread, folded=True, after=0, limit=9) == []
            assert snapshot.blob("d") is None
            assert snapshot.threads(order="updated", after=None, limit=9) == []
            usage = snapshot.usage()
            assert (usage.threads, usage.checkpoints, usage.payload_bytes, usage.blobs) == (0, 0, 0, 0)

    def test_6_tenants_do_not_touch(self, engine: Engine) -> None:
        mine, other = engine.tenant("mine"), engine.tenant("other")
        done = grow(mine, 3, blobs=[("d", b"data")])[-1]
        lease = mine.acquire("trip", "main")
        before = everything(mine)
        with mine.snapshot() as snapshot:
            piece = snapshot.pieces(done.thread, folded=False, after=0, limit=1)[0]
        assert not other.delete_thread("trip")
        assert not other.check_lease(lease)
        other.release(lease)
        other.fold(
            done.thread, 1, lambda rows, _: pytest.fail("another tenant's rows") if rows else Folding([], [], [])
        )
        assert other.forget("trip", [1, 2], {}) == 0
        assert other.forget_blobs("trip", set(), 3) == 0
        assert not other.rewrite("trip", piece.key, piece, [], folded=False)
        for call in (
            lambda: other.create_branch("trip", "side", 1),
            lambda: other.set_tag("trip", "mark", 1),
            lambda: other.delete_branch("trip", "main", epoch=lease.epoch),
            lambda: other.move_branch("trip", "main", 1, old_tip="old", epoch=lease.epoch),
            lambda: other.commit(change(3, 1, epoch=lease.epoch)),
        ):
            with pytest.raises(ThreadNotFound):
                call()
        assert grow(other, 1, blobs=[("d", b"data")])[0].thread != done.thread
        assert everything(mine) == before
        assert mine.check_lease(lease)
        with mine.snapshot() as snapshot:
            assert snapshot.blob("d") == b"data"


class StorageContract(CommitCases, LeaseCases, SnapshotCases, NameCases, UpkeepCases, RecordCases, TenantCases):
    """All cases. The inheriting class has a fixture `engine`."""

    @pytest.fixture
    def storage(self, engine: Engine) -> Storage:
        return engine.tenant("default")
