"""Requests: asked once, decided once. Numbers in names are the promises of ledger.py."""

from __future__ import annotations

import pytest
from ledgers import DAY, new_request, new_run, pages

from clew.errors import (
    Corrupt,
    RequestAnswered,
    RequestChanged,
    RequestExpired,
    RequestNotFound,
    RequestWithdrawn,
    ThreadNotFound,
)
from clew.storage.ledger import Ask, Move, NewAnswer, Start, Withdraw


def yes(by="alice", value=b"yes", **other):
    return NewAnswer(**{"by": by, "value": value, "digest": b"digest", **other})


def test_a_request_comes_back_as_it_was_asked(ledger):
    new = new_request(schema=b"{}", run="r1", assignee="finance", ttl=DAY, default=b"no", approvals=2, branch="osaka")
    row = ledger.ask("trip", new)
    assert (row.number, row.thread_id, row.branch, row.run, row.step) == (1, "trip", "osaka", "r1", 1)
    assert (row.activation, row.ask, row.digest) == ("a1", "book", b"digest")
    assert (row.question, row.schema, row.default, row.value) == (b"Book?", b"{}", b"no", None)
    assert (row.assignee, row.approvals, row.answers, row.status) == ("finance", 2, 0, "open")
    assert row.expires == row.created + DAY
    assert row.decided is None
    assert ledger.request(1) == ledger.asked("trip", "a1", "book") == row
    assert ledger.request(2) is None
    assert ledger.asked("trip", "a1", "none") is ledger.asked("none", "a1", "book") is None
    with pytest.raises(ThreadNotFound):
        ledger.ask("none", new)


def test_asking_again_is_the_same_request(ledger):
    row = ledger.ask("trip", new_request())
    assert ledger.ask("trip", new_request(question=b"Book now?")) == row, "the digest says what it is"
    assert ledger.ask("trip", new_request(activation="a2")).number == 2, "another turn asks for itself"
    answered = ledger.answer(1, yes())
    assert ledger.ask("trip", new_request()) == answered


def test_asking_something_else_withdraws_what_was_asked(ledger):
    ledger.ask("trip", new_request())
    other = ledger.ask("trip", new_request(digest=b"other"))
    assert (other.number, other.status) == (2, "open")
    assert ledger.request(1).status == "withdrawn"
    with pytest.raises(RequestWithdrawn):
        ledger.answer(1, yes())
    assert ledger.asked("trip", "a1", "book") == other


def test_what_was_withdrawn_is_asked_anew(ledger):
    ledger.apply("trip", [Ask(new_request()), Withdraw([1])])
    assert ledger.ask("trip", new_request()).number == 2


def test_6_it_is_answered_once(ledger):
    ledger.ask("trip", new_request())
    row = ledger.answer(1, yes(reason="fine by me"))
    assert (row.status, row.value, row.answers) == ("answered", b"yes", 1)
    assert row.decided >= row.created
    for again in (yes(), yes("bob"), yes("bob", b"no")):
        with pytest.raises(RequestAnswered, match="alice"):
            ledger.answer(1, again)
    (answer,) = ledger.answers(1)
    assert (answer.by, answer.value, answer.reason) == ("alice", b"yes", "fine by me")
    with pytest.raises(RequestNotFound, match="R-2"):
        ledger.answer(2, yes())
    assert ledger.answers(2) == []


def test_6_an_answer_to_something_else_counts_for_nothing(ledger):
    ledger.ask("trip", new_request())
    with pytest.raises(RequestChanged):
        ledger.answer(1, yes(digest=b"another"))
    assert ledger.answers(1) == []
    assert ledger.request(1).status == "open"


def test_6_a_quorum_is_of_different_people_with_one_mind(ledger):
    ledger.ask("trip", new_request(approvals=2))
    assert ledger.answer(1, yes()).status == "open"
    with pytest.raises(RequestAnswered, match="alice has answered R-1 already"):
        ledger.answer(1, yes())
    assert ledger.answer(1, yes("bob", b"maybe")).status == "open"
    row = ledger.answer(1, yes("carol"))
    assert (row.status, row.value, row.answers) == ("answered", b"yes", 3)
    assert [answer.by for answer in ledger.answers(1)] == ["alice", "bob", "carol"]


def test_6_a_refusal_decides(ledger):
    ledger.ask("trip", new_request(approvals=3))
    ledger.answer(1, yes())
    assert ledger.answer(1, yes("bob", b"no", final=True)).value == b"no"


def test_7_it_expires_at_its_time(ledger, place, db):
    ledger.ask("trip", new_request(ttl=DAY, default=b"no"))
    ledger.ask("trip", new_request("other", ttl=DAY))
    place.let_pass(db, DAY - 60_000_000)
    assert ledger.request(1).status == "open"
    place.let_pass(db, 60_000_000)
    expired = ledger.request(1)
    assert (expired.status, expired.value, expired.decided) == ("expired", b"no", expired.expires)
    assert ledger.request(2).value is None
    with pytest.raises(RequestExpired):
        ledger.answer(1, yes())
    assert ledger.answers(1) == []
    assert ledger.asked("trip", "a1", "book") == ledger.ask("trip", new_request()) == expired
    assert ledger.requests(status="open") == []
    assert [row.number for row in ledger.requests(status="expired")] == [1, 2]
    assert (ledger.expire(1), ledger.expire(), ledger.expire()) == (1, 1, 0)
    assert ledger.request(1) == expired, "noting it down changes nothing"
    assert [row.number for row in ledger.requests(status="expired")] == [1, 2]


def test_7_what_expires_at_once_was_never_open(ledger):
    assert ledger.ask("trip", new_request(ttl=0, default=b"no")).status == "expired"


def test_what_an_end_of_its_run_means_to_a_request(ledger):
    ledger.apply("trip", [Start(new_run("r1")), Ask(new_request(run="r1")), Ask(new_request("b"))])
    ledger.apply("trip", [Move("r1", "done")])
    assert [row.status for row in ledger.requests()] == ["withdrawn", "open"]


def test_withdrawing_takes_what_is_open(ledger):
    for ask, activation, run in (("a", "x", "r1"), ("b", "x", "r2"), ("c", "y", "r1"), ("d", "z", None)):
        ledger.ask("trip", new_request(ask, activation=activation, run=run))
    ledger.answer(1, yes())
    ledger.apply("trip", [Withdraw(activation="x")])
    assert [row.status for row in ledger.requests()] == ["answered", "withdrawn", "open", "open"]
    ledger.apply("trip", [Withdraw(run="r1")])
    assert [row.status for row in ledger.requests()] == ["answered", "withdrawn", "withdrawn", "open"]
    ledger.apply("trip", [Withdraw([4, 99])])
    assert ledger.requests(status="open") == []
    ledger.ask("trip", new_request("e"))
    ledger.apply("tour", [Start(new_run("r9")), Withdraw([5])])
    assert ledger.request(5).status == "open", "another thread's stays"


def test_requests_in_pages(ledger):
    ledger.apply("tour", [Start(new_run("r9", branch="b"))])
    for number in range(8):
        ledger.ask(
            "tour" if number % 2 else "trip",
            new_request(f"q{number}", assignee="ann" if number < 4 else None, run=f"r{number % 3}"),
        )
    ledger.answer(2, yes())
    ledger.answer(5, yes())
    ledger.apply("trip", [Withdraw([3])])
    ledger.ask("trip", new_request("late", ttl=0, assignee="ann"))

    def numbers(**which):
        def read(after, limit):
            return ledger.requests(after=after, limit=limit, **which)

        return [row.number for row in pages(read, lambda row: row.number)]

    assert numbers() == list(range(1, 10))
    assert numbers(status="open") == [1, 4, 6, 7, 8]
    assert numbers(status="answered") == [2, 5]
    assert numbers(status="withdrawn") == [3]
    assert numbers(status="expired") == [9]
    assert numbers(assignee="ann") == [1, 2, 3, 4, 9]
    assert numbers(assignee="ann", status="open") == [1, 4]
    assert numbers(assignee="ann", status="expired") == [9]
    assert numbers(thread_id="trip") == [1, 3, 5, 7, 9]
    assert numbers(thread_id="trip", status="open", assignee="ann") == [1]
    assert numbers(run="r0") == [1, 4, 7]
    assert numbers(run="r0", status="open") == [1, 4, 7]
    assert numbers(thread_id="none") == numbers(assignee="none") == []


def test_10_a_notice_is_written_with_its_request(ledger, place, db):
    ledger.ask("trip", new_request("a"))
    ledger.ask("trip", new_request("b"))
    first = ledger.next_notice(hold=DAY)
    assert (first.number, first.event, first.attempts) == (1, "request", 1)
    second = ledger.next_notice(hold=DAY)
    assert second.number == 2
    assert ledger.next_notice(hold=DAY) is None, "both are being told"
    ledger.told(second)
    ledger.not_told(first, delay=DAY)
    assert ledger.next_notice(hold=DAY) is None
    place.let_pass(db, DAY)
    again = ledger.next_notice(hold=DAY)
    assert (again.number, again.attempts) == (1, 2)
    place.let_pass(db, DAY)  # whoever told it is not heard of again
    other = ledger.next_notice(hold=DAY)
    assert (other.number, other.attempts) == (1, 3)
    ledger.told(again)  # too late: it belongs to another
    place.let_pass(db, DAY)
    last = ledger.next_notice(hold=DAY)
    ledger.told(last)
    place.let_pass(db, DAY)
    assert ledger.next_notice(hold=DAY) is None


def test_10_nobody_is_told_of_what_is_closed(ledger):
    for ask in "abc":
        ledger.ask("trip", new_request(ask))
    ledger.ask("trip", new_request("d", ttl=0))
    ledger.answer(1, yes())
    ledger.apply("trip", [Withdraw([2])])
    ledger.expire()
    assert ledger.next_notice(hold=DAY).number == 3
    assert ledger.next_notice(hold=DAY) is None


@pytest.mark.parametrize("column", ["question", "schema", "value"])
def test_12_damage_is_told(ledger, place, db, column):
    ledger.ask("trip", new_request(schema=b"{}"))
    ledger.answer(1, yes())
    (stored,) = place.execute(db, f"SELECT {column} FROM request")[0]
    place.execute(db, f"UPDATE request SET {column} = ?", bytes(stored) + b"x")
    with pytest.raises(Corrupt, match="R-1"):
        ledger.request(1)


def test_12_an_answer_that_was_given_to_another_name_is_told(ledger, place, db):
    ledger.ask("trip", new_request())
    ledger.answer(1, yes())
    place.execute(db, "UPDATE answer SET person = 'mallory'")
    with pytest.raises(Corrupt, match="mallory"):
        ledger.answers(1)
