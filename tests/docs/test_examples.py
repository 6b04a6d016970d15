"""The examples run as they are, in the order that their README gives, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = ("first", "before", "after", "week_later", "compare_fork", "time_travel")
AGENT = ("agent", "answer", "agent", "agent_fork")


def run(name: str, folder: Path) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    kept["PACE"] = "0"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], cwd=folder, env=kept, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("examples")
    printed = {name: run(name, folder) for name in SCRIPTS}
    printed["again"] = run("after", folder)
    return printed


def test_the_first_program_charges_once(said: dict[str, str]) -> None:
    assert said["first"].endswith("A week in Tokyo is yours: X4T-221.\n")
    assert said["first"].count("the card is charged") == 1


def test_the_loop_is_the_same_before_and_after(said: dict[str, str]) -> None:
    conversation = said["before"].split("\n\n")[0]
    assert conversation.count("> ") == 3
    assert said["after"].startswith(conversation)


def test_what_was_answered_is_not_asked_again(said: dict[str, str]) -> None:
    assert said["after"].count("> ") == 4
    # after the time travel, one question is not on the branch any more
    assert re.findall("> .*", said["again"]) == ["> Which city was it?"]


def test_another_process_goes_on(said: dict[str, str]) -> None:
    assert "You chose Tokyo, for 3 days." in said["week_later"]
    assert "Now the thread is at step 5" in said["week_later"]
    assert said["week_later"].count("+ messages[") == 2


def test_a_fork_is_compared_with_its_origin(said: dict[str, str]) -> None:
    assert '~ messages[0].content  "Plan 3 days in Tokyo." → "Plan 3 days in Osaka."' in said["compare_fork"]
    assert "{'main': 5, 'osaka-1': 10}" in said["compare_fork"]


def test_the_past_is_edited_and_kept(said: dict[str, str]) -> None:
    assert "Back at step 2: 'Find a hotel.'" in said["time_travel"]
    assert "5 nights at 120 €" in said["time_travel"]
    assert said["time_travel"].rstrip().endswith("You chose Tokyo, for 3 days.")


@pytest.fixture(scope="module")
def booking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the agent's examples have run."""
    folder = tmp_path_factory.mktemp("booking")
    (folder / "said.txt").write_text("---\n".join(run(name, folder) for name in AGENT), "utf-8")
    return folder


def test_the_agent_asks_is_answered_elsewhere_and_pays_once(booking: Path) -> None:
    asks, answers, goes_on, _ = (booking / "said.txt").read_text("utf-8").split("---\n")
    assert re.fullmatch(r"(run-\w+) is waiting\n  R-1 asks anna: Book 3 days in Tokyo for 900 €\?\n", asks)
    assert "R-1 is answered by anna" in answers
    assert goes_on == asks.split()[0] + " is done\n  Paid 900 € for Tokyo.\n"
    assert run("agent", booking) == goes_on
    assert (booking / "payments.txt").read_text("utf-8") == "Tokyo: 900 €\n"


def test_its_fork_asks_for_itself(booking: Path) -> None:
    forked = (booking / "said.txt").read_text("utf-8").split("---\n")[3]
    assert "R-2 asks anna: Book 3 days in Osaka for 780 €?" in forked
    assert '~ city                 "Tokyo" → "Osaka"' in forked
    assert '- outcome              "Paid 900 € for Tokyo."' in forked


def test_every_example_is_short_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text("utf-8").splitlines()) < 65, script.name
        assert script.name in listed
    order = re.findall(r"^python (\w+)\.py", listed, re.MULTILINE)
    assert tuple(order) == SCRIPTS + AGENT
