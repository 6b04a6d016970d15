"""The LangGraph examples run as they are, and say what they say on LangGraph's own savers: one line is different."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import clew

EXAMPLES = Path(__file__).parents[2] / "examples" / "langgraph"
SCRIPTS = ("chat", "agent", "react", "approval", "fork", "remember")
SAVER = "from langgraph.checkpoint.memory import InMemorySaver\n"
STORE = "from langgraph.store.memory import InMemoryStore\n"
THEIRS = (
    ("from clew.adapters.langgraph import ClewSaver, ClewStore\n", SAVER + STORE),
    ("from clew.adapters.langgraph import ClewSaver\n", SAVER),
    ("import clew\n", ""),
    ('db = clew.open("memory.db")\n', ""),
    ("ClewStore(db)", "InMemoryStore()"),
    ("ClewSaver(db)", "InMemorySaver()"),
)


def run(script: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def on_langgraph(name: str, folder: Path) -> Path:
    """The example with LangGraph's own saver and store."""
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    for ours, theirs in THEIRS:
        text = text.replace(ours, theirs)
    text = re.sub(r'ClewSaver\.open\("\w+\.db"\)', "InMemorySaver()", text)
    (folder / "scripted.py").write_text((EXAMPLES / "scripted.py").read_text("utf-8"))
    (folder / f"{name}.py").write_text(text)
    return folder / f"{name}.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("langgraph")


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, str]:
    return {name: run(EXAMPLES / f"{name}.py", folder) for name in SCRIPTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_as_with_langgraphs_own(name: str, said: dict[str, str], tmp_path: Path) -> None:
    theirs = on_langgraph(name, tmp_path)
    assert "clew" not in re.sub(r'""".*?"""', "", theirs.read_text("utf-8"), flags=re.DOTALL).lower()
    assert said[name] == run(theirs, tmp_path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_one_line_is_different(name: str, tmp_path: Path) -> None:
    ours = (EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()
    theirs = on_langgraph(name, tmp_path).read_text("utf-8").splitlines()
    changed = [line for line in ours if line not in theirs and not line.startswith(("import", "from", '"""'))]
    assert len(changed) <= (2 if name == "remember" else 1), changed


def test_another_process_goes_on_and_answers(said: dict[str, str], folder: Path) -> None:
    assert said["chat"].endswith("4 messages\n")
    assert run(EXAMPLES / "chat.py", folder).endswith("8 messages\n")
    assert said["approval"] == "Book the Grand Tokyo for 3 nights?\n"
    assert run(EXAMPLES / "approval.py", folder, "yes") == "Done: booked the Grand Tokyo\n"


def test_a_worker_takes_up_what_was_accepted(folder: Path) -> None:
    """Two messages for one conversation: the second waits while a person is asked about the first."""

    def worker(*words: str) -> list[str]:
        return run(EXAMPLES / "worker.py", folder, *words).splitlines()

    assert worker("send", "Book a hotel in Tokyo.") == ["queued"]
    assert worker("send", "Which city?") == ["queued", "queued"]
    assert worker("work") == ["queued", "waiting"]
    assert worker("answer", "yes")[0] == "Book the Grand Tokyo for 3 nights?"
    assert worker("work") == ["done You spoke of Tokyo, in message 1.", "done Done: booked the Grand Tokyo"]


def test_the_fork_keeps_both(said: dict[str, str], folder: Path) -> None:
    before, after, counts = said["fork"].splitlines()
    assert "Osaka" not in before
    assert "Osaka: the old town" in after
    assert counts.startswith("6 checkpoints")
    with clew.open(str(folder / "fork.db")) as db:
        assert len(db.thread("trip-7").tips) == 1


def test_the_commands_of_the_readme_work(said: dict[str, str], folder: Path) -> None:
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    commands = re.findall(r"^clew (.*)$", readme, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run([sys.executable, "-m", "clew.cli", *command.split()], cwd=folder, capture_output=True)
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout
    for script in EXAMPLES.glob("*.py"):
        assert script.name in readme
        assert len(script.read_text("utf-8").splitlines()) < 65
