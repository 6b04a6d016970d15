"""docs/cli.md shows the helps that the commands print, and names every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clew_shell import shell

from clew.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["", *main.commands])
def test_the_page_shows_the_help(name, tmp_path):
    words = " ".join(filter(None, ["clew", name, "--help"]))
    shown = re.search(rf"```console\n\$ {re.escape(words)}\n(.*?)```\n", PAGE, re.DOTALL)
    assert shown is not None, f"`{words}` is not on the page: run scripts/transcripts"
    assert shell(*words.split()[1:], cwd=tmp_path, COLUMNS="80").stdout == shown[1], "run scripts/transcripts"


@pytest.mark.parametrize("name", main.commands)
def test_the_page_shows_the_command_at_work(name):
    assert re.search(rf"\n\$ clew {name} (?!--help)|\n\$ clew {name}\n", PAGE)


def test_one_width_of_help_fits_every_terminal(run):
    for name in main.commands:
        assert all(len(line) <= 80 for line in run(name, "--help").stdout.splitlines())
