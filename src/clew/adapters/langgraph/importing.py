"""A LangGraph database brought over into Clew's: every thread, namespace, checkpoint, write and its metadata.

Each checkpoint is one commit and each checkpoint's writes are another. What is there already is left as it is, so an
import that was killed is completed by the next one, and one of a database that has grown brings what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import clew
from clew.adapters.langgraph import control, types
from clew.adapters.langgraph.import_postgres import PostgresSource
from clew.adapters.langgraph.import_source import Point, RawWrite, Source
from clew.adapters.langgraph.import_sqlite import SqliteSource
from clew.adapters.langgraph.import_values import Decoder, Undecodable
from clew.errors import BadInput, CodecError
from clew.placed import Place, PlacedThreads, Write, meet

Progress = Callable[[int, int], None]
"""Told how many checkpoints are done, and how many there are."""

_TASKS = "__pregel_tasks"
_SENDS_APART = 4
"""Checkpoints of formats before this one have their pending sends among the parent's writes."""


class Skipped(NamedTuple):
    """What was not brought over, and why."""

    thread_id: str
    ns: str
    id: str
    reason: str


@dataclass
class Imported:
    """What an import did. `opaque` counts values by the class that would have to be allowed to read them."""

    source: str
    dry_run: bool = False
    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    present: int = 0
    """Checkpoints that were there already."""
    store_items: int = 0
    """Items of LangGraph's store in the same database: they are not brought over."""
    opaque: dict[str, int] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def import_database(
    db: clew.Database | None,
    source: str,
    *,
    allow: Iterable[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Bring a database of SqliteSaver's (its file) or PostgresSaver's (its URL) over into `db`.

    Values come back with the types that LangGraph and LangChain have, those that are registered in this process
    (`clew.register`), and those that `allow` names as "module:Class", which are imported. No name found in the data is
    imported or called: values of other classes become `Opaque`, and pickles are not read. The source is only read.

    With `dry_run` everything is read and nothing written; then `db` may be None.
    """
    types.register()
    for name in allow:
        _allow(name)
    if db is None and not dry_run:
        raise BadInput("import_database needs a database to bring the threads into")
    opened = _open(source)
    try:
        return _Import(db, opened, dry_run=dry_run).run(progress or (lambda _done, _total: None))
    finally:
        opened.close()


def _allow(name: str) -> None:
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise BadInput(f"{name!r} does not name a class", hint="write module:Class, for example app.models:Order")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{name!r} cannot be imported: {error}") from None
    if not isinstance(found, type) or not meet(found):
        raise BadInput(f"{name!r} is no dataclass, pydantic model, named tuple or enum", hint="register it in Python")


def _open(source: str) -> Source:
    if source.startswith(("postgresql://", "postgres://")):
        return PostgresSource(source)
    if source.startswith("sqlite:"):
        source = unquote(urlsplit(source).path)[1:]
    elif "://" in source:
        scheme = source.partition(":")[0]
        raise BadInput(
            f"{scheme}:// is no place where LangGraph's savers keep checkpoints", hint="a file, or postgresql://…"
        )
    return SqliteSource(source)


class _Import:
    """One import under way."""

    def __init__(self, db: clew.Database | None, source: Source, *, dry_run: bool) -> None:
        self._source = source
        self._db = None if dry_run else db
        self._placed = None if self._db is None else PlacedThreads(self._db)
        self._decoder = Decoder()
        self._report = Imported(source.name, dry_run=dry_run)

    def run(self, progress: Progress) -> Imported:
        report = self._report
        threads = self._source.threads()
        total, done = sum(count for _, count in threads), 0
        progress(0, total)
        for thread_id, _ in threads:
            if type(thread_id) is not str:
                report.skipped.append(Skipped(repr(thread_id)[:80], "", "", "its id is no text"))
                continue
            with self._source.thread(thread_id):
                for _ in self._thread(thread_id):
                    done += 1
                    progress(done, max(done, total))
        report.store_items = self._source.items()
        report.opaque = dict(self._decoder.opaque.most_common())
        return report

    def _thread(self, thread_id: str) -> Iterator[None]:
        """Bring a thread over; yields after each checkpoint."""
        try:
            if self._db is not None:
                self._db.thread(thread_id)  # refuses what cannot be an id here
            present = set() if self._placed is None else self._placed.ids(thread_id)
        except BadInput as error:
            self._skip(thread_id, Point("", "", None), error)
            return
        brought = Counter[bool]()
        for point in in_order(self._source.points(thread_id)):
            is_present = (point.ns, point.id) in present
            try:
                if not is_present:
                    self._checkpoint(thread_id, point)
                brought[is_present] += 1
                self._writes(thread_id, point.ns, point.id, is_new=not is_present)
            except (Undecodable, BadInput, CodecError) as error:
                self._skip(thread_id, point, error)
            yield
        for ns, id_ in self._source.lone_writes(thread_id):
            try:
                self._writes(thread_id, ns, id_, is_new=False)
            except BadInput as error:
                self._skip(thread_id, Point(ns, id_, None), error)
        self._report.checkpoints += brought[False]
        self._report.present += brought[True]
        self._report.threads += bool(brought[False])

    def _skip(self, thread_id: str, point: Point, error: Exception) -> None:
        self._report.skipped.append(Skipped(thread_id, point.ns, point.id, str(error)[:300]))

    def _checkpoint(self, thread_id: str, point: Point) -> None:
        checkpoint, metadata = self._source.checkpoint(thread_id, point, self._decoder)
        _check(checkpoint, metadata, point)
        try:
            self._take_in_sends(thread_id, point, checkpoint)
            new = control.take_apart(checkpoint, metadata)._replace(created=_created(checkpoint.get("ts")))
        except (TypeError, ValueError, AttributeError) as error:
            raise Undecodable(f"it is malformed: {error}") from None
        if self._placed is not None:
            self._placed.put(Place(thread_id, point.ns, point.id), point.parent, new)

    def _take_in_sends(self, thread_id: str, point: Point, checkpoint: dict[str, Any]) -> None:
        """As LangGraph does when it loads a checkpoint of an old format."""
        version = checkpoint.get("v")
        if not isinstance(version, int) or version >= _SENDS_APART or point.parent is None:
            return
        rows = self._source.writes(thread_id, point.ns, point.parent)
        sends = [self._decoder.kept(row.kind, row.data) for row in rows if row.channel == _TASKS]
        if sends and _TASKS not in checkpoint["channel_values"]:
            versions = checkpoint["channel_versions"]
            checkpoint["channel_values"] = {**checkpoint["channel_values"], _TASKS: sends}
            versions[_TASKS] = max(versions.values()) if versions else control.next_version(None)

    def _writes(self, thread_id: str, ns: str, id_: str, *, is_new: bool) -> None:
        rows = self._source.writes(thread_id, ns, id_)
        if not rows:
            return
        place = Place(thread_id, ns, id_)
        known = set() if is_new or self._placed is None else self._placed.recorded(place)
        writes = [self._write(row) for row in rows if (row.task, row.idx) not in known]
        if self._placed is not None and writes:
            self._placed.write(place, writes)
        self._report.writes += len(writes)

    def _write(self, row: RawWrite) -> Write:
        return Write(row.task, row.idx, row.path, row.channel, self._decoder.kept(row.kind, row.data))


def in_order(points: Iterable[Point]) -> Iterator[Point]:
    """Each checkpoint after the one it stands on; apart from that, the least ids first.

    >>> [point.id for point in in_order([Point("", "2", "3"), Point("", "3", None), Point("", "1", "gone")])]
    ['1', '3', '2']
    """
    waiting = {(point.ns, point.id): point for point in sorted(points, key=lambda point: (point.id, point.ns))}
    while waiting:
        point = next(iter(waiting.values()))
        chain = [waiting.pop((point.ns, point.id))]
        # Ids grow within one process only; and where an id was put again under its own descendant, this ends too.
        while (parent := waiting.pop((point.ns, chain[-1].parent or ""), None)) is not None:
            chain.append(parent)
        yield from reversed(chain)


def _check(checkpoint: Any, metadata: Any, point: Point) -> None:
    """What everything else takes for granted of a checkpoint."""
    if not isinstance(checkpoint, dict) or not isinstance(metadata, dict):
        raise Undecodable("it is no checkpoint")
    for name in ("channel_values", "channel_versions", "versions_seen"):
        part = checkpoint.setdefault(name, {})
        if not isinstance(part, dict) or not all(type(key) is str for key in part):
            raise Undecodable(f"its {name} are malformed")
    if not all(isinstance(seen, dict) for seen in checkpoint["versions_seen"].values()):
        raise Undecodable("its versions_seen are malformed")
    if not all(isinstance(version, str | int | float) for version in checkpoint["channel_versions"].values()):
        raise Undecodable("its channel_versions are malformed")
    if not all(type(key) is str for key in (*checkpoint, *metadata)):
        raise Undecodable("its keys are no texts")
    if checkpoint.get("id") != point.id:
        raise Undecodable("it names itself by another id")


def _created(ts: object) -> int | None:
    """LangGraph's time of a checkpoint, in microseconds."""
    with suppress(ValueError, OverflowError):
        if isinstance(ts, str):
            moment = datetime.fromisoformat(ts)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return max(0, int(moment.timestamp() * 1_000_000))
    return None
