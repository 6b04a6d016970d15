"""Runs that are submitted, claimed by their id, and driven: what agents and adapters share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.errors import BadInput, Busy, Conflict, RunExists
from clew.runtime.executor import Held, Terms, claim, execute
from clew.storage.ledger import ledger_of
from clew.storage.queue import Beside
from clew.submitting import submit


class State(TypedDict, total=False):
    log: Annotated[list[str], clew.extend]
    city: str
    answer: str


def make(name: str = "trip", **options: Any) -> clew.Agent:
    agent = clew.Agent(name, state=State, **options)

    @agent.node(start=True, then="second")
    def first(state: Any) -> Any:
        return {"log": [f"first on {len(state['log'])}"]}

    @agent.node
    def second(state: Any) -> Any:
        return {"log": ["second"]}

    return agent


def drive(db: clew.Database, agent: Any, run: clew.Run, **terms: Any) -> str:
    held = claim(db, [agent], run=run.id, terms=Terms(**terms))
    assert held is not None
    return execute(held)


def test_what_is_submitted_runs_as_if_it_had_been_run(db):
    agent = make()
    run = db.submit(agent, "trip-7", {"log": clew.extend(["in"])}, context={"user": 7})
    assert (run.status, run.agent, db.thread("trip-7").head) == ("queued", "trip", None)
    assert drive(db, agent, run) == "done"
    there = agent.run(db.thread("other"), {"log": ["in"]})
    assert run.state == there.state == {"log": ["in", "first on 1", "second"]}
    assert [cp.label for cp in run.thread.history()] == [cp.label for cp in there.thread.history()]
    assert (run.info.input_step, run.info.step, run.info.attempts) == (1, 3, 1)
    assert claim(db, [agent], run=run.id) is None


def test_a_key_is_one_run(db):
    agent = make()
    run = db.submit(agent, "trip-7", {"log": ["in"]}, key="m1")
    assert db.submit(agent, db.thread("trip-7"), {"log": ["in"]}, key="m1") == run
    drive(db, agent, run)
    assert db.submit(agent, "trip-7", {"log": ["in"]}, key="m1").status == "done"
    assert agent.run(db.thread("trip-7"), {"log": ["in"]}, key="m1") == run
    assert len(db.runs()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": {"town": "Kyoto"}},
        {"input": {"city": object()}},
        {"if_busy": "wait"},
        {"at": datetime(2026, 1, 1)},
        {"at": timedelta(seconds=-1)},
        {"at": timedelta.max},
        {"at": timedelta(days=365 * 9000)},
        {"priority": "high"},
        {"key": ""},
        {"group": "a\nb"},
        {"context": object()},
    ],
)
def test_what_cannot_be_run_is_not_admitted(db, wrong):
    with pytest.raises(clew.errors.ClewError) as refused:
        db.submit(make(), "trip-7", **wrong)
    assert refused.value.exit_code == 2
    assert len(db.runs()) == 0


def test_one_of_a_branch_at_a_time(db):
    agent = make()
    runs = [db.submit(agent, "trip-7", {"log": [str(n)]}) for n in range(3)]
    assert [claim(db, [agent], run=run.id) for run in runs[1:]] == [None, None]
    with pytest.raises(Busy):
        db.submit(agent, "trip-7", {"log": ["x"]}, if_busy="reject")
    assert [drive(db, agent, run) for run in runs] == ["done"] * 3
    assert [item for item in runs[2].state["log"] if item.isdigit()] == ["0", "1", "2"]


def test_not_before_its_time(db, let_pass):
    agent = make()
    run = db.submit(agent, "trip-7", {"log": []}, at=datetime.now(UTC) + timedelta(hours=1))
    later = db.submit(agent, "other", {"log": []}, at=timedelta(hours=2))
    ledger = ledger_of(db._storage)
    assert ledger.claim_runs(["trip"], count=9) == []
    let_pass(3700)
    assert [row.id for row in ledger.claim_runs(["trip"], count=9)] == [run.id]
    assert not ledger.is_due(later.id)


def test_only_by_those_who_answer_to_its_name(db):
    run = db.submit(make("old"), "trip-7", {"log": []})
    assert claim(db, [make("new")], run=run.id) is None
    assert drive(db, make("new", aliases=["old"]), run) == "done"


def failing(times: int, error: Exception) -> tuple[clew.Agent, list[int]]:
    agent, calls = make(), []

    def second(state: Any) -> Any:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return {"log": ["second"]}

    agent._nodes["second"] = agent._nodes["second"]._replace(fn=second)
    return agent, calls


def test_errors_are_tried_again_later_and_then_it_has_failed(db):
    agent, calls = failing(9, ValueError("boom"))
    run = db.submit(agent, "trip-7", {"log": []})
    terms = {"retry": clew.Retry(attempts=3, delay=3600)}
    assert [drive(db, agent, run, **terms) for _ in range(3)] == ["sleeping", "sleeping", "failed"]
    assert (len(calls), run.error.message) == (3, "boom")
    assert run.state["log"] == ["first on 0"]


def test_failures_count_since_the_last_checkpoint(db):
    """A run of two nodes that fail once each is not one that has failed twice."""
    agent, seen = clew.Agent("trip", state=State), set()

    def once(name: str) -> Any:
        def node(state: Any) -> Any:
            if name not in seen:
                seen.add(name)
                raise ValueError(name)
            return {"log": [name]}

        return node

    agent.node(name="a", start=True, then="b")(once("a"))
    agent.node(name="b")(once("b"))
    run = db.submit(agent, "trip-7", {"log": []})
    terms = {"retry": clew.Retry(attempts=2, delay=3600)}
    assert [drive(db, agent, run, **terms) for _ in range(3)] == ["sleeping", "sleeping", "done"]


def test_one_that_kills_whoever_drives_it_is_dead(db):
    agent = make()
    run = db.submit(agent, "trip-7", {"log": []})
    for _ in range(4):
        held = claim(db, [agent], run=run.id, terms=Terms(crashes=3))
        assert held is not None
        held.close()  # what is left of a process that dies: a running run, and nobody's lease
    assert claim(db, [agent], run=run.id, terms=Terms(crashes=3)) is None
    assert run.status == "dead"
    assert "4 crashes" in run.error.message
    run.revive()
    assert drive(db, agent, run, crashes=0) == "done"


def test_a_failed_run_is_retried_by_whoever_comes(db):
    agent, calls = failing(2, ValueError("boom"))
    run = db.submit(agent, "trip-7", {"log": []})
    assert drive(db, agent, run) == "failed"
    run.retry()
    assert ledger_of(db._storage).is_due(run.id)
    assert drive(db, agent, run) == "failed"
    run.retry()
    assert drive(db, agent, run) == "done"
    with pytest.raises(Conflict, match="is done"):
        run.retry()
    assert (len(calls), run.state["log"]) == (3, ["first on 0", "second"])


def test_only_the_last_run_of_a_branch_is_retried(db):
    agent, _ = failing(1, ValueError("boom"))
    run = db.submit(agent, "trip-7", {"log": []})
    later = db.submit(agent, "trip-7", {"log": []})
    drive(db, agent, run)
    drive(db, agent, later)
    with pytest.raises(Conflict, match="has come after it"):
        run.retry()


def test_moved_to_another_agent_and_to_another_node(db):
    old = make("old")
    run = db.submit(old, "trip-7", {"log": []}, key="k")
    new = make("new")
    assert claim(db, [new], run=run.id) is None
    run.move(agent="new")
    del new._nodes["first"], new._then["first"]
    new._starts = ["second"]
    new.__dict__.pop("graph", None)
    assert drive(db, new, run) == "done"
    assert run.state["log"] == ["second"]
    with pytest.raises(Conflict):
        run.move(agent="old")


def test_a_node_that_is_gone_pauses_the_run_until_it_is_moved(db, monkeypatch):
    agent = make()

    def stop(state: Any) -> Any:
        clew.wait("go")
        return {"log": ["gone"]}

    agent._nodes["second"] = agent._nodes["second"]._replace(fn=stop)
    run = db.submit(agent, "trip-7", {"log": []})
    assert drive(db, agent, run) == "waiting"
    db.signal("go")
    deployed = clew.Agent("trip", state=State)
    deployed.node(name="start", start=True, then="third")(lambda state: None)
    deployed.node(name="third")(lambda state: {"log": ["third"]})
    assert drive(db, deployed, run) == "paused"
    with pytest.raises(BadInput, match="does not stand before"):
        run.move(nodes={"first": "third"})
    run.move(nodes={"second": "third"})
    assert drive(db, deployed, run) == "done", run.error
    assert run.state["log"] == ["first on 0", "third"]


def test_a_key_that_the_other_agent_knows_is_not_moved(db):
    run = db.submit(make("a"), "trip-7", {"log": []}, key="k")
    db.submit(make("b"), "trip-7", {"log": []}, key="k")
    with pytest.raises(RunExists):
        run.move(agent="b")


def test_handed_over_under_way(db):
    """Whoever gives a run away while its node still runs cannot write any more."""
    agent = clew.Agent("trip", state=State)
    held_runs: list[Held] = []

    @agent.node
    def slow(state: Any) -> Any:
        if len(held_runs) == 1:
            held_runs[0].hand_over()
        return {"log": ["slow"]}

    run = db.submit(agent, "trip-7", {"log": []})
    held_runs.append(claim(db, [agent], run=run.id))
    assert execute(held_runs[0]) == "sleeping"
    assert (run.status, run.state["log"], run.info.crashes) == ("sleeping", [], 0)
    held_runs.append(None)
    assert drive(db, agent, run) == "done"
    assert run.state["log"] == ["slow"]


def test_something_of_somebody_elses_rides_on_a_submit(db, url):
    agent, seen = make(), []
    ledger = ledger_of(db._storage)

    def look(connection: Any) -> None:
        execute = getattr(connection, "execute", connection)
        table = "clew.run" if url.startswith("postgres") else "run"
        seen.append([row[0] for row in execute(f"SELECT id FROM {table}").fetchall()])

    run = submit(db, ledger, agent, "trip-7", {"log": []}, beside=lambda _: Beside(look))
    assert seen == [[run.id]]

    def refuse(connection: Any) -> None:
        raise BadInput("no")

    with pytest.raises(BadInput):
        submit(db, ledger, agent, "trip-7", {"log": []}, beside=lambda _: Beside(refuse))
    assert len(db.runs()) == 1


def interrupted() -> tuple[clew.Agent, dict[str, Any]]:
    """An agent whose first node lets somebody want something of its run."""
    agent, then = make(), {}

    def first(state: Any) -> Any:
        if then:
            then.pop("do")()
        return {"log": ["first"]}

    agent._nodes["first"] = agent._nodes["first"]._replace(fn=first)
    return agent, then


@pytest.mark.parametrize("if_busy", ["enqueue", "interrupt", "rollback", "inject"])
def test_what_a_new_run_does_about_the_one_that_has_the_branch(db, if_busy, monkeypatch):
    agent, then = interrupted()
    agent.run(db.thread("trip-7"), {"log": ["before"]})
    live = db.submit(agent, "trip-7", {"log": ["live"]})
    later: list[clew.Run] = []
    then["do"] = lambda: later.append(db.submit(agent, "trip-7", {"log": ["new"]}, if_busy=if_busy))
    monkeypatch.setattr("clew.runtime.drive._LOOK", 0.0)
    ended = drive(db, agent, live)
    new = later[0]
    before = ["before", "first", "second"]
    if if_busy == "enqueue":
        assert (ended, new.status) == ("done", "queued")
        drive(db, agent, new)
        assert new.state["log"] == [*before, "live", "first", "second", "new", "first", "second"]
    elif if_busy == "interrupt":
        assert ended == "cancelled"
        drive(db, agent, new)
        assert new.state["log"] == [*before, "live", "first", "new", "first", "second"]
    elif if_busy == "rollback":
        assert ended == "cancelled"
        assert live.thread.state()["log"] == before
        assert live.thread.tips == {"main.was.4": 4}
        drive(db, agent, new)
        assert new.state["log"] == [*before, "new", "first", "second"]
        assert "live" not in str(db.thread("trip-7").state())
    else:
        assert (ended, new.status) == ("done", "done")
        assert live.state["log"] == [*before, "live", "first", "new", "second"]


def test_what_a_rollback_goes_back_to_is_not_pruned(db):
    agent = make()

    def ask(state: Any) -> Any:
        return {"answer": clew.ask("Go on?", schema=str), "log": ["answered"]}

    agent._nodes["second"] = agent._nodes["second"]._replace(fn=ask)
    thread = db.thread("trip-7")
    for n in range(5):
        thread.update({"log": clew.extend([str(n)])})
    waits = db.submit(agent, "trip-7", {"log": ["in"]})
    assert drive(db, agent, waits) == "waiting"
    db.prune(keep_last=1)
    new = db.submit(agent, "trip-7", {"log": ["new"]}, if_busy="rollback")
    assert drive(db, agent, waits) == "cancelled"
    assert thread.state()["log"] == ["0", "1", "2", "3", "4"]
    assert drive(db, agent, new) == "waiting"
