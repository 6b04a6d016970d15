"""The fault table tells what happens: a library that repeats an effect is caught doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def calm(contender: Any) -> Any:
    from bench.faults.trial import Trial

    trial = Trial(contender, None)
    assert not trial.run().struck
    return trial.final


def test_langgraph_books_again_what_was_booked_when_it_died() -> None:
    from bench.faults.peer_langgraph import LangGraph
    from bench.faults.trial import Trial

    from clew.testing.outside import Fault

    contender = LangGraph(tasks=True)
    expected = calm(contender)
    assert Trial(contender, Fault("calling:charge"), expected).run().told() == []
    twice = Trial(contender, Fault("do:charge"), expected).run()
    assert (twice.told(), twice.asked, twice.nobody) == (["charge done twice"], False, True)


def test_dbos_finds_its_run_and_pays_again() -> None:
    from bench.faults.peer_dbos import Dbos
    from bench.faults.trial import Trial

    from clew.testing.outside import Fault

    contender = Dbos()
    twice = Trial(contender, Fault("do:charge"), calm(contender)).run()
    assert (twice.told(), twice.asked, twice.nobody) == (["charge done twice"], False, False)


def test_what_counts_as_finished() -> None:
    from bench.faults.trial import finished

    from clew.testing.outside import Heard

    def heard(*words: str) -> list[Heard]:
        return [Heard(1, word) for word in words]

    assert list(finished(heard("begin:plan", "end:plan", "begin:plan"), 1)) == []  # under way, for all that is known
    assert list(finished(heard("begin:plan", "end:plan", "begin:flight", "begin:plan"), 1)) == [("plan", 3)]
    noted = ("begin:flight", "answered:flight", "end:flight", "stored:commit", "begin:flight")
    assert list(finished(heard(*noted), 1)) == [("flight", 4)]
    assert list(finished(heard(*noted), 2)) == []


def test_a_trial_that_lost_or_repeated_something_says_so() -> None:
    from bench.faults.trial import Verdict

    assert Verdict(lost="{} for {'paid': True}", nodes_again=["plan"], never=["charge"]).told() == [
        "lost",
        "charge never",
        "node plan again",
    ]
