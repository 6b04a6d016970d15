"""A thread: the history of one conversation, through a handle on one of its branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clew import references
from clew.errors import Conflict, ThreadNotFound
from clew.model import Checkpoint
from clew.reading import find_row
from clew.state.diff import Diff, diff
from clew.state.draft import Draft
from clew.state.layout import EMPTY
from clew.state.shadow import same
from clew.storage.port import Lease
from clew.writing import EMPTY_BASE, Ref, Writing, check_text


class Thread(Writing):
    """A handle on one branch of a thread. Get it from `db.thread("trip-7")`; making one costs nothing.

    >>> import clew
    >>> db = clew.open("memory:")
    >>> thread = db.thread("trip-7")
    >>> thread.save({"city": "Tokyo"}, label="plan").step
    1
    >>> thread.state()
    {'city': 'Tokyo'}
    """

    def __repr__(self) -> str:
        return f"Thread({self._id!r}, branch={self._branch!r})"

    @property
    def id(self) -> str:
        return self._id

    @property
    def branch(self) -> str:
        """The branch that this handle reads and writes."""
        return self._branch

    # -- reading

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the branch points at, or None while nothing has been saved."""
        return self._head()

    def state(self, ref: Ref = "head") -> dict[str, Any]:
        """The state at a checkpoint: fresh containers, yours to change. A branch that is still empty gives `{}`.

        Reading the head makes it the base of this handle's next `save`.
        """
        if ref == "head":
            return self._read_head()
        return self._source.at(ref)

    def checkpoint(self, ref: Ref = "head") -> Checkpoint:
        """The checkpoint that a reference names: a step, `head`, `~n`, a branch, a tag, or the beginning of an id."""
        return self._checkpoint_at(ref)

    def history(self, *, limit: int | None = None, before: Ref | None = None) -> list[Checkpoint]:
        """The checkpoints on the way from the head to the root, newest first, without their states.

        `before` starts after the checkpoint that it names: the last one of a page fetches the next.
        """
        if limit is not None:
            limit = references.check_count(limit, "limit", 0)
        with self._storage.snapshot() as snapshot:
            if before is None:
                head = snapshot.head(self._id, self._branch)
                if head is None or head.row is None:
                    return []
                thread, step = head.thread, head.row.step
            else:
                thread, row = find_row(snapshot, self._id, self._branch, before)
                if row.parent is None:
                    return []
                step = row.parent
            rows = snapshot.history(thread, step, 1 << 31 if limit is None else limit)
        return [self._checkpoint(row) for row in rows]

    def diff(self, a: Ref, b: Ref = "head") -> Diff:
        """What changed from the state at `a` to the state at `b`."""
        with self._storage.snapshot() as snapshot:
            states = []
            for ref in (a, b):
                thread, row = find_row(snapshot, self._id, self._branch, ref)
                states.append(self._source.reader(snapshot, thread, row, own=False).state())
        return diff(*states)

    @property
    def branches(self) -> dict[str, int | None]:
        """The thread's branches: name → step of the head."""
        return self._refs("branch")

    @property
    def tags(self) -> dict[str, int | None]:
        """The thread's tags: name → step."""
        return self._refs("tag")

    @property
    def tips(self) -> dict[str, int | None]:
        """Where branches were before they were rewound: automatic name → step. Pruning forgets them."""
        return self._refs("auto")

    # -- writing

    def save(
        self,
        state: dict[str, Any],
        *,
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Ref | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        """Write the state as the branch's next checkpoint. Only what has changed is stored.

        The new checkpoint stands on `parent`, or on what this handle last got from `state()`, `save()` or `edit()`. If
        the branch's head is another one by now, nothing is written and `Conflict` carries both. So it is after
        `update()`, whose result this handle has not read. The same `key` gives the same checkpoint: a save that is
        repeated with it writes nothing.
        """
        self._check_state(state)
        base = self._base(parent, loaded=True)
        for attempt in (1, 2):
            draft = Draft(base.tree)
            draft.put_state(state)
            try:
                return self._commit(draft, base, "step", label, metadata, key, of=id(state))
            except Conflict as conflict:
                # The head is the base, but its lane has been closed (rewound and back): read the tree again.
                if attempt == 2 or conflict.head is None or conflict.base != conflict.head:
                    raise
                base = self._load(conflict.head.step)
        raise AssertionError("unreachable")

    def update(
        self,
        changes: Mapping[str, Any],
        *,
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Ref | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        """Change some keys of the head's state, whatever it is, and write the result as one checkpoint.

        `clew.extend([...])` as a value appends to the list under that key; any other value replaces it. The cost is
        that of the change: the rest of the state is neither read nor compared. With `parent`, the head must still be
        that.

        >>> import clew
        >>> thread = clew.open("memory:").thread("t")
        >>> _ = thread.update({"messages": clew.extend(["hello"])})
        >>> _ = thread.update({"messages": clew.extend(["again"]), "city": "Osaka"})
        >>> thread.state()
        {'messages': ['hello', 'again'], 'city': 'Osaka'}
        """
        self._check_state(changes)
        return self._tell(dict(changes), "step", label, metadata, parent, key)

    @contextmanager
    def edit(self, label: str | None = None, *, wait: float = 10.0) -> Iterator[dict[str, Any]]:
        """Take the branch's lease, change the head's state in place, and leave one checkpoint.

        Nothing is saved when the block raises, or when nothing has changed. While somebody else holds the lease this
        waits up to `wait` seconds for it, then raises `Busy`. A block that writes to the branch by other means than
        saving the state that it was given ends with a `Conflict`.
        """
        check_text(label, "label")
        mine = self._memory.lease is None
        lease = self._acquire(wait) if mine else self._memory.lease
        self._memory.lease = lease
        saved = False
        try:
            state = self._read_head()
            before = self._memory.base
            yield state
            self._check_state(state)
            base = self._base(None, loaded=True)
            if not same(base.tree.root, state):
                self._refuse_written(before, state)
                draft = Draft(base.tree)
                draft.put_state(state)
                self._commit(draft, base, "step", label, None, None, release=mine, of=id(state))
                saved = True
        finally:
            if mine:
                self._memory.lease = None
                if not saved and lease is not None:
                    self._storage.release(lease)

    @contextmanager
    def lease(self, *, wait: float = 0.0) -> Iterator[Lease]:
        """Hold the right to write to this branch. Others get `Busy`; whoever takes over later fences this one off.

        The lease belongs to the thread of execution that took it and is kept alive while its process is.
        """
        if (held := self._memory.lease) is not None:
            yield held
            return
        lease = self._acquire(wait)
        self._memory.lease = lease
        try:
            yield lease
        finally:
            self._memory.lease = None
            self._storage.release(lease)

    # -- travel

    def fork(self, ref: Ref = "head", *, branch: str, update: Mapping[str, Any] | None = None) -> Thread:
        """A new branch that starts at a checkpoint: one row, whatever the state weighs.

        With `update`, its first checkpoint changes those keys; branch and checkpoint come in one commit.
        """
        references.check_name(branch)
        forked = Thread(self._storage, self._tenant, self._id, branch)
        forked._db = self._db
        if update is None:
            self._storage.create_branch(self._id, branch, self._checkpoint_at(ref).step)
            return forked
        self._check_state(update)
        base, plan = self._fork_at(ref)
        draft = Draft(base.tree)
        draft.tell_state(dict(update))
        forked._commit(draft, base, "fork", None, None, None, next=plan)
        return forked

    def copy(self, ref: Ref = "head", *, to: str) -> Thread:
        """The state at a checkpoint as the first one of another thread. Nothing is shared with it."""
        source = self.checkpoint(ref)
        target = Thread(self._storage, self._tenant, to)
        target._db = self._db
        draft = Draft(EMPTY)
        state = self._source.at(source)
        draft.put_state(state)
        metadata = {**source.metadata, "copied_from": f"{self._id}@{source.step}"}
        target._commit(draft, EMPTY_BASE, "fork", source.label, metadata, None, of=id(state))
        return target

    def rewind(self, ref: Ref) -> Checkpoint:
        """Point the branch at an earlier (or any) checkpoint.

        Nothing is erased: the tip that it leaves keeps its step, its id and an automatic name. A run that waits on the
        branch is cancelled, and what it has asked is withdrawn; while a run is driven there, this raises `Busy`.
        """
        with self._storage.snapshot() as snapshot:
            _, row = find_row(snapshot, self._id, self._branch, ref)
            head = snapshot.head(self._id, self._branch)
        tip = head.row.step if head is not None and head.row is not None else 0
        lease = self._memory.lease
        self._storage.move_branch(
            self._id, self._branch, row.step, old_tip=f"{self._branch}.was.{tip}", epoch=lease.epoch if lease else None
        )
        self._memory.base = None
        return self._checkpoint(row)

    def tag(self, name: str, ref: Ref = "head") -> Checkpoint:
        """Give a checkpoint a name that does not move."""
        references.check_name(name, "tag")
        checkpoint = self.checkpoint(ref)
        self._storage.set_tag(self._id, name, checkpoint.step)
        return checkpoint

    def delete_tag(self, name: str) -> None:
        """Forget a tag; the checkpoint stays."""
        self._storage.delete_tag(self._id, references.check_name(name, "tag"))

    def delete_branch(self, name: str) -> None:
        """Forget a branch; its checkpoints stay until they are pruned."""
        self._storage.delete_branch(self._id, references.check_name(name), epoch=None)

    def _refs(self, kind: str) -> dict[str, int | None]:
        with self._storage.snapshot() as snapshot:
            thread = snapshot.find_thread(self._id)
            if thread is None:
                raise ThreadNotFound(f"there is no thread {self._id!r}")
            return {ref.name: ref.step for ref in snapshot.refs(thread) if ref.kind == kind}
