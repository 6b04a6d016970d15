"""Answers: of the right shape, by the right question, once. What is refused changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

import pytest
from asks import asking
from ledgers import DAY, ledger_of, race

import clew
from clew.asking import read_decision
from clew.errors import (
    BadInput,
    Rejected,
    RequestAnswered,
    RequestChanged,
    RequestExpired,
    RequestNotFound,
    RequestWithdrawn,
    WrongAnswer,
)
from clew.storage.ledger import Withdraw


@dataclass
class Approval:
    approved: bool
    reason: str = ""


def decision(db, request, schema=None):
    return read_decision(ledger_of(db).request(request.number), schema)


def test_a_request_tells_what_is_asked_and_about_what(db, ask):
    before = datetime.now(UTC) - timedelta(minutes=1)
    request = ask(
        schema=Approval, assignee="finance", expires=timedelta(days=1), default={"approved": False}, approvals=2
    )
    assert (request.id, request.number, request.status) == ("R-1", 1, "open")
    assert (request.thread_id, request.branch, request.run, request.step) == ("trip", "main", None, 2)
    assert (request.question, request.assignee, request.approvals, request.answers) == (
        "Book for 420 €?", "finance", 2, 0)  # fmt: skip
    assert request.schema["required"] == ["approved"]
    assert before < request.created_at < datetime.now(UTC) + timedelta(minutes=1)
    assert request.expires_at == request.created_at + timedelta(days=1)
    assert (request.decided_at, request.value, request.choices) == (None, None, None)
    assert request.state() == {"city": "Tokyo", "price": 420}
    assert [(change.where, change.old, change.new) for change in request.changes()] == [("price", 400, 420)]
    assert repr(request) == "<Request R-1 open 'Book for 420 €?' trip@2>"
    assert db.request("r-1") == db.request(1) == db.request("1") == request


def test_state_and_changes_where_nothing_was_before(db, ask):
    first = ask(ask="first", step=1)
    assert [change.kind for change in first.changes()] == ["added", "added"]
    none = ask(ask="none", step=None)
    assert none.state() == {}
    assert not none.changes()


@pytest.mark.parametrize("schema", [bool, Approval])
def test_a_wrong_shape_is_not_consumed(db, ask, schema):
    request = ask(schema=schema)
    wrong = ["true", 1, 0, [], None, {}, {"approved": "true"}, {"approved": 1}, {"approved": True, "by": "x"}]
    for value in (*wrong, float("nan"), {1}, 10**400):
        with pytest.raises(WrongAnswer) as caught:
            request.answer(value, by="alice")
        assert caught.value.problems
        assert request.check(value) == list(caught.value.problems)
    assert db.request(1) == request
    assert request.audit() == []
    assert request.approve(by="alice").status == "answered"


def test_the_path_to_what_is_wrong(ask):
    request = ask(schema=dict[str, list[Approval]])
    with pytest.raises(WrongAnswer, match=r'seats\[1\]\.approved: true or false expected, not "no"') as caught:
        request.answer({"seats": [Approval(True), {"approved": "no"}]}, by="alice")
    assert caught.value.path == "seats[1].approved"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("value", [Approval(True, "fine"), {"approved": True, "reason": "fine"}])
def test_an_answer_may_be_a_value_of_the_type(db, ask, value):
    request = ask(schema=Approval).answer(value, by="alice", reason="budget left")
    assert (request.status, request.value, request.answers) == ("answered", {"approved": True, "reason": "fine"}, 1)
    assert request.decided_at >= request.created_at
    assert decision(db, request, Approval) == Approval(True, "fine")
    (answer,) = request.audit()
    assert (answer.by, answer.value, answer.reason, answer.rejected) == ("alice", request.value, "budget left", False)
    assert request.created_at <= answer.at <= request.decided_at
    assert db.request(1) == request


def test_without_a_schema_any_json_will_do(db, ask):
    value = {"any": [1, None, "x", {"y": 1.5}]}
    assert decision(db, ask(schema=None).answer(value, by="alice")) == value
    with pytest.raises(WrongAnswer, match="a JSON value"):
        ask(schema=None, ask="other").answer({"x": {1, 2}}, by="alice")


def test_choices(db, ask):
    request = ask(schema=Literal["reuse", "again", "skip"])
    assert request.choices == ("reuse", "again", "skip")
    assert ask(ask="2").choices == (True, False)
    assert ask(ask="3", schema={"oneOf": [{"const": 1}, {"const": 2}]}).choices == (1, 2)
    with pytest.raises(WrongAnswer, match='"reuse" or "again" or "skip" expected'):
        request.answer("never", by="alice")
    assert decision(db, request.answer("skip", by="alice"), Literal["reuse", "again", "skip"]) == "skip"


def test_an_answer_counts_once(ask):
    request = ask()
    request.answer(True, by="alice")
    for again in (True, False):
        for person in ("alice", "bob"):
            with pytest.raises(RequestAnswered, match="R-1 has been answered already, by alice"):
                request.answer(again, by=person)
    with pytest.raises(RequestAnswered):
        request.reject(by="bob")
    assert [answer.by for answer in request.audit()] == ["alice"]


def test_two_of_three(db, ask):
    request = ask(approvals=2, schema=Approval)
    assert request.approve(by="alice", reason="ok").status == "open"
    with pytest.raises(RequestAnswered, match="alice has answered R-1 already"):
        request.approve(by="alice")
    assert request.answer({"approved": False}, by="bob").answers == 2
    decided = request.approve(by="carol", reason="my reason is another one")
    assert (decided.status, decided.value, decided.answers) == ("answered", {"approved": True}, 3)
    assert [(answer.by, answer.reason) for answer in decided.audit()] == [
        ("alice", "ok"), ("bob", None), ("carol", "my reason is another one")]  # fmt: skip


def test_one_who_rejects_decides(db, ask):
    request = ask(approvals=3, schema=Approval)
    request.approve(by="alice")
    assert request.reject(by="bob", reason="too dear").value == {"approved": False}
    with pytest.raises(RequestAnswered):
        request.approve(by="carol")


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        (bool, True, False),
        (Approval, {"approved": True, "reason": "why"}, {"approved": False, "reason": "why"}),
        (Approval | None, {"approved": True, "reason": "why"}, {"approved": False, "reason": "why"}),
        ({"properties": {"approved": {"type": "boolean"}}, "type": "object", "additionalProperties": False},
         {"approved": True}, {"approved": False}),
        (bool | str, True, False),
    ],
)  # fmt: skip
def test_yes_and_no_where_the_schema_has_them(db, ask, schema, yes, no):
    assert ask(ask="yes", schema=schema).approve(by="alice", reason="why").value == yes
    rejected = ask(ask="no", schema=schema).reject(by="alice", reason="why")
    assert (rejected.value, rejected.rejected) == (no, False)


@pytest.mark.parametrize("schema", [str, int, Literal["a", "b"], None, {}])
def test_a_no_that_is_no_answer_is_an_exception_where_it_was_asked(db, ask, schema):
    request = ask("Which city?", schema).reject(by="bob", reason="no idea")
    assert (request.status, request.value, request.rejected, request.answers) == ("answered", None, True, 1)
    with pytest.raises(Rejected, match=r"bob turned down R-1 \('Which city\?'\): no idea") as caught:
        decision(db, request, schema)
    assert (caught.value.request, caught.value.by, caught.value.reason) == ("R-1", "bob", "no idea")
    (answer,) = request.audit()
    assert (answer.by, answer.value, answer.reason, answer.rejected) == ("bob", None, "no idea", True)


def test_what_takes_more_than_a_yes(ask):
    with pytest.raises(WrongAnswer, match="R-1 asks for more than yes or no"):
        ask(schema=int).approve(by="alice")
    assert ask(ask="free", schema=None).approve(by="alice").value is True


def test_expiry_with_a_default(db, ask, place):
    request = ask(schema=Approval, expires=86_400, default=Approval(False, "nobody was there"))
    place.let_pass(db, DAY)
    expired = db.request(1)
    assert (expired.status, expired.value) == ("expired", {"approved": False, "reason": "nobody was there"})
    assert expired.decided_at == expired.expires_at
    assert decision(db, request, Approval) == Approval(False, "nobody was there")
    with pytest.raises(RequestExpired, match="R-1 has expired"):
        request.approve(by="alice")
    assert request.audit() == []
    assert list(db.requests()) == []
    assert [found.id for found in db.requests(status="expired")] == ["R-1"]


def test_expiry_without_a_default_is_an_exception_where_it_was_asked(db, ask, place):
    request = ask(schema=Approval, expires=timedelta(days=1))
    place.let_pass(db, DAY)
    with pytest.raises(RequestExpired, match="nobody answered R-1"):
        decision(db, request, Approval)


def test_null_may_be_a_default(db, ask, place):
    request = ask(schema=Approval | None, expires=1, default=None)
    place.let_pass(db, DAY)
    assert decision(db, request, Approval | None) is None
    assert db.request(1).status == "expired"


def test_what_was_withdrawn_takes_no_answer(db, ask):
    request = ask()
    ledger_of(db).apply("trip", [Withdraw([1])])
    with pytest.raises(RequestWithdrawn):
        request.approve(by="alice")
    with pytest.raises(RequestWithdrawn):
        decision(db, request, bool)
    assert request.audit() == []


def test_an_answer_to_what_was_asked_before_does_not_answer_what_is_asked_now(db, ask):
    shown = ask("Book for 420 €?")
    changed = ask("Book for 4200 €?")
    assert changed.id == "R-2"
    with pytest.raises(RequestWithdrawn):
        shown.approve(by="alice")
    assert db.request(2).status == "open"


def test_an_answer_is_bound_to_what_the_person_was_shown(db, ask, place):
    shown = ask()
    place.execute(db, "UPDATE request SET digest = ?", b"of another question")
    with pytest.raises(RequestChanged):
        shown.approve(by="alice")
    assert shown.audit() == []
    assert db.request(1).approve(by="alice").status == "answered"


@pytest.mark.parametrize("by", ["", None, 7, "a\nb", "a\0", "x" * 600])
def test_who_answers_has_a_name(ask, by):
    request = ask()
    for call in (lambda: request.answer(True, by=by), lambda: request.approve(by=by), lambda: request.reject(by=by)):
        with pytest.raises(BadInput, match="who answers"):
            call()
    assert request.audit() == []


@pytest.mark.parametrize("reason", ["a\0b", "\x1b[2J", 7, "x" * 5000, "\ud800"])
def test_a_reason_is_text(ask, reason):
    with pytest.raises(BadInput, match="reason"):
        ask().approve(by="alice", reason=reason)
    assert ask().approve(by="alice", reason="first\n\tsecond").audit()[0].reason == "first\n\tsecond"


def test_a_reason_that_does_not_fit_is_refused_before_anything(ask):
    request = ask(schema=Approval)
    with pytest.raises(BadInput):
        request.reject(by="alice", reason="\0")
    assert request.audit() == []


def test_answers_are_bounded(ask):
    with pytest.raises(BadInput, match="bytes"):
        ask(schema=str).answer("x" * 2_000_000, by="alice")


def test_names_of_requests(db, ask):
    ask()
    for name in ("R-2", 2, "99999", 0, -1, 1 << 70):
        with pytest.raises(RequestNotFound):
            db.request(name)
    for name in ("", "R", "R-", "R-x", "Q-1", None, True, 1.0, "R-1 ", "R-\u0661"):
        with pytest.raises(BadInput):
            db.request(name)


def test_tenants_see_their_own(db, ask):
    request = ask()
    other = db.tenant("other")
    assert list(other.requests(status=None)) == []
    with pytest.raises(RequestNotFound):
        other.request(request.number)


def test_of_answers_that_race_one_counts(shared_place):
    code = """
        import sys
        import clew
        from clew.errors import RequestAnswered

        number, url, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
        with clew.open(url, durability="relaxed") as db:
            requests = [db.request(n + 1) for n in range(count)]
            print("ready", flush=True)
            sys.stdin.readline()
            won = []
            for request in requests:
                try:
                    request.answer(f"of {number}", by=f"person {number}")
                    won.append(request.id)
                except RequestAnswered:
                    pass
            print(" ".join(won))
    """
    with shared_place.open() as db:
        ask = asking(db)
        for number in range(20):
            ask("Who is it?", str, ask=f"q{number}")
        won = [line.split() for line in race(code, 2, shared_place.url, 20)]
        assert sorted(won[0] + won[1]) == sorted(f"R-{n + 1}" for n in range(20)), "each is won by one"
        for winner, names in enumerate(won):
            for name in names:
                request = db.request(name)
                assert request.value == f"of {winner}"
                assert [answer.by for answer in request.audit()] == [f"person {winner}"]


def test_a_request_in_an_event_loop(place):
    async def work() -> None:
        async with clew.aio.open(place.url, durability="relaxed") as db:
            ask = asking(db._sync)
            ask(schema=Approval)
            ask(ask="other")
            page = await db.requests(limit=1)
            assert [request.id for request in page] == ["R-1"]
            assert [request.id for request in await db.requests(cursor=page.cursor)] == ["R-2"]
            request = await db.request("R-1")
            assert await request.state() == {"city": "Tokyo", "price": 420}
            assert bool(await request.changes())
            assert request.check({}) == ["approved: true or false expected, but it is missing"]
            with pytest.raises(WrongAnswer):
                await request.answer({}, by="alice")
            answered = await request.approve(by="alice", reason="ok")
            assert (answered.status, answered.as_json()["value"]) == ("answered", {"approved": True, "reason": "ok"})
            assert [answer.by for answer in await answered.audit()] == ["alice"]
            assert (await (await db.request(2)).reject(by="bob")).value is False
            assert [r.id for r in await db.requests(thread=db.thread("trip"), status="answered")] == ["R-1", "R-2"]
            assert await db.signal("paid", 1, key="k")
            assert not await db.signal("paid", 1, key="k")

    asyncio.run(work())


def test_an_object_among_other_choices_is_named_by_what_it_has(ask):
    request = ask(schema=Literal["again", "skip"] | TypedDict("Was", {"done": str}))
    with pytest.raises(WrongAnswer, match='"again" or "skip" or an object with done expected, not "no"'):
        request.answer("no", by="alice")
    with pytest.raises(WrongAnswer, match='answer it: "again" or "skip" or an object with done'):
        request.approve(by="alice")
