"""One agent (three nodes, two effects, two recorded calls, a question), killed wherever it can be.

Each trial kills it once, starts it again, answers what is asked, and then holds what the world outside saw against what
it may have seen: docs/design/faults.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.testing.outside import Fault

ROOT = Path(__file__).resolve().parents[2]
FINAL = {
    "log": [f"answer to {word}" for word in ("call:plan", "do:flight", "call:hotel")] + ["yes", "answer to do:charge"]
}
SHORT = ("call:plan", "end:plan", "calling:flight", "do:flight", "end:flight", "got:hotel", "waiting", "answer:given")
SHORT = (*SHORT, "calling:charge", "do:charge", "answered:charge", "got:charge", "over")
Kill = Callable[..., Any]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench` lies beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def trial(ram: Path) -> Kill:
    """Runs the agent with a fault; returns the verdict."""

    def run(fault: Fault, url: str | None = None, *, journaled: bool = True, retry: bool = False) -> Any:
        from bench.faults.ours import Clew
        from bench.faults.trial import Trial

        return Trial(Clew(url, journaled=journaled), fault, FINAL, retry=retry, within=ram).run()

    return run


@pytest.fixture(params=["file", "postgres"])
def kill(request: pytest.FixtureRequest, trial: Kill) -> Kill:
    """The same on each backend, and looks at all that must hold whatever the fault was."""
    url = request.getfixturevalue("postgres").url if request.param == "postgres" else None

    def run(fault: Fault) -> Any:
        verdict = trial(fault, url)
        assert verdict.told() == [], verdict.words
        return verdict

    return run


def under_way(words: list[str], begun: str = "stored:claim") -> bool:
    """Whether an effect was claimed, and what became of it not yet recorded."""
    last = [word for word in words if word in (begun, "stored:complete")]
    return last[-1:] == [begun]


def test_killed_at_each_named_point(kill: Kill, long: bool) -> None:
    from bench.faults.agent import POINTS

    for word in POINTS if long else SHORT:
        verdict = kill(Fault(word))
        assert verdict.struck, word
        assert verdict.asked == under_way(verdict.before), (word, verdict.words)


@pytest.mark.parametrize("when", ["storing", "stored"])
def test_killed_before_and_after_each_write(kill: Kill, long: bool, when: str) -> None:
    first, every = (1, 1) if long else (random.randint(1, 4), 4)
    for number in range(first, 1000, every):
        verdict = kill(Fault(when, number))
        if not verdict.struck:
            break
        assert verdict.asked == under_way(verdict.before), (when, number, verdict.words)
    assert number > 16, "it writes that often"


def test_killed_at_any_moment(kill: Kill, long: bool) -> None:
    """Between two words a claim may be durable that the world has not heard of."""
    whole = Fault(seconds=600)
    kill(whole)
    assert whole.seconds is not None
    lasts = 600 - whole.seconds
    struck = 0
    for _ in range(300 if long else 8):
        verdict = kill(Fault(seconds=random.uniform(0, lasts)))
        struck += verdict.struck
        if verdict.asked:
            assert under_way(verdict.before) or under_way(verdict.before, "storing:claim"), verdict.words
    assert struck


def test_an_effect_whose_answer_is_lost_is_asked_about_and_not_tried_again(trial: Kill) -> None:
    verdict = trial(Fault("do:charge", signal=None), retry=True)
    assert (verdict.told(), verdict.asked) == ([], True)


def test_the_trials_notice_what_is_done_twice(trial: Kill) -> None:
    """The negative control: the same agent without recorded calls and effects."""
    expected = {
        "do:charge": ["charge done twice", "call hotel again"],
        "do:flight": ["flight done twice", "call hotel again"],
        "call:plan": ["call hotel again"],
    }
    for word, told in expected.items():
        verdict = trial(Fault(word), journaled=False)
        assert (verdict.told(), verdict.asked) == (told, False)
