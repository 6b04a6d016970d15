"""Runs: who has a branch, which key is whose, what is due. Numbers in names are the promises of ledger.py."""

from __future__ import annotations

import pytest
from ledgers import DAY, ledger_of, new_request, new_run, pages, waiting

from clew.errors import Busy, Conflict, Fenced, RunExists, RunNotFound
from clew.storage.ledger import Ask, Move, NewAnswer, NewWait, Start, Want
from clew.testing.storage_steps import change


def test_1_one_run_has_a_branch(ledger, storage):
    ledger.apply("trip", [Start(new_run("r1"))])
    with pytest.raises(Busy, match="r1"):
        ledger.apply("trip", [Start(new_run("r2"))])
    ledger.apply("trip", [Start(new_run("r3", branch="osaka"))])
    ledger.apply("trip", [Start(new_run("r4", status="queued")), Start(new_run("r5", status="queued"))])
    for status in ("waiting", "sleeping", "paused"):
        ledger.apply("trip", [Move("r1", status)])
        assert ledger.run_holding("trip", "main").id == "r1"
        with pytest.raises(Busy, match=status):
            ledger.apply("trip", [Move("r4", "running")])
    ledger.apply("trip", [Move("r1", "done")])
    ledger.apply("trip", [Move("r4", "running")])
    assert ledger.run_holding("trip", "main").id == "r4"
    assert ledger.run_holding("trip", "osaka").id == "r3"
    assert ledger.run_holding("trip", "none") is None


def test_1_the_index_holds_it_even_where_nobody_looks(ledger, place, db):
    ledger.apply("trip", [Start(new_run("r1")), Start(new_run("r2", status="queued"))])
    with pytest.raises(Exception, match=r"(?i)unique"):
        place.execute(db, "UPDATE run SET status = 'waiting' WHERE id = ?", "r2")


def test_1_one_key_is_one_run(ledger):
    ledger.apply("trip", [Start(new_run("r1", key="mail-7"))])
    ledger.apply("trip", [Move("r1", "done")])
    with pytest.raises(RunExists) as caught:
        ledger.apply("trip", [Start(new_run("r2", key="mail-7"))])
    assert caught.value.run == "r1"
    assert ledger.run_with_key("trip", "trip", "mail-7").id == "r1"
    assert ledger.run_with_key("trip", "other", "mail-7") is None
    assert ledger.run_with_key("none", "trip", "mail-7") is None
    ledger.apply("trip", [Start(new_run("r2", agent="other", key="mail-7"))])


def test_starting_again_what_was_started_changes_nothing(ledger):
    new = new_run("r1", key="k", context=b"context")
    ledger.apply("trip", [Start(new)])
    before = ledger.run("r1")
    ledger.apply("trip", [Start(new)])
    assert ledger.run("r1") == before


def test_a_run_comes_back_as_it_was_given(ledger):
    new = new_run("r1", status="queued", key="k", input=b"in\0", context=b"", parent="r0", parent_step=1, priority=-3)
    ledger.apply("trip", [Start(new)])
    row = ledger.run("r1")
    assert (row.thread_id, row.branch, row.agent, row.status, row.key) == ("trip", "main", "trip", "queued", "k")
    assert (row.input, row.context, row.error) == (b"in\0", b"", None)
    assert (row.parent, row.parent_step, row.priority) == ("r0", 1, -3)
    assert (row.attempts, row.crashes, row.input_step, row.step) == (0, 0, None, None)
    assert row.created == row.updated == row.wake
    assert ledger.run("none") is None


def test_a_queued_run_makes_its_thread(ledger, storage):
    ledger.apply("new", [Start(new_run("r1", status="queued", input=b"in"))])
    assert ledger.run("r1").thread_id == "new"
    assert storage.acquire("new", "main").epoch == 1
    with pytest.raises(RunNotFound):
        ledger.apply("none", [Move("r1", "running")])
    with storage.snapshot() as snapshot:
        assert snapshot.find_thread("none") is None


def test_2_all_or_nothing(ledger):
    with pytest.raises(RunNotFound):
        ledger.apply("trip", [Start(new_run("r1")), Ask(new_request()), Move("none", "done")])
    assert ledger.run("r1") is None
    assert ledger.requests() == []


def test_moves_are_compared(ledger):
    ledger.apply("trip", [Start(new_run("r1"))])
    with pytest.raises(Conflict, match="running"):
        ledger.apply("trip", [Move("r1", "running", was=("waiting",))])
    ledger.apply("trip", [Move("r1", "failed", was=("running",), error=b"boom")])
    assert ledger.run("r1").error == b"boom"
    with pytest.raises(Conflict, match="failed"):
        ledger.apply("trip", [Move("r1", "running")])
    ledger.apply("trip", [Move("r1", "running", was=("failed",))])
    assert ledger.run("r1").error is None
    with pytest.raises(RunNotFound):
        ledger.apply("trip", [Move("none", "done")])
    ledger.apply("other", [Start(new_run("r2"))])
    with pytest.raises(RunNotFound):
        ledger.apply("trip", [Move("r2", "done")])


def test_3_what_is_written_under_a_lease_is_fenced(ledger, storage):
    lease = storage.acquire("trip", "main")
    ledger.apply("trip", [Start(new_run("r1"))], lease=lease)
    assert ledger.run("r1").epoch == lease.epoch
    storage.release(lease)
    later = storage.acquire("trip", "main")
    with pytest.raises(Fenced):
        ledger.apply("trip", [Move("r1", "done")], lease=lease)
    with pytest.raises(Fenced):
        ledger.ask("trip", new_request(), lease=lease)
    with pytest.raises(Fenced):
        ledger.wait("trip", NewWait("r1", "a1", "1"), lease=lease)
    assert ledger.run("r1").status == "running"
    ledger.apply("trip", [Move("r1", "done")], lease=later)


def test_attempts_and_crashes_are_counted(ledger, storage):
    def taken_up():
        lease = storage.acquire("trip", "main")
        ledger.apply("trip", [Move("r1", "running")], lease=lease)
        row = ledger.run("r1")
        return lease, (row.attempts, row.crashes)

    lease = storage.acquire("trip", "main")
    ledger.apply("trip", [Start(new_run("r1"))], lease=lease)
    ledger.apply("trip", [Move("r1", "running")], lease=lease)  # the same attempt goes on
    assert (ledger.run("r1").attempts, ledger.run("r1").crashes) == (1, 0)
    storage.release(lease)  # and is not heard of again
    lease, counts = taken_up()
    assert counts == (2, 1)
    ledger.apply("trip", [Move("r1", "waiting")], lease=lease)
    storage.release(lease)
    assert taken_up()[1] == (3, 1)


def test_due_and_abandoned(ledger, storage, place, db):
    ledger.apply("trip", [Start(new_run("r1")), Start(new_run("r2", status="queued", delay=DAY))])
    assert ledger.due() == []
    assert [row.id for row in ledger.abandoned()] == ["r1"]
    lease = storage.acquire("trip", "main")
    assert ledger.abandoned() == []
    ledger.apply("trip", [Move("r1", "sleeping", delay=2 * DAY)], lease=lease)
    storage.release(lease)
    assert ledger.abandoned() == ledger.due() == []
    place.let_pass(db, DAY)
    assert [row.id for row in ledger.due()] == ["r2"]
    place.let_pass(db, DAY)
    assert [row.id for row in ledger.due()] == ["r2", "r1"]
    assert [row.id for row in ledger.due(1)] == ["r2"]
    ledger.apply("trip", [Move("r1", "running")])
    assert [row.id for row in ledger.due()] == ["r2"]
    ledger.apply("trip", [Move("r2", "cancelled")])
    assert ledger.due() == []


def test_many_abandoned_ones_come_in_full(ledger, storage):
    for number in range(120):
        ledger.apply("trip", [Start(new_run(f"r{number}", branch=f"b{number}"))])
    assert [row.id for row in ledger.abandoned(500)] == [f"r{number}" for number in range(120)]
    assert len(ledger.abandoned(7)) == 7


def test_8_an_answer_makes_a_waiting_run_due(ledger):
    number = waiting(ledger)
    assert ledger.run("r1").wake is None
    assert ledger.due() == []
    ledger.answer(number, NewAnswer("alice", b"yes", b"digest"))
    assert [row.id for row in ledger.due()] == ["r1"]


def test_8_an_answer_that_came_before_the_run_waits_for_it(ledger):
    ledger.apply("trip", [Start(new_run("r1"))])
    number = ledger.ask("trip", new_request(run="r1")).number
    ledger.answer(number, NewAnswer("alice", b"yes", b"digest"))
    assert ledger.due() == []
    ledger.apply("trip", [Move("r1", "waiting", requests=[number])])
    assert [row.id for row in ledger.due()] == ["r1"]


def test_8_an_expiry_makes_a_waiting_run_due(ledger, place, db):
    ledger.apply("trip", [Start(new_run("r1"))])
    numbers = [
        ledger.ask("trip", new_request(ask, run="r1", ttl=ttl)).number for ask, ttl in (("a", DAY), ("b", 9 * DAY))
    ]
    ledger.apply("trip", [Move("r1", "waiting", requests=numbers)])
    assert ledger.due() == []
    place.let_pass(db, DAY)
    assert [row.id for row in ledger.due()] == ["r1"]
    ledger.apply("trip", [Move("r1", "running")])
    ledger.apply("trip", [Move("r1", "waiting", requests=numbers[1:])])
    assert ledger.due() == []
    ledger.apply("trip", [Move("r1", "running")])
    ledger.apply("trip", [Move("r1", "waiting", requests=numbers)])
    assert [row.id for row in ledger.due()] == ["r1"]


def test_8_word_left_for_a_run_makes_it_due(ledger):
    number = waiting(ledger)
    ledger.apply("trip", [Want("r1", "cancel")])
    assert [(row.id, row.wanted) for row in ledger.due()] == [("r1", "cancel")]
    ledger.apply("trip", [Move("r1", "running")])
    assert ledger.run("r1").wanted == "cancel"
    ledger.apply("trip", [Move("r1", "waiting", requests=[number])])  # it did not look: it is due again
    assert [row.id for row in ledger.due()] == ["r1"]
    ledger.apply("trip", [Move("r1", "cancelled")])
    assert ledger.run("r1").wanted is None
    with pytest.raises(Conflict, match="ended"):
        ledger.apply("trip", [Want("r1", "cancel")])
    with pytest.raises(RunNotFound):
        ledger.apply("trip", [Want("none", "cancel")])


def test_runs_in_pages(ledger):
    for number in range(7):
        thread = "trip" if number % 2 else "tour"
        ledger.apply(thread, [Start(new_run(f"r{number}", branch=f"b{number}"))])
    ledger.apply("trip", [Move("r3", "done"), Move("r5", "done")])

    def ids(**which):
        return [
            row.id for row in pages(lambda after, limit: ledger.runs(after=after, limit=limit, **which), lambda r: r.id)
        ]

    assert ids() == [f"r{number}" for number in reversed(range(7))]
    assert ids(thread_id="trip") == ["r5", "r3", "r1"]
    assert ids(status="done") == ["r5", "r3"]
    assert ids(thread_id="trip", status="running") == ["r1"]
    assert ids(thread_id="none") == []


def test_11_a_thread_takes_its_rows_with_it(ledger, storage, place, db):
    number = waiting(ledger)
    ledger.answer(number, NewAnswer("alice", b"yes", b"digest"))
    ledger.ask("trip", new_request("other"))
    ledger.apply("tour", [Start(new_run("r9"))])
    ledger.ask("tour", new_request())
    ledger.signal("paid", b"1")
    ledger.wait("trip", NewWait("r1", "a1", "1", "paid"))
    assert storage.delete_thread("trip")
    assert ledger.run("r1") is None
    assert [row.thread_id for row in ledger.requests()] == ["tour"]
    assert [row.id for row in ledger.runs()] == ["r9"]
    for table, left in (("answer", 0), ("wait", 0), ("signal", 0), ("notice", 1), ("effect", 0)):
        assert len(place.execute(db, f"SELECT tenant FROM {table}")) == left, table
    assert ledger.ask("tour", new_request("next")).number > number + 1, "numbers are never given twice"


def test_tenants_are_apart(ledger, db):
    number = waiting(ledger)
    other = ledger_of(db.tenant("other"))
    assert other.runs() == other.requests() == other.due() == other.abandoned() == []
    assert other.run("r1") is None
    assert other.request(number) is None
    other.apply("trip", [Start(new_run("r1", key="k"))])
    assert other.ask("trip", new_request()).number == 1, "numbers do not tell of another tenant's requests"
    assert ledger.run("r1").key is None
    assert ledger.signal("paid", b"theirs", key="k")
    assert other.signal("paid", b"ours", key="k")
    assert other.wait("trip", NewWait("r1", "a1", "1", "paid")).value == b"ours"
    assert other.next_notice(hold=DAY).number == 1
    assert ledger.next_notice(hold=DAY).number == number


def test_11_what_a_request_or_run_stands_on_is_kept(ledger, storage):
    done = storage.commit(change(1, 1))
    for _ in range(4):
        done = storage.commit(change(done.step, done.lane))
    number = waiting(ledger, step=2)
    ledger.apply("trip", [Start(new_run("r2", branch="b", parent_step=3))])
    with storage.snapshot() as snapshot:
        assert snapshot.held(done.thread) == {2, 3}
    assert storage.forget("trip", range(1, 6), {}) == 3
    ledger.answer(number, NewAnswer("alice", b"yes", b"digest"))
    ledger.apply("trip", [Move("r2", "done")])
    assert storage.forget("trip", range(1, 6), {}) == 2
