"""Every point at which a process can die between two writes, found without a hook in the code that writes.

    with storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")):
        db = clew.open("agent.db")
        …

calls the one before, and the other after, each call that may change the database: `commit`, `apply`, `claim`,
`complete`, `acquire`, … An agent that is killed at the n-th, for n = 1, 2, 3 … until it comes to its end, has been
killed everywhere that matters: between two of those calls nothing that lasts happens.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clew.storage.items_postgres import PostgresItems
from clew.storage.items_sqlite import SqliteItems
from clew.storage.ledger_relational import RelationalLedger
from clew.storage.placed import Placed
from clew.storage.postgres import PostgresStorage
from clew.storage.sqlite_storage import SqliteStorage

PORTS: tuple[type, ...] = (SqliteStorage, PostgresStorage, RelationalLedger, SqliteItems, PostgresItems, Placed)
WRITES = {
    *("commit", "apply", "acquire", "release", "fold", "forget", "rewrite", "forget_blobs", "delete_thread"),
    *("create_branch", "move_branch", "delete_branch", "set_tag", "delete_tag"),
    *("claim", "complete", "ask", "answer", "expire", "signal", "wait", "next_notice", "told", "not_told"),
    *("claim_runs", "claim_run", "admit", "look", "transact"),
    *("put", "delete", "touch", "embed", "sweep", "shrink"),
    *("place", "record", "leave"),
}
"""Calls of the ports that may write."""
READS = {
    *("snapshot", "check_lease", "run", "run_with_key", "run_holding", "runs", "due", "abandoned", "effects"),
    *("counts", "wanted", "to_take_in", "is_due"),
    *("asked", "request", "requests", "answers", "get", "page", "places", "updated", "embedded", "to_embed"),
    *("with_words", "keeping", "close", "of_runs"),
}
"""All other ones."""

Tell = Callable[[str], object]


@contextmanager
def storage_calls(before: Tell, after: Tell) -> Iterator[None]:
    """While it lasts, tell the name of each writing call of any database before it, and after it has returned."""
    inside = threading.local()
    restore: list[tuple[type, str, Any]] = []
    for port in PORTS:
        for name in WRITES:
            plain = getattr(port, name, None)
            if plain is None:
                continue
            restore.append((port, name, port.__dict__.get(name)))
            setattr(port, name, _telling(name, plain, before, after, inside))
    try:
        yield
    finally:
        for port, name, own in reversed(restore):
            if own is None:
                delattr(port, name)
            else:
                setattr(port, name, own)


def _telling(name: str, plain: Callable[..., Any], before: Tell, after: Tell, inside: Any) -> Callable[..., Any]:
    @functools.wraps(plain)
    def told(*arguments: Any, **more: Any) -> Any:
        if getattr(inside, "call", False):
            return plain(*arguments, **more)
        before(name)
        inside.call = True
        try:
            done = plain(*arguments, **more)
        finally:
            inside.call = False
        after(name)
        return done

    return told
