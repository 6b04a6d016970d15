"""THREAD@REF: from what people type to a thread and a reference, and to what they may have meant."""

from __future__ import annotations

import difflib
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

import clew
from clew.cli.settings import open_database
from clew.errors import BadName, BadReference, ClewError, RefNotFound, ThreadNotFound

_MOST_NAMES = 1000  # looked at for what a mistyped id may have meant


class Place(NamedTuple):
    """A thread, and the reference that stood behind the @ (None: there was none)."""

    thread: clew.Thread
    ref: str | None

    @property
    def checkpoint(self) -> clew.Checkpoint:
        return self.thread.checkpoint("head" if self.ref is None else self.ref)


def find_place(db: clew.Database, text: str, *, branch: str = "main") -> Place:
    """Read THREAD or THREAD@REF.

    Ids may contain an @ themselves: a thread whose id is the whole text is meant, unless the parts before and after the
    last @ name a checkpoint too.
    """
    thread_id, at, ref = text.rpartition("@")
    if not at:
        return Place(_known_thread(db, text, branch), None)
    whole = _thread_or_none(db, text, branch)
    if whole is None:
        if not thread_id:
            raise BadReference(f"{text!r} names no thread before the @", hint="write THREAD@REF, for example trip-7@3")
        return Place(_known_thread(db, thread_id, branch), ref)
    if _names_checkpoint(db, thread_id, ref):
        raise BadReference(
            f"{text!r} is a thread's id, and also a checkpoint of thread {thread_id!r}",
            hint=f"write {text + '@head'!r} for the thread, or the step's number for the checkpoint",
        )
    return Place(whole, None)


def _thread_or_none(db: clew.Database, thread_id: str, branch: str) -> clew.Thread | None:
    try:
        thread = db.thread(thread_id, branch=branch)
        branches = thread.branches
    except (ThreadNotFound, BadName):
        return None
    if branch not in branches:
        near = difflib.get_close_matches(branch, branches, n=3, cutoff=0.5)
        raise RefNotFound(f"thread {thread_id!r} has no branch {branch!r}", candidates=tuple(near))
    return thread


def _names_checkpoint(db: clew.Database, thread_id: str, ref: str) -> bool:
    try:
        db.thread(thread_id).checkpoint(ref)
    except ClewError:
        return False
    return True


def is_thread(db: clew.Database, thread_id: str) -> bool:
    """Whether there is a thread of this id."""
    try:
        return bool(db.thread(thread_id).branches)
    except (ThreadNotFound, BadName):
        return False


def _known_thread(db: clew.Database, thread_id: str, branch: str) -> clew.Thread:
    db.thread(thread_id)  # raises when this cannot be an id
    thread = _thread_or_none(db, thread_id, branch)
    if thread is not None:
        return thread
    known = [info.id for info in db.threads(limit=_MOST_NAMES)]
    near = [name for name in known if name.startswith(thread_id)][:3]
    near = near or difflib.get_close_matches(thread_id, known, n=3, cutoff=0.5)
    message = f"there is no thread {thread_id!r} for tenant {db.tenant_name!r}"
    if not known:
        raise ThreadNotFound(message, hint="there is none at all; is this the right database and tenant?")
    if near:
        raise ThreadNotFound(message, hint=f"did you mean {' or '.join(map(repr, near))}?")
    raise ThreadNotFound(message)


def complete_place(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Thread ids; behind an @, the thread's branches and tags."""
    thread_id, at, _ = incomplete.rpartition("@")
    try:
        with ctx.scope(cleanup=False), open_database() as db:
            if at:
                thread = db.thread(thread_id)
                names = [f"{thread_id}@{name}" for name in (*thread.branches, *thread.tags)]
            else:
                names = [info.id for info in db.threads(limit=_MOST_NAMES)]
    except ClewError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
