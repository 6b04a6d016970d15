"""What every backend says when it refuses."""

from __future__ import annotations

from collections.abc import Iterable

from clew.errors import Busy, Conflict, Fenced, RefNotFound, ThreadNotFound
from clew.storage.ownership import OwnerRow


def busy(branch: str, thread_id: str, owner: OwnerRow) -> Busy:
    """Somebody else works on this branch."""
    return Busy(f"branch {branch!r} of thread {thread_id!r} is held by {owner}", owner=str(owner))


def fenced(branch: str, thread_id: str, owner: OwnerRow | None = None) -> Fenced:
    """The caller's lease has passed on."""
    holder = f" to {owner}" if owner else ""
    message = f"the lease on branch {branch!r} of thread {thread_id!r} has passed on{holder}; nothing was written"
    return Fenced(message, owner=str(owner) if owner else None)


def conflict(branch: str, thread_id: str, base: int | None, head: int | None) -> Conflict:
    """The head is not where the caller saw it. `.base` and `.head` are steps; the layer above makes checkpoints."""
    seen, now = ("empty" if step is None else f"at step {step}" for step in (base, head))
    message = f"branch {branch!r} of thread {thread_id!r} is {now}, but this change was made when it was {seen}"
    return Conflict(message, base=base, head=head)


def no_thread(thread_id: str) -> ThreadNotFound:
    return ThreadNotFound(f"there is no thread {thread_id!r}")


def no_ref(name: str, thread_id: str, names: Iterable[str] = ()) -> RefNotFound:
    """`names` are those that exist; the near ones are offered."""
    from difflib import get_close_matches

    near = tuple(get_close_matches(name, list(names), n=3))
    return RefNotFound(f"thread {thread_id!r} has no branch or tag {name!r}", candidates=near)


def no_step(step: int, thread_id: str) -> RefNotFound:
    return RefNotFound(f"thread {thread_id!r} has no step {step}")
