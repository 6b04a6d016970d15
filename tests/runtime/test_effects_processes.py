"""Effects whose process dies, is stopped, or is told too late: nothing is done twice, nothing is guessed."""

from __future__ import annotations

import signal
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.storage.ledger import ledger_of
from clew.testing.outside import Fault, Outside, do, say
from outsiders import Ground


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]


def paying(on_unknown: Any = "ask", *, effect: bool = True) -> clew.Agent:
    agent = clew.Agent("pay", state=Trip)

    def charge(amount: int) -> str:
        say("calling")
        receipt = do("charge", clew.call_key() if effect else "")
        say("answered")
        return receipt

    pay_for = clew.effect(charge, key="charge", on_unknown=on_unknown) if effect else charge

    @agent.node
    def pay(state: Trip) -> Any:
        receipt = pay_for(420)
        say("got")
        return {"log": [receipt]}

    return agent


class Process:
    """What a process does: run the agent, or go on with it."""

    def __init__(self, ground: Ground, **options: Any) -> None:
        self.ground = ground
        self.options = options

    def go(self) -> str:
        with self.ground.open() as db:
            agent, thread = paying(**self.options), db.thread("trip-7")
            run = agent.resume(thread) if thread.history() else agent.run(thread)
            return run.status

    def answer(self, value: Any) -> Any:
        def work() -> None:
            with self.ground.open() as db:
                (request,) = db.requests(status="open")
                request.answer(value, by="alice")

        return work

    def look(self) -> Any:
        with self.ground.open() as db:
            rows = ledger_of(db._storage).effects("trip-7")
            return [[row.attempt, row.state] for row in rows], db.thread("trip-7").state()


RECEIPT = "answer to do:charge"


@pytest.mark.parametrize(
    ("word", "unknown"), [("calling", True), ("do:charge", True), ("answered", True), ("got", False)]
)
def test_killed_at_each_point(ground: Ground, word: str, unknown: bool) -> None:
    """A kill between claim and result leaves an unknown effect, which is asked about; any other one, nothing."""
    process = Process(ground)
    with Outside() as outside:
        assert outside.live(process.go, Fault(word)).how == "killed"
        assert outside.live(process.go).value == ("waiting" if unknown else "done")
        if unknown:
            done = {"done": RECEIPT} if outside.done else "again"
            outside.live(process.answer(done))
            assert outside.live(process.go).value == "done"
        assert outside.done == ["charge"]
        assert outside.live(process.look).value[1] == {"log": [RECEIPT]}


def test_without_an_effect_it_is_done_twice(ground: Ground) -> None:
    """The negative control."""
    process = Process(ground, effect=False)
    with Outside() as outside:
        outside.live(process.go, Fault("do:charge"))
        outside.live(process.go)
        assert outside.done == ["charge", "charge"]


def test_retry_after_a_kill_gives_the_other_side_the_same_key(ground: Ground) -> None:
    process = Process(ground, on_unknown="retry")
    with Outside() as outside:
        outside.live(process.go, Fault("do:charge"))
        assert outside.live(process.go).value == "done"
        keys = [heard.about for heard in outside.heard if heard.word == "do:charge"]
        assert len(keys) == 2
        assert len(set(keys)) == 1


def test_a_function_looks_after_a_kill(ground: Ground) -> None:
    def look(amount: int) -> clew.Done:
        return clew.Done(f"{amount} found")

    process = Process(ground, on_unknown=look)
    with Outside() as outside:
        outside.live(process.go, Fault("do:charge"))
        assert outside.live(process.go).value == "done"
        assert outside.done == ["charge"]
        assert outside.live(process.look).value == [[[1, "done"]], {"log": ["420 found"]}]


def test_stopped_between_claim_and_call(ground: Ground) -> None:
    """Another owner takes over: it sees `unknown`, and asks. What the old one does when it wakes up is a late fact."""
    process = Process(ground)
    with Outside(free=ground.free) as outside:
        old = outside.start(process.go, Fault("calling", signal=signal.SIGSTOP))
        assert outside.wait(old).how == "stopped"
        ground.silence()
        assert outside.live(process.go).value == "waiting"
        assert outside.live(process.look).value == [[[1, "unknown"]], {}]
        assert outside.done == []
        ended = outside.go_on(old)
        assert ended.how == "raised", "it has lost its lease"
        assert "Fenced" in ended.value
        assert outside.done == ["charge"], "no library can stop this one; nobody made a second call"
        # What it did is known now: the question is answered by the fact, and the new owner goes on with that.
        assert outside.live(process.go).value == "done"
        assert outside.live(process.look).value == [[[1, "done"]], {"log": [RECEIPT]}]
        assert outside.done == ["charge"]
        assert ground.execute("SELECT status FROM request") == [("withdrawn",)]


def test_the_other_side_did_it_and_its_answer_was_lost(ground: Ground) -> None:
    process = Process(ground)
    with Outside() as outside:
        assert outside.live(process.go, Fault("do:charge", signal=None)).value == "waiting"
        assert outside.live(process.go).value == "waiting"
        assert outside.done == ["charge"]
