"""`clew import langgraph`: what it prints, what it ends with, and its bar."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
from pathlib import Path

import pytest
from clew_shell import command, environment, shell
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import clew


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Two threads of two turns each."""
    path = tmp_path / "langgraph.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    builder = StateGraph(MessagesState).add_node("reply", lambda _state: {"messages": [AIMessage("hello")]})
    graph = builder.add_edge(START, "reply").compile(checkpointer=SqliteSaver(connection))
    for thread in ("one", "two"):
        for _ in range(2):
            graph.invoke({"messages": "hi"}, {"configurable": {"thread_id": thread}})
    connection.close()
    return path


def test_it_makes_the_database_and_tells_what_came(run, theirs):
    said = run("-d", "new.db", "import", "langgraph", str(theirs)).stdout
    assert said == "brought over 12 checkpoints of 2 threads, and 12 writes\n"
    again = run("-d", "new.db", "import", "langgraph", str(theirs)).stdout
    assert "12 checkpoints were there already" in again
    assert "hello" in run("-d", "new.db", "show", "one").stdout
    assert "two" in run("-d", "new.db", "threads").stdout


def test_only_tried(run, run_json, theirs):
    report = run_json("-d", "new.db", "import", "langgraph", str(theirs), "--dry-run")
    assert report == {
        "source": str(theirs),
        "dry_run": True,
        "threads": 2,
        "checkpoints": 12,
        "writes": 12,
        "present": 0,
        "store_items": 0,
        "opaque": {},
        "skipped": [],
    }
    assert not Path("new.db").exists()


def test_what_is_left_out_is_named(run, run_json, theirs):
    connection = sqlite3.connect(theirs)
    with connection:
        connection.execute("UPDATE checkpoints SET type = 'pickle' WHERE rowid = 3")
    connection.close()
    report = run_json("-d", "new.db", "import", "langgraph", str(theirs), code=1)
    assert report["checkpoints"] == 11
    (left,) = report["skipped"]
    assert "pickle" in left["reason"]
    assert left["id"]
    assert f"left out: one {left['id']}" in run("-d", "new.db", "import", "langgraph", str(theirs), code=1).stderr


def test_classes_of_this_folder_can_be_allowed(tmp_path):
    (tmp_path / "shop.py").write_text("import enum\nclass Size(enum.Enum):\n    S = 's'\n")

    program = """
import sqlite3, shop
from typing import Any, TypedDict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
State = TypedDict("State", {"size": Any})
saver = SqliteSaver(sqlite3.connect("shop.db", check_same_thread=False))
builder = StateGraph(State).add_node("n", lambda _: {"size": shop.Size.S}).add_edge(START, "n")
graph = builder.compile(checkpointer=saver)
graph.invoke({"size": None}, {"configurable": {"thread_id": "t"}})
"""
    (tmp_path / "app.py").write_text(program)
    subprocess.run([command()[0], "app.py"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    done = shell("-d", "new.db", "import", "langgraph", "shop.db", cwd=tmp_path)
    assert (done.returncode, "shop:Size" in done.stdout) == (0, True), done.stderr
    assert "--allow shop:Size" in done.stderr
    done = shell("-d", "other.db", "import", "langgraph", "shop.db", "--allow", "shop:Size", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["opaque"] == {}
    with clew.open(str(tmp_path / "other.db")) as db, pytest.warns(clew.UnknownType):
        assert db.thread("t").state()["size"].type_name == "shop:Size"


def test_what_it_refuses(run, theirs):
    assert "nowhere.db" in run("-d", "new.db", "import", "langgraph", "nowhere.db", code=10).stderr
    assert "module:Class" in run("-d", "new.db", "import", "langgraph", str(theirs), "--allow", "x", code=2).stderr
    assert "another program" in run("-d", str(theirs), "import", "langgraph", str(theirs), code=12).stderr
    assert "no LangGraph checkpoints" in run("-d", "new.db", "import", "langgraph", "agent.db", code=12).stderr


def test_the_bar_is_on_stderr_and_for_terminals(theirs):
    master, slave = pty.openpty()
    words = command("-d", "new.db", "import", "langgraph", str(theirs), "--json")
    process = subprocess.Popen(
        words, cwd=theirs.parent, env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=slave
    )
    os.close(slave)
    out, _ = process.communicate(timeout=60)
    drawn = b""
    while chunk := _read(master):
        drawn += chunk
    os.close(master)
    assert process.returncode == 0, drawn
    assert json.loads(out)["checkpoints"] == 12
    assert b"checkpoints" in drawn
    assert shell("-d", "b.db", "import", "langgraph", str(theirs), cwd=theirs.parent).stderr == ""


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # its other end is closed
        return b""
