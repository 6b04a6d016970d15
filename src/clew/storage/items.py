"""Cross-thread items: the port, and all of it that SQLite and PostgreSQL share.

Promises, which the tests hold against each backend:

1. `put` is atomic: all of the given items, or none. An item that is put again keeps its time of creation.
2. An item that has expired is not there, for any method, from that moment on; its row goes later.
3. Reading goes in pages. Each page is one snapshot, and nothing is held between two of them.
4. A method touches what lies in the range of places that it is given, of this tenant, and nothing else. (Only the few
   rows that a `put` sweeps away may have been anywhere in the tenant: they had expired.)
5. The words that find an item are given with it: equal on every backend. Fewer different words come first.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar, cast

from clew.storage.port import Storage
from clew.storage.queue import Beside
from clew.storage.relational import Relational, Run

T = TypeVar("T")
SWEPT_BY_A_PUT = 8
"""How many expired rows a put removes besides: more than it can add."""
NOWHERE = (b"", "")
_NEVER = 1 << 62
EVERYWHERE = b"\xff"
UNSEARCHED = b"\xc2"
"""What stands in `fields` of an item that is not to be searched: the codec's False."""


class Range(NamedTuple):
    """Places from `low` up to and not including `high`."""

    low: bytes
    high: bytes


class NewItem(NamedTuple):
    """An item to be put. `ttl` is in microseconds; `words` are without doubles."""

    place: bytes
    key: str
    value: bytes
    crc: int
    ttl: int | None
    words: Sequence[str]
    fields: bytes | None
    embedding: str | None
    vectors: bytes | None


class ItemRow(NamedTuple):
    """An item as stored. `words` is the number of different ones; times are microseconds since 1970."""

    place: bytes
    key: str
    value: bytes
    crc: int
    created: int
    updated: int
    expires: int | None
    words: int


class Embedded(NamedTuple):
    """An item with its vectors, and what made them (None: nothing did)."""

    row: ItemRow
    embedding: str | None
    vectors: bytes | None


class ToEmbed(NamedTuple):
    """An item that another embedding made the vectors of, or none; `fields` says what of it is searched."""

    row: ItemRow
    fields: bytes | None


class Pending:
    """Writes that wait for somebody's commit. Whoever reads through this sees them, and nobody else does."""

    def __init__(self, storage: Storage, check: Callable[[], None]) -> None:
        self._storage = cast("Relational", storage)
        self._check = check
        self._acts: list[Callable[[Run], Any]] = []
        self._lock = threading.RLock()

    def write(self, act: Callable[[Run], T]) -> T:
        """What it would come to; it is done for good by `entries`."""
        with self._lock:
            self._check()
            with self._tried() as run:
                done = act(run)
            self._acts.append(act)
        return done

    @contextmanager
    def reading(self) -> Iterator[Run]:
        with self._lock:
            if self._acts:
                with self._tried() as run:
                    yield run
                return
        with self._storage._reading() as run:
            yield run

    @contextmanager
    def _tried(self) -> Iterator[Run]:
        """In a transaction that does all of it, and is undone."""
        with suppress(_Undone), self._storage._writing(None) as run:
            for act in self._acts:
                act(run)
            yield run
            raise _Undone

    def entries(self) -> list[Beside]:
        """What does all of it, in the transaction of a commit."""
        with self._lock:
            acts = [*self._acts]

        def act(connection: Any) -> None:
            run = self._storage._run(connection)  # type: ignore[attr-defined]
            for each in acts:
                each(run)

        return [Beside(act)] if acts else []


class _Undone(Exception):
    """It was only tried."""


class Items(ABC):
    """The items of one tenant. `after` is the place and key of the last row that was read, or `NOWHERE`."""

    def __init__(self, storage: Relational) -> None:
        self._storage = storage

    pending: Pending | None = None
    """Where what is written waits for a commit, if it is not to be one of its own."""

    def _write(self, act: Callable[[Run], T]) -> T:
        if self.pending is not None:
            return self.pending.write(act)
        with self._storage._writing(None) as run:
            return act(run)

    def _reading(self) -> AbstractContextManager[Run]:
        return self._storage._reading() if self.pending is None else self.pending.reading()

    # What the dialects do differently.

    @abstractmethod
    def _store(self, run: Run, item: NewItem, values: dict[str, Any]) -> None:
        """Write one row, given the values of all its columns, and make its words findable."""

    @abstractmethod
    def _forget_text(self, run: Run, rows: Iterable[int]) -> None:
        """These rows are gone: their words find nothing more."""

    @abstractmethod
    def _find(self, run: Run, words: Sequence[str], values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of a range that have all of the words."""

    # Writing.

    def put(self, items: Iterable[NewItem], delete: Iterable[tuple[bytes, str]] = ()) -> None:
        """Write items, each in place of the one that has its place and key; and remove others in the same commit."""
        # In one order, so that two of these never wait for each other.
        changes: dict[tuple[bytes, str], NewItem | None] = dict.fromkeys(delete)
        changes.update(((item.place, item.key), item) for item in items)

        def act(run: Run) -> None:
            for (place, key), item in sorted(changes.items(), key=lambda change: change[0]):
                if item is None:
                    self._delete(run, place, key)
                else:
                    self._store(run, item, item._asdict() | {"words": len(item.words), "stamp": _stamp()})
            self._sweep(run, Range(b"", EVERYWHERE), SWEPT_BY_A_PUT)

        self._write(act)

    def delete(self, place: bytes, key: str) -> bool:
        """Remove an item; whether there was one."""
        return self._write(lambda run: self._delete(run, place, key))

    def _delete(self, run: Run, place: bytes, key: str) -> bool:
        gone = run("delete_item", place=place, key=key, stamp=_stamp())
        self._forget_text(run, [row[0] for row in gone])
        return bool(gone) and bool(gone[0][1])

    def touch(self, items: Iterable[tuple[bytes, str]]) -> None:
        """Let those of the items that have a time to live begin it again."""
        places = sorted(items)

        def act(run: Run) -> None:
            for place, key in places:
                run("touch_item", place=place, key=key, stamp=_stamp())

        self._write(act)

    def embed(self, found: ToEmbed, embedding: str, vectors: bytes | None) -> bool:
        """Give an item other vectors, unless it has been changed meanwhile."""
        row = found.row
        values = {"place": row.place, "key": row.key, "crc": row.crc, "updated": row.updated}
        return self._write(lambda run: bool(run("embed_item", **values, embedding=embedding, vectors=vectors)))

    def sweep(self, within: Range, limit: int) -> int:
        """Remove up to `limit` rows of expired items, the longest expired first; returns how many went."""
        return self._write(lambda run: self._sweep(run, within, limit))

    def _sweep(self, run: Run, within: Range, limit: int) -> int:
        gone = run("sweep_items", low=within.low, high=within.high, limit=limit, stamp=_stamp())
        self._forget_text(run, [row[0] for row in gone])
        return len(gone)

    # Reading.

    def get(self, place: bytes, key: str) -> ItemRow | None:
        with self._reading() as run:
            found = run("get_item", place=place, key=key, stamp=_stamp())
        return ItemRow._make(found[0]) if found else None

    def page(self, within: Range, after: tuple[bytes, str], limit: int) -> list[ItemRow]:
        """Items by place and key."""
        with self._reading() as run:
            return [ItemRow._make(row) for row in run("items", **_range(within, after), limit=limit)]

    def updated(self, within: Range, after: tuple[int, bytes, str] | None, limit: int) -> list[ItemRow]:
        """Items, the last written first; then by place and key."""
        updated, place, key = after or (_NEVER, b"", "")
        values = {"low": within.low, "high": within.high, "updated": updated, "place": place, "key": key}
        with self._reading() as run:
            return [ItemRow._make(row) for row in run("items_updated", **values, limit=limit, stamp=_stamp())]

    def embedded(self, within: Range, after: tuple[bytes, str], limit: int) -> list[Embedded]:
        """Items that are to be searched, by place and key, with their vectors."""
        with self._reading() as run:
            found = run("items_embedded", **_range(within, after), limit=limit, unsearched=UNSEARCHED)
        return [Embedded(ItemRow._make(row[:8]), row[8], row[9]) for row in found]

    def to_embed(self, within: Range, after: tuple[bytes, str], limit: int, embedding: str) -> list[ToEmbed]:
        """Items that are to be searched, but have no vectors of this embedding; by place and key."""
        values = {"limit": limit, "unsearched": UNSEARCHED, "embedding": embedding}
        with self._reading() as run:
            return [
                ToEmbed(ItemRow._make(row[:8]), row[8])
                for row in run("items_to_embed", **_range(within, after), **values)
            ]

    def with_words(
        self, within: Range, words: Sequence[str], after: tuple[int, bytes, str], limit: int
    ) -> list[ItemRow]:
        """Items that have all of the words; by how many words they have, place and key."""
        count, place, key = after
        values = {"low": within.low, "high": within.high, "words": count, "place": place, "key": key, "limit": limit}
        with self._reading() as run:
            return [ItemRow._make(row) for row in self._find(run, words, values | {"stamp": _stamp()})]

    def places(self, within: Range, after: bytes, limit: int) -> list[bytes]:
        """The different places that hold items, in order, from the first one beyond `after`."""
        with self._reading() as run:
            values = {"low": within.low, "high": within.high, "after": after, "limit": limit}
            return [row[0] for row in run("item_places", **values, stamp=_stamp())]


def items_of(storage: Storage, pending: Pending | None = None) -> Items:
    """The items beside a tenant's threads. With `pending`, what is written waits for a commit of somebody's."""
    items = _items_of(storage)
    items.pending = pending
    return items


def _items_of(storage: Storage) -> Items:
    from clew.storage.sqlite_storage import SqliteStorage

    if isinstance(storage, SqliteStorage):
        from clew.storage.items_sqlite import SqliteItems

        return SqliteItems(storage)
    from clew.storage.items_postgres import PostgresItems

    return PostgresItems(cast("Relational", storage))


def _range(within: Range, after: tuple[bytes, str]) -> dict[str, Any]:
    place, key = max(after, (within.low, ""))  # a key is never empty: nothing at `low` is left out
    return {"place": place, "key": key, "high": within.high, "stamp": _stamp()}


def _stamp() -> int:
    """The clock that items expire by on SQLite. PostgreSQL does not look at it: there the server's counts."""
    return time.time_ns() // 1000
