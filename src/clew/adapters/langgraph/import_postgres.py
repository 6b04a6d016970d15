"""PostgresSaver's tables (also the asynchronous and the shallow one's), read in transactions that cannot write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clew.adapters.langgraph.import_source import Point, RawWrite
from clew.adapters.langgraph.import_values import Decoder
from clew.errors import BadInput, NotADatabase, StorageError

_BLOBS = 64
"""Values of channels that are remembered: most checkpoints share all but one with the one before."""


class PostgresSource:
    """`checkpoints`, `checkpoint_blobs` and `checkpoint_writes`, as each of their migrations left them."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise BadInput("PostgreSQL needs the package psycopg", hint='pip install "clew[postgres]"') from error
        self._error: type[Exception] = psycopg.Error
        self._transaction: Any = None
        try:
            self._connection = psycopg.connect(url, autocommit=True, fallback_application_name="clew import")
        except psycopg.Error as error:
            # The library's message may quote the URL, with its password.
            raise StorageError(
                f"the PostgreSQL database cannot be reached ({type(error).__name__})", hint="check the URL"
            ) from None
        info = self._connection.info
        self.name = f"postgresql://{info.host}/{info.dbname}"
        self._values: dict[tuple[str, str, str], Any] = {}
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        columns: dict[str, set[str]] = {}
        for table, column in self._run(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.oid IN (to_regclass('checkpoints'), to_regclass('checkpoint_blobs'),"
            " to_regclass('checkpoint_writes'), to_regclass('store')) AND a.attnum > 0 AND NOT a.attisdropped"
        ):
            columns.setdefault(table, set()).add(column)
        if not {"checkpoints", "checkpoint_blobs", "checkpoint_writes"} <= columns.keys():
            hint = "is it the right database? A schema is named by ?options=-csearch_path%3Dname"
            raise NotADatabase(f"{self.name} has no LangGraph checkpoints in it", hint=hint)
        # The shallow saver keeps one checkpoint of each namespace, and its blobs without versions.
        shallow = "checkpoint_id" not in columns["checkpoints"]
        self._id = "checkpoint ->> 'id'" if shallow else "checkpoint_id"
        self._parent = "NULL" if shallow else "parent_checkpoint_id"
        self._version = "''" if shallow else "version"
        self._shallow = shallow
        self._path = "task_path" if "task_path" in columns["checkpoint_writes"] else "''"
        self._has_items = "store" in columns

    def threads(self) -> list[tuple[str, int]]:
        found = self._run(
            f"SELECT thread_id, count(*), max({self._id}) AS last FROM checkpoints GROUP BY thread_id"  # noqa: S608
            " UNION ALL SELECT DISTINCT thread_id, 0, '' FROM checkpoint_writes w"
            " WHERE NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.thread_id = w.thread_id) ORDER BY last, thread_id"
        )
        return [(thread_id, count) for thread_id, count, _ in found]

    @contextmanager
    def thread(self, thread_id: str) -> Iterator[None]:  # noqa: ARG002 - the moment is the whole database's
        self._values.clear()
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")

    def points(self, thread_id: str) -> list[Point]:
        found = self._run(
            f"SELECT checkpoint_ns, {self._id}, {self._parent} FROM checkpoints WHERE thread_id = %s",  # noqa: S608
            thread_id,
        )
        return [Point(ns, str(id_), parent or None) for ns, id_, parent in found]

    def lone_writes(self, thread_id: str) -> list[tuple[str, str]]:
        return self._run(
            "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM checkpoint_writes w WHERE thread_id = %s AND NOT EXISTS"  # noqa: S608
            " (SELECT 1 FROM checkpoints c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns"
            f" AND {self._id.replace('checkpoint', 'c.checkpoint', 1)} = w.checkpoint_id)",
            thread_id,
        )

    def checkpoint(self, thread_id: str, point: Point, decoder: Decoder) -> tuple[Any, Any]:
        ((checkpoint, metadata),) = self._run(
            "SELECT checkpoint, metadata FROM checkpoints"  # noqa: S608
            f" WHERE thread_id = %s AND checkpoint_ns = %s AND {self._id} = %s",
            thread_id,
            point.ns,
            point.id,
        )
        if isinstance(checkpoint, dict):
            versions = checkpoint.get("channel_versions")
            values = dict(checkpoint.get("channel_values") or {})
            values.update(self._channels(thread_id, point.ns, versions if isinstance(versions, dict) else {}, decoder))
            checkpoint["channel_values"] = values
        return checkpoint, metadata

    def _channels(self, thread_id: str, ns: str, versions: dict[str, Any], decoder: Decoder) -> dict[str, Any]:
        """The values that stand outside of the checkpoint, by their channels."""
        wanted = {channel: "" if self._shallow else _text(version) for channel, version in versions.items()}
        missing = [name for name, version in wanted.items() if (ns, name, version) not in self._values]
        if missing:
            read = {(ns, name, wanted[name]): _ABSENT for name in missing}
            for name, version, kind, blob in self._run(
                f"SELECT channel, {self._version}, type, blob FROM checkpoint_blobs"  # noqa: S608
                f" WHERE thread_id = %s AND checkpoint_ns = %s AND (channel, {self._version}) IN"
                " (SELECT * FROM unnest(%s::text[], %s::text[]))",
                thread_id,
                ns,
                missing,
                [wanted[name] for name in missing],
            ):
                if kind != "empty":
                    read[ns, name, version] = decoder.kept(kind, blob)
            kept = {key: value for key, value in self._values.items() if key[0] != ns or wanted.get(key[1]) == key[2]}
            self._values = {**(kept if len(kept) < _BLOBS else {}), **read}
        found = {name: self._values.get((ns, name, version), _ABSENT) for name, version in wanted.items()}
        return {name: value for name, value in found.items() if value is not _ABSENT}

    def writes(self, thread_id: str, ns: str, id_: str) -> Sequence[RawWrite]:
        found = self._run(
            f"SELECT task_id, idx, {self._path} AS path, channel, type, blob FROM checkpoint_writes"  # noqa: S608
            " WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            thread_id,
            ns,
            id_,
        )
        return sorted((RawWrite(*row) for row in found), key=lambda row: (row.path, row.task, row.idx))

    def items(self) -> int:
        return int(self._run("SELECT count(*) FROM store")[0][0]) if self._has_items else 0

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, *values: object) -> list[Any]:
        try:
            cursor = self._connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
        except self._error as error:
            raise StorageError(f"{self.name}: {error}") from None


_ABSENT: Any = object()


def _text(version: object) -> str:
    """A version as it stands in the table of blobs: what PostgreSQL makes of the JSON."""
    return version if isinstance(version, str) else str(version)
