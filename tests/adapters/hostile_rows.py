"""LangGraph databases made by somebody who wants their reader to run code; and the run that watches what happens.

As a program: `hostile_rows.py FILE` imports the file under an audit hook, and prints what it has seen.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any

import ormsgpack


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        import os

        return os.system, (f"touch {self.path}",)


def pack(value: Any) -> bytes:
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def ext(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, pack(list(parts)))


def attacks(pwned: Path) -> dict[str, Any]:
    """Values whose reading runs something, or tries to, in LangGraph's own serialiser as it is by default."""
    touch, code = f"touch {pwned}", f"open({str(pwned)!r}, 'w')"
    deep: Any = 1
    for _ in range(90):
        deep = ormsgpack.Ext(0, pack(["builtins", "list", deep]))
    return {
        "system": ext(0, "os", "system", touch),
        "posix": ext(1, "posix", "system", [touch]),
        "eval": ext(0, "builtins", "eval", code),
        "exec": ext(2, "builtins", "exec", {"source": code}),
        "popen": ext(0, "subprocess", "Popen", ["touch", str(pwned)]),
        "import": ext(0, "importlib", "import_module", "antigravity"),
        "module": ext(0, "antigravity", "fly", 1),
        "model": ext(5, "subprocess", "Popen", {"args": ["touch", str(pwned)]}, "model_validate_json"),
        "old model": ext(4, "os", "system", {"command": touch}),
        "method": ext(3, "builtins", "str", touch, "__class__"),
        "method of a module": ext(3, "os", "path", touch, "fromisoformat"),
        "a known class otherwise": ext(0, "langchain_core.messages.human", "HumanMessage", touch),
        "a registered name as a path": ext(0, "langgraph.types", "__builtins__", touch),
        "a zone": ext(0, "zoneinfo", "ZoneInfo", "../../../etc/passwd"),
        "a zone in a package": ext(0, "zoneinfo", "ZoneInfo", "antigravity/fly"),
        "no parts": ormsgpack.Ext(0, b"\xc0"),
        "an array of objects": ormsgpack.Ext(6, pack(["O", [1], "C", b"\0" * 8])),
        "an array of commands": ormsgpack.Ext(6, pack([touch, [1], "C", b"\0" * 8])),
        "unknown": ormsgpack.Ext(99, pickle.dumps(Bomb(pwned))),
        "deep": deep,
        "within": [{"x": ext(2, "langgraph.types", "Interrupt", {"value": ext(0, "os", "system", touch), "id": "1"})}],
        "a snapshot": ormsgpack.Ext(7, pack(ext(0, "os", "system", touch))),
    }


def json_attacks(pwned: Path) -> list[Any]:
    def made(lc: int, *id_: str, **more: Any) -> dict[str, Any]:
        return {"lc": lc, "type": "constructor", "id": list(id_), **more}

    return [
        made(2, "os", "system", args=[f"touch {pwned}"]),
        made(2, "subprocess", "Popen", kwargs={"args": ["touch", str(pwned)]}),
        made(2, "builtins", "eval", method="__call__", args=[f"open({str(pwned)!r}, 'w')"]),
        made(1, "langchain_core", "prompts", "PromptTemplate", kwargs={"template": "{x}", "template_format": "jinja2"}),
        made(1, "langchain", "llms", "OpenAI", kwargs={}),
        {"lc": 1, "type": "secret", "id": ["HOME"]},
        made(2, "antigravity", "fly"),
    ]


def harmless() -> dict[str, Any]:
    message = {"content": "hello", "type": "human", "id": "1"}
    return {
        "message": ext(5, "langchain_core.messages.human", "HumanMessage", message, "model_validate_json"),
        "send": ext(1, "langgraph.types", "Send", ["node", ext(0, "uuid", "UUID", "0" * 32)]),
        "zone": ext(0, "zoneinfo", "ZoneInfo", "Europe/Oslo"),
        "array": ormsgpack.Ext(6, pack(["<i8", [1], "C", b"\0" * 8])),
    }


def write(path: Path, pwned: Path | None) -> int:
    """A database with one attack in each place that is read; how many rows there are. Without a file: no attacks."""
    rows: list[tuple[Any, ...]] = []
    writes: list[tuple[Any, ...]] = []

    def checkpoint(id_: str, **more: Any) -> dict[str, Any]:
        return {"v": 4, "ts": "2026-01-01T00:00:00+00:00", "id": id_, "channel_values": {}, "channel_versions": {},
                "versions_seen": {}, **more}  # fmt: skip

    def add(kind: Any, data: Any, metadata: Any = b"{}") -> None:
        rows.append(("t", "", f"{len(rows) + 1:03}", None, kind, data, metadata))

    for value in (harmless() if pwned is None else attacks(pwned)).values():
        id_ = f"{len(rows) + 1:03}"
        add("msgpack", pack(checkpoint(id_, channel_values={"x": value})))
        writes.append(("t", "", id_, "task", "", 0, "x", "msgpack", pack(value)))
        add("msgpack", pack(value))
        add("msgpack", pack(checkpoint(f"{len(rows) + 1:03}", channel_versions=value)))
    for value in [] if pwned is None else json_attacks(pwned):
        id_ = f"{len(rows) + 1:03}"
        add("json", json.dumps(checkpoint(id_, channel_values={"x": value})), json.dumps({"step": value}))
        writes.append(("t", "", id_, "task", "", 0, "x", "json", json.dumps(value)))
    bomb = b"" if pwned is None else pickle.dumps(Bomb(pwned))
    for kind in ("pickle", "msgpack", "json", None, "", "bytes", 7, "msgpack+aes"):
        add(kind, bomb)
        writes.append(("t", "", rows[-1][2], "task", "", 0, "x", kind, bomb))
    add("msgpack", pack(checkpoint(f"{len(rows) + 1:03}")), bomb)
    add("msgpack", pack(checkpoint("another")))
    add("msgpack", pack(checkpoint(f"{len(rows) + 1:03}", versions_seen={"n": 1}, channel_versions={"a": [1]})))
    add("msgpack", pack(checkpoint(f"{len(rows) + 1:03}"))[:-3])
    add(None, None, None)
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT
            NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
            PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
        CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT
            NULL, task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT
            NULL, type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
    """)
    with connection:
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", writes)
    connection.close()
    return len(rows)


FORBIDDEN = ("import", "exec", "compile", "pickle.", "socket.", "subprocess.", "os.", "ctypes.", "marshal.", "code.")


def main() -> None:
    import warnings

    import numpy as np

    import clew
    from clew.adapters.langgraph import ClewSaver, import_database

    np.zeros(1)
    warnings.simplefilter("ignore")
    seen: list[Any] = []
    watching = False

    def watch(event: str, arguments: Any) -> None:
        if watching and event.startswith(FORBIDDEN):
            seen.append((event, str(arguments)[:200]))

    class Asked:
        """importlib.import_module raises no audit event of its own."""

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if watching:
                seen.append(("find_spec", name))

    with clew.open("memory:") as db:
        usual = db.tenant("usual")  # what our own code imports once is imported here
        known = import_database(usual, sys.argv[1] + ".harmless")
        assert not any(":" in name for name in known.opaque), known.opaque
        list(ClewSaver(usual).list(None))
        sys.addaudithook(watch)
        sys.meta_path.insert(0, Asked())  # type: ignore[arg-type]
        modules = set(sys.modules)
        watching = True
        report = import_database(db, sys.argv[1])
        found = list(ClewSaver(db).list(None))
        watching = False
        modules = set(sys.modules) - modules
    print(json.dumps({"seen": seen, "modules": sorted(modules), "brought": report.checkpoints, "read": len(found),
                      "skipped": [one.reason for one in report.skipped], "opaque": report.opaque}))  # fmt: skip


if __name__ == "__main__":
    main()
