"""One tenant's rows in SQLite, and the path that every save takes. The invariants stand in sqlite.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from clew.errors import Corrupt, NameTaken
from clew.model import KINDS
from clew.storage.changes import Change
from clew.storage.ledger import Entry
from clew.storage.ledger_entries import Writer
from clew.storage.ownership import Identity, clock
from clew.storage.port import STEP_BITS, Commit, Committed, Lease
from clew.storage.refusals import busy, conflict, fenced, no_ref, no_step, no_thread
from clew.storage.relational import Relational, Run
from clew.storage.snapshots import STEPS
from clew.storage.sqlite_claiming import SqliteClaims
from clew.storage.sqlite_file import translate
from clew.storage.statements import queries

if TYPE_CHECKING:
    from clew.storage.sqlite import SqliteEngine

Execute = Callable[..., Any]

_KINDS = {kind: number for number, kind in enumerate(KINDS)}
_QUERIES = queries("sqlite")
_TIMED = frozenset(name for name, text in _QUERIES.items() if ":now" in text)
_LISTS = frozenset(("steps", "keys", "lanes", "digests", "blobs", "places", "runs", "numbers"))

# The statements of a commit, with positional parameters: this is the path that every save takes.
# Two lookups, because one join of both tables was measured to take five times as long as the two.
# A commit writes three pages and no more: the checkpoint's, the payload's and the branch's. So the last step is read
# off the newest checkpoint (`thread.step` counts only when pruning has taken that), and the thread's place in the order
# of changes is mended only when another thread has overtaken it.
_FIND = """SELECT t.thread, t.step, t.lane, t.updated, r.kind, r.step, r.lane, r.unfolded, r.epoch, r.owner,
    (SELECT max(updated) FROM thread WHERE tenant = ?1),
    (SELECT key & 4294967295 FROM checkpoint WHERE key > t.thread << 32 AND key < (t.thread + 1) << 32
     ORDER BY key DESC LIMIT 1)
FROM thread t LEFT JOIN ref r ON r.thread = t.thread AND r.name = ?3 WHERE t.tenant = ?1 AND t.id = ?2"""
_REPLAYED = (
    "SELECT key & 4294967295, lane FROM checkpoint WHERE key > ? AND key <= ? AND id = ? ORDER BY key DESC LIMIT 1"
)
_KEYED = "SELECT key & 4294967295, lane FROM checkpoint WHERE key >> 32 = ? AND save_key = ?"
_THREAD = "INSERT INTO thread (tenant, id, created, updated) VALUES (?, ?, ?, ?) RETURNING thread"
_CHECKPOINT = "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PAYLOAD = "INSERT INTO payload VALUES (?, ?, ?, ?)"
_MOVE = "UPDATE ref SET step = ?, lane = ?, unfolded = ? WHERE thread = ? AND name = ?"
_LEAVE = "UPDATE ref SET step = ?, lane = ?, unfolded = ?, owner = NULL WHERE thread = ? AND name = ?"
_OPEN_LANE = "UPDATE thread SET lane = ? WHERE thread = ?"
_OVERTAKE = "UPDATE thread SET updated = ? WHERE thread = ?"


_NEWEST = "SELECT max(updated) FROM thread WHERE tenant = ?"


class SqliteStorage(Relational):
    """The rows of one tenant."""

    _engine: SqliteEngine
    boot_clock = True
    embedded = True

    def __init__(self, engine: SqliteEngine, tenant: int) -> None:
        self._engine = engine
        self._tenant = tenant
        self.durability = engine.durability
        self.fold_after = 32

    def _run(self, execute: Execute) -> Run:
        tenant, engine = self._tenant, self._engine

        def run(query: str, /, **values: Any) -> list[tuple[Any, ...]]:
            values["tenant"] = tenant
            if query in _TIMED:
                values["now"] = clock()
                values["boot"] = engine.identity.boot
            for name in _LISTS.intersection(values):
                values[name] = json.dumps(values[name])
            found: list[tuple[Any, ...]] = execute(_QUERIES[query], values).fetchall()
            return found

        return run

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._engine.reader() as execute:
            yield self._run(execute)

    @contextmanager
    def _writing(self, thread_id: str | None) -> Iterator[Run]:  # noqa: ARG002 - the one lock covers every thread
        with self._engine.transaction() as execute:
            yield self._run(execute)

    @contextmanager
    def _leasing(self, thread_id: str | None) -> Iterator[Run]:  # noqa: ARG002
        with self._engine.transaction(leasing=True) as execute:
            yield self._run(execute)

    def _keep_last_step(self, run: Run, thread: int) -> None:
        run("keep_last_step", thread=thread)

    def _identity(self) -> Identity:
        return self._engine.identity

    def _owner_row(self, run: Run) -> int:
        return self._engine.owner_row(self._tenant, run)

    def _my_owner(self) -> int | None:
        return self._engine.owners.get(self._tenant)

    @property
    def _claims(self) -> SqliteClaims:
        return SqliteClaims(self)

    def _space(self, run: Run) -> tuple[int, int]:
        pages, free, size = run("space")[0]
        return pages * size, free * size

    def commit(self, commit: Commit) -> Committed:
        """Write one step: checks and rows in one transaction. See the port."""
        with self._engine.lock:
            done = self._commit(commit)
        if commit.release and commit.epoch is not None:
            self._engine.hold(self._tenant, Lease(commit.thread_id, commit.branch, commit.epoch), held=False)
        return done

    def _commit(self, commit: Commit) -> Committed:
        # A function of its own: in Python 3.11 the line of a `try` inside a `with` is not yet guarded by the `with`.
        engine = self._engine
        connection = engine.writer or engine.open_writer()
        if connection.in_transaction:
            engine.refuse_nesting(connection)
        try:
            engine.execute("BEGIN IMMEDIATE")
            done = self._write(commit, connection, engine.execute)
            engine.execute("COMMIT")
        except BaseException as error:
            engine.undo(connection)
            if isinstance(error, apsw.Error):
                raise translate(error, engine.path) from error
            raise
        return done

    def _write(self, commit: Commit, connection: apsw.Connection, execute: Execute) -> Committed:
        # Unpacked once: attributes of a tuple with names cost more than local names, and this path is hot.
        (thread_id, branch, id_, base, lane, kind, label, run, next_, created, metadata, manifest, crc, payload, blobs,
         key, epoch, release, others) = commit  # fmt: skip
        tenant = self._tenant
        (thread, kept, last_lane, updated, what, head, ref_lane, unfolded, ref_epoch, owner, newest, last) = execute(
            _FIND, (tenant, thread_id, branch)
        ).get or self._start_thread(commit)
        low = thread << STEP_BITS
        last = max(last or 0, kept)
        if last != (base or 0) or key is not None:
            replayed = self._replayed(commit, thread)
            if replayed is not None:
                return replayed
        if what != "branch" or (kind == "fork" and base is not None):
            head = self._start_branch(commit, thread, what)
            ref_lane, unfolded, ref_epoch, owner = 0, 0, 0, None
        if owner is not None or epoch is not None:
            self._check_owner(commit, thread, owner, ref_epoch)
        if head != base or (lane and lane != ref_lane):
            raise conflict(branch, thread_id, base, head)
        before = connection.total_changes()
        changes = 2
        if not lane:
            lane = last_lane + 1
            unfolded = 0
            execute(_OPEN_LANE, (lane, thread))
            changes += 1
        if updated < newest:
            execute(_OVERTAKE, (max(created, newest + 1), thread))
            changes += 1
        step = last + 1
        row = low | step
        execute(
            _CHECKPOINT,
            (row, tenant, id_, base, lane, _KINDS[kind], label, run, next_, created, metadata, crc, key, manifest),
        )
        if payload is not None:
            execute(_PAYLOAD, (row, tenant, lane, payload))
            unfolded += 1
            changes += 1
        execute(_LEAVE if release else _MOVE, (step, lane, unfolded, thread, branch))
        if connection.total_changes() - before != changes:
            raise Corrupt(f"thread {thread_id!r}: a commit changed other rows than its own")
        if blobs:
            self._use_blobs(self._run(execute), thread, blobs)
        if others:
            self._change(thread, thread_id, step, epoch, others)
        return Committed(thread, step, lane, unfolded, False)

    def _start_thread(self, commit: Commit) -> tuple[Any, ...]:
        if commit.base is not None:
            raise no_thread(commit.thread_id)
        values = (self._tenant, commit.thread_id, commit.created, commit.created)
        thread = self._engine.execute(_THREAD, values).get
        newest = self._engine.execute(_NEWEST, (self._tenant,)).get
        return thread, 0, 0, commit.created, None, None, 0, 0, 0, None, newest, None

    def _start_branch(self, commit: Commit, thread: int, found: str | None) -> int | None:
        """Make the branch's row: empty, or of a fork at its base. Returns its head."""
        base = commit.base if commit.kind == "fork" else None
        if commit.base is not None and base is None:
            raise no_ref(commit.branch, commit.thread_id)
        if found is not None:
            what = {"branch": "a branch", "tag": "a tag"}.get(found, "a name that a rewind left")
            raise NameTaken(f"{commit.branch!r} is {what} in thread {commit.thread_id!r}")
        run = self._run(self._engine.execute)
        if base is not None and not run("row_exists", key=thread << STEP_BITS | base):
            raise no_step(base, commit.thread_id)
        run("create_ref", thread=thread, name=commit.branch, kind="branch", step=base)
        return base

    def _replayed(self, commit: Commit, thread: int) -> Committed | None:
        """What an earlier commit with this id or save key has written."""
        execute = self._engine.execute
        first = thread << STEP_BITS
        found = execute(_REPLAYED, (first | (commit.base or 0), first | STEPS, commit.id)).get
        if found is None and commit.key is not None:
            found = execute(_KEYED, (thread, commit.key)).get
        return None if found is None else Committed(thread, found[0], found[1], 0, replayed=True)

    def _check_owner(self, commit: Commit, thread: int, owner: int | None, at: int) -> None:
        if owner is not None and at == commit.epoch and owner == self._engine.owners.get(self._tenant):
            return  # our own lease: nobody has to be looked up
        run = self._run(self._engine.execute)
        live = None
        if owner is not None:
            columns = run("ref", thread=thread, name=commit.branch)[0][4:]
            live = self._live(columns, Lease(commit.thread_id, commit.branch, at))
        if commit.epoch is not None:
            raise fenced(commit.branch, commit.thread_id, live)
        if live is not None:
            raise busy(commit.branch, commit.thread_id, live)
        run("clear_ref", thread=thread, name=commit.branch)

    def _change(
        self, thread: int, thread_id: str, step: int | None, epoch: int | None, changes: Sequence[Change | Entry]
    ) -> list[Any]:
        run = self._run(self._engine.execute)
        writer = Writer(run, self._tenant, thread, thread_id, step, epoch, self._engine.execute)
        answers: list[Any] = []
        for change in changes:
            if isinstance(change, Change):
                found = run(change.name, thread=thread, step=step, **change.values)
                answers.append(found[0][0] if found else None)
            else:
                writer.write(change)
                answers.append(None)
        return answers

    def apply(
        self, thread_id: str, changes: Sequence[Change | Entry], *, branch: str = "main", epoch: int | None = None
    ) -> list[Any]:
        with self._writing(thread_id) as run:
            found = run("thread", thread_id=thread_id)
            if not found:
                found = run("create_thread", thread_id=thread_id, created=time.time_ns() // 1000)
                run("create_ref", thread=found[0][0], name=branch, kind="branch", step=None)
            thread = found[0][0]
            if epoch is not None:
                ref = run("ref", thread=thread, name=branch)
                if not ref or ref[0][3] != epoch or ref[0][4] is None or ref[0][4] != self._my_owner():
                    raise fenced(branch, thread_id, self._live(ref[0][4:], None) if ref else None)
            return self._change(thread, thread_id, None, epoch, changes)

    def shrink(self, limit: int) -> int:
        engine = self._engine
        with engine.transaction() as execute:
            run = self._run(execute)
            _, free, size = run("space")[0]
            if free == 0 or limit < size:
                return 0
            execute(f"PRAGMA incremental_vacuum({limit // size})").fetchall()
            freed: int = free - run("space")[0][1]
        with engine.lock:
            try:
                engine.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # the file itself gets shorter here
            except apsw.Error as error:
                raise translate(error, engine.path) from error
        return freed * int(size)

    def close(self) -> None:
        self._engine.close()
