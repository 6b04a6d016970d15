"""Two processes run one thread at once: both histories stay, the race is told, and no head mixes the two."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import racing
from racing import STATES, asked, config_of, graph_on, ids, saver_on

TRIALS = 12
ENOUGH = 3
"""Races that have to be met; `--long` goes on to the last trial."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres").url)


@contextmanager
def two(saver: str, url: str, state: str, how: str, on_race: str = "report") -> Iterator[list[Any]]:
    runners = [
        subprocess.Popen(
            [sys.executable, racing.__file__, saver, url, state, how, name, on_race],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in "ab"
    ]  # fmt: skip
    try:
        assert [runner.stdout.readline() for runner in runners if runner.stdout] == ["ready\n"] * 2
        yield runners
    finally:
        for runner in runners:
            runner.communicate(timeout=60)


def race(runners: list[Any], trial: int) -> list[dict[str, Any]]:
    """Both run the thread of a trial; what each says."""
    for runner in runners:
        runner.stdin.write(f"{trial}\n")
        runner.stdin.flush()
    return [json.loads(runner.stdout.readline()) for runner in runners]


def begun(saver: Any, state: str, how: str, trial: int) -> Any:
    """The thread before the race: one turn, and a question if it is to be resumed."""
    graph = graph_on(saver, state, how, "c")
    graph.invoke(asked("c", "input"), config_of(trial))
    return graph


def every_state(graph: Any, saver: Any, trial: int) -> list[list[str]]:
    """The messages of all checkpoints of the thread: the latest of it first."""
    return [ids(graph.get_state(one.config).values) for one in saver.list(config_of(trial))]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", ["input", "resume"])
def test_both_are_kept_and_told(url: str, state: str, how: str, long: bool) -> None:
    met = 0
    with saver_on("clew", url) as saver, two("clew", url, state, how) as runners:
        for trial in range(TRIALS):
            graph = begun(saver, state, how, trial)
            told = race(runners, trial)
            assert [one.get("error") for one in told] == [None, None]
            states = every_state(graph, saver, trial)
            # What each has come to is a checkpoint; the head is what one of them has come to.
            assert all(one["came to"] in states for one in told), (told, states)
            assert ids(graph.get_state(config_of(trial)).values) in [one["came to"] for one in told]
            races = [text for one in told for text in one["races"]]
            apart = told[0]["came to"] != told[1]["came to"] and not any(
                set(one["came to"]) <= set(other["came to"]) for one, other in (told, told[::-1])
            )
            if apart:
                met += 1
                assert races, told
            assert all(f"'trial {trial}'" in text and "both are kept" in text for text in races)
            if met >= ENOUGH and not long:
                break
    assert met


@pytest.mark.parametrize("state", STATES)
def test_a_race_is_an_error_if_that_was_asked_for(url: str, state: str, long: bool) -> None:
    met = 0
    with saver_on("clew", url) as saver, two("clew", url, state, "input", "raise") as runners:
        for trial in range(TRIALS):
            graph = begun(saver, state, "input", trial)
            told = race(runners, trial)
            lost = [one["error"] for one in told if "error" in one]
            assert all(kind == "Conflict" and f"'trial {trial}'" in text for kind, text in lost)
            met += len(lost)
            assert len(lost) < 2 or not any("came to" in one for one in told)
            head = ids(graph.get_state(config_of(trial)).values)
            for one in told:
                assert set(one.get("came to", [])) <= set(head)
            # One line: nothing stands beside it.
            states = every_state(graph, saver, trial)
            assert all(set(after) >= set(before) for after, before in itertools.pairwise(states))
            if met >= ENOUGH and not long:
                break
    assert met


@pytest.mark.parametrize("state", STATES)
def test_control_langgraphs_own_saver_says_nothing(tmp_path: Path, state: str, long: bool) -> None:
    """One of two runs is not in the head, or the head is what neither of them has come to; and nobody is told."""
    url = str(tmp_path / "peer.db")
    lost = mixed = 0
    saver = saver_on("langgraph", url)
    for how in ("input", "resume"):
        with two("langgraph", url, state, how) as runners:
            for trial in range(TRIALS):
                graph = begun(saver, state, how, f"{how} {trial}")  # type: ignore[arg-type]
                told = race(runners, f"{how} {trial}")  # type: ignore[arg-type]
                results = [one["came to"] for one in told if "came to" in one]
                head = ids(graph.get_state(config_of(f"{how} {trial}")).values)
                lost += any(not set(one) <= set(head) for one in results)
                mixed += head not in results
                assert not any(one["races"] for one in told)
                if trial >= ENOUGH and not long:
                    break
    saver.conn.close()
    print(f"{state}: {lost} lost a run silently, {mixed} heads are what nobody has come to")
    assert lost
