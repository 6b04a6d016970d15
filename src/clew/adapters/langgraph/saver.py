"""`ClewSaver`: LangGraph's checkpoints in Clew's threads. One class, to be called or awaited.

What LangGraph calls a checkpoint becomes a checkpoint of the thread: its channels' values are the state that `clew
show` and `clew diff` read; versions and other things that only the graph needs are control data (`control.py`).
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import clew
from clew.adapters.langgraph import control, types
from clew.adapters.langgraph.taken import Taken
from clew.adapters.langgraph.within import Tasks
from clew.errors import BadInput, Conflict
from clew.hop import Hop
from clew.placed import TOOK, Begun, Found, Items, Place, PlacedThreads, Recording, Trail, Write
from clew.placed.under import Under

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        PendingWrite,
        get_checkpoint_metadata,
    )
except ImportError as error:
    raise BadInput("ClewSaver needs the package langgraph", hint='pip install "clew[langgraph]"') from error

Key = str | int | float
OnRace = Literal["report", "raise"]
_PAGE = 200
_HEADS = 4096
"""Checkpoints remembered as having been the latest when they were handed out."""


class _Writing(NamedTuple):
    """Writes of a task on their way."""

    place: Place
    run: object
    rows: Sequence[Write]
    recording: Recording


class RaceWarning(UserWarning):
    """Two runs have grown one checkpoint of a thread. Both histories are kept."""


class ClewSaver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that keeps its checkpoints in a Clew database.

        graph = builder.compile(checkpointer=ClewSaver(clew.open("agent.db")))

    When two runs grow the same checkpoint of a thread, both histories are kept. `on_race="report"` warns of it
    (`RaceWarning`); with `on_race="raise"` the later one gets a `Conflict` and writes nothing.
    """

    def __init__(self, db: clew.Database, *, on_race: OnRace = "report") -> None:
        super().__init__()
        if on_race not in ("report", "raise"):
            raise BadInput(f"on_race is 'report' or 'raise', not {on_race!r}")
        if not isinstance(db, clew.Database):
            raise BadInput(f"ClewSaver needs a database, not {db!r:.80}", hint='ClewSaver(clew.open("agent.db"))')
        types.register()
        self._db = db
        self._threads = PlacedThreads(db, control.versions)
        self._hop = Hop()
        self._on_race = on_race
        self._heads: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._tasks = Tasks()
        self._under: Under | None = None
        self._taken = Taken()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        tenant: str = "default",
        durability: Literal["strict", "relaxed"] = "strict",
        on_race: OnRace = "report",
    ) -> Self:
        """A saver on a database of its own: `with ClewSaver.open("agent.db") as saver: …`."""
        return cls(clew.open(url, tenant=tenant, durability=durability), on_race=on_race)

    def __repr__(self) -> str:
        return f"ClewSaver({self._db!r})"

    @property
    def db(self) -> clew.Database:
        """The database that the checkpoints are in."""
        return self._db

    def held_by(self, under: Under) -> Self:
        """The same saver for one run: what it writes on its thread is refused once the run's lease has passed on."""
        saver = copy(self)
        saver._under = under
        return saver

    def _under_on(self, thread_id: str) -> Under | None:
        return self._under if self._under is not None and self._under.lease.thread_id == thread_id else None

    def close(self) -> None:
        """Close the database."""
        self._db.close()
        self._hop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def setup(self) -> None:
        """Nothing to do: a database is set up when it is opened. For code that calls it on other savers."""

    # -- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = _place(config)
        found = self._threads.get(place)
        if found is None:
            return None
        self._taken.found(Place(place.thread_id, place.ns, found.id), _run(config), found.writes)
        head = (place.thread_id, place.ns, found.id)
        if place.id is None:
            self._heads[head] = None
            while len(self._heads) > _HEADS:
                self._heads.popitem(last=False)
        else:
            self._heads.pop(head, None)  # asked for by its id: what grows from it is a fork, not a race
        return _tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first. Nothing is held between two of them."""
        pages = _Pages(self._threads, config, filter, before, limit)
        while (page := pages.next()) is not None:
            yield from page

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        trails = self._threads.trail(_place(config), list(channels))
        return {name: _history(trails[name]) for name in channels}

    # -- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - the checkpoint's versions and the parent's tell the same
    ) -> RunnableConfig:
        return self._finish(self._begin(config, checkpoint, metadata, here=True))

    def _begin(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, *, here: bool
    ) -> Begun:
        thread_id, ns, parent = _place(config)
        told: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
        # A fork stands where it was told to; whatever else stands on what was the latest takes it for that still.
        known = parent is not None and (thread_id, ns, parent) in self._heads
        expected = parent if known and told.get("source") != "fork" else None
        new = control.take_apart(checkpoint, told)._replace(expected=expected, refuse=self._on_race == "raise")
        if new.leans and (took := self._taken.by(Place(thread_id, ns, parent), _run(config))) is not None:
            new.control[TOOK] = took
        place, under = Place(thread_id, ns, checkpoint["id"]), self._under_on(thread_id)
        self._taken.placed(place, _run(config))
        return self._threads.begin(place, parent, new, here=here, under=under)

    def _finish(self, begun: Begun) -> RunnableConfig:
        (thread_id, ns, id_), parent, expected = begun.place, begun.parent, begun.new.expected
        try:
            raced = self._threads.finish(begun)
        except Conflict as conflict:
            if expected is None:
                raise
            raise Conflict(_race(thread_id, ns, parent, conflict.head), head=conflict.head, hint=_RACE_HINT) from None
        if raced is not None:
            warnings.warn(f"{_race(thread_id, ns, parent, raced)}; both are kept", RaceWarning, stacklevel=3)
        if expected is not None or parent is None or begun.new.kind == "fork":
            self._heads[thread_id, ns, str(id_)] = None
            while len(self._heads) > _HEADS:
                self._heads.popitem(last=False)
        return _config(thread_id, ns, str(id_))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._record(self._encoded(config, writes, task_id, task_path))

    def _encoded(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> _Writing:
        place = _place(config)
        if place.id is None:
            raise BadInput("put_writes needs the checkpoint_id of the checkpoint that the writes belong to")
        rows = [
            Write(task_id, WRITES_IDX_MAP.get(channel, index), task_path, channel, types.storable(channel, value))
            for index, (channel, value) in enumerate(writes)
        ]
        named = dict(writes)
        answered, under = control.answered(task_id, named), self._under_on(place.thread_id)
        asks = [self._tasks.with_terms(one) for one in control.asked(named)]
        others = self._tasks.ended(place.thread_id, task_id) if control.has_ended(named) else ()
        recording = self._threads.encoded(place, rows, asks, answered, under, others)
        return _Writing(place, _run(config), rows, recording)

    def _record(self, writing: _Writing) -> None:
        stands = self._threads.record(writing.recording)
        self._taken.wrote(writing.place, writing.run, zip(writing.rows, stands, strict=True))

    def get_next_version(self, current: Key | None, channel: None = None) -> Key:  # noqa: ARG002
        return control.next_version(current)

    # -- removing and copying

    def delete_thread(self, thread_id: str) -> None:
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs. Those that a `DeltaChannel` of a later one still needs stay."""
        self._threads.remove_runs([str(run_id) for run_id in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints but the latest of each namespace ("keep_latest"), or all ("delete").

        What a `DeltaChannel` of a kept one needs stays.
        """
        if strategy not in ("keep_latest", "delete"):
            raise BadInput(f"strategy is 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                self._threads.delete(str(thread_id))
            else:
                self._threads.keep_latest(str(thread_id))

    # -- types

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Let the types of a graph's schema be read back. Classes are found among what is imported already."""
        types.allow(extra_allowlist)
        return self

    # -- awaited

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._hop(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        pages = _Pages(self._threads, config, filter, before, limit)
        while (page := await self._hop(pages.next)) is not None:
            for found in page:
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002
    ) -> RunnableConfig:
        # Encoded here, not on the other thread: LangGraph goes on changing some of its values in place.
        return await self._hop(self._finish, self._begin(config, checkpoint, metadata, here=False))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._hop(self._record, self._encoded(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._hop(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._hop(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._hop(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._hop(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._hop(self.get_delta_channel_history, config=config, channels=channels)


_RACE_HINT = "let one run of a thread end before the next begins, or give each its own thread"


def _race(thread_id: str, ns: str, parent: str | None, latest: object) -> str:
    where = f"thread {thread_id!r}" + (f", namespace {ns!r}" if ns else "")
    return f"another run has grown {where}: this run stands on checkpoint {parent}, the latest is {latest}"


def _place(config: RunnableConfig) -> Place:
    told = config.get("configurable") or {}
    if "thread_id" not in told:
        raise BadInput("the config names no thread", hint='{"configurable": {"thread_id": "trip-7"}}')
    return Place(str(told["thread_id"]), told.get("checkpoint_ns") or "", told.get("checkpoint_id") or None)


def _run(config: RunnableConfig) -> object:
    """What tells a run's calls from another one's: LangGraph hands each the dict that was made for the run."""
    return config.get("metadata")


def _config(thread_id: str, ns: str, id_: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id_}}


def _tuple(found: Found) -> CheckpointTuple:
    return CheckpointTuple(
        _config(found.thread_id, found.ns, found.id),
        control.put_together(found),
        found.metadata,  # type: ignore[arg-type]
        None if found.parent is None else _config(found.thread_id, found.ns, found.parent),
        [(write.task, write.name, write.value) for write in found.writes],
    )


def _history(trail: Trail) -> DeltaChannelHistory:
    writes: list[PendingWrite] = [(write.task, write.name, write.value) for write in trail.writes]
    return {"writes": writes, "seed": trail.value} if trail.found else {"writes": writes}


class _Pages:
    """A listing under way: each page is one read."""

    def __init__(
        self,
        threads: PlacedThreads,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._threads = threads
        self._wanted = wanted
        self._left = limit
        told = (config or {}).get("configurable") or {}
        self._ns: str | None = told.get("checkpoint_ns")
        self._id: str | None = told.get("checkpoint_id") or None
        self._before = _place(before).id if before is not None else None
        named = told.get("thread_id")
        self._ids: Iterator[str] = threads.thread_ids() if named is None else iter((str(named),))
        self._thread_id = next(self._ids, None)
        self._after: tuple[str, str] | None = None
        self._items = Items()

    def next(self) -> list[CheckpointTuple] | None:
        """The next page, possibly empty; None at the end."""
        if self._thread_id is None or (self._left is not None and self._left <= 0):
            return None
        limit = _PAGE if self._left is None else min(_PAGE, self._left)
        found, self._after = self._threads.page(
            self._thread_id,
            self._ns,
            id=self._id,
            before=self._before,
            after=self._after,
            limit=limit,
            items=self._items,
            fits=self._fits if self._wanted else None,
        )
        if self._after is None:
            self._thread_id = next(self._ids, None)
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
        return [_tuple(one) for one in found]

    def _fits(self, metadata: dict[str, Any]) -> bool:
        return all(metadata.get(key) == value for key, value in (self._wanted or {}).items())
