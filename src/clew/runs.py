"""Runs, as people hold them: one execution of an agent on a branch of a thread."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from clew import references
from clew.errors import BadInput, Busy, Conflict, RunNotFound
from clew.model import Checkpoint, Page, from_microseconds
from clew.reading import find_row
from clew.state.codec import decode, encode
from clew.state.draft import Draft
from clew.state.values import ExceptionSummary
from clew.storage.ledger import ENDED, HOLDING, Entry, Ledger, Move, RunRow, RunStatus, Want, ledger_of
from clew.storage.placed import ROOT, PlacedView
from clew.storage.queue import Rename
from clew.thread import Thread
from clew.writing import Memory

STATUSES: tuple[RunStatus, ...] = (*HOLDING, "queued", *ENDED)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as it stood when it was read: `run.info`.

    `input_step` is the checkpoint of its input, `step` the one at which its status changed last; `parent` is the run
    that it went on from, at `parent_step`. `attempts` counts how often it was taken up, `crashes` how often whoever
    drove it was gone. `wanted` is what somebody wants of whoever drives it ("cancel"), `due_at` when a run that waits
    or sleeps goes on (None: not before something comes).
    """

    id: str
    agent: str
    thread_id: str
    branch: str
    status: RunStatus
    key: str | None
    input_step: int | None
    step: int | None
    parent: str | None
    parent_step: int | None
    attempts: int
    crashes: int
    wanted: str | None
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None
    error: ExceptionSummary | None

    def as_json(self) -> dict[str, Any]:
        """It as plain JSON, with times in ISO 8601."""
        told = {name: getattr(self, name) for name in self.__slots__}
        told["thread"] = told.pop("thread_id")
        for name in ("created_at", "updated_at", "due_at"):
            told[name] = None if told[name] is None else told[name].isoformat()
        told["error"] = None if self.error is None else asdict(self.error)
        return told


class Run:
    """One execution of an agent: what `agent.run` returns and `db.runs()` lists.

    `status`, `error`, `requests` and `state` are read when you ask for them; `info` is what was read last.
    """

    def __init__(self, db: Any, row: RunRow) -> None:
        self._db = db
        self._row = row

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.agent} on {self._row.thread_id} {self._row.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._row.agent

    @property
    def key(self) -> str | None:
        return self._row.key

    @property
    def created_at(self) -> datetime:
        return from_microseconds(self._row.created)

    @property
    def info(self) -> RunInfo:
        """All that is known of it, as it stood when it was last read: listed, run, or asked for its `status`."""
        row = self._row
        return RunInfo(
            row.id,
            row.agent,
            row.thread_id,
            row.branch,
            row.status,
            row.key,
            row.input_step,
            row.step,
            row.parent,
            row.parent_step,
            row.attempts,
            row.crashes,
            row.wanted,
            from_microseconds(row.created),
            from_microseconds(row.updated),
            None if row.wake is None else from_microseconds(row.wake),
            _error(row),
        )

    @property
    def thread(self) -> Thread:
        """A handle on the branch that it runs on."""
        thread: Thread = self._db.thread(self._row.thread_id, branch=self._row.branch)
        return thread

    @property
    def status(self) -> RunStatus:
        """running, waiting, sleeping, paused, queued, done, failed, cancelled or dead."""
        return self._read().status

    @property
    def step(self) -> int | None:
        """The checkpoint that it stands on."""
        row = self._read()
        head = self.thread.head
        if head is not None and head.run == row.id and head.step > (row.step or 0):
            return head.step  # the row is written when the run changes its status, not at each step
        return row.step

    @property
    def state(self) -> dict[str, Any]:
        """The state where it stands."""
        step = self.step
        return self.thread.state("head" if step is None else step)

    @property
    def error(self) -> ExceptionSummary | None:
        """What a failed run failed of."""
        return _error(self._read())

    @property
    def requests(self) -> list[Any]:
        """Its open requests."""
        return list(self._db.requests(run=self.id))

    def edit(self, update: Mapping[str, Any], *, label: str | None = None) -> Checkpoint:
        """Change the state under a run that waits. It is due then: nodes that had not finished run on the new state.

        What finished is kept. A question that comes out the same stays open; one that changes is withdrawn and asked
        anew, when the run is resumed.
        """
        row = self._read()
        own = self._own(row)
        Thread._check_state(update)
        with own.lease(wait=0):
            row = self._read()
            if row.status not in (*HOLDING, "failed") or row.status == "running":
                raise Conflict(
                    f"run {row.id} is {row.status}; only one that waits, sleeps, is paused or has failed can be edited"
                )
            _, own._memory.base = own._load_head()
            base = own._memory.base
            with own._storage.snapshot() as snapshot:
                thread, head = find_row(snapshot, own.id, own.branch, "head")
                if PlacedView(snapshot).ids(thread, ROOT, [head.step]):
                    raise BadInput(
                        f"run {row.id} is of a graph, which keeps its own state",
                        hint="graph.update_state(config, values) changes it; agent.resume(thread) goes on from there",
                    )
                at = row.step if row.step is not None else head.step
                packed = find_row(snapshot, own.id, own.branch, at)[1].next
            draft = Draft(base.tree)
            draft.tell_state(dict(update))
            moved = Move(row.id, row.status, (row.status,), delay=0)
            return own._commit(draft, base, "edit", label, None, None, run=row.id, next=packed, changes=[moved])

    def cancel(self, *, compensate: bool = False) -> None:
        """Cancel it: at once if nobody drives it, else whoever does stops at its next call of Clew.

        The rounds that it had finished are kept. What nodes of the round under way have returned is taken in by whoever
        has the agent's code: who drives it, or `agent.cancel`.

        With `compensate`, word is left that what it has done is to be undone: the agent's code does that, when a worker
        or `agent.resume` takes the run up. (`agent.cancel` does it there and then.)
        """
        row = self._read()
        if row.status in ENDED and not (compensate and row.status == "failed"):
            raise Conflict(f"run {row.id} is {row.status} already")
        own = self._own(row)
        compensate = compensate and row.status != "queued"
        entries: list[Entry] = [Want(row.id, "compensate")] if compensate else [Move(row.id, "cancelled")]
        if row.status == "failed":
            entries.insert(0, Move(row.id, "paused", ("failed",)))
        try:
            with own.lease(wait=0) as lease:
                self._ledger.apply(row.thread_id, entries, lease=lease)
        except Busy:
            self._ledger.apply(row.thread_id, [Want(row.id, "compensate" if compensate else "cancel")])

    def retry(self) -> None:
        """Let it go on after it has failed: it is due now, for a worker, and may fail as often again.

        Only the last run of its branch can be: what came after it would not expect it. `agent.resume(thread)` does it
        here and now.
        """
        self._again("failed")

    def revive(self) -> None:
        """Let it go on although it is dead: its process died again and again, and what killed it is mended."""
        self._again("dead")

    def _again(self, was: RunStatus) -> None:
        row = self._read()
        if row.status != was:
            raise Conflict(
                f"run {row.id} is {row.status}, not {was}",
                hint="a failed one can be retried, a dead one revived; clew.Agent.resume goes on with any other",
            )
        if (last := self._last_here(row)) != row.id:
            raise Conflict(f"run {row.id} is over: {last} has come after it on this branch", hint="retry that one")
        self._ledger.apply(row.thread_id, [Move(row.id, "sleeping", (was,), delay=0)])

    def _last_here(self, row: RunRow) -> str | None:
        """The last run of its branch that has begun."""
        after = None
        while rows := self._ledger.runs(thread_id=row.thread_id, after=after):
            for one in rows:
                if one.branch == row.branch and (one.input is None or one.id == row.id):
                    return one.id
            after = rows[-1].id
        return None

    def move(self, *, agent: str | None = None, nodes: Mapping[str, str] | None = None) -> None:
        """Hand it to another agent, or let it go on at other nodes: `nodes` maps those that it stands before to others.

        For a run whose agent or node a deploy has renamed or taken away. A paused one is due then. One that is driven
        cannot be moved, nor can one that is over.
        """
        row = self._read()
        own = self._own(row)
        with own.lease(wait=0) as lease:
            row = self._read()
            if row.status in ENDED or row.status == "running":
                raise Conflict(f"run {row.id} is {row.status}; only one that stands still can be moved")
            entries: list[Entry] = [] if agent is None else [Rename(row.id, references.check_thread_id(agent))]
            if row.status == "paused":
                entries.append(Move(row.id, "sleeping", ("paused",), delay=0))
            if nodes:
                _, own._memory.base = own._load_head()
                base = own._memory.base
                with own._storage.snapshot() as snapshot:
                    at = row.step if row.step is not None else base.step
                    packed = None if at is None else find_row(snapshot, own.id, own.branch, at)[1].next
                following = renamed(packed, nodes, row.id)
                label = ", ".join(f"{old} → {new}" for old, new in nodes.items())[:100]
                draft = Draft(base.tree)
                draft.tell_state({})
                own._commit(draft, base, "edit", label, None, None, run=row.id, next=following, changes=entries)
            elif entries:
                self._ledger.apply(row.thread_id, entries, lease=lease)

    @property
    def _ledger(self) -> Ledger:
        return ledger_of(self._db._storage)

    def _read(self) -> RunRow:
        row = self._ledger.run(self.id)
        if row is None:
            raise RunNotFound(f"run {self.id!r} is gone, with its thread")
        self._row = row
        return row

    def _own(self, row: RunRow) -> Thread:
        own: Thread = self._db._thread_with_memory(row.thread_id, row.branch, Memory())
        return own


def renamed(packed: bytes | None, nodes: Mapping[str, str], run: str) -> bytes:
    """A stored plan of what runs next, with other names."""
    plan = None if packed is None else decode(packed)
    if type(plan) is not dict:
        raise Conflict(f"run {run} stands before no nodes of an agent", hint="move(agent=…) gives it to another one")
    before = {task[0] for task in plan["tasks"]} | {name for seen in plan.get("arrived", {}).values() for name in seen}
    if unknown := set(nodes) - before - set(plan.get("arrived", {})):
        raise BadInput(
            f"run {run} does not stand before {min(unknown)!r}", hint=f"but before {', '.join(sorted(before))}"
        )

    def name(old: str) -> str:
        node, sent, number = old.partition("#")
        return nodes.get(node, node) + sent + number

    plan["tasks"] = [[name(task[0]), *task[1:]] for task in plan["tasks"]]
    if "arrived" in plan:
        plan["arrived"] = {name(join): [name(one) for one in seen] for join, seen in plan["arrived"].items()}
    if "done" in plan:
        plan["done"] = [name(one) for one in plan["done"]]
    return encode(plan, path="next")


def new_run_id() -> str:
    return f"run-{os.urandom(8).hex()}"


def _error(row: RunRow) -> ExceptionSummary | None:
    found: ExceptionSummary | None = None if row.error is None else decode(row.error)
    return found


def list_runs(
    db: Any,
    ledger: Ledger,
    *,
    thread: str | Thread | None,
    status: RunStatus | None,
    agent: str | None,
    limit: int,
    cursor: str | None,
) -> Page[Run]:
    """A page of runs, the newest first."""
    if status not in (*STATUSES, None):
        raise BadInput(f"status is one of {', '.join(STATUSES)}, or None for all, not {status!r:.60}")
    limit = references.check_count(limit, "limit", 1)
    thread_id = thread.id if isinstance(thread, Thread) else thread
    if thread_id is not None:
        references.check_thread_id(thread_id)
    after = _read_cursor(ledger, cursor)
    found: list[RunRow] = []
    while len(found) <= limit:
        rows = ledger.runs(thread_id=thread_id, status=status, after=after, limit=limit + 1)
        found += [row for row in rows if agent is None or row.agent == agent]
        if len(rows) <= limit:
            break
        after = rows[-1].id
    return Page([Run(db, row) for row in found[:limit]], _cursor(found[limit - 1]) if len(found) > limit else None)


def _cursor(row: RunRow) -> str:
    return base64.urlsafe_b64encode(json.dumps(["runs", row.id]).encode()).decode()


def _read_cursor(ledger: Ledger, cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        kind, run = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"this cursor is not one of ours: {cursor!r:.40}", hint="use page.cursor as it is") from error
    if kind != "runs" or not isinstance(run, str) or not run.isprintable():
        raise BadInput(f"this cursor is not one of runs: {cursor!r:.40}", hint="use page.cursor as it is")
    if ledger.run(run) is None:
        raise BadInput("the run at which this page ended is gone, with its thread", hint="begin again without cursor=")
    return run
