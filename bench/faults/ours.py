"""The agent under Clew, on SQLite or PostgreSQL: recorded calls, effects, a question.

After a crash, a worker takes up the runs that were under way, and goes on with them. What nobody knows of an
effect is a question to a person, who looks at the world outside and answers what is true.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw

import clew
from bench.faults.agent import ANSWER, QUESTION, RUN, change, model
from clew.testing.outside import reply, say
from clew.testing.points import storage_calls

_EXPIRY = 15.0


class State(TypedDict):
    log: Annotated[list[str], clew.extend]


def build(*, retry: bool, journaled: bool = True) -> clew.Agent:
    """The agent. Not `journaled`: as somebody might write it who has not read about recorded calls and effects."""
    again = clew.Retry(attempts=3, delay=0.01, on=(TimeoutError,)) if retry else None
    trip = clew.Agent("trip", state=State)
    ask_model = clew.recorded(model, retry=again) if journaled else model
    book = clew.effect(change, key=lambda what: what) if journaled else change

    @trip.node(start=True, then=["flight", "hotel"])
    def plan(_: State) -> dict[str, Any]:
        say("begin:plan")
        text = ask_model("plan")
        say("got:plan")
        say("end:plan")
        return {"log": [text]}

    @trip.node(retry=again)
    def flight(_: State) -> dict[str, Any]:
        say("begin:flight")
        say("about:flight")
        receipt = book("flight")
        say("got:flight")
        say("end:flight")
        return {"log": [receipt]}

    @trip.node(retry=again)
    def hotel(_: State) -> dict[str, Any]:
        say("begin:hotel")
        text = ask_model("hotel")
        say("got:hotel")
        answer = clew.ask(QUESTION, schema=str)
        say("told:hotel")
        say("about:charge")
        receipt = book("charge")
        say("got:charge")
        say("end:hotel")
        return {"log": [text, answer, receipt]}

    return trip


class Clew:
    """A contender. `url` is a server; without it, each place has a file of its own."""

    name = "Clew"
    finds = "`clew.Worker(db, [agent])`, in any process"

    def __init__(self, url: str | None = None, *, journaled: bool = True) -> None:
        self._url = url
        self._journaled = journaled
        self.notes = 2 if journaled else 1

    def _open(self, place: str) -> clew.Database:
        if self._url is None:
            return clew.open(str(Path(place) / "clew.db"))
        return clew.open(self._url, tenant=Path(place).name)

    def _build(self, *, retry: bool = False) -> clew.Agent:
        return build(retry=retry, journaled=self._journaled)

    def prepare(self, place: str) -> None:
        self._open(place).close()

    def free(self, place: str) -> bool:
        connection = apsw.Connection(str(Path(place) / "clew.db"))
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
        except apsw.BusyError:
            return False
        finally:
            connection.close(force=True)
        return True

    def restart(self, place: str) -> str:
        with self._marked(), self._open(place) as db:
            left = [*db.runs(status="running"), *db.runs(status="waiting")]
            if not left:
                return "nobody"
            clew.Worker(db, [self._build()]).run(until_idle=True)
            return self._status(left[0])

    def go(self, place: str, *, retry: bool = False) -> str:
        with self._marked(), self._open(place) as db:
            thread, trip = db.thread(RUN), self._build(retry=retry)
            if not db.runs():
                trip.run(thread, {"log": []}, key=RUN)
            return self._told(trip, thread)

    @staticmethod
    def _marked() -> Any:
        return storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}"))

    @staticmethod
    def _told(trip: clew.Agent, thread: clew.Thread) -> str:
        """Go on with the run. While somebody who is silent holds it, wait for the lease to pass on."""
        until = time.monotonic() + _EXPIRY
        run = trip.resume(thread)
        while run.status == "running" and time.monotonic() < until:
            time.sleep(0.1)
            run = trip.resume(thread)
        return Clew._status(run)

    @staticmethod
    def _status(run: clew.Run) -> str:
        return "asks" if any(_of_effect(request) for request in run.requests) else run.status

    def answer(self, place: str, *, retry: bool = False) -> str:  # noqa: ARG002
        with self._marked(), self._open(place) as db:
            say("answering")
            for request in db.requests():
                if not _of_effect(request):
                    request.answer(ANSWER, by="alice")
            say("answer:given")
        return "running"

    def settle(self, place: str, done: list[str]) -> None:
        """A person looks at the outside world, and tells what is true."""
        with self._open(place) as db:
            for request in db.requests():
                if _of_effect(request):
                    what = request.question["key"]
                    request.answer({"done": reply(f"do:{what}")} if what in done else "again", by="alice")

    def final(self, place: str) -> Any:
        with self._open(place) as db:
            return db.thread(RUN).state()


def _of_effect(request: clew.Request) -> bool:
    return isinstance(request.question, dict) and "effect" in request.question
