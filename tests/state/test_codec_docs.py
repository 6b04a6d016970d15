"""The page about types says what is so."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import clew.testing

RUN = """
import doctest, sys
found = doctest.testfile(sys.argv[1], module_relative=False, optionflags=doctest.ELLIPSIS)
sys.exit(0 if found.failed == 0 and found.attempted > 5 else 1)
"""


def test_the_examples_of_the_page_run() -> None:
    """In a process of their own: other pages register types of the same names."""
    page = Path(__file__).parents[2] / "docs" / "types.md"
    done = subprocess.run([sys.executable, "-c", RUN, page], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_examples_of_the_checker_run() -> None:
    result = doctest.testmod(clew.testing)
    assert result.attempted
    assert result.failed == 0
