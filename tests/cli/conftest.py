"""A database with some history, and the command run within this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import clew
from clew.cli import main


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    """trip-7: five steps on main; osaka forked at 3 with one step more; a tag at 4. And chat-1, one step."""
    path = tmp_path / "agent.db"
    with clew.open(str(path)) as db:
        db.thread("chat-1").save({"text": "hello"}, label="hello")
        thread = db.thread("trip-7")
        state: dict[str, Any] = {"city": "Tokyo", "messages": []}
        for number, label in enumerate(["ask", "plan", "book", "pay", "done"]):
            state["messages"].append({"role": "user", "content": f"message {number}"})
            thread.save(state, label=label, metadata={"user": "anna"})
        thread.tag("before-payment", 4)
        thread.fork(3, branch="osaka", update={"city": "Osaka"})
    return path


Run = Callable[..., Result]


@pytest.fixture
def run(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `clew …` on that database, which lies in the current directory."""
    monkeypatch.chdir(db_path.parent)
    for name in ("CLEW_DB", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args: str, code: int = 0, typed: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(args), input=typed)
        assert result.exit_code == code, f"{result.exit_code}: {result.output}{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    def invoke(*args: str, code: int = 0) -> Any:
        return json.loads(run(*args, "--json", code=code).stdout)

    return invoke
