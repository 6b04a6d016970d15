"""Lines of runs and claims: who is up, who is taken, in which order, and what a new run does about others.

The table in docs/design/workers.md is what these hold.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from ledgers import DAY, Place, ledger_of, new_run

import clew
from clew.errors import Busy, Corrupt, Fenced
from clew.storage.ledger import Move, NewAnswer, NewRequest, NewRun, Start, Want
from clew.storage.port import Lease
from clew.storage.queue import Enter, Limits, Rewind, TakeIn
from clew.storage.statements import queries

TRIP = ("trip",)


def queued(ledger: Any, name: str, thread: str = "trip", **other: Any) -> NewRun:
    new = new_run(name, status="queued", input=b"in", **other)
    ledger.apply(thread, [Start(new)])
    return new


def claim(ledger: Any, count: int = 100, **other: Any) -> list[str]:
    return [row.id for row in ledger.claim_runs(TRIP, count=count, **other)]


def end(ledger: Any, storage: Any, run: str, status: Any = "done", **other: Any) -> None:
    """As a worker ends a run: under its lease, which it gives back."""
    row = ledger.run(run)
    lease = Lease(row.thread_id, row.branch, row.epoch)
    ledger.apply(row.thread_id, [Move(run, status, ("running",), **other)], lease=lease)
    storage.release(lease)


def test_a_claim_takes_the_run_and_its_lease(ledger, storage):
    queued(ledger, "r1")
    [row] = ledger.claim_runs(TRIP)
    assert (row.id, row.status, row.wake, row.attempts, row.crashes, row.input) == ("r1", "running", None, 1, 0, b"in")
    lease = Lease("trip", "main", row.epoch)
    assert storage.check_lease(lease)
    assert ledger.claim_runs(TRIP, sweep=True) == []
    assert ledger.run("r1") == row
    ledger.apply("trip", [Move("r1", "done")], lease=lease)
    storage.release(lease)
    with pytest.raises(Fenced):
        ledger.apply("trip", [Want("r1", None)], lease=lease._replace(epoch=lease.epoch - 1))


def test_one_of_a_line_at_a_time_in_the_order_of_admission(ledger, storage):
    for name in ("r1", "r2", "r3"):
        queued(ledger, name)
    queued(ledger, "first", priority=1)
    for expected in ("r1", "first", "r2", "r3"):  # r1 was up before the other came
        assert claim(ledger) == [expected]
        assert claim(ledger) == []
        end(ledger, storage, expected)
    assert claim(ledger) == []


def test_lines_take_turns(ledger, storage):
    for name in ("a1", "a2", "a3"):
        queued(ledger, name, "a")
    queued(ledger, "b1", "b")
    assert claim(ledger, 1) == ["a1"]
    end(ledger, storage, "a1")
    assert claim(ledger, 1) == ["b1"]
    assert claim(ledger, 1) == ["a2"]


def test_greater_priorities_go_first(ledger):
    for number, priority in enumerate((0, 5, -3, 5, 9)):
        queued(ledger, f"r{number}", f"t{number}", priority=priority)
    assert claim(ledger) == ["r4", "r1", "r3", "r0", "r2"]


def test_only_runs_of_agents_that_are_served(ledger):
    queued(ledger, "r1", "a", agent="other")
    queued(ledger, "r2", "b")
    assert claim(ledger) == ["r2"]
    assert [row.id for row in ledger.claim_runs(("third", "other"))] == ["r1"]


def test_at_a_time_of_the_database(ledger, storage, place: Place, db):
    [[now]] = (
        place.execute(db, "SELECT clew.stamp()")
        if place.admin_url
        else place.execute(db, "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)")
    )
    queued(ledger, "later", at=now + DAY)
    queued(ledger, "past", "b", at=now - DAY)
    queued(ledger, "now")
    assert claim(ledger) == ["past", "now"]
    due_in = ledger.look(TRIP).due_in
    assert DAY - 60_000_000 < due_in <= DAY
    place.let_pass(db, DAY)
    assert claim(ledger) == []  # its time has come, but the branch is held: it stands in line
    end(ledger, storage, "now")
    assert claim(ledger) == ["later"]


def test_what_waits_is_claimed_when_it_is_due(ledger, storage, place: Place, db):
    queued(ledger, "r1")
    queued(ledger, "r2")
    claim(ledger)
    lease = Lease("trip", "main", ledger.run("r1").epoch)
    number = ledger.ask("trip", NewRequest("a1", "book", b"d", b"Book?", run="r1", step=1), lease=lease).number
    end(ledger, storage, "r1", "waiting", requests=[number])
    assert claim(ledger) == []  # neither it nor the one that stands behind it
    ledger.answer(number, NewAnswer("alice", b"yes", b"d"))
    assert claim(ledger) == ["r1"]
    end(ledger, storage, "r1", "sleeping", delay=DAY)
    assert claim(ledger) == []
    place.let_pass(db, DAY)
    assert claim(ledger) == ["r1"]


def test_a_branch_that_somebody_edits_is_left_alone_for_a_moment(ledger, storage, place: Place, db):
    lease = storage.acquire("trip", "main")
    queued(ledger, "r1")
    assert claim(ledger) == []
    storage.release(lease)
    assert 0 < ledger.look(TRIP).due_in <= 100_000
    place.let_pass(db, 100_000)
    assert claim(ledger) == ["r1"]


def test_who_is_left_alone_for_a_moment_keeps_its_place(ledger, storage, place: Place, db):
    lease = storage.acquire("trip", "main")
    queued(ledger, "r1")
    assert claim(ledger) == []
    queued(ledger, "r2")
    storage.release(lease)
    assert claim(ledger) == []
    place.let_pass(db, 100_000)
    assert claim(ledger) == ["r1"]
    queued(ledger, "r3", if_busy="rollback")
    assert ledger.run("r2").status == "cancelled"


def test_other_branches_have_lines_of_their_own(ledger, storage):
    storage.create_branch("trip", "osaka", 1)
    queued(ledger, "r1")
    queued(ledger, "r2", branch="osaka")
    assert claim(ledger) == ["r1", "r2"]


def test_reject(ledger):
    queued(ledger, "r1", if_busy="reject")
    with pytest.raises(Busy, match="stand in line"):
        queued(ledger, "r2", if_busy="reject")
    claim(ledger)
    with pytest.raises(Busy, match="r1, which is running"):
        queued(ledger, "r2", if_busy="reject")
    assert ledger.run("r2") is None


def test_interrupt(ledger, storage):
    queued(ledger, "live")
    claim(ledger)
    queued(ledger, "before")
    queued(ledger, "new", if_busy="interrupt")
    assert ledger.wanted(["live", "new"]) == [("live", "interrupt")]
    end(ledger, storage, "live", "cancelled")
    [before] = ledger.claim_runs(TRIP, count=5)
    assert (before.id, before.wanted, before.input) == ("before", "interrupt", b"in")  # takes its input in, no more
    end(ledger, storage, "before", "cancelled")
    [new] = ledger.claim_runs(TRIP)
    assert (new.id, new.wanted) == ("new", None)


@pytest.mark.parametrize("status", ["waiting", "sleeping", "paused"])
def test_interrupt_of_one_that_nobody_drives_is_at_once(ledger, storage, status):
    queued(ledger, "live")
    claim(ledger)
    end(ledger, storage, "live", status, **({"delay": DAY} if status == "sleeping" else {}))
    queued(ledger, "new", if_busy="interrupt")
    assert ledger.run("live").status == "cancelled"
    assert claim(ledger) == ["new"]


def test_interrupt_of_one_that_nobody_drives_calls_those_before(ledger, storage):
    queued(ledger, "live")
    claim(ledger)
    end(ledger, storage, "live", "waiting")
    queued(ledger, "before")
    queued(ledger, "new", if_busy="interrupt")
    [before] = ledger.claim_runs(TRIP, count=5)
    assert (before.id, before.wanted) == ("before", "interrupt")
    end(ledger, storage, "before", "cancelled")
    assert claim(ledger) == ["new"]


@pytest.mark.parametrize("status", ["running", "waiting", "sleeping", "paused"])
def test_rollback(ledger, storage, status):
    queued(ledger, "live")
    claim(ledger)
    if status != "running":
        end(ledger, storage, "live", status, **({"delay": DAY} if status == "sleeping" else {}))
    queued(ledger, "before")
    queued(ledger, "new", if_busy="rollback")
    assert ledger.run("before").status == "cancelled"
    if status == "running":
        assert ledger.wanted(["live"]) == [("live", "rollback")]
    else:
        assert [(row.id, row.wanted) for row in ledger.claim_runs(TRIP)] == [("live", "rollback")]
    end(ledger, storage, "live", "cancelled")
    assert claim(ledger) == ["new"]


def test_inject(ledger, storage):
    queued(ledger, "live")
    claim(ledger)
    queued(ledger, "waits")
    queued(ledger, "one", if_busy="inject")
    queued(ledger, "other", if_busy="inject", agent="other")
    queued(ledger, "two", if_busy="inject")
    assert ledger.wanted(["live"]) == [("live", "inject")]
    assert [row.id for row in ledger.to_take_in("live")] == ["one", "two"]
    lease = Lease("trip", "main", ledger.run("live").epoch)
    ledger.apply("trip", [TakeIn("live", ["one"])], lease=lease)
    assert ledger.wanted(["live"]) == [("live", "inject")]  # there is another one
    ledger.apply("trip", [TakeIn("live", ["two"])], lease=lease)
    assert ledger.wanted(["live"]) == []
    assert [ledger.run(run).status for run in ("one", "two", "other", "waits")] == ["done", "done", "queued", "queued"]
    queued(ledger, "late", if_busy="inject")
    end(ledger, storage, "live")
    assert claim(ledger) == ["waits"]
    end(ledger, storage, "waits")
    [other] = ledger.claim_runs(("trip", "other"))
    assert other.id == "other"
    end(ledger, storage, "other")
    assert claim(ledger) == ["late"]  # nobody took it in: it runs by itself


def test_a_parked_run_is_due_for_what_it_is_to_take_in(ledger, storage):
    queued(ledger, "live")
    claim(ledger)
    end(ledger, storage, "live", "waiting")
    queued(ledger, "one", if_busy="inject")
    assert [(row.id, row.wanted) for row in ledger.claim_runs(TRIP)] == [("live", "inject")]


def test_one_that_is_cancelled_leaves_its_line(ledger, storage):
    for name in ("r1", "r2", "r3"):
        queued(ledger, name)
    ledger.apply("trip", [Move("r2", "cancelled", ("queued",))])
    ledger.apply("trip", [Move("r1", "cancelled", ("queued",))])
    assert claim(ledger) == ["r3"]


def test_failed_and_dead_runs_free_their_branch(ledger, storage):
    for name in ("r1", "r2", "r3"):
        queued(ledger, name)
    for name, status in (("r1", "failed"), ("r2", "dead")):
        assert claim(ledger) == [name]
        end(ledger, storage, name, status, error=b"boom")
    assert claim(ledger) == ["r3"]


def test_failures_and_crashes_count_since_the_last_checkpoint(ledger, storage, db, place: Place):
    db.thread("plain").save({"n": 1})
    queued(ledger, "r1", "plain")
    for failures in range(3):
        [row] = ledger.claim_runs(TRIP)
        assert (row.failures, row.crashes) == (failures, 0)
        end(ledger, storage, "r1", "sleeping", delay=0, error=b"boom")
    for crashes in range(3):
        [row] = ledger.claim_runs(TRIP, sweep=True)
        assert (row.failures, row.crashes) == (3, crashes)
        storage.release(Lease("plain", "main", row.epoch))  # and nothing more is heard of it
    db.thread("plain").update({"more": 1})
    [row] = ledger.claim_runs(TRIP, sweep=True)
    assert (row.failures, row.crashes) == (0, 1)


def test_an_input_that_has_become_a_checkpoint(ledger, storage):
    queued(ledger, "r1")
    [row] = ledger.claim_runs(TRIP)
    lease = Lease("trip", "main", row.epoch)
    ledger.apply("trip", [Enter("r1")], lease=lease)
    assert ledger.run("r1").input is None


def test_rewinding_under_a_lease(ledger, storage, db):
    thread = db.thread("plain")
    for n in range(3):
        thread.update({"n": n})
    lease = storage.acquire("plain", "main")
    ledger.apply("plain", [Rewind("main", 1, "main.was.3")], lease=lease)
    assert thread.head.step == 1
    assert thread.tips == {"main.was.3": 3}
    ledger.apply("plain", [Rewind("main", None, "main.was.1")], lease=lease)
    assert thread.head is None
    storage.release(lease)
    assert thread.save({"fresh": True}).step == 4


def test_limits(ledger, storage):
    for number in range(6):
        agent = "trip" if number % 2 else "other"
        queued(ledger, f"r{number}", f"t{number}", agent=agent)
    both = ("trip", "other")
    got = [row.id for row in ledger.claim_runs(both, count=9, limits=Limits(tenant=4, agents={"other": 1}))]
    assert got == ["r0", "r1", "r3", "r5"]
    assert ledger.claim_runs(both, count=9, limits=Limits(tenant=4)) == []
    end(ledger, storage, "r1")
    assert ledger.claim_runs(both, count=9, limits=Limits(tenant=4, agents={"other": 1})) == []
    assert [row.id for row in ledger.claim_runs(both, count=9, limits=Limits(tenant=4))] == ["r2"]


def test_groups_share_a_limit(ledger, storage):
    for number in range(7):
        queued(ledger, f"r{number}", f"t{number}", group="acct-1" if number < 5 else None)
    two = Limits(group=2)
    assert claim(ledger, limits=two) == ["r0", "r1", "r5", "r6"]
    assert claim(ledger, limits=two) == []
    end(ledger, storage, "r0")
    assert claim(ledger, limits=two) == ["r2"]
    end(ledger, storage, "r1", "waiting")  # it does not run
    assert claim(ledger, limits=two) == ["r3"]
    assert claim(ledger, limits=Limits(group=3)) == []  # nobody was called
    end(ledger, storage, "r2")
    assert claim(ledger, limits=Limits(group=3)) == ["r4"]


def test_left_to_whoever_admitted_it(ledger, storage):
    queued(ledger, "r1", grace=DAY)
    queued(ledger, "r2")
    assert claim(ledger) == []
    assert ledger.claim_run("r2") is None  # not its turn
    assert ledger.claim_run("r1").id == "r1"
    assert ledger.claim_run("r1") is None
    end(ledger, storage, "r1")
    assert ledger.claim_run("none") is None
    assert ledger.claim_run("r2").id == "r2"


def test_one_that_is_not_due_is_claimed_by_force_only(ledger, storage):
    queued(ledger, "r1")
    assert ledger.claim_run("r1", forced=False).id == "r1"
    assert ledger.claim_run("r1", forced=False) is None
    end(ledger, storage, "r1", "sleeping", delay=DAY)
    assert ledger.claim_run("r1", forced=False) is None
    assert ledger.claim_run("r1").id == "r1"
    end(ledger, storage, "r1", "waiting")
    assert ledger.claim_run("r1", forced=False) is None
    assert ledger.claim_run("r1").id == "r1"
    storage.release(Lease("trip", "main", ledger.run("r1").epoch))  # it was left
    assert ledger.claim_run("r1", forced=False).crashes == 1


def test_one_that_is_left_to_whoever_admitted_it_has_its_turn(ledger, storage):
    for name in ("r1", "r2", "r3"):
        queued(ledger, name, grace=DAY)
    for name, then in (("r1", "r2"), ("r2", "r3")):
        assert ledger.claim_run(then) is None
        assert ledger.claim_run(name).id == name
        end(ledger, storage, name)
    assert claim(ledger) == []
    assert ledger.claim_run("r3").id == "r3"


def test_what_is_held_is_not_claimed_again_by_another_process(shared_place: Place):
    with shared_place.open() as one, shared_place.open() as other:
        first, second = ledger_of(one), ledger_of(other)
        queued(first, "r1")
        queued(first, "r2", "b")
        assert claim(first, 1) == ["r1"]
        assert claim(second, sweep=True) == ["r2"]
        assert first.claim_run("r2") is None
        one.close()
        assert second.look(TRIP).abandoned
        assert claim(second, sweep=True) == ["r1"]
        assert second.run("r1").crashes == 1


def test_another_tenants_runs_are_not_seen(place: Place, db):
    ledger = ledger_of(db)
    queued(ledger, "r1")
    other = ledger_of(db.tenant("other"))
    assert other.claim_runs(TRIP, count=5, sweep=True) == []
    assert other.claim_run("r1") is None
    assert other.look(TRIP).due_in is None
    assert claim(ledger) == ["r1"]


def test_a_damaged_run_is_dead_and_others_go_on(ledger, place: Place, db):
    for name in ("r1", "r2"):
        queued(ledger, name, name)
    place.execute(db, "UPDATE run SET input = ? WHERE id = ?", b"damaged", "r1")
    assert claim(ledger) == ["r2"]
    [[status]] = place.execute(db, "SELECT status FROM run WHERE id = ?", "r1")
    assert status == "dead"


OF_CLAIMS = ["next_level", "runs_up", "next_wake", "count_running", "line", "call_next", "call_group", "runs_running"]


@pytest.mark.parametrize("name", OF_CLAIMS)
def test_each_statement_of_a_claim_reads_an_index(tmp_path: Path, name: str) -> None:
    """On SQLite; those of PostgreSQL stand in functions, and are measured (test_claims_stay_flat)."""
    text = queries("sqlite")[name]
    values = dict.fromkeys(re.findall(r":(\w+)", text), 1)
    with clew.open(str(tmp_path / "ledger.db")) as db, db._engine.reader() as execute:
        plan = [row[3] for row in execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()]
    assert any("USING" in line for line in plan)
    assert not [line for line in plan if line.startswith("SCAN") and line not in ("SCAN CONSTANT ROW", "SCAN x")], plan


def test_a_run_of_a_thread_that_was_made_this_moment(shared_place: Place):
    """A claim looks again and again while threads are made: it sees each with its thread."""
    with shared_place.open() as one, shared_place.open() as other:
        first, second = ledger_of(one), ledger_of(other)
        submitting = threading.Thread(target=lambda: [queued(first, f"r{n}", f"t{n}") for n in range(150)])
        submitting.start()
        seen: dict[str, str] = {}
        while submitting.is_alive() or second.due():
            seen |= {row.id: row.thread_id for row in second.claim_runs(TRIP, count=9)}
        submitting.join()
        assert seen == {f"r{n}": f"t{n}" for n in range(150)}


def test_a_branch_whose_row_was_spoiled_is_corrupt_and_its_run_is_not_taken(tmp_path: Path) -> None:
    """On SQLite, where a file may hold anything: here, that the branch is another tenant's."""
    with clew.open(str(tmp_path / "a.db")) as db:
        db.thread("trip").save({"n": 1})
        ledger = ledger_of(db)
        queued(ledger, "r1")
        with db._engine.transaction() as execute:
            execute("UPDATE ref SET tenant = tenant + 1").fetchall()
        for take in (lambda: ledger.claim_runs(TRIP), lambda: ledger.claim_run("r1", forced=True)):
            with pytest.raises(Corrupt, match="main"):
                take()
        assert ledger.run("r1").status == "queued"
