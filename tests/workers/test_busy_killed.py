"""What is done about messages to a busy thread, killed before and after each write: it comes to the same."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import clew
from clew.adapters.langgraph import LangGraphAgent
from clew.placed import PlacedThreads, Recording
from clew.storage.ledger import ENDED
from clew.testing.outside import Ended, Fault, Outside, say
from clew.testing.points import storage_calls
from outsiders import Ground


class State(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]
    count: int


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    count: int


def agent() -> clew.Agent:
    """It asks back unless it is calm."""
    made = clew.Agent("talk", state=State)
    made.node(start=True, then="reply", name="begin")(lambda state: {"log": ["begun"]})

    @made.node
    def reply(state: Any) -> Any:
        calm = state["log"][-2] == "calm"
        return {"log": ["fine" if calm else clew.ask("well?")], "count": len(state["log"])}

    return made


def graph() -> LangGraphAgent:
    """It remembers something in a subgraph of its own, and asks back unless it is calm."""
    builder = StateGraph(Log)
    builder.add_node("grow", lambda state: {"log": [f"grown {len(state['log'])}"]})
    builder.add_edge(START, "grow")
    inner = builder.compile(checkpointer=True)

    def remember(state: Any) -> Any:
        # Not where it may be killed: LangGraph does not give a node that runs again for a subgraph its input again.
        if state["log"][-1] not in ("calm", "first"):
            return {}
        return {"log": [inner.invoke({"log": state["log"][-1:]})["log"]]}

    def reply(state: Any) -> Any:
        calm = [word for word in state["log"] if isinstance(word, str)][-1] == "calm"
        return {"log": ["fine" if calm else interrupt("well?")], "count": len(state["log"])}

    builder = StateGraph(Log)
    builder.add_sequence([remember, reply])
    builder.add_edge(START, "remember")
    return LangGraphAgent(builder.compile(), name="talk")


Make = Callable[[], Any]


def prepare(ground: Ground, talk: Make, thread: str, policy: Any) -> None:
    """A run that is done, one that waits, and two that come then."""
    talker = talk()
    with ground.open() as db:
        talker.run(db.thread(thread), {"log": ["calm"]})
        talker.run(db.thread(thread), {"log": ["first"]})
        for word in ("second", "third"):
            db.submit(talker, thread, {"log": [word], "count": 0}, if_busy=policy)


def look_back(ground: Ground, talk: Make, thread: str) -> Any:
    """What all of it came to, and what the subgraph remembers."""
    with ground.open() as db:
        statuses, asked = [run.status for run in db.runs(thread=thread)], len(db.requests())
        return statuses, asked, talk().run(db.thread(thread), {"log": ["calm"]}).state


def work_off(ground: Ground, talk: Make, thread: str) -> None:
    talker = talk()
    with (
        storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")),
        ground.open() as db,
    ):
        while any(run.status not in ENDED for run in db.runs(thread=thread)):
            clew.Worker(db, talker, crashes=100).run(until_idle=True)
            for request in db.requests():
                request.answer("yes", by="alice")


REMEMBERED = {
    policy: [word for at, said in enumerate(words) for word in (said, f"grown {2 * at + 1}")]
    for policy, words in {
        "enqueue": ["calm", "first", "calm"],
        "interrupt": ["calm", "first", "calm"],
        "rollback": ["calm", "calm"],
        "inject": ["calm", "first", "calm"],
    }.items()
}


def apart(threads: Any, recording: Recording, plain: Any = PlacedThreads.record) -> Any:
    """The negative control: that inputs are taken in is written after them, and not with them."""
    done = plain(threads, recording._replace(beside=()))
    if recording.beside and recording.lease is not None:
        lease = recording.lease
        threads._storage.apply(recording.thread_id, recording.beside, branch=lease.branch, epoch=lease.epoch)
    return done


Trial = Callable[[Make, str, str, Fault], Ended]


@pytest.fixture
def trial(ground: Ground) -> Trial:
    """What a thread comes to under a policy, killed once."""

    def run(talk: Make, thread: str, policy: str, fault: Fault) -> Ended:
        with Outside() as outside:
            assert outside.live(lambda: prepare(ground, talk, thread, policy)).how == "returned", outside.output
            if outside.live(lambda: work_off(ground, talk, thread), fault).how == "killed":
                assert outside.live(lambda: work_off(ground, talk, thread)).how == "returned", outside.output
            return outside.live(lambda: look_back(ground, talk, thread))

    return run


@pytest.mark.parametrize("talk", [agent, graph])
@pytest.mark.parametrize("policy", list(REMEMBERED))
def test_killed_before_and_after_each_write(trial: Trial, long: bool, talk: Make, policy: str) -> None:
    undisturbed = trial(talk, "t", policy, Fault("never"))
    assert undisturbed.how == "returned", undisturbed
    assert undisturbed.value[2]["log"][-2] == ("begun" if talk is agent else REMEMBERED[policy])
    for when in ("storing", "stored"):
        number = 1 if long else random.randint(1, 12)
        while True:
            fault = Fault(when, number)
            assert trial(talk, f"t-{when}-{number}", policy, fault) == undisturbed, fault
            if not fault.struck:
                break
            number += 1 if long else 12
        assert number > 12, "it writes that often"


def test_the_control_takes_inputs_in_twice(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacedThreads, "record", apart)
    undisturbed = trial(graph, "t", "inject", Fault("never"))
    found = [trial(graph, f"t-{number}", "inject", Fault("storing:apply", number)) for number in range(1, 6)]
    assert any(one.value[2]["log"].count("second") == 2 for one in found if one != undisturbed)
