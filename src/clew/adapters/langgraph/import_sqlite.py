"""SqliteSaver's and AsyncSqliteSaver's file, read through the SQLite that Clew uses. Nothing is written to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from clew.adapters.langgraph.import_source import Point, RawWrite
from clew.adapters.langgraph.import_values import Decoder
from clew.errors import BadInput, NotADatabase, NotFound, StorageError

_FILE_HEADER = b"SQLite format 3\0"
_WAITS = 10_000


class SqliteSource:
    """The tables `checkpoints` and `writes`, with or without the column `task_path`."""

    def __init__(self, path: str) -> None:
        self.name = path
        file = Path(path)
        if not file.is_file():
            raise NotFound(f"there is no file {path!r}", hint="name the file that SqliteSaver was given")
        self._connection = _open(file)
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        tables = {row[0] for row in self._run("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not {"checkpoints", "writes"} <= tables:
            raise NotADatabase(f"{self.name} has no LangGraph checkpoints in it", hint="is it the right file?")
        columns = self._columns("checkpoints")
        if "checkpoint_id" not in columns:
            raise BadInput(f"{self.name} was written by a LangGraph before 0.2, which kept pickles: they are not read")
        self._has_items = "store" in tables
        self._type = "type" if "type" in columns else "NULL"
        self._path = "task_path" if "task_path" in self._columns("writes") else "''"

    def _columns(self, table: str) -> set[str]:
        return {row[0] for row in self._run("SELECT name FROM pragma_table_info(?)", table)}

    def threads(self) -> list[tuple[str, int]]:
        found = self._run(
            "SELECT thread_id, count(*), max(checkpoint_id) FROM checkpoints GROUP BY thread_id"
            " UNION ALL SELECT DISTINCT thread_id, 0, '' FROM writes"
            " WHERE thread_id NOT IN (SELECT thread_id FROM checkpoints) ORDER BY 3, 1"
        )
        return [(thread_id, count) for thread_id, count, _ in found]

    @contextmanager
    def thread(self, thread_id: str) -> Iterator[None]:  # noqa: ARG002 - the moment is the whole file's
        self._run("BEGIN")
        try:
            yield
        finally:
            self._run("ROLLBACK")

    def points(self, thread_id: str) -> list[Point]:
        found = self._run(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = ?", thread_id
        )
        return [Point(ns, id_, parent or None) for ns, id_, parent in found]

    def lone_writes(self, thread_id: str) -> list[tuple[str, str]]:
        return self._run(
            "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes w WHERE thread_id = ? AND NOT EXISTS (SELECT 1"
            " FROM checkpoints c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns"
            " AND c.checkpoint_id = w.checkpoint_id)",
            thread_id,
        )

    def checkpoint(self, thread_id: str, point: Point, decoder: Decoder) -> tuple[Any, Any]:
        ((kind, data, metadata),) = self._run(
            f"SELECT {self._type}, checkpoint, metadata FROM checkpoints"  # noqa: S608 - a column's name, of two
            " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            thread_id,
            point.ns,
            point.id,
        )
        return decoder.read(kind, data), {} if metadata is None else decoder.read("json", metadata)

    def writes(self, thread_id: str, ns: str, id_: str) -> Sequence[RawWrite]:
        found = self._run(
            f"SELECT task_id, idx, {self._path} AS path, channel, type, value FROM writes"  # noqa: S608 - likewise
            " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY path, task_id, idx",
            thread_id,
            ns,
            id_,
        )
        return [RawWrite(*row) for row in found]

    def items(self) -> int:
        return int(self._run("SELECT count(*) FROM store")[0][0]) if self._has_items else 0

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise _translated(error, self.name) from None


def _open(file: Path) -> apsw.Connection:
    """A connection that cannot write. Where a write-ahead log cannot be shared, the file must not have one."""
    with file.open("rb") as opened:
        header = opened.read(len(_FILE_HEADER))
    if header != _FILE_HEADER:
        raise NotADatabase(f"{file} is not an SQLite database")
    url = f"file:{quote(str(file.absolute()))}"
    for flags in ("?mode=ro", "?immutable=1"):
        connection = apsw.Connection(f"{url}{flags}", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        connection.set_busy_timeout(_WAITS)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        try:
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            connection.close()
            if Path(f"{file}-wal").exists() and Path(f"{file}-wal").stat().st_size:
                break
        else:
            return connection
    raise StorageError(f"{file}: its write-ahead log cannot be read here", hint="copy the file and its -wal elsewhere")


def _translated(error: apsw.Error, path: str) -> StorageError:
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(f"{path} is not an SQLite database")
    return StorageError(f"{path}: {error}", retryable=isinstance(error, apsw.BusyError))
