"""A database with a row in every table, everything that can be read of it, and hands that change any column of any row.

As a program: `hostile_rows_work.py FILE SEED N` spoils columns of the file's rows in turn (every N-th way), reads
everything under an audit hook and within bounded memory, and prints what was wrong with what came back, as JSON lines.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

import clew
from clew.errors import ClewError
from clew.runtime.agent import Agent
from clew.state.pieces import FORMAT
from clew.testing import exactly_equal

MEMORY = 2 << 30
FORBIDDEN = (
    "import",
    "exec",
    "compile",
    "pickle.",
    "socket.connect",
    "socket.bind",
    "subprocess.",
    "os.system",
    "os.exec",
    "ctypes.",
    "marshal.",
)
SKIPPED = ("sqlite_", "text_index", "words")
"""SQLite's own tables, and those of its full-text index."""


def agent() -> Agent:
    made = Agent("trip")

    @made.node(start=True)
    def book(state: Any) -> Any:
        answer = clew.ask("Book?", schema=bool, id="book", expires=3600.0, default=False, approvals=2)
        clew.wait("paid", timeout=3600.0)
        return {"answer": answer}

    return made


def make(path: Path) -> None:
    """Threads with branches that differ, blobs, folded payload, records, items, a run that waits, a failed one."""
    with clew.open(str(path), durability="relaxed") as db:
        thread = db.thread("trip")
        for number in range(40):
            with thread.edit(f"step {number}") as state:
                state.setdefault("messages", []).append({"role": "user", "content": f"{number} " + "text " * 30})
                state["document"] = state.get("document", "") + f"line {number} of a text that grows; " * 3
                state.setdefault("large", {})[f"key {number}"] = "x" * 100
        thread.save({**thread.state(), "blob": clew.Blob(b"\x00\x01" * 50_000)}, metadata={"source": "hostile"})
        other = thread.fork("~3", branch="osaka", update={"city": "Osaka"})
        with other.edit("apart") as state:
            state["messages"].append({"role": "user", "content": "of the other branch " * 10})
        thread.tag("before", "~5")
        thread.rewind("~1")
        thread.save({**thread.state(), "after": 1})
        run = agent().run(db.thread("waits"), {"city": "Tokyo"})
        run.requests[0].answer(True, by="alice", reason="fine")
        db.signal("other", {"amount": 1}, key="event-1")
        store = db.store(user="42")
        store.put(("notes",), "1", {"text": "window seats", "n": 1}, ttl=3600)
        store.put(("notes", "more"), "2", {"text": "quiet rooms", "n": 2})


def everything(db: clew.Database) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What there is to read, each under a name."""
    for name in ("trip", "waits"):
        for branch in ("main", "osaka") if name == "trip" else ("main",):
            thread = db.thread(name, branch=branch)
            yield f"{name}/{branch}/head", lambda thread=thread: shown(thread.head)
            yield f"{name}/{branch}/state", thread.state
            yield f"{name}/{branch}/history", lambda thread=thread: [shown(one) for one in thread.history()]
        for step in (1, 20, 39, 40, 41, 42, 43, 44) if name == "trip" else (1,):
            yield f"{name}@{step}", lambda thread=thread, step=step: thread.state(step)
            yield f"{name}@{step} itself", lambda thread=thread, step=step: shown(thread.checkpoint(step))
        yield f"{name} names", lambda thread=thread: [thread.branches, thread.tags, thread.tips]
    yield "tag", lambda: db.thread("trip").state("before")
    yield "diff", lambda: str(db.thread("trip").diff("before", "osaka")) and None
    yield "diff@36", lambda: str(db.thread("trip").diff(36, 43))
    yield "blob", lambda: db.thread("trip").state(41)["blob"].read()
    yield "threads", lambda: [info.id for info in db.threads()]
    yield "usage", lambda: db.usage() and None
    yield "dry prune", lambda: db.prune(keep_last=1, dry_run=True) and None
    yield "requests", lambda: [(one.id, one.question, one.approvals, one.assignee) for one in db.requests(status=None)]
    yield "request", lambda: [db.request("R-1").state(), [(a.by, a.value, a.reason) for a in db.request("R-1").audit()]]
    yield "runs", lambda: [(one.id, one.agent, one.status, one.error) for one in db.runs()]
    yield "run", lambda: [one.state for one in db.runs()]
    yield "resume", lambda: agent().resume(db.thread("waits")).status
    yield "signal", lambda: db.signal("other", {"amount": 1}, key="event-1")
    store = db.store(user="42")
    yield "item", lambda: [store.get(("notes",), "1"), store.get(("notes", "more"), "2")]
    yield "items", lambda: [item.value for item in store.search(("notes",))]
    yield "words", lambda: [item.value for item in store.search(("notes",), query="window")]
    yield "namespaces", lambda: list(store.namespaces())


def shown(checkpoint: clew.Checkpoint | None) -> Any:
    return checkpoint and (checkpoint.id, checkpoint.step, checkpoint.label, checkpoint.kind, checkpoint.metadata)


def tables(connection: apsw.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    return [name for (name,) in found.fetchall() if not name.startswith(SKIPPED)]


class Bomb:
    def __reduce__(self) -> Any:
        return sys.exit, ("a stored row ran code",)


def bomb() -> bytes:
    """A piece whose checksum holds and that claims to be small: 1 GiB of zeros, compressed."""
    from zlib import crc32

    import zstandard

    from clew.state.seal import seal_of

    stream = zstandard.ZstdCompressor(level=3).compressobj()
    body = b"".join([*(stream.compress(bytes(1 << 20)) for _ in range(1 << 10)), stream.flush()])
    return bytes((FORMAT, 1)) + crc32(body, seal_of("default", "trip")).to_bytes(4, "big") + body


def spoiled(value: Any, others: list[Any], chance: random.Random, bombs: list[bytes]) -> list[Any]:
    """What to put in place of a value."""
    if isinstance(value, bytes):
        at = chance.randrange(len(value)) if value else 0
        flips = [value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :] for bit in (0, 7)] if value else []
        cuts = [value[: chance.randrange(len(value))] for _ in range(2)] if value else []
        return [b"", b"\xc1" * 40, pickle.dumps(Bomb()), value + b"\0", *flips, *cuts, *bombs, *others[:2]]
    if isinstance(value, str):
        return ["", "x" * 100_000, "a\0b", "'; DROP TABLE thread; --", "../../etc/passwd", value + "x", *others[:2]]
    if isinstance(value, int):
        return [0, -1, value + 1, value - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), *others[:2]]
    return [b"\xc1", "text", 7]


def variants(path: Path, seed: int, bombs: list[bytes]) -> Iterator[tuple[str, str, str, Any, Any]]:
    """(table, column, key of the row, what stands there, what to put there): for one row of each kind of value."""
    chance = random.Random(seed)
    connection = apsw.Connection(str(path))
    for table in tables(connection):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        for at, column in enumerate(columns):
            if not rows:
                continue
            row = chance.choice(rows)
            others = [other[at] for other in rows if other[at] != row[at]]
            chance.shuffle(others)
            where = " AND ".join(f"{name} IS ?" for name in columns)
            for new in spoiled(row[at], others, chance, bombs if table in ("payload", "chunk") else []):
                yield table, column, where, row, new
    connection.close()


def spoil(path: Path, table: str, column: str, where: str, row: Any, new: Any) -> bool:
    """Put it there; False when the table's own rules refuse it."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *row))
    except apsw.ConstraintError:
        return False
    finally:
        connection.close()
    return True


def must_hold(table: str, column: str, name: str) -> bool:
    """Whether what is read may be nothing but what was written, or an error.

    Where a row stands, and what points at it, no checksum covers: then another row is found, or none. But what is read
    by its step is that step's.
    """
    if name == "request":
        return (table, column) not in {("answer", "number"), ("answer", "tenant")}
    return "@" in name or name == "blob"


def readings(path: Path) -> dict[str, Any]:
    """What each reading comes to: its value, or the error."""
    found: dict[str, Any] = {}
    try:
        db = clew.open(str(path), durability="relaxed")
    except ClewError as error:
        return {"open": error}
    with db:
        for name, read in everything(db):
            try:
                found[name] = read()
            except Exception as error:
                found[name] = error
    return found


def main(path: Path, seed: int, every_nth: int) -> None:
    """Spoil every n-th; beginning at another one for each seed."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    good = path.with_suffix(".good")
    shutil.copy(path, good)
    expected = readings(path)
    wrong = {name: value for name, value in expected.items() if isinstance(value, BaseException)}
    assert not wrong, wrong
    every = list(variants(good, seed, [bomb()]))[seed % every_nth :: every_nth]
    seen: list[str] = []
    watching = False

    def watch(event: str, arguments: Any) -> None:
        if watching and event.startswith(FORBIDDEN):
            seen.append(f"{event} {str(arguments)[:100]}")

    sys.addaudithook(watch)
    done = 0
    for table, column, where, row, new in every:
        for stale in path.parent.glob(f"{path.name}-*"):
            stale.unlink()
        shutil.copy(good, path)
        if not spoil(path, table, column, where, row, new):
            continue
        watching = True
        found = readings(path)
        watching = False
        done += 1
        place = f"{table}.{column} = {new!r:.40}"
        for name, value in found.items():
            if isinstance(value, BaseException):
                if not isinstance(value, ClewError):
                    at = traceback.extract_tb(value.__traceback__)[-1]
                    told = f"{type(value).__name__}: {value}"[:200]
                    print(json.dumps([place, name, "untyped", f"{told} ({Path(at.filename).name}:{at.lineno})"]))
            elif must_hold(table, column, name) and not exactly_equal(value, expected[name]):
                print(json.dumps([place, name, "wrong", f"{value!r:.100}"]))
        for event in seen:
            print(json.dumps([place, "", "forbidden", event]))
        seen.clear()
    print(json.dumps(["", "", "done", done]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
