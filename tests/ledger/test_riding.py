"""Entries that ride on a checkpoint: there with it, or not at all. Numbers are the promises of ledger.py."""

from __future__ import annotations

import pytest
from ledgers import new_effect, new_request, new_run

from clew.errors import Busy, Conflict, Fenced, RunExists, RunNotFound
from clew.storage.changes import Record, put_record
from clew.storage.ledger import Ask, Complete, Move, Start
from clew.testing.storage_steps import change, grow, steps


def test_2_a_run_begins_with_its_input(ledger, storage):
    done = storage.commit(change(1, 1, kind="input", changes=[Start(new_run("r1"))]))
    assert (ledger.run("r1").input_step, ledger.run("r1").step) == (done.step, done.step)
    end = storage.commit(change(done.step, done.lane, changes=[Move("r1", "done", was=("running",))]))
    row = ledger.run("r1")
    assert (row.status, row.input_step, row.step) == ("done", done.step, end.step)


def test_2_on_a_thread_that_is_new(ledger, storage):
    storage.commit(change(thread_id="new", kind="input", changes=[Start(new_run("r1"))]))
    assert (ledger.run("r1").thread_id, ledger.run("r1").input_step) == ("new", 1)


def test_2_a_question_stands_on_its_checkpoint(ledger, storage):
    record = Record("p", "t", 0, "", "n", b"v", None, 7)
    done = storage.commit(
        change(1, 1, changes=[Ask(new_request("a", step=None)), put_record(record), Ask(new_request("b", step=1))])
    )
    assert [(row.ask, row.step) for row in ledger.requests()] == [("a", done.step), ("b", 1)]
    with storage.snapshot() as snapshot:
        assert snapshot.records(done.thread, ["p"]) == [record]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda: change(None, changes=[Start(new_run("r2"))]), Conflict),
        (lambda: change(1, 1, changes=[Ask(new_request("x")), Move("none", "done")]), RunNotFound),
        (lambda: change(1, 1, changes=[Ask(new_request("x")), Start(new_run("r2"))]), Busy),
        (lambda: change(1, 1, changes=[Start(new_run("r2", branch="b", key="k"))]), RunExists),
        (lambda: change(1, 1, epoch=99, changes=[Move("r1", "done")]), Fenced),
    ],
)
def test_2_nothing_is_written_when_either_is_refused(ledger, storage, refused, error):
    ledger.apply("trip", [Start(new_run("r1", key="k"))])
    with pytest.raises(error):
        storage.commit(refused())
    assert steps(storage) == [1]
    assert [(row.id, row.status) for row in ledger.runs()] == [("r1", "running")]
    assert ledger.requests() == []


def test_2_a_lost_reply_writes_nothing_twice(ledger, storage):
    commit = change(1, 1, changes=[Start(new_run("r1")), Ask(new_request())])
    first = storage.commit(commit)
    ledger.apply("trip", [Move("r1", "waiting")])
    again = storage.commit(commit)
    assert (again.step, again.replayed) == (first.step, True)
    assert ledger.run("r1").status == "waiting"
    assert len(ledger.requests()) == 1


def test_3_under_a_lease_its_epoch_is_the_runs(ledger, storage):
    lease = storage.acquire("trip", "main")
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    entries = [Start(new_run("r1")), Complete(effect.key, effect.token, "done", b"42")]
    storage.commit(change(1, 1, epoch=lease.epoch, changes=entries, release=True))
    assert ledger.run("r1").epoch == lease.epoch
    assert ledger.effects("trip")[0].value == b"42"
    assert [row.id for row in ledger.abandoned()] == ["r1"]


def test_2_entries_among_many_commits(ledger, storage):
    grow(storage, 2, thread_id="tour")
    for number in range(5):
        entries = [Start(new_run(f"r{number}", branch=f"b{number}"))]
        storage.commit(change(2, kind="fork", branch=f"b{number}", thread_id="tour", changes=entries))
    assert [row.input_step for row in ledger.runs(thread_id="tour")] == [7, 6, 5, 4, 3]
