"""LangGraph behaves on our saver as on its own: the same stories on both come to the same, in all that can be seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from playing import MANNERS, Manner, Story, differences, picture
from stories import JOINS, STORIES

import clew
from clew.adapters.langgraph import ClewSaver


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every story in every manner in memory; on the other backends once called and once awaited (`--long`: all)."""
    if "story" not in metafunc.fixturenames:
        return
    long = metafunc.config.getoption("--long")
    plays = []
    for backend in ("memory", "file", "postgres"):
        for story in STORIES:
            manners = [one for one in MANNERS if one.durability != "async" or story not in JOINS]
            if backend != "memory" and not long:
                manners = [one for one in manners if one.durability == ("sync" if story in JOINS else "async")]
            plays += [
                pytest.param(backend, story, manner, id=f"{backend}-{story.__name__}-{manner}") for manner in manners
            ]
    metafunc.parametrize(("backend", "story", "manner"), plays)


def _thread(story: Story, manner: Manner) -> str:
    return f"{story.__name__} {manner}"


@cache
def expected(story: Story, manner: Manner) -> Any:
    return picture(InMemorySaver(), manner, _thread(story, manner), story)


@pytest.mark.filterwarnings("error::clew.adapters.langgraph.RaceWarning")
def test_a_story_comes_to_the_same(
    shared_on: Callable[[str], clew.Database], backend: str, story: Story, manner: Manner
) -> None:
    found = picture(ClewSaver(shared_on(backend)), manner, _thread(story, manner), story)
    assert list(differences(found, expected(story, manner))) == []


def test_pictures_tell_apart_what_differs() -> None:
    """The control: another story, and another manner of writing, are seen."""
    called, at_exit = Manner("called", "sync"), Manner("called", "exit")
    one = expected(STORIES[0], called)
    assert list(differences(one, expected(STORIES[1], called)))
    assert list(differences(one, expected(STORIES[0], at_exit)))
