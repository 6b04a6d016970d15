"""The agent under DBOS, on SQLite: workflows and steps.

The run is a workflow, each node a workflow of its own (so that two can run side by side), each model call and effect a
step. The question is an event that others can read, the answer a message: `set_event` and `recv`, as its docs show.
After a crash, `DBOS.launch()` recovers what was pending.
"""

from __future__ import annotations

from typing import Any

from dbos import DBOS, DBOSClient, SetWorkflowID

from bench.faults.agent import ANSWER, QUESTION, RUN, answered, change, model
from bench.faults.marks import is_free, marked_sqlite
from clew.testing.outside import say

HOTEL, FLIGHT, PLAN = f"{RUN}-hotel", f"{RUN}-flight", f"{RUN}-plan"
WEEK = 7 * 24 * 3600.0


def define(*, retry: bool) -> Any:
    """The workflows. To be called in the process that runs them, once."""
    step = DBOS.step(retries_allowed=True, interval_seconds=0.01) if retry else DBOS.step()
    ask_model, book = step(model), step(change)

    @DBOS.workflow()
    def plan() -> list[str]:
        say("begin:plan")
        text = ask_model("plan")
        say("got:plan")
        say("end:plan")
        return [text]

    @DBOS.workflow()
    def flight() -> list[str]:
        say("begin:flight")
        say("about:flight")
        receipt = book("flight")
        say("got:flight")
        say("end:flight")
        return [receipt]

    @DBOS.workflow()
    def hotel() -> list[str]:
        say("begin:hotel")
        text = ask_model("hotel")
        say("got:hotel")
        DBOS.set_event("question", QUESTION)
        answer = DBOS.recv("answer", timeout_seconds=WEEK)
        DBOS.set_event("question", "")
        say("told:hotel")
        say("about:charge")
        receipt = book("charge")
        say("got:charge")
        say("end:hotel")
        return [text, answer, receipt]

    @DBOS.workflow()
    def trip() -> list[str]:
        with SetWorkflowID(PLAN):
            log = plan()
        with SetWorkflowID(FLIGHT):
            one = DBOS.start_workflow(flight)
        with SetWorkflowID(HOTEL):
            other = DBOS.start_workflow(hotel)
        return log + one.get_result() + other.get_result()

    return trip


class Dbos:
    """A contender."""

    name = "DBOS"
    finds = "`DBOS.launch()`, in a process of the same executor and version"

    notes = 2

    @staticmethod
    def _url(place: str) -> str:
        return f"sqlite:///{place}/dbos.db"

    def _launch(self, place: str, *, retry: bool = False) -> Any:
        DBOS(
            config={
                "name": "trip",
                "system_database_url": self._url(place),
                "application_version": "1",
                "notification_listener_polling_interval_sec": 0.02,  # for speed; its default is a second
                "log_level": "WARNING",
            }
        )
        trip = define(retry=retry)
        DBOS.launch()
        return trip

    def prepare(self, place: str) -> None:
        self._launch(place)

    def free(self, place: str) -> bool:
        return is_free(f"{place}/dbos.db")

    def restart(self, place: str) -> str:
        marked_sqlite()
        self._launch(place)
        return "nobody" if DBOS.get_workflow_status(RUN) is None else self._wait(place)

    def go(self, place: str, *, retry: bool = False) -> str:
        marked_sqlite()
        trip = self._launch(place, retry=retry)
        if DBOS.get_workflow_status(RUN) is None:
            with SetWorkflowID(RUN):
                DBOS.start_workflow(trip)
        return self._wait(place)

    @staticmethod
    def _wait(place: str) -> str:
        """Until it is done or asks; then the flight has come to its end as well."""
        if DBOS.get_event(HOTEL, "question", timeout_seconds=WEEK) and not answered(place):
            DBOS.retrieve_workflow(FLIGHT).get_result(polling_interval_sec=0.02)
            return "waiting"
        DBOS.retrieve_workflow(RUN).get_result(polling_interval_sec=0.02)
        return "done"

    def answer(self, place: str, *, retry: bool = False) -> str:  # noqa: ARG002
        marked_sqlite()
        client = DBOSClient(system_database_url=self._url(place))
        say("answering")
        client.send(HOTEL, ANSWER, "answer", idempotency_key=QUESTION)
        say("answer:given")
        return "running"

    def final(self, place: str) -> Any:
        return DBOSClient(system_database_url=self._url(place)).retrieve_workflow(RUN).get_result()
