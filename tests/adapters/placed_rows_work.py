"""A LangGraph database of ours, spoilt row by row and read through the saver.

As a program: `placed_rows_work.py FILE SEED N` puts other values into the columns of its tables (every N-th way), then
whole forgeries with checksums that hold: LangGraph's published attacks, and our own tags misused. It reads everything
under an audit hook, within bounded memory, and prints what was wrong as JSON lines.
"""

from __future__ import annotations

import json
import pickle
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import hostile_rows_work as rows_work
import ormsgpack
from hostile_rows import Bomb, attacks, json_attacks
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from playing import plain
from racing import STATES

from clew.adapters.langgraph import ClewSaver
from clew.errors import ClewError
from clew.model import KINDS
from clew.placed.values import control_crc
from clew.state import codec_format
from clew.state.layout import pack_manifest
from clew.state.seal import record_crc, row_crc, seal_of

_INSERT = """
    INSERT INTO record SELECT thread, ?, 'task', 0, tenant, ?, ?, '', 'messages', ? FROM placed WHERE id = ?
"""
TABLES = ("placed", "record", "lane", "checkpoint", "payload", "chunk", "ref", "thread")


def graph_on(saver: Any, state: str) -> Any:
    builder = StateGraph(STATES[state])
    builder.add_node("ask", lambda state: {"messages": [("ai", interrupt({"q": "go on?"}))]})
    builder.add_node("say", lambda state: {"messages": [("ai", "an answer " * 20)]})
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda _: [Send("ask", {"messages": []})], ["ask"])
    return builder.compile(checkpointer=saver)


def config(thread: str, id_: str | None = None) -> Any:
    told = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": told if id_ is None else {**told, "checkpoint_id": id_}}


def make(path: Path) -> None:
    with ClewSaver.open(str(path), durability="relaxed") as saver:
        for thread in STATES:
            for number in range(6):
                graph_on(saver, thread).invoke({"messages": [("user", f"{number} " * 40)]}, config(thread))


def readings(path: Path, known: dict[str, list[str]]) -> Iterator[tuple[str, Any]]:
    try:
        saver = ClewSaver.open(str(path), durability="relaxed")
    except ClewError:
        return
    with saver:
        for thread, ids in known.items():
            reads = {
                f"{thread} latest": lambda thread=thread: saver.get_tuple(config(thread)),
                f"{thread} list": lambda thread=thread: list(saver.list(config(thread))),
                f"{thread} filtered": lambda thread=thread: list(saver.list(config(thread), filter={"step": 1})),
                f"{thread} delta": lambda thread=thread: saver.get_delta_channel_history(
                    config=config(thread), channels=["messages"]
                ),
            }
            for id_ in ids[::4]:
                reads[f"{thread}@{id_}"] = lambda thread=thread, id_=id_: saver.get_tuple(config(thread, id_))
            for name, read in reads.items():
                try:
                    yield name, read()
                except Exception as error:
                    yield name, error


def forgeries(path: Path, pwned: Path) -> Iterator[tuple[str, list[tuple[str, tuple[Any, ...]]]]]:
    """Each: what it is called, and statements that put it into the latest checkpoint, checksums and all."""
    connection = apsw.Connection(str(path))
    seal = seal_of("default", "messages")
    ns, id_, step = connection.execute(
        "SELECT ns, id, step FROM placed WHERE thread = (SELECT thread FROM thread WHERE id = 'messages') AND ns = ''"
        " ORDER BY id DESC LIMIT 1"
    ).fetchone()
    key, kind, label, run, next_, created, metadata, manifest = connection.execute(
        "SELECT key, kind, label, run, next, created, metadata, manifest FROM checkpoint WHERE id = ?", (id_,)
    ).fetchone()
    for name, data in forged(pwned):
        control, row = (control_crc(seal, ns, id_, data), id_), (id_, KINDS[kind], label, run, next_, created)
        yield f"control: {name}", [("UPDATE placed SET control = ?, crc = ? WHERE id = ?", (data, *control))]
        crc = row_crc(seal, *row, data, manifest)
        yield f"metadata: {name}", [("UPDATE checkpoint SET metadata = ?, crc = ? WHERE key = ?", (data, crc, key))]
        root = pack_manifest(1, 0, ormsgpack.packb({}) if data[:1] == b"\x80" else b"\x81\xa1x" + data)
        crc = row_crc(seal, *row, metadata, root)
        yield f"state: {name}", [("UPDATE checkpoint SET manifest = ?, crc = ? WHERE key = ?", (root, crc, key))]
        place = f"{len(ns)}:{ns}{id_}"
        crc = record_crc(seal, place, "task", 0, "", "messages", data)
        yield (
            f"write: {name}",
            [
                (
                    _INSERT,
                    (place, step, crc, data, id_),
                )
            ],
        )
    connection.close()


def forged(pwned: Path) -> Iterator[tuple[str, bytes]]:
    for name, value in attacks(pwned).items():
        yield f"msgpack {name}", ormsgpack.packb(value)
    for number, value in enumerate(json_attacks(pwned)):
        yield f"json {number}", ormsgpack.packb(value)
        yield f"json text {number}", json.dumps(value).encode()
    yield "pickle", pickle.dumps(Bomb(pwned))
    packed = ormsgpack.packb
    for cls in (
        "os:system",
        "builtins:eval",
        "subprocess:Popen",
        "langgraph.types:Send",
        "antigravity:fly",
        "clew:open",
    ):
        for tag in (
            codec_format.OBJECT,
            codec_format.MODEL,
            codec_format.STATE,
            codec_format.ENUM,
            codec_format.NAMEDTUPLE,
        ):
            for body in ([cls, 1, None, {"command": f"touch {pwned}"}], [cls, 1, f"touch {pwned}"], [cls], cls):
                yield f"tag {tag} {cls}", packed(ormsgpack.Ext(tag, packed(body)))
    for tag in range(128):
        yield f"tag {tag} with a command", packed(ormsgpack.Ext(tag, packed([f"touch {pwned}", 1, "x"])))


def shown(value: Any) -> Any:
    """Which row is its parent no checksum covers."""
    return plain(value._replace(parent_config=None) if hasattr(value, "parent_config") else value)


def must_hold(reading: str, change: Any) -> bool:
    """What is read by its id is what was written, or an error; which records stand beside it no checksum covers."""
    return "@" in reading and not isinstance(change, list) and change[0] != "record"


def main(path: Path, seed: int, every_nth: int) -> None:
    warnings.simplefilter("ignore")
    good, pwned = path.with_suffix(".good"), path.with_suffix(".pwned")
    shutil.copy(path, good)
    with ClewSaver.open(str(path)) as saver:
        known = {of: [t.config["configurable"]["checkpoint_id"] for t in saver.list(config(of))] for of in STATES}
    expected = {name: shown(value) for name, value in readings(path, known)}
    resource.setrlimit(resource.RLIMIT_AS, (rows_work.MEMORY, rows_work.MEMORY))
    spoilt = [
        (f"{table}.{column} = {new!r:.60}", (table, column, where, row, new))
        for table, column, where, row, new in rows_work.variants(
            good, seed, [rows_work.bomb(), pickle.dumps(Bomb(pwned))]
        )
        if table in TABLES
    ][seed % every_nth :: every_nth]
    made = list(forgeries(good, pwned))[seed % every_nth :: every_nth]
    seen: list[str] = []
    watching = False

    def watch(event: str, arguments: Any) -> None:
        if watching and event.startswith(rows_work.FORBIDDEN):
            seen.append(f"{event} {str(arguments)[:100]}")

    sys.addaudithook(watch)
    for name, change in [*spoilt, *made]:
        for stale in path.parent.glob(f"{path.name}-*"):
            stale.unlink()
        shutil.copy(good, path)
        if isinstance(change, list):
            connection = apsw.Connection(str(path))
            for statement, values in change:
                connection.execute(statement, values)
            assert connection.changes() == 1, name
            connection.close()
        elif not rows_work.spoil(path, *change):
            continue
        watching = True
        found = list(readings(path, known))
        watching = False
        for reading, value in found:
            if isinstance(value, BaseException):
                if not isinstance(value, ClewError):
                    at = traceback.extract_tb(value.__traceback__)[-1]
                    where = f"{Path(at.filename).name}:{at.lineno}"
                    print(json.dumps([name, reading, "untyped", f"{type(value).__name__}: {value} ({where})"[:200]]))
            elif must_hold(reading, change) and value is not None and shown(value) != expected[reading]:
                print(json.dumps([name, reading, "wrong", f"{value!r:.200}"]))
        for event in seen:
            print(json.dumps([name, "", "forbidden", event]))
        seen.clear()
        if pwned.exists():
            print(json.dumps([name, "", "pwned", ""]))
            pwned.unlink()
    print(json.dumps(["", "", "done", [len(spoilt), len(made)]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
