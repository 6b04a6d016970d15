"""A LangGraph database is brought over whole, and its graphs go on; twice, killed, grown, and of older formats."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import import_graphs
import psycopg
import pytest
from import_graphs import Line, Order, Size, Spot, go_on, histories, play, tuples
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.base import MIGRATIONS
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

import clew
from clew.adapters.langgraph import ClewSaver, import_database
from clew.errors import BadInput, NotADatabase, NotFound, StorageError
from clew.testing.postgres import TestDatabase

ALLOWED = [f"import_graphs:{cls.__name__}" for cls in (Size, Line, Order, Spot)]


class Original:
    """A LangGraph database. `url()` is where an import finds it as it is now.

    SQLite files are copied for that: two libraries must not have one file open in one process.
    """

    def __init__(self, saver: Any, url: Callable[[], str]) -> None:
        self.saver = saver
        self.url = url


def in_sqlite(folder: Path) -> Iterator[Original]:
    connection = sqlite3.connect(folder / "theirs.db", check_same_thread=False)
    copies = iter(range(100))

    def copied() -> str:
        path = folder / f"copy-{next(copies)}.db"
        target = sqlite3.connect(path)
        connection.backup(target)
        target.close()
        return str(path)

    saver = SqliteSaver(connection)
    saver.setup()
    yield Original(saver, copied)
    connection.close()


def in_postgres(database: TestDatabase, saver_type: Any = PostgresSaver) -> Iterator[Original]:
    with psycopg.connect(database.owner_url, autocommit=True, row_factory=dict_row) as connection:
        saver = saver_type(connection)
        saver.setup()
        yield Original(saver, lambda: database.owner_url)


@pytest.fixture(params=["sqlite", "postgres"])
def original(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Original]:
    if request.param == "sqlite":
        yield from in_sqlite(tmp_path)
    else:
        yield from in_postgres(request.getfixturevalue("empty_postgres"))


@pytest.fixture
def memory() -> Iterator[clew.Database]:
    with clew.open("memory:") as db:
        yield db


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite database in which all has been played, for tests that only read it."""
    made = in_sqlite(tmp_path_factory.mktemp("played"))
    one = next(made)
    play(one.saver)
    return one.url()


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_everything_comes_over_and_goes_on(original: Original, db: clew.Database) -> None:
    play(original.saver)
    before, snapshots = tuples(original.saver), histories(original.saver)
    report = import_database(db, original.url(), allow=ALLOWED)
    assert (report.threads, report.checkpoints) == (5, len(before))
    assert report.writes == sum(len(one.pending_writes) for one in before)
    assert (report.opaque, report.skipped, report.present) == ({}, [], 0)
    ours = ClewSaver(db)
    assert tuples(ours) == before
    assert histories(ours) == snapshots
    assert any(one.config["configurable"]["checkpoint_ns"] for one in before)
    assert go_on(ours) == go_on(original.saver)


def test_twice_changes_nothing(original: Original, db: clew.Database) -> None:
    play(original.saver)
    url = original.url()
    import_database(db, url, allow=ALLOWED)
    ours = ClewSaver(db)
    before, used = tuples(ours), db.usage()
    report = import_database(db, url, allow=ALLOWED)
    assert (report.threads, report.checkpoints, report.writes) == (0, 0, 0)
    assert report.present == len(before)
    assert tuples(ours) == before
    assert db.usage() == used


def test_what_has_gone_on_stays(played: str, memory: clew.Database) -> None:
    """Answers given since, and all that followed, are not overwritten by the older ones."""
    import_database(memory, played, allow=ALLOWED)
    ours = ClewSaver(memory)
    outcome = go_on(ours)
    before = tuples(ours)
    assert import_database(memory, played, allow=ALLOWED).writes == 0
    assert tuples(ours) == before
    assert outcome["asked"][0]["order"] == Order(lines=[Line(name="tea")], size=Size.LARGE)


def test_what_has_been_added_comes_too(original: Original, memory: clew.Database) -> None:
    """Also writes beside checkpoints that are there already: a delta channel's values depend on them."""
    play(original.saver)
    import_database(memory, original.url(), allow=ALLOWED)
    go_on(original.saver)
    report = import_database(memory, original.url(), allow=ALLOWED)
    assert report.checkpoints > 0
    assert report.present > 0
    assert tuples(ClewSaver(memory)) == tuples(original.saver)
    assert histories(ClewSaver(memory)) == histories(original.saver)


def test_the_source_is_not_changed(played: str, memory: clew.Database, tmp_path: Path) -> None:
    before = digest(played)
    import_database(memory, played, allow=ALLOWED)
    assert digest(played) == before
    read_only = tmp_path / "there" / "copy.db"
    read_only.parent.mkdir()
    shutil.copy(played, read_only)
    read_only.chmod(0o400)
    read_only.parent.chmod(0o500)
    try:
        assert import_database(None, str(read_only), dry_run=True).checkpoints > 0
    finally:
        read_only.parent.chmod(0o700)


def test_a_log_that_is_not_in_the_file_yet(tmp_path: Path, memory: clew.Database) -> None:
    """The application was killed: its last checkpoints are in the write-ahead log alone."""
    program = f"""
import os, sqlite3, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from import_graphs import play
from langgraph.checkpoint.sqlite import SqliteSaver
play(SqliteSaver(sqlite3.connect("theirs.db", check_same_thread=False)))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "theirs.db-wal").stat().st_size > 0
    assert import_database(memory, str(tmp_path / "theirs.db"), allow=ALLOWED).threads == 5


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import clew
from clew.adapters.langgraph import import_database
from test_langgraph_import import ALLOWED

def die(done, total):
    if done == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

import_database(clew.open(sys.argv[3]), sys.argv[2], allow=ALLOWED, progress=die)
"""


def test_killed_in_the_middle_it_is_completed(played: str, memory: clew.Database, tmp_path: Path) -> None:
    import_database(memory, played, allow=ALLOWED)
    url = str(tmp_path / "ours.db")
    for at_checkpoint in (1, 7, 30):
        words = [str(Path(__file__).parent), played, url, str(at_checkpoint)]
        done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
    with clew.open(url) as db:
        part = tuples(ClewSaver(db))
        report = import_database(db, played, allow=ALLOWED)
        whole = tuples(ClewSaver(memory))
        assert 0 < len(part) < len(whole)
        assert report.present == len(part)
        assert tuples(ClewSaver(db)) == whole
        assert go_on(ClewSaver(db)) == go_on(ClewSaver(memory))


def test_the_time_of_a_checkpoint_is_kept(played: str, memory: clew.Database) -> None:
    import_database(memory, played, allow=ALLOWED)
    of_langgraph = {one.checkpoint["ts"] for one in ClewSaver(memory).list(import_graphs.at("chat"))}
    history = memory.thread("chat").history(limit=1000)
    assert len(history) > 3
    assert {checkpoint.created_at.isoformat() for checkpoint in history} <= of_langgraph


# -- classes that are not known


class TestOtherClasses:
    PROGRAM = """
import dataclasses, enum, sqlite3
import pydantic
from typing import Any
from typing_extensions import TypedDict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph, START
import strange

class State(TypedDict):
    point: Any
    deal: Any
    colour: Any

def node(state):
    point, deal = strange.Point(1, [strange.Point(2)]), strange.Deal(to={"name": "Anna"})
    return {"point": point, "deal": deal, "colour": strange.Colour.RED}

saver = SqliteSaver(sqlite3.connect("strange.db", check_same_thread=False))
graph = StateGraph(State).add_node("n", node).add_edge(START, "n").compile(checkpointer=saver)
graph.invoke({"point": 0}, {"configurable": {"thread_id": "t"}})
"""
    MODULE = """
import dataclasses, enum
import pydantic

@dataclasses.dataclass
class Point:
    x: int
    more: list = dataclasses.field(default_factory=list)

class Person(pydantic.BaseModel):
    name: str

class Deal(pydantic.BaseModel):
    to: Person

class Colour(enum.Enum):
    RED = "r"
"""

    @pytest.fixture
    def strange(self, tmp_path: Path) -> Path:
        """A database of an application whose module `strange` is not imported here."""
        (tmp_path / "strange.py").write_text(self.MODULE)
        subprocess.run([sys.executable, "-c", self.PROGRAM], cwd=tmp_path, check=True, timeout=60, capture_output=True)
        return tmp_path / "strange.db"

    def test_stay_as_bytes_and_are_counted(self, strange: Path, memory: clew.Database) -> None:
        report = import_database(memory, str(strange))
        assert set(report.opaque) == {"strange:Point", "strange:Deal", "strange:Colour"}
        assert report.skipped == []
        with pytest.warns(clew.UnknownType, match="strange"):
            state = memory.thread("t").state()
        assert {name: type(value) for name, value in state.items()} == dict.fromkeys(state, clew.Opaque)
        assert "strange" not in sys.modules

    def test_are_built_when_they_are_allowed(
        self, strange: Path, memory: clew.Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = f"""
import sys
sys.path.insert(0, {str(strange.parent)!r})
import clew
from clew.adapters.langgraph import ClewSaver, import_database
with clew.open("memory:") as db:
    allow = ["strange:Point", "strange:Deal", "strange:Colour", "strange:Person"]
    report = import_database(db, {str(strange)!r}, allow=allow)
    assert not report.opaque, report
    import strange
    found = ClewSaver(db).get_tuple({{"configurable": {{"thread_id": "t"}}}}).checkpoint["channel_values"]
    assert found == {{"point": strange.Point(1, [strange.Point(2)]), "deal": strange.Deal(to={{"name": "Anna"}}),
                     "colour": strange.Colour.RED}}, found
    assert type(found["deal"].to) is strange.Person
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

    def test_dataclasses_become_readable_when_they_are_registered_later(self, strange: Path, tmp_path: Path) -> None:
        """And what LangGraph took apart with `model_dump` does not, for that has lost the types within."""
        url = str(tmp_path / "ours.db")
        with clew.open(url) as db:
            import_database(db, str(strange))
        program = f"""
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {str(strange.parent)!r})
import clew, strange
clew.register(strange.Point); clew.register(strange.Deal)
clew.register(strange.Colour, encode=lambda colour: colour.value, decode=strange.Colour)
with clew.open({url!r}) as db:
    state = db.thread("t").state()
assert state["point"] == strange.Point(1, [strange.Point(2)]), state
assert type(state["deal"]) is clew.Opaque, state
assert state["colour"] is strange.Colour.RED, state
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

    @pytest.mark.parametrize("name", ["os", "os:system", "nowhere:Order", "import_graphs:Nobody", "import_graphs:play"])
    def test_what_cannot_be_allowed(self, name: str, played: str, memory: clew.Database) -> None:
        with pytest.raises(BadInput, match=name):
            import_database(memory, played, allow=[name])


# -- older formats


def test_a_file_from_before_paths(played: str, memory: clew.Database, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    shutil.copy(played, old)
    connection = sqlite3.connect(old)
    connection.executescript("ALTER TABLE writes DROP COLUMN task_path; PRAGMA journal_mode = DELETE;")
    connection.close()
    report = import_database(memory, str(old), allow=ALLOWED)
    assert (report.threads, report.skipped) == (5, [])
    found = ClewSaver(memory).get_tuple(import_graphs.at("chat"))
    assert found.checkpoint["channel_values"]["messages"][-1].content == "another way"


def test_json_rows(tmp_path: Path, memory: clew.Database) -> None:
    """As langgraph-checkpoint 1 wrote them, with constructors of both kinds."""

    def lc2(id_: str, **more: Any) -> dict[str, Any]:
        return {"lc": 2, "type": "constructor", "id": id_.split("."), **more}

    values = {
        "messages": [
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
             "kwargs": {"content": "hi", "type": "human", "id": "1"}},
            lc2("langchain_core.messages.ai.AIMessage", method=[None, "construct"], kwargs={"content": "a", "id": "2"}),
        ],
        "id": lc2("uuid.UUID", args=["00000000000000000000000000000007"]),
        "at": lc2("datetime.datetime", method="fromisoformat", args=["2026-01-02T03:04:05"]),
        "day": lc2("datetime.date", args=[2026, 1, 2]),
        "set": lc2("builtins.set", args=[[1, 2]]),
        "bytes": lc2("builtins.bytes", method="fromhex", args=["00ff"]),
        "send": lc2("langgraph.constants.Send", kwargs={"node": "n", "arg": {"x": 1}}),
    }  # fmt: skip
    checkpoint = {"v": 1, "ts": "2024-06-01T00:00:00+00:00", "id": "1ef", "channel_values": values,
                  "channel_versions": {"messages": 2}, "versions_seen": {}, "pending_sends": []}  # fmt: skip
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT
            NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
            PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
        CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT
            NULL, task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
            PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
    """)
    row = (
        "t",
        "",
        "1ef",
        None,
        "json",
        json.dumps(checkpoint).encode(),
        b'{"source": "loop", "step": 1, "writes": {}}',
    )
    connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("INSERT INTO writes VALUES ('t', '', '1ef', 'task', 0, 'messages', 'json', '\"x\"')")
    theirs = SqliteSaver(connection).get_tuple({"configurable": {"thread_id": "t"}})
    connection.commit()
    connection.close()
    report = import_database(memory, str(path))
    assert (report.checkpoints, report.writes, report.opaque, report.skipped) == (1, 1, {}, [])
    ours = ClewSaver(memory).get_tuple({"configurable": {"thread_id": "t"}})
    found, expected = ours.checkpoint["channel_values"], theirs.checkpoint["channel_values"]
    assert found["messages"] == expected["messages"]
    assert {name: found[name] for name in ("id", "day", "set")} == {
        name: expected[name] for name in ("id", "day", "set")
    }
    assert found["at"].isoformat() == "2026-01-02T03:04:05"
    assert found["bytes"] == b"\0\xff"
    assert (found["send"].node, found["send"].arg) == ("n", {"x": 1})
    assert ours.metadata == theirs.metadata
    assert ours.pending_writes == [("task", "messages", "x")]


def test_postgres_as_earlier_migrations_left_it(empty_postgres: TestDatabase, memory: clew.Database) -> None:
    with psycopg.connect(empty_postgres.owner_url, autocommit=True, row_factory=dict_row) as connection:
        saver = PostgresSaver(connection)
        saver.setup()
        play(saver)
        before = tuples(saver)
        connection.execute("ALTER TABLE checkpoint_writes DROP COLUMN task_path")
        connection.execute("DELETE FROM checkpoint_migrations WHERE v = %s", (len(MIGRATIONS) - 1,))
    report = import_database(memory, empty_postgres.owner_url, allow=ALLOWED)
    assert (report.checkpoints, report.skipped) == (len(before), [])
    without_paths = [
        [sorted(map(repr, one.pending_writes)) for one in found] for found in (tuples(ClewSaver(memory)), before)
    ]
    assert without_paths[0] == without_paths[1]


def test_the_shallow_saver(empty_postgres: TestDatabase, memory: clew.Database) -> None:
    for original in in_postgres(empty_postgres, ShallowPostgresSaver):
        for turn in range(3):
            import_graphs.chat(original.saver).invoke({"messages": [("user", str(turn))]}, import_graphs.at("chat"))
        theirs = original.saver.get_tuple(import_graphs.at("chat"))
        report = import_database(memory, original.url())
        assert (report.checkpoints, report.skipped) == (1, [])
        ours = ClewSaver(memory).get_tuple(import_graphs.at("chat"))
        assert {**ours.checkpoint, "pending_sends": []} == theirs.checkpoint
        assert ours.metadata == theirs.metadata


def test_sends_from_before_format_4(empty_postgres: TestDatabase, memory: clew.Database) -> None:
    """They stood among the parent's writes; PostgresSaver puts them into the checkpoint when it loads it."""
    for original in in_postgres(empty_postgres):
        saver = original.saver
        base = {"v": 3, "ts": "2025-01-01T00:00:00+00:00", "channel_values": {}, "versions_seen": {}}
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = saver.put(config, {**base, "id": "1", "channel_versions": {"a": 1}}, {"step": 0}, {})
        saver.put_writes(config, [("__pregel_tasks", import_graphs.Send("pack", 1)), ("a", 2)], "task", "path")
        saver.put(config, {**base, "id": "2", "channel_versions": {"a": 2}}, {"step": 1}, {})
        theirs = saver.get_tuple(import_graphs.at("t"))
        assert theirs.checkpoint["channel_values"]
        import_database(memory, original.url())
        ours = ClewSaver(memory).get_tuple(import_graphs.at("t"))
        assert ours.checkpoint["channel_values"] == theirs.checkpoint["channel_values"]
        assert ours.checkpoint["channel_versions"] == theirs.checkpoint["channel_versions"]


# -- what is no such database


def test_what_cannot_be_imported(tmp_path: Path, memory: clew.Database, empty_postgres: TestDatabase) -> None:
    (tmp_path / "noise").write_bytes(b"noise" * 1000)
    (tmp_path / "empty").touch()
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(NotFound, match="nowhere"):
        import_database(memory, str(tmp_path / "nowhere"))
    for name in ("noise", "empty", "other"):
        with pytest.raises(NotADatabase, match=name):
            import_database(memory, str(tmp_path / name))
    with pytest.raises(NotADatabase, match="no LangGraph"):
        import_database(memory, empty_postgres.owner_url)
    with pytest.raises(StorageError) as refused:
        import_database(memory, "postgresql://user:hidden-word@127.0.0.1:1/x?connect_timeout=1")
    assert "hidden-word" not in str(refused.value)
    with pytest.raises(BadInput, match="mysql"):
        import_database(memory, "mysql://host/x")
    with pytest.raises(BadInput, match="needs a database"):
        import_database(None, str(tmp_path / "noise"))


def test_nothing_is_written_when_it_is_only_tried(played: str, memory: clew.Database) -> None:
    report = import_database(memory, played, allow=ALLOWED, dry_run=True)
    assert report.dry_run
    assert report.checkpoints > 30
    assert memory.usage().threads == 0
