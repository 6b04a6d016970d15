"""Cross-thread memory: values under namespaces and keys, which outlive any thread. `db.store(user="42")` gives one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from zlib import crc32

from clew.errors import BadInput, Corrupt, TooLarge
from clew.items_search import (
    Embedding,
    Search,
    by_words,
    in_order,
    last_written_first,
    namespaces_in_order,
    nearest_first,
)
from clew.model import Page, from_microseconds
from clew.state.codec import decode, encode
from clew.state.match import compile_filter
from clew.state.namespace import Namespace, beyond, check_segment, decode_namespace, encode_namespace, encode_scope
from clew.state.words import MAX_TEXT, texts, words
from clew.storage.items import UNSEARCHED, ItemRow, Items, NewItem, Range

Index = None | Literal[False] | Sequence[str]
ItemOrder = Literal["key", "updated"]
Filter = Mapping[str, Any] | Callable[[dict[str, Any]], bool]
Texts = Callable[[dict[str, Any], list[str] | None], list[str] | None]

MAX_VALUE_BYTES = 16 * 1024 * 1024
_LONGEST_TTL = 100 * 366 * 86_400.0
_EMBEDDED_AT_ONCE = 64
_STEP = 64


@dataclass(frozen=True, slots=True)
class Item:
    """A value that was put. `score` says how well it fits the query, at most 1.0; it is None when there was none."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """One entry of `put_many`: what `put` takes."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    ttl: float | None = None
    index: Index = None


class Store:
    """The items of one scope. The scope is part of the handle: it cannot name, find or count what is in another.

    >>> import clew
    >>> prefs = clew.open("memory:").store(user="42")
    >>> prefs.put(("preferences",), "theme", {"value": "dark"})
    >>> prefs.get(("preferences",), "theme").value
    {'value': 'dark'}
    """

    def __init__(
        self,
        items: Items,
        tenant: str,
        scope: Mapping[str, Any],
        *,
        embed: Any = None,
        dims: int | None = None,
        texts: Texts | None = None,
    ) -> None:
        self._items = items
        self._scope = encode_scope(scope)
        self._shown = ", ".join(f"{name}={scope[name]!r}" for name in sorted(scope))
        self._seal = crc32(tenant.encode())
        self._embedding = Embedding.of(embed, dims)
        self._own_texts = texts

    def __repr__(self) -> str:
        return f"Store({self._shown})"

    # -- one item

    def put(
        self, namespace: Namespace, key: str, value: dict[str, Any], *, ttl: float | None = None, index: Index = None
    ) -> None:
        """Keep a value, in place of the one that has this namespace and key.

        After `ttl` seconds the item is gone. `index` says what `query=` looks at: all strings in the value (None), none
        (False), or those at some fields (`["title", "author.name"]`).
        """
        self.put_many([(namespace, key, value, ttl, index)])

    def put_many(self, entries: Iterable[tuple[Any, ...]], *, delete: Iterable[tuple[Namespace, str]] = ()) -> None:
        """Put several items, all or none. An entry is (namespace, key, value), and maybe ttl and index, as of `put`.

        Of two entries with the same namespace and key the later one counts. The items named by `delete` are removed in
        the same commit, unless an entry puts them.
        """
        latest: dict[tuple[bytes, str], tuple[NewItem, list[str]]] = {}
        for entry in entries:
            try:
                put = Put(*entry)
            except TypeError as error:
                raise BadInput(f"an entry is (namespace, key, value, ttl, index), not {entry!r:.60}") from error
            item, searched = self._new_item(put)
            latest[item.place, item.key] = item, searched
        gone = [(encode_namespace(place, self._scope), check_segment(key, "key")) for place, key in delete]
        if not latest and not gone:
            return
        new = list(latest.values())
        if self._embedding is None or not new:
            self._items.put([item for item, _ in new], gone)
            return
        # Outside of any transaction: this may take seconds.
        embedded = self._embedding.of_texts([searched for _, searched in new])
        self._items.put(
            [
                item if item.fields == UNSEARCHED else item._replace(embedding=self._embedding.label, vectors=vectors)
                for (item, _), vectors in zip(new, embedded, strict=True)
            ],
            gone,
        )

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool = False) -> Item | None:
        """The item, or None. With `refresh_ttl` its time to live begins anew."""
        place = encode_namespace(namespace, self._scope)
        check_segment(key, "key")
        row = self._items.get(place, key)
        if refresh_ttl and row is not None and row.expires is not None:
            self._items.touch([(place, key)])
            row = self._items.get(place, key)
        return None if row is None else self._item(row)

    def touch(self, names: Iterable[tuple[Namespace, str]]) -> None:
        """Let the time to live of items, given by namespace and key, begin anew. Those without one are left alone."""
        places = [(encode_namespace(place, self._scope), check_segment(key, "key")) for place, key in names]
        if places:
            self._items.touch(places)

    def delete(self, namespace: Namespace, key: str) -> bool:
        """Remove an item. Whether there was one."""
        return self._items.delete(encode_namespace(namespace, self._scope), check_segment(key, "key"))

    # -- many

    def search(
        self,
        namespace: Namespace = (),
        *,
        query: str | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word that people guess
        order: ItemOrder = "key",
        limit: int = 10,
        cursor: str | None = None,
        refresh_ttl: bool = False,
    ) -> Page[Item]:
        """Items whose namespace begins with these segments; `()` is everything in the scope.

        `filter` compares fields of the values: `{"kind": "book", "price": {"$lt": 20}}`; a function of the value says
        itself whether it fits. `query` finds items that have all of its words, the shortest texts first; in a store
        with `embed` it ranks all items by how near they are in meaning. Without it they come by namespace and key, or
        with `order="updated"` the last written first. The page's `cursor` fetches the next one of the same search.
        """
        low = encode_namespace(namespace, self._scope)
        search = Search(
            self._items,
            self._scope,
            Range(low, beyond(low)),
            filter if filter is None or callable(filter) else compile_filter(filter),
            _count("limit", limit),
            self._value,
        )
        terms = [low.hex(), _told(filter), query]
        if order not in ("key", "updated"):
            raise BadInput(f'order is "key" or "updated", not {order!r:.60}')
        if query is None:
            page = (in_order if order == "key" else last_written_first)(search, terms, cursor)
        elif not isinstance(query, str):
            raise BadInput(f"query is a str, not {query!r:.60}")
        elif self._embedding is None:
            page = by_words(search, terms, cursor, query)
        else:
            page = nearest_first(search, terms, cursor, query, self._embedding)
        dying = [(found.row.place, found.row.key) for found in page if found.row.expires is not None]
        if refresh_ttl and dying:
            self._items.touch(dying)
        return Page([self._item(found.row, found.score, found.value) for found in page], page.cursor)

    def namespaces(
        self,
        prefix: Namespace = (),
        suffix: Namespace = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Namespace]:
        """The namespaces that hold items, in order. `max_depth` cuts them off after so many segments.

        >>> import clew
        >>> store = clew.open("memory:").store()
        >>> store.put_many([(("a", "x"), "1", {}), (("a", "y"), "1", {}), (("b",), "1", {})])
        >>> list(store.namespaces(max_depth=1))
        [('a',), ('b',)]
        """
        _count("limit", limit)
        if max_depth is not None:
            _count("max_depth", max_depth)
        low = encode_namespace(prefix, self._scope)
        encode_namespace(suffix)
        within = Range(low, beyond(low))
        return namespaces_in_order(self._items, self._scope, within, tuple(suffix), max_depth, limit, cursor)

    # -- upkeep

    def sweep(self, *, limit: int = 1000) -> int:
        """Remove up to `limit` items of this scope that have expired; returns how many went.

        Nothing shows them any more, and each `put` removes a few: this gives the space back at once.
        """
        return self._items.sweep(Range(self._scope, beyond(self._scope)), min(_count("limit", limit), 1 << 31))

    def reindex(self, namespace: Namespace = ()) -> int:
        """Embed the items that this store's `embed` has not embedded yet; returns how many. Can be repeated."""
        embedding = self._embedding
        if embedding is None:
            raise BadInput("this store has no embed function", hint="db.store(…, embed=function)")
        embedding.settle()
        low = encode_namespace(namespace, self._scope)
        after, count = (low, ""), 0
        while found := self._items.to_embed(Range(low, beyond(low)), after, _EMBEDDED_AT_ONCE, embedding.label):
            searched = [self._texts(self._value(entry.row), _fields(entry.fields)) for entry in found]
            for entry, vectors in zip(found, embedding.of_texts(searched), strict=True):
                count += self._items.embed(entry, embedding.label, vectors)
            after = found[-1].row.place, found[-1].row.key
        return count

    # -- within

    def _new_item(self, put: Put) -> tuple[NewItem, list[str]]:
        place = encode_namespace(put.namespace, self._scope)
        key = check_segment(put.key, "key")
        fields = _check_index(put.index)
        data = _encode_value(put.value)
        searched = [] if put.index is False else self._texts(put.value, put.index)
        found = words("\n".join(searched))
        ttl = None if put.ttl is None else _microseconds(put.ttl)
        return NewItem(place, key, data, self._crc(place, key, data), ttl, found, fields, None, None), searched

    def _texts(self, value: dict[str, Any], fields: Sequence[str] | None) -> list[str]:
        found = None if self._own_texts is None else self._own_texts(value, None if fields is None else list(fields))
        if found is None:
            return texts(value, fields)
        return [text[:MAX_TEXT] for text in found if text and not text.isspace()]

    def _crc(self, place: bytes, key: str, value: bytes) -> int:
        return crc32(value, crc32(b"%d:%b:%b\0" % (len(place), place, key.encode()), self._seal))

    def _value(self, row: ItemRow) -> dict[str, Any]:
        if self._crc(row.place, row.key, row.value) != row.crc:
            raise Corrupt(f"the item {row.key!r} in {decode_namespace(row.place, self._scope)!r} is damaged")
        value = decode(row.value)
        if type(value) is not dict:
            raise Corrupt(f"the item {row.key!r} in {decode_namespace(row.place, self._scope)!r} holds no dict")
        return value

    def _item(self, row: ItemRow, score: float | None = None, value: dict[str, Any] | None = None) -> Item:
        return Item(
            decode_namespace(row.place, self._scope),
            row.key,
            self._value(row) if value is None else value,
            from_microseconds(row.created),
            from_microseconds(row.updated),
            None if row.expires is None else from_microseconds(row.expires),
            score,
        )


def _told(filter: Filter | None) -> str | None:  # noqa: A002
    """What a cursor knows of a filter: of a function no more than that there is one."""
    return "function" if callable(filter) else None if filter is None else encode(dict(filter)).hex()


def _encode_value(value: object) -> bytes:
    if type(value) is not dict:
        raise BadInput(f"an item's value is a dict, not {type(value).__name__}", hint='for example {"value": …}')
    for key in value:
        if type(key) is not str:
            raise BadInput(
                f"a value's keys are str; {key!r:.60} is {type(key).__name__}", hint="nested dicts may have others"
            )
    data = encode(value)
    if len(data) > MAX_VALUE_BYTES:
        raise _too_large(value, len(data))
    return data


def _too_large(value: object, size: int) -> TooLarge:
    """Name the innermost part that is too large by itself."""
    path = ""
    while True:
        for step, part in _parts(value):
            if len(encode(part)) > MAX_VALUE_BYTES:
                path += step
                value = part
                break
        else:
            break
    path = path.removeprefix(".")
    return TooLarge(
        f"{path or 'the value'} makes this item {size:,} bytes large; an item has at most {MAX_VALUE_BYTES:,}",
        path=path,
        hint="keep it in a thread's state, or in several items",
    )


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if type(value) is dict:
        yield from ((f".{key}" if str(key).isidentifier() else f"[{key!r}]", part) for key, part in value.items())
    elif type(value) is list or type(value) is tuple:
        yield from ((f"[{at}]", part) for at, part in enumerate(value))


def _check_index(index: Any) -> bytes | None:
    if index is None:
        return None
    if index is False:
        return UNSEARCHED
    if (
        isinstance(index, str)
        or not isinstance(index, list | tuple)
        or not all(isinstance(field, str) for field in index)
    ):
        raise BadInput(f"index is None, False or a list of fields, not {index!r:.60}")
    return encode([str(field) for field in index])


def _fields(stored: bytes | None) -> list[str] | None:
    fields: list[str] | None = None if stored is None else decode(stored)
    return fields


def _microseconds(ttl: object) -> int:
    if (
        isinstance(ttl, bool)
        or not isinstance(ttl, int | float)
        or not (math.isfinite(ttl) and 0 < ttl <= _LONGEST_TTL)
    ):
        raise BadInput(
            f"ttl is a number of seconds greater than 0, not {ttl!r:.60}", hint="None keeps the item for good"
        )
    return max(1, round(ttl * 1_000_000))


def _count(name: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"{name} is a count from 1, not {given!r:.60}")
    return given
