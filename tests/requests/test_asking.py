"""What may be asked, and when a question is the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from ledgers import ledger_of

from clew.asking import new_request, read_answer, read_decision
from clew.errors import BadInput, Corrupt, WrongAnswer
from clew.state.codec import encode
from clew.storage.ledger import NewAnswer

SECOND = 1_000_000


@dataclass
class Approval:
    approved: bool


@dataclass
class Even:
    n: int

    def __post_init__(self):
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


def row(question="Book?", schema=bool, **other):
    return new_request(question, schema, **{"activation": "a", "ask": "1", **other})


def test_a_question_and_its_terms():
    new = row(
        Approval(True), Approval, assignee="ann", expires=1.5, default=Approval(False), approvals=2, run="r", step=3
    )
    assert (new.assignee, new.ttl, new.approvals, new.run, new.step, new.branch) == (
        "ann",
        1_500_000,
        2,
        "r",
        3,
        "main",
    )
    assert row(expires=timedelta(minutes=1)).ttl == 60 * SECOND
    assert row(expires=0).ttl == 0
    assert row().ttl is None
    assert row(schema=None).schema is None


def test_the_digest_is_of_what_people_see():
    same = row("Book?", Approval, assignee="ann", expires=60, default={"approved": False})
    for other in (
        row("Book now?", Approval, assignee="ann", expires=60, default={"approved": False}),
        row("Book?", bool, assignee="ann", expires=60, default=False),
        row("Book?", Approval, assignee="bob", expires=60, default={"approved": False}),
        row("Book?", Approval, assignee="ann", expires=60, default={"approved": True}),
        row("Book?", Approval, assignee="ann", expires=60),
        row("Book?", Approval, assignee="ann", expires=60, default={"approved": False}, approvals=2),
    ):
        assert other.digest != same.digest
    again = row("Book?", Approval, assignee="ann", expires=59, default=Approval(False), activation="b", ask="2", step=9)
    assert again.digest == same.digest, "a node that is run again asks with what is left of the time"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"question": ""}, "cannot be empty"),
        ({"question": None}, "cannot be empty"),
        ({"question": {1, 2}}, "the question is of type set"),
        ({"question": {"args": [object()]}}, r"the question: args\[0\] is of type object"),
        ({"question": "x" * 2_000_000}, "bytes"),
        ({"schema": set}, "cannot be of type set"),
        ({"schema": {"type": "boolean", "if": {}}}, "not understood"),
        ({"default": False}, "give expires= as well"),
        ({"expires": -1}, "expires"),
        ({"expires": float("nan")}, "expires"),
        ({"expires": 1e30}, "expires"),
        ({"expires": True}, "expires"),
        ({"expires": "1d"}, "expires"),
        ({"approvals": 0}, "approvals"),
        ({"approvals": True}, "approvals"),
        ({"approvals": 1001}, "approvals"),
        ({"approvals": 1.0}, "approvals"),
        ({"assignee": ""}, "assignee"),
        ({"assignee": "a\nb"}, "assignee"),
        ({"ask": ""}, "id of a question"),
        ({"ask": 7}, "id of a question"),
    ],
)
def test_what_cannot_be_asked(given, told):
    with pytest.raises(BadInput, match=told):
        row(**given)


def test_a_default_has_the_shape_of_an_answer():
    with pytest.raises(WrongAnswer, match='the default has another shape: true or false expected, not "no"'):
        row(default="no", expires=60)
    assert row(schema=bool | None, default=None, expires=60).default is not None


def test_an_answer_that_a_type_refuses_in_python_is_told_to_who_asked(ask, db):
    request = ask("Which?", Even).answer({"n": 3}, by="ann")
    with pytest.raises(WrongAnswer, match="the answer to R-1 cannot be made a Even: 3 is odd"):
        read_decision(ledger_row(db, request), Even)


def test_an_answer_to_a_type_that_has_changed_meanwhile(ask, db):
    request = ask("Which?", int).answer(3, by="ann")
    with pytest.raises(WrongAnswer, match="the answer to R-1 has another shape: text expected, not 3"):
        read_decision(ledger_row(db, request), str)


def ledger_row(db, request):
    return ledger_of(db).request(request.number)


def test_what_is_no_answer_at_all_is_corrupt(ask, db):
    request = ask(schema=None)
    ledger_of(db).answer(1, NewAnswer("ann", encode(("approved", 1)), request._digest))
    with pytest.raises(Corrupt):
        read_decision(ledger_row(db, request))
    with pytest.raises(Corrupt):
        db.request(1)
    with pytest.raises(Corrupt):
        read_answer(encode(()))


def test_a_request_is_a_value(ask):
    request = ask()
    assert request == replace(request)
    assert hash(replace(request, schema=None)) == hash(replace(request, schema=None))
    with pytest.raises(AttributeError):
        request.status = "answered"
