"""LangGraph's memory across threads, kept by Clew: a `BaseStore` on `db.store()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
)

import clew
from clew.adapters.langgraph.store_match import compile_filter, compile_names, literal_prefix, texts_at
from clew.errors import BadInput
from clew.hop import Hop

_PAGE = 500

Place = tuple[tuple[str, ...], str]


class ClewStore(BaseStore):
    """LangGraph's store on a Clew database, for graphs that are awaited and graphs that are not.

    `index` and `ttl` are LangGraph's own configurations; `scope` is that of `db.store(**scope)`, which sees the same
    items. Items that have expired are never seen. Searches give the last written items first, or with `index` and a
    query the nearest ones, followed by those that were not indexed.

    >>> store = ClewStore(clew.open("memory:"))
    >>> store.put(("users", "42"), "theme", {"value": "dark"})
    >>> store.get(("users", "42"), "theme").value
    {'value': 'dark'}
    """

    supports_ttl = True

    def __init__(
        self,
        db: clew.Database,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        scope: Mapping[str, str | int] | None = None,
    ) -> None:
        self.ttl_config = ttl
        self.index_config = index
        self._db = db
        self._owned = False
        self._scope: dict[str, Any] = dict(scope or {})
        self._hop = Hop()
        self._fields = list((index or {}).get("fields") or ["$"])
        self._dims = (index or {}).get("dims")
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        if self.embeddings is None:
            self._storing = self._finding = self._store(None)
        else:
            of_query = self.embeddings.embed_query
            self._storing = self._store(self.embeddings.embed_documents)
            self._finding = self._store(lambda texts: [of_query(text) for text in texts])

    @classmethod
    def open(
        cls,
        url: str,
        *,
        tenant: str = "default",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        scope: Mapping[str, str | int] | None = None,
    ) -> Self:
        """The store of a database that is closed together with it."""
        store = cls(clew.open(url, tenant=tenant), index=index, ttl=ttl, scope=scope)
        store._owned = True
        return store

    def close(self) -> None:
        """Close the database, if `open` has opened it."""
        if self._owned:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hop(self.close)

    def __repr__(self) -> str:
        return f"ClewStore({self._db!r})"

    # -- LangGraph's

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: what reads sees the state before; what writes is one commit, in which the last put counts."""
        return self._run(list(ops), self._finding, self._storing)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, awaitable. Embeddings are awaited in this loop; the database on threads of Clew's own."""
        given = list(ops)
        if self.embeddings is None:
            return await self._hop(self._run, given, self._finding, self._storing)
        queries = {op.query for op in given if isinstance(op, SearchOp) and op.query}
        texts = list(dict.fromkeys(text for op in given for text in self._texts_of(op)))
        if self._dims is None:
            self._dims = len(await self.embeddings.aembed_query("dimensions"))
        of_queries = {query: await self.embeddings.aembed_query(query) for query in queries}
        of_texts = dict(zip(texts, await self.embeddings.aembed_documents(texts) if texts else [], strict=True))
        finding = self._store(lambda asked: [of_queries[text] for text in asked])
        storing = self._store(lambda asked: [of_texts[text] for text in asked])
        return await self._hop(self._run, given, finding, storing)

    def sweep_ttl(self) -> int:
        """Remove all items that have expired; returns how many went. Nothing shows them anyway."""
        swept = 0
        while gone := self._storing.sweep(limit=_PAGE):
            swept += gone
        return swept

    def reindex(self, namespace: tuple[str, ...] = ()) -> int:
        """Embed the items that this store's `index` has not embedded yet; returns how many. Can be repeated."""
        return self._storing.reindex(namespace)

    # -- within

    def _store(self, embed: Any) -> clew.Store:
        if embed is None:
            return self._db.store(texts=self._texts, **self._scope)
        named = _Named(embed, _name_of(self.index_config))
        return self._db.store(embed=named, dims=self._dims, texts=self._texts, **self._scope)

    def _texts(self, value: dict[str, Any], fields: Sequence[str] | None) -> list[str] | None:
        """What of a value is embedded, told as LangGraph tells it; without `index` this is left to Clew."""
        if fields is None and self.embeddings is None:
            return None
        return [text for field in (self._fields if fields is None else fields) for text in texts_at(value, field)]

    def _texts_of(self, op: Op) -> list[str]:
        if not isinstance(op, PutOp) or op.value is None or op.index is False:
            return []
        return self._texts(dict(op.value), op.index) or []

    def _run(self, ops: list[Op], finding: clew.Store, storing: clew.Store) -> list[Result]:
        results: list[Result] = []
        puts: dict[Place, PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                item = finding.get(op.namespace, op.key, refresh_ttl=op.refresh_ttl)
                results.append(None if item is None else _item(item))
            elif isinstance(op, SearchOp):
                results.append(self._search(op, finding))
            elif isinstance(op, ListNamespacesOp):
                results.append(_namespaces(op, finding))
            elif isinstance(op, PutOp):
                puts[tuple(op.namespace), op.key] = op
                results.append(None)
            else:
                raise BadInput(f"a store runs GetOp, SearchOp, ListNamespacesOp and PutOp, not {op!r:.60}")
        if puts:
            storing.put_many(
                [
                    (*place, dict(op.value), None if op.ttl is None else op.ttl * 60, op.index)
                    for place, op in puts.items()
                    if op.value is not None
                ],
                delete=[place for place, op in puts.items() if op.value is None],
            )
        return results

    def _search(self, op: SearchOp, store: clew.Store) -> list[SearchItem]:
        if op.limit < 1:
            return []
        fits = compile_filter(op.filter) if op.filter else None
        end = max(op.offset, 0) + op.limit
        found: list[clew.Item] = []
        if op.query and self.embeddings is not None:
            found += store.search(op.namespace_prefix, query=op.query, filter=fits, limit=end)
        if len(found) < end:
            # Those that have no vectors come last.
            ranked = {(item.namespace, item.key) for item in found}
            others = store.search(op.namespace_prefix, filter=fits, order="updated", limit=end)
            found += [item for item in others if (item.namespace, item.key) not in ranked]
        shown = found[max(op.offset, 0) : end]
        if op.refresh_ttl:
            store.touch((item.namespace, item.key) for item in shown if item.expires_at is not None)
        return [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, item.score)
            for item in shown
        ]


class _Named:
    """An embedding function under the name that its vectors are kept by."""

    def __init__(self, embed: Any, name: str) -> None:
        self._embed = embed
        self.name = name

    def __call__(self, texts: list[str]) -> Any:
        return self._embed(texts)


def _name_of(index: IndexConfig | None) -> str:
    """What tells one embedding from another: the name it was given by, or its function or class, and its model."""
    embed: Any = (index or {}).get("embed")
    if isinstance(embed, str):
        return embed
    name = getattr(embed, "__qualname__", None) or type(embed).__qualname__
    model = getattr(embed, "model", None)
    return f"{name}/{model}" if isinstance(model, str) else str(name)


def _item(item: clew.Item) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _namespaces(op: ListNamespacesOp, store: clew.Store) -> list[tuple[str, ...]]:
    """The namespaces that fulfil all conditions, cut off at the depth, in order."""
    conditions: tuple[MatchCondition, ...] = tuple(op.match_conditions or ())
    fits = compile_names(conditions)
    end = max(op.offset, 0) + op.limit
    prefix = literal_prefix(conditions)
    found: dict[tuple[str, ...], None] = {}
    cursor = None
    while len(found) < end:
        page = store.namespaces(prefix, limit=_PAGE, cursor=cursor)
        for namespace in page:
            if fits(namespace):
                found[namespace if op.max_depth is None else namespace[: op.max_depth]] = None
        cursor = page.cursor
        if cursor is None:
            break
    return list(found)[max(op.offset, 0) : end]
