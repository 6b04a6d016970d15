"""How items are found: by place, by words, by meaning; in pages that hold nothing between them.

A cursor names the kind of search, a digest of all that was asked, and the place in its order where the page ended. It
is only ever a place to go on from: the bounds of the search are those of the call, whatever a cursor says.
"""

from __future__ import annotations

import base64
import heapq
import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from clew.errors import BadInput, Corrupt
from clew.model import Page
from clew.state import vectors
from clew.state.namespace import Namespace, decode_namespace, encode_namespace
from clew.state.words import MAX_QUERY_WORDS, MAX_TEXT, words
from clew.storage.items import NOWHERE, ItemRow, Items, Range

PAGE = 64
"""How many rows are in memory at once while a search looks for those that fit."""

T = TypeVar("T")


class Found(NamedTuple):
    row: ItemRow
    value: dict[str, Any]
    score: float | None


class Search(NamedTuple):
    """Where to look, and for what. `value` decodes a row, and checks it."""

    items: Items
    scope: bytes
    within: Range
    fits: Callable[[dict[str, Any]], bool] | None
    limit: int
    value: Callable[[ItemRow], dict[str, Any]]

    def batch(self) -> int:
        """How many rows to read at a time: no more than can be needed, when nothing is filtered out."""
        return PAGE if self.fits else min(PAGE, self.limit + 1)

    def fitting(self, rows: Iterable[ItemRow], score: Callable[[ItemRow], float | None]) -> Iterator[Found]:
        for row in rows:
            value = self.value(row)
            if self.fits is None or self.fits(value):
                yield Found(row, value, score(row))


def in_order(search: Search, terms: list[Any], cursor: str | None) -> Page[Found]:
    """Items by namespace and key."""
    asked = Asked("items", search.scope, terms)
    start = asked.read(cursor, bytes, str) or NOWHERE
    rows = _paged(lambda after, limit: search.items.page(search.within, after, limit), _position, start, search.batch())
    found, more = _take(search.fitting(rows, lambda _row: None), search.limit)
    return Page(found, asked.cursor(*_position(found[-1].row)) if more else None)


def last_written_first(search: Search, terms: list[Any], cursor: str | None) -> Page[Found]:
    """Items by when they were put, the newest first."""
    asked = Asked("updated", search.scope, terms)
    start = asked.read(cursor, int, bytes, str)

    def position(row: ItemRow) -> tuple[int, bytes, str]:
        return row.updated, row.place, row.key

    def order(found: Found) -> tuple[int, bytes, str]:
        return -found.row.updated, found.row.place, found.row.key

    if search.fits is None:
        rows = _paged(
            lambda after, limit: search.items.updated(search.within, after, limit), position, start, search.batch()
        )
        found, more = _take(search.fitting(rows, lambda _row: None), search.limit)
    else:
        # Each page in this order sorts the whole range: one that looks for few among many reads it once instead.
        rows = _paged(
            lambda after, limit: search.items.page(search.within, after, limit), _position, NOWHERE, search.batch()
        )
        bound = None if start is None else (-start[0], start[1], start[2])
        behind = (row for row in rows if bound is None or (-row.updated, row.place, row.key) > bound)
        best = heapq.nsmallest(search.limit + 1, search.fitting(behind, lambda _row: None), key=order)
        found, more = best[: search.limit], len(best) > search.limit
    return Page(found, asked.cursor(*position(found[-1].row)) if more else None)


def by_words(search: Search, terms: list[Any], cursor: str | None, query: str) -> Page[Found]:
    """Items that have all words of the query, those with the fewest other words first.

    The score is the cosine of the angle between query and item as sets of words. A query without words finds nothing.
    """
    asked = Asked("words", search.scope, terms)
    start = asked.read(cursor, int, bytes, str) or (0, b"", "")
    wanted = words(query, MAX_QUERY_WORDS)
    if not wanted:
        return Page([])

    def position(row: ItemRow) -> tuple[int, bytes, str]:
        return row.words, row.place, row.key

    rows = _paged(
        lambda after, limit: search.items.with_words(search.within, wanted, after, limit),
        position,
        start,
        search.batch(),
    )

    def likeness(row: ItemRow) -> float:
        if row.words < len(wanted):
            raise Corrupt(f"item {row.key!r} has all of {len(wanted)} words, but is said to have {row.words}")
        return math.sqrt(len(wanted) / row.words)

    found, more = _take(search.fitting(rows, likeness), search.limit)
    return Page(found, asked.cursor(*position(found[-1].row)) if more else None)


def nearest_first(
    search: Search, terms: list[Any], cursor: str | None, query: str, embedding: Embedding
) -> Page[Found]:
    """Items by the cosine of the angle between their vectors and the query's, the nearest first."""
    asked = Asked("nearest", search.scope, terms)
    start = asked.read(cursor, float, bytes, str)
    wanted = embedding.of_query(query)
    bound = None if start is None else (-start[0], start[1], start[2])

    def ranked() -> Iterator[tuple[float, bytes, str, Found]]:
        rows = _paged(
            lambda after, limit: search.items.embedded(search.within, after, limit),
            lambda found: _position(found.row),
            NOWHERE,
            PAGE,
        )
        for row, label, packed in rows:
            embedding.check(label)
            score = vectors.nearest(packed, wanted) if packed else None
            if score is None or (bound is not None and (-score, row.place, row.key) <= bound):
                continue
            value = search.value(row)
            if search.fits is None or search.fits(value):
                yield -score, row.place, row.key, Found(row, value, score)

    best = [entry[3] for entry in heapq.nsmallest(search.limit + 1, ranked(), key=lambda entry: entry[:3])]
    found, more = best[: search.limit], len(best) > search.limit
    return Page(found, asked.cursor(found[-1].score, *_position(found[-1].row)) if more else None)


def namespaces_in_order(
    items: Items,
    scope: bytes,
    within: Range,
    suffix: Namespace,
    max_depth: int | None,
    limit: int,
    cursor: str | None,
) -> Page[Namespace]:
    """The different namespaces within a range that end with a suffix, cut off at a depth."""
    asked = Asked("namespaces", scope, [within.low.hex(), list(suffix), max_depth])
    start = asked.read(cursor, bytes)
    after = last = b"" if start is None else start[0]
    found: list[Namespace] = []
    batch = min(PAGE, limit + 1)
    while places := items.places(within, after, batch):
        for place in places:
            if place <= after:
                continue  # below a namespace that stands for all that is there
            after = place
            namespace = decode_namespace(place, scope)
            if suffix and namespace[-len(suffix) :] != suffix:
                continue
            if len(found) == limit:
                return Page(found, asked.cursor(last))
            if max_depth is not None and len(namespace) > max_depth:
                namespace = namespace[:max_depth]
            if max_depth is not None and len(namespace) == max_depth:
                after = encode_namespace(namespace, scope) + b"\xff"
            found.append(namespace)
            last = after
        if len(places) < batch:
            break
    return Page(found)


class Embedding:
    """A function that makes vectors of texts, and the name under which its vectors are kept."""

    def __init__(self, embed: Callable[[list[str]], Sequence[Sequence[float]]], dims: int | None) -> None:
        self._embed = embed
        self._dims = dims
        name = getattr(embed, "name", None) or getattr(embed, "__qualname__", None) or type(embed).__qualname__
        module = getattr(embed, "__module__", None) or type(embed).__module__
        self._name = f"{module}:{name}"

    @classmethod
    def of(cls, embed: Any, dims: Any) -> Embedding | None:
        if embed is None:
            if dims is not None:
                raise BadInput("dims= belongs to embed=", hint="db.store(…, embed=function, dims=384)")
            return None
        if not callable(embed):
            raise BadInput(f"embed is a function from a list of texts to their vectors, not {embed!r:.60}")
        if dims is not None and (isinstance(dims, bool) or not isinstance(dims, int) or dims < 1):
            raise BadInput(f"dims is the length of a vector, not {dims!r:.60}")
        return cls(embed, dims)

    @property
    def label(self) -> str:
        """What vectors of this function are known by. Known once the dimensions are."""
        return f"{self._name}/{self._dims}"

    def settle(self) -> None:
        """Find out how many dimensions there are."""
        if self._dims is None:
            self._vectors(["dimensions"])

    def of_query(self, query: str) -> array[float]:
        return self._vectors([query[:MAX_TEXT]])[0]

    def of_texts(self, texts: Sequence[Sequence[str]]) -> list[bytes | None]:
        """For each item the vectors of its texts, packed; None for an item without text. Asks for all at once."""
        self.settle()
        flat = [text for of_item in texts for text in of_item]
        made = iter(self._vectors(flat) if flat else [])
        return [vectors.pack([next(made) for _ in of_item]) if of_item else None for of_item in texts]

    def check(self, label: str | None) -> None:
        """Raise unless vectors of this label can be compared with ours."""
        if label != self.label:
            made = f"by {label}" if label else "by none"
            raise BadInput(
                f"some of these items were embedded {made}, but this store embeds by {self.label}",
                hint="store.reindex() embeds them anew",
            )

    def _vectors(self, texts: list[str]) -> list[array[float]]:
        made = list(self._embed(texts))
        if len(made) != len(texts):
            raise BadInput(f"embed returned {len(made)} vectors for {len(texts)} texts")
        directions = [vectors.direction(vector, self._dims) for vector in made[:1]]
        self._dims = len(directions[0])
        return directions + [vectors.direction(vector, self._dims) for vector in made[1:]]


def _position(row: ItemRow) -> tuple[bytes, str]:
    return row.place, row.key


def _paged(read: Callable[[Any, int], list[T]], position: Callable[[T], Any], after: Any, batch: int) -> Iterator[T]:
    """All rows of a listing, read a batch at a time."""
    while rows := read(after, batch):
        yield from rows
        if len(rows) < batch:
            return
        after = position(rows[-1])


def _take(found: Iterator[Found], limit: int) -> tuple[list[Found], bool]:
    """The first few, and whether there are more."""
    taken: list[Found] = []
    for one in found:
        if len(taken) == limit:
            return taken, True
        taken.append(one)
    return taken, False


class Asked(NamedTuple):
    """What a search was asked for, to tell cursors of one from those of another. They never tell its scope."""

    kind: str
    scope: bytes
    terms: Sequence[Any]

    def cursor(self, *keyset: Any) -> str:
        """A cursor that goes on behind a row, given what it is sorted by. Bytes are places."""
        told = [part.removeprefix(self.scope).hex() if isinstance(part, bytes) else part for part in keyset]
        return base64.urlsafe_b64encode(json.dumps([self.kind, self._digest(), *told]).encode()).decode()

    def read(self, cursor: str | None, *types: type) -> tuple[Any, ...] | None:
        """The keyset in a cursor, which must be of these types."""
        if cursor is None:
            return None
        try:
            kind, digest, *told = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
            keyset = tuple(self._part(part, wanted) for part, wanted in zip(told, types, strict=kind == self.kind))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(
                f"this cursor is not one of ours: {cursor!r:.60}", hint="use page.cursor as it is"
            ) from error
        if kind != self.kind or digest != self._digest():
            raise BadInput("this cursor belongs to another search", hint="page on with the arguments that made it")
        return keyset

    def _digest(self) -> str:
        told = json.dumps([self.scope.hex(), *self.terms])
        return blake2b(told.encode(), digest_size=6).hexdigest()

    def _part(self, part: Any, wanted: Any) -> Any:
        if wanted is bytes:
            return self.scope + bytes.fromhex(part)
        if type(part) is not wanted or (wanted is float and not math.isfinite(part)):
            raise ValueError(part)
        if wanted is int and not 0 <= part < 1 << 62:
            raise ValueError(part)
        if wanted is str:
            part.encode()
            if "\0" in part:
                raise ValueError(part)
        return part
