"""The storage contract's cases for writing: commits, leases, names. See storage_contract.py."""

# ruff: noqa: S101
from __future__ import annotations

import threading

import pytest

from clew.errors import Busy, Conflict, Fenced, NameTaken, NotFound, RefNotFound, ThreadNotFound
from clew.storage.port import Storage
from clew.testing.storage_steps import STAMP, change, everything, grow, names, steps, thread_key


class CommitCases:
    """Promises 1 to 3: atomic, compare-and-set, lost replies, steps."""

    def test_3_steps_count_from_one(self, storage: Storage) -> None:
        assert [(d.step, d.lane, d.unfolded, d.replayed) for d in grow(storage, 3)] == [
            (1, 1, 1, False), (2, 1, 2, False), (3, 1, 3, False),
        ]  # fmt: skip

    def test_a_row_comes_back_as_it_was_written(self, storage: Storage) -> None:
        sent = change(
            None,
            0,
            id="abc",
            kind="repair",
            label="l\0ü",
            run="r",
            next=b"\0n",
            metadata=b"m",
            manifest=b"",
            crc=2**32 - 1,
        )
        done = storage.commit(sent)
        with storage.snapshot() as snapshot:
            head = snapshot.head("trip", "main")
            assert head is not None
            row = head.row
            assert row is not None
            assert row == snapshot.row(done.thread, 1)
            assert tuple(row) == (1, "abc", None, 1, "repair", "l\0ü", "r", b"\0n", STAMP, b"m", b"", 2**32 - 1)
            assert type(row.next) is bytes
            assert type(row.manifest) is bytes
            assert (head.ref.name, head.ref.kind, head.ref.step, head.ref.lane) == ("main", "branch", 1, 1)

    def test_a_commit_without_payload_brings_no_payload_row(self, storage: Storage) -> None:
        done = storage.commit(change(payload=None))
        assert done.unfolded == 0
        with storage.snapshot() as snapshot:
            assert snapshot.pieces(done.thread, folded=False, after=0, limit=9) == []

    def test_1_a_moved_head_is_a_conflict_and_nothing_is_written(self, storage: Storage) -> None:
        grow(storage, 3)
        before = everything(storage)
        for base in (1, 2, None, 99):
            with pytest.raises(Conflict) as caught:
                storage.commit(change(base, 1 if base else 0, blobs=[("d", b"data")]))
            assert (caught.value.base, caught.value.head) == (base, 3)
        assert everything(storage) == before
        with storage.snapshot() as snapshot:
            assert snapshot.blob("d") is None

    def test_1_a_lane_that_the_branch_no_longer_grows_is_a_conflict(self, storage: Storage) -> None:
        grow(storage, 2)
        storage.move_branch("trip", "main", 1, old_tip="old", epoch=None)
        with pytest.raises(Conflict):
            storage.commit(change(1, 1))
        done = storage.commit(change(1))
        assert (done.step, done.lane, done.unfolded) == (3, 2, 1)

    def test_1_a_base_that_does_not_exist_is_not_found(self, storage: Storage) -> None:
        with pytest.raises(ThreadNotFound):
            storage.commit(change(1, 1))
        grow(storage, 1)
        with pytest.raises(RefNotFound):
            storage.commit(change(1, 1, branch="other"))
        with storage.snapshot() as snapshot:
            assert snapshot.head("trip", "other") is None

    def test_1_a_refused_first_commit_leaves_no_thread(self, storage: Storage) -> None:
        with pytest.raises(Fenced):
            storage.commit(change(epoch=1))
        with storage.snapshot() as snapshot:
            assert snapshot.find_thread("trip") is None

    def test_a_second_branch_can_begin_empty(self, storage: Storage) -> None:
        grow(storage, 2)
        done = storage.commit(change(branch="other"))
        assert (done.step, done.lane) == (3, 2)
        assert steps(storage, branch="other") == [3]
        storage.set_tag("trip", "named", 1)
        with pytest.raises(NameTaken):
            storage.commit(change(branch="named"))

    def test_2_a_lost_reply_gives_what_was_written(self, storage: Storage) -> None:
        sent = [change(id="a")]
        sent.append(change(1, 1, id="b"))
        first = [storage.commit(one) for one in sent]
        before = everything(storage)
        again = [storage.commit(one) for one in sent]
        assert [(d.thread, d.step, d.lane, d.replayed) for d in again] == [
            (d.thread, d.step, d.lane, True) for d in first
        ]
        assert everything(storage) == before

    def test_2_a_lost_reply_is_known_also_after_a_rewind_to_its_base(self, storage: Storage) -> None:
        grow(storage, 1)
        sent = change(1, 1, id="lost")
        storage.commit(sent)
        storage.move_branch("trip", "main", 1, old_tip="old", epoch=None)
        assert storage.commit(sent).replayed
        assert storage.commit(sent._replace(lane=0)).replayed
        assert steps(storage) == [1]

    def test_2_a_lost_reply_is_known_beside_somebody_elses_lease(self, storage: Storage) -> None:
        sent = change(id="lost")
        storage.commit(sent)
        storage.acquire("trip", "main")
        assert storage.commit(sent).replayed

    def test_2_the_same_id_in_another_thread_is_another_checkpoint(self, storage: Storage) -> None:
        storage.commit(change(id="same"))
        assert not storage.commit(change(id="same", thread_id="tour")).replayed

    def test_2_a_save_key_is_used_once(self, storage: Storage) -> None:
        done = storage.commit(change(key="turn-1"))
        storage.commit(change(1, 1, key="turn-2"))
        again = storage.commit(change(2, 1, key="turn-1"))
        assert (again.step, again.replayed) == (done.step, True)
        assert not storage.commit(change(key="turn-1", thread_id="tour")).replayed

    def test_3_a_step_is_never_given_twice(self, storage: Storage) -> None:
        grow(storage, 3)
        storage.move_branch("trip", "main", 1, old_tip="old", epoch=None)
        assert storage.forget("trip", [2, 3], {}) == 2
        assert storage.commit(change(1)).step == 4

    def test_1_racing_writers_lose_nothing_and_double_nothing(self, storage: Storage) -> None:
        """Each of several writers commits until it has won ten times; conflicts are tried again on the new head."""
        storage.commit(change(id="root"))
        won: list[str] = []
        failures: list[BaseException] = []

        def write(name: int) -> None:
            base = 1
            try:
                for number in range(10):
                    id_ = f"{name}-{number}"
                    while True:
                        try:
                            base = storage.commit(change(base, 1, id=id_)).step
                            break
                        except Conflict as conflict:
                            base = conflict.head
                    won.append(id_)
            except BaseException as error:
                failures.append(error)
                raise

        writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert not failures
        assert steps(storage) == list(range(41, 0, -1))
        with storage.snapshot() as snapshot:
            rows = snapshot.rows(thread_key(snapshot), 1, 100, manifests=False)
        assert sorted(row.id for row in rows) == sorted(won)


class LeaseCases:
    """Promise 4: leases, and what they keep out."""

    def test_4_a_lease_admits_its_holder_only(self, storage: Storage) -> None:
        lease = storage.acquire("trip", "main")
        assert storage.check_lease(lease)
        with pytest.raises(Busy) as caught:
            storage.commit(change())
        assert caught.value.owner
        with pytest.raises(Busy):
            storage.acquire("trip", "main")
        with pytest.raises(Fenced):
            storage.commit(change(epoch=lease.epoch + 1))
        assert storage.commit(change(epoch=lease.epoch)).step == 1
        storage.release(lease)
        assert not storage.check_lease(lease)
        assert storage.commit(change(1, 1)).step == 2

    def test_4_a_released_lease_is_fenced(self, storage: Storage) -> None:
        lease = storage.acquire("trip", "main")
        storage.release(lease)
        with pytest.raises(Fenced):
            storage.commit(change(epoch=lease.epoch))
        storage.release(lease)

    def test_4_epochs_only_grow(self, storage: Storage) -> None:
        epochs = []
        for _ in range(3):
            lease = storage.acquire("trip", "main")
            epochs.append(lease.epoch)
            storage.release(lease)
        assert epochs == sorted(set(epochs))

    def test_4_an_old_lease_does_not_admit_after_a_new_one(self, storage: Storage) -> None:
        old = storage.acquire("trip", "main")
        storage.release(old)
        new = storage.acquire("trip", "main")
        with pytest.raises(Fenced):
            storage.commit(change(epoch=old.epoch))
        storage.release(old)
        assert storage.check_lease(new)

    def test_4_a_commit_can_release(self, storage: Storage) -> None:
        lease = storage.acquire("trip", "main")
        storage.commit(change(epoch=lease.epoch, release=True))
        assert not storage.check_lease(lease)
        assert storage.acquire("trip", "main").epoch > lease.epoch

    def test_4_branches_are_leased_apart(self, storage: Storage) -> None:
        grow(storage, 1)
        storage.create_branch("trip", "other", 1)
        lease = storage.acquire("trip", "main")
        assert storage.commit(change(1, branch="other")).step == 2
        assert storage.acquire("trip", "other").epoch > 0
        assert storage.check_lease(lease)

    def test_4_who_holds_it_is_shown(self, storage: Storage) -> None:
        lease = storage.acquire("trip", "main")
        with storage.snapshot() as snapshot:
            head = snapshot.head("trip", "main")
            assert head is not None
            assert head.ref.owner
            assert head.ref.epoch == lease.epoch
            assert snapshot.threads(order="id", after=None, limit=9)[0].busy
        storage.release(lease)
        with storage.snapshot() as snapshot:
            assert [ref.owner for ref in snapshot.refs(thread_key(snapshot))] == [None]
            assert not snapshot.threads(order="id", after=None, limit=9)[0].busy

    def test_4_acquire_makes_a_thread_but_no_branch_in_one_that_exists(self, storage: Storage) -> None:
        storage.release(storage.acquire("trip", "draft"))
        assert names(storage) == {"draft": ("branch", None)}
        with pytest.raises(RefNotFound):
            storage.acquire("trip", "other")
        storage.commit(change(branch="draft"))
        storage.set_tag("trip", "named", 1)
        with pytest.raises(NotFound):
            storage.acquire("trip", "named")

    def test_4_a_lease_guards_the_branch_itself(self, storage: Storage) -> None:
        grow(storage, 2)
        lease = storage.acquire("trip", "main")
        with pytest.raises(Busy):
            storage.move_branch("trip", "main", 1, old_tip="old", epoch=None)
        with pytest.raises(Busy):
            storage.delete_branch("trip", "main", epoch=None)
        with pytest.raises(Busy):
            storage.delete_thread("trip")
        with pytest.raises(Fenced):
            storage.move_branch("trip", "main", 1, old_tip="old", epoch=lease.epoch + 1)
        storage.move_branch("trip", "main", 1, old_tip="old", epoch=lease.epoch)
        assert names(storage) == {"main": ("branch", 1), "old": ("auto", 2)}
        storage.delete_branch("trip", "main", epoch=lease.epoch)
        assert names(storage) == {"old": ("auto", 2)}
        assert not storage.check_lease(lease)


class NameCases:
    """Branches and tags."""

    def test_branches_and_tags_share_their_names(self, storage: Storage) -> None:
        grow(storage, 2)
        storage.create_branch("trip", "side", 1)
        storage.set_tag("trip", "mark", 2)
        for name in ("side", "mark", "main"):
            with pytest.raises(NameTaken):
                storage.create_branch("trip", name, 1)
        with pytest.raises(NameTaken):
            storage.set_tag("trip", "side", 1)
        assert names(storage) == {"main": ("branch", 2), "side": ("branch", 1), "mark": ("tag", 2)}

    def test_a_tag_does_not_move(self, storage: Storage) -> None:
        grow(storage, 2)
        storage.set_tag("trip", "mark", 1)
        storage.set_tag("trip", "mark", 1)
        with pytest.raises(NameTaken):
            storage.set_tag("trip", "mark", 2)
        storage.delete_tag("trip", "mark")
        storage.set_tag("trip", "mark", 2)
        assert names(storage)["mark"] == ("tag", 2)

    def test_names_for_what_is_not_there(self, storage: Storage) -> None:
        with pytest.raises(ThreadNotFound):
            storage.create_branch("trip", "side", 1)
        grow(storage, 1)
        with pytest.raises(RefNotFound):
            storage.create_branch("trip", "side", 2)
        with pytest.raises(RefNotFound):
            storage.set_tag("trip", "mark", 2)
        for call in (storage.delete_tag, lambda t, n: storage.delete_branch(t, n, epoch=None)):
            with pytest.raises(RefNotFound):
                call("trip", "none")
        with pytest.raises(RefNotFound):
            storage.delete_tag("trip", "main")
        with pytest.raises(RefNotFound):
            storage.move_branch("trip", "main", 9, old_tip="old", epoch=None)
        assert names(storage) == {"main": ("branch", 1)}

    def test_a_rewind_keeps_the_old_tip(self, storage: Storage) -> None:
        grow(storage, 3)
        storage.move_branch("trip", "main", 1, old_tip="main@3", epoch=None)
        assert names(storage) == {"main": ("branch", 1), "main@3": ("auto", 3)}
        storage.commit(change(1))
        storage.move_branch("trip", "main", 1, old_tip="main@3", epoch=None)
        assert names(storage) == {"main": ("branch", 1), "main@3": ("auto", 3)}

    def test_a_fork_opens_a_lane(self, storage: Storage) -> None:
        grow(storage, 2)
        storage.create_branch("trip", "side", 1)
        side = storage.commit(change(1, branch="side"))
        main = storage.commit(change(2, 1))
        assert (side.step, side.lane, main.step, main.lane, main.unfolded) == (3, 2, 4, 1, 3)
