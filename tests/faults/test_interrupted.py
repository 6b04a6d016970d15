"""An exception at any line of the write path: the handle stays usable, no transaction is open, nothing is half done."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

import faulty_work as work
import pytest

import clew
from clew import thread as thread_module
from clew import writing
from clew.errors import Conflict
from clew.state import draft, layout, pieces, shadow
from clew.storage import relational, sqlite, sqlite_storage
from clew.testing.faults import at_line, sources

WRITE_PATH = sources(thread_module, writing, draft, layout, pieces, shadow, relational, sqlite, sqlite_storage)


@pytest.mark.parametrize("name", ["memory:", "a.db"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_a_save_interrupted_at_any_line(ram: Path, name: str, kind: type[BaseException], long: bool) -> None:
    """Interrupted once at each line (or, in the quick form, at some), it is whole or absent, and the next one works."""

    def interrupt() -> None:
        raise kind

    with clew.open(name if name == "memory:" else str(ram / name), durability="relaxed") as db:
        worker = work.Worker(db)
        model = work.EMPTY
        for _ in range(3):
            nonce = secrets.token_hex(6)
            worker.do(work.Op("save"), nonce)
            model = work.after(model, work.Op("save"), nonce)
        line, met = 1, True
        while met:
            nonce = secrets.token_hex(6)
            after = work.after(model, work.Op("save"), nonce)
            with at_line(line, WRITE_PATH, interrupt) as reached:
                with contextlib.suppress(kind):
                    worker.do(work.Op("save"), nonce)
                met = reached()
            assert not (db._engine.writer and db._engine.writer.in_transaction), f"line {line}"
            found = work.actual(db)
            assert found in (model, after), f"line {line}"
            if found == model:
                try:
                    worker.do(work.Op("save"), nonce)
                except Conflict:
                    raise AssertionError(f"line {line}: nothing was written, yet the handle is stale") from None
            elif met:
                worker.handles.clear()  # written, but never acknowledged: the user reads the head again
            assert work.actual(db) == after, f"line {line}"
            model = after
            if len(model.branches["main"]) > 12:
                db.prune(keep_last=2)
                model = work.after(model, work.Op("prune", number=2), "")
            line += 1 if long else 3
        assert line > 100


def test_control_a_transaction_that_is_left_open_is_found_out(ram: Path) -> None:
    with clew.open(str(ram / "a.db"), durability="relaxed") as db:
        db.thread("trip").save({"a": 1})
        db._engine.undo = lambda *_: None
        found = []
        for line in range(1, 600, 7):

            def interrupt() -> None:
                raise KeyboardInterrupt

            with at_line(line, WRITE_PATH, interrupt), contextlib.suppress(BaseException):
                db.thread("trip").update({"a": line})
            found.append(db._engine.writer.in_transaction)
            if found[-1]:
                db._engine.writer.execute("ROLLBACK")
        assert any(found)
