"""A graph killed in any node, and only a worker started again: it comes back by itself, from the last superstep."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langgraph.graph import START, StateGraph
from trip_graph import Trip, trip_graph

import clew
from clew.adapters.langgraph import ClewSaver, LangGraphAgent
from clew.placed import PlacedThreads
from clew.storage.changes import drop_records
from clew.storage.ledger import ENDED
from clew.storage.placed import place_of
from clew.testing.faults import in_child

IN = {"log": ["in"]}
Tell = Callable[[Any], None]
Die = Callable[[str, str], None]


class Verdict(NamedTuple):
    """What a trial has come to. `kept` had been recorded when the process died, `again` ran after that all the same."""

    killed: bool
    status: str
    attempts: int
    log: list[str | None]
    kept: set[str]
    begun: list[str]
    again: set[str]
    took: float = 0.0


@pytest.fixture(params=["file", "postgres"])
def url(request: pytest.FixtureRequest, ram: Path) -> str:
    return str(request.getfixturevalue("postgres").url) if request.param == "postgres" else str(ram / "graph.db")


def agent_in(url: str, tell: Any, *, awaited: bool) -> tuple[clew.Database, LangGraphAgent]:
    return clew.open(url, durability="relaxed"), LangGraphAgent(trip_graph(tell, awaited=awaited), name="trip")


def work_off(db: clew.Database, agent: LangGraphAgent) -> None:
    """A worker, until there is nothing left. Whatever is asked is answered by somebody."""
    while any(run.status not in ENDED for run in db.runs()):
        for request in db.requests():
            request.answer("yes", by="alice")
        clew.Worker(db, agent, crashes=100).run(until_idle=True)


def kept_words(url: str, thread_id: str) -> set[str]:
    """What is durable: in the state of any namespace, or recorded by a task that has ended."""
    words: set[str] = set()
    with clew.open(url) as db:
        threads = PlacedThreads(db)
        for ns in {ns for ns, _ in threads.ids(thread_id)}:
            found = ClewSaver(db).get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}})
            assert found is not None
            for key in ("log", "bag"):
                words.update(found.checkpoint["channel_values"].get(key, ()))
            for _, channel, value in found.pending_writes or ():
                words.update(value if channel in ("log", "bag") else ())
    return words - {"in"}


def trial(
    url: str,
    thread_id: str,
    die: Die | None = None,
    *,
    seconds: float | None = None,
    awaited: bool = False,
    between: Callable[[], None] = lambda: None,
) -> Verdict:
    """Submit, work and be killed; then work again in another process."""

    def work(tell: Tell) -> None:
        def told(what: str, word: str) -> None:
            tell((what, word))
            if die is not None:
                die(what, word)

        db, agent = agent_in(url, told, awaited=awaited)
        db.submit(agent, thread_id, IN)
        if seconds is not None:
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        begun = time.monotonic()
        work_off(db, agent)
        tell(("took", time.monotonic() - begun))

    def come_back(tell: Tell) -> None:
        db, agent = agent_in(url, lambda what, word: tell((what, word)), awaited=awaited)
        work_off(db, agent)

    first = in_child(work)
    assert first.raised is None, first.raised
    kept = kept_words(url, thread_id)
    between()
    second = in_child(come_back)
    assert (second.raised, second.killed_by) == (None, None), second.raised
    begun = [word for what, word in second.told if what == "begin"]
    with clew.open(url) as db:
        runs = list(db.runs(thread=thread_id))
        if not runs:  # it was killed before anything was accepted
            return Verdict(True, "none", 0, [], kept, begun, set())
        (run,) = runs
        return Verdict(
            first.killed_by == signal.SIGKILL,
            run.status,
            run.info.attempts,
            [*run.state.get("log", []), *run.state.get("bag", []), run.state.get("said")],
            kept,
            begun,
            kept & set(begun),
            next((found for what, found in first.told if what == "took"), 0.0),
        )


def now(*_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    found = trial(str(tmp_path_factory.mktemp("undisturbed") / "graph.db"), "t")
    assert (found.killed, found.status, found.begun) == (False, "done", [])
    return found.log


@pytest.mark.parametrize("awaited", [False, True], ids=["plain", "awaited"])
def test_killed_at_each_end_of_each_task(url: str, undisturbed: list[Any], long: bool, awaited: bool) -> None:
    words = undisturbed[1:-1]
    assert len(words) == 15
    places = [(what, word) for word in words for what in ("begin", "end")]
    for number, place in enumerate(places if long else random.sample(places, 4)):
        found = trial(
            url, f"t-{number}", lambda what, word, at=place: now() if (what, word) == at else None, awaited=awaited
        )
        assert found.killed, place
        assert (found.status, found.log, found.attempts) == ("done", undisturbed, 3), place
        assert not found.again, (place, found)
        assert place[1] in found.begun  # it had not finished, so it ran again


def test_killed_at_any_moment(url: str, undisturbed: list[Any], long: bool) -> None:
    struck, whole = 0, trial(url, "t-whole").took
    for number in range(50 if long else 5):
        found = trial(url, f"t-{number}", seconds=random.uniform(0, whole))
        if found.status == "none":
            continue
        struck += found.killed
        assert (found.status, found.log) == ("done", undisturbed), found
        assert not found.again, found
    assert struck


def test_the_trials_notice_what_is_run_again(url: str, undisturbed: list[Any]) -> None:
    """The negative control: what had finished is forgotten before the worker comes back."""
    seen = threading.Event()

    def die(what: str, word: str) -> None:
        """At the end of a task whose siblings have ended and are recorded."""
        if (what, word) == ("end", "flight 2"):
            while not {"hotel 2", "look a2", "look b2"} <= kept_words(url, "t"):
                seen.wait(0.01)
            now()

    def forget() -> None:
        with clew.open(url) as db:
            found = ClewSaver(db).get_tuple({"configurable": {"thread_id": "t"}})
            assert found is not None
            PlacedThreads(db)._storage.apply(
                "t", [drop_records(place_of("", found.config["configurable"]["checkpoint_id"]))]
            )

    found = trial(url, "t", die, between=forget)
    assert (found.status, found.log) == ("done", undisturbed)
    assert found.again == {"hotel 2", "look a2", "look b2"}


def test_what_it_did_outside_is_done_once(url: str, ram: Path) -> None:
    """Killed within an effect: the recorded call is not made again, and what nobody knows is asked."""
    world = ram / "world"

    def graph(strike: bool) -> LangGraphAgent:
        def do(word: str) -> str:
            with world.open("a") as file:
                file.write(f"{word}\n")
            if strike and word == "charge":
                now()
            return f"did {word}"

        @clew.recorded
        def model() -> str:
            return do("model")

        @clew.effect(key=lambda: "charge")
        def charge() -> str:
            return do("charge")

        def pay(state: Any) -> Any:
            return {"log": [model(), charge()] if clew.ask("Pay?", schema=bool) else []}

        builder = StateGraph(Trip)
        builder.add_node("pay", pay)
        builder.add_edge(START, "pay")
        return LangGraphAgent(builder.compile(), name="trip")

    def work(tell: Tell) -> None:
        with clew.open(url) as db:
            db.submit(graph(strike=True), "t", IN)
            clew.Worker(db, graph(strike=True)).run(until_idle=True)
            db.requests()[0].approve(by="alice")
            clew.Worker(db, graph(strike=True)).run(until_idle=True)

    assert in_child(work).killed_by == signal.SIGKILL
    with clew.open(url) as db:
        (run,) = db.runs()
        clew.Worker(db, graph(strike=True)).run(until_idle=True)
        assert run.status == "waiting"
        run.requests[0].answer({"done": "did charge"}, by="bob")
        clew.Worker(db, graph(strike=True)).run(until_idle=True)
        assert (run.status, run.state["log"]) == ("done", ["in", "did model", "did charge"])
    assert world.read_text().split() == ["model", "charge"]


def test_siblings_that_had_finished_do_not_run_again(url: str, undisturbed: list[Any]) -> None:
    def die(what: str, word: str) -> None:
        if (what, word) == ("begin", "hotel 2"):
            while not {"flight 2", "look a2", "look b2"} <= kept_words(url, "t"):
                threading.Event().wait(0.01)
            now()

    found = trial(url, "t", die)
    assert (found.killed, found.status, found.log) == (True, "done", undisturbed)
    assert found.begun[0] == "hotel 2"
    assert not {"plan 1", "flight 2", "look a2", "look b2"} & set(found.begun)
