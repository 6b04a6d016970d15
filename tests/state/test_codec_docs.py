"""The page about types says what is so."""

from __future__ import annotations

import doctest
from pathlib import Path

import clew.testing


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "types.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 5
    assert result.failed == 0


def test_the_examples_of_the_checker_run() -> None:
    result = doctest.testmod(clew.testing)
    assert result.attempted
    assert result.failed == 0
