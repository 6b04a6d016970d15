"""Waits and signals: a deadline that is fixed, a signal that one wait takes. Numbers are the promises of ledger.py."""

from __future__ import annotations

import pytest
from ledgers import DAY, new_run

from clew.errors import Corrupt
from clew.storage.ledger import Move, NewWait, Start, WaitRow


@pytest.fixture
def running(ledger):
    ledger.apply("trip", [Start(new_run("r1"))])
    return ledger


def wait(ledger, number="1", name="paid", **other):
    return ledger.wait("trip", NewWait("r1", "a1", number, name, **other))


def due(ledger):
    return [row.id for row in ledger.due()]


def test_a_wait_for_time_is_over_at_its_time(running, place, db):
    first = wait(running, name=None, ttl=DAY)
    assert (first.state, first.value) == ("open", None)
    place.let_pass(db, DAY // 2)
    again = wait(running, name=None, ttl=DAY)
    assert (again.state, again.expires) == ("open", first.expires - DAY // 2), "its deadline was fixed when it began"
    running.apply("trip", [Move("r1", "sleeping")])
    assert due(running) == []
    place.let_pass(db, DAY // 2)
    assert due(running) == ["r1"]
    assert wait(running, name=None, ttl=DAY).state == "over"


def test_9_a_signal_is_taken_once(running):
    assert running.signal("paid", b"42")
    assert wait(running) == WaitRow("signalled", b"42", None)
    assert wait(running) == WaitRow("signalled", b"42", None), "and stays with whoever took it"
    assert wait(running, "2").state == "open"
    assert running.signal("paid", b"43")
    assert wait(running, "3").value == b"43"
    assert wait(running, "2").state == "open"


def test_9_the_oldest_signal_is_taken_first(running):
    for number in range(3):
        running.signal("paid", b"%d" % number)
    running.signal("other", b"x")
    assert [wait(running, str(number)).value for number in range(4)] == [b"0", b"1", b"2", None]


def test_a_key_is_one_signal(running):
    assert running.signal("paid", b"1", key="event-7")
    assert not running.signal("paid", b"2", key="event-7")
    assert running.signal("other", b"3", key="event-7")
    assert wait(running).value == b"1"
    assert not running.signal("paid", b"2", key="event-7"), "also when it was taken long ago"
    assert wait(running, "2").state == "open"


def test_8_a_signal_makes_the_run_due(running):
    assert wait(running).state == "open"
    running.apply("trip", [Move("r1", "waiting")])
    assert due(running) == []
    running.signal("other", b"x")
    assert due(running) == []
    running.signal("paid", b"42")
    assert due(running) == ["r1"]
    assert wait(running).value == b"42"


def test_8_a_signal_that_came_before_the_run_waits_makes_it_due(running):
    assert wait(running).state == "open"
    running.signal("paid", b"42")
    assert due(running) == []
    running.apply("trip", [Move("r1", "waiting")])
    assert due(running) == ["r1"]


def test_8_a_timeout_makes_the_run_due(running, place, db):
    wait(running, ttl=DAY)
    running.apply("trip", [Move("r1", "waiting")])
    assert due(running) == []
    place.let_pass(db, DAY)
    assert due(running) == ["r1"]


def test_7_once_a_wait_is_over_a_late_signal_does_not_change_that(running, place, db):
    wait(running, ttl=DAY)
    place.let_pass(db, DAY)
    running.signal("paid", b"late")
    assert wait(running, ttl=DAY).state == "over", "the deadline came first, whoever looks first"
    assert wait(running, ttl=DAY).state == "over"
    assert wait(running, "2").value == b"late"


def test_a_wait_that_ended_is_not_waited_for(running, place, db):
    wait(running, ttl=DAY)
    place.let_pass(db, DAY)
    wait(running, ttl=DAY)
    running.apply("trip", [Move("r1", "waiting")])
    assert due(running) == []


def test_waits_end_with_their_run_unless_it_may_be_tried_again(running, place, db):
    running.signal("paid", b"42")
    wait(running)
    running.apply("trip", [Move("r1", "failed")])
    running.apply("trip", [Move("r1", "running", was=("failed",))])
    assert wait(running).value == b"42"
    running.apply("trip", [Move("r1", "done")])
    wait(running, "2")
    running.signal("paid", b"43")
    assert due(running) == []


def test_12_a_damaged_signal_is_told(running, place, db):
    running.signal("paid", b"42")
    place.execute(db, "UPDATE signal SET name = 'free'")
    with pytest.raises(Corrupt, match="free"):
        wait(running, name="free")
