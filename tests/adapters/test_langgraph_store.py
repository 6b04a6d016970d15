"""`ClewStore`: what is promised beyond what InMemoryStore does, on each backend."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from places import Place

import clew
from clew.adapters.langgraph import ClewStore
from clew.errors import BadInput, Closed

MINUTE = 60.0


def letters(texts: list[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "abcd"] for text in texts]


def keys(items: list[Any]) -> list[str]:
    return [item.key for item in items]


def test_values_keep_their_types(db: clew.Database) -> None:
    store = ClewStore(db)
    value = {"at": datetime(2026, 1, 2, tzinfo=UTC), "id": uuid.UUID(int=7), "pair": (1, 2.0), "sum": Decimal("1.10")}
    store.put(("facts",), "1", value)
    found = store.get(("facts",), "1")
    assert found is not None
    assert repr(found.value) == repr(value)
    found.value["pair"] = None
    again = store.get(("facts",), "1")
    assert again is not None
    assert again.value == value


def test_the_last_written_come_first(db: clew.Database) -> None:
    store = ClewStore(db)
    for key in ("a", "b", "c", "d"):
        store.put(("memories",), key, {"kind": "odd" if key in "ac" else "even"})
    store.put(("memories",), "b", {"kind": "even"})
    assert keys(store.search(("memories",))) == ["b", "d", "c", "a"]
    assert keys(store.search(("memories",), limit=2, offset=1)) == ["d", "c"]
    assert keys(store.search(("memories",), filter={"kind": "even"})) == ["b", "d"]
    assert keys(store.search(("memories",), filter={"kind": "odd"}, limit=1, offset=1)) == ["a"]
    assert store.search(("memories",), limit=0) == []
    first = store.get(("memories",), "b")
    assert first is not None
    assert first.created_at < first.updated_at


def test_tenants_and_scopes_are_apart(place: Place) -> None:
    first, second = place.open("one"), place.open("two")
    mine, theirs, scoped = ClewStore(first), ClewStore(second), ClewStore(first, scope={"user": 1})
    mine.put(("users", "1"), "k", {"v": 1})
    assert theirs.get(("users", "1"), "k") is None
    assert scoped.search(()) == theirs.search(()) == []
    assert theirs.list_namespaces() == scoped.list_namespaces() == []
    theirs.delete(("users", "1"), "k")
    scoped.put(("users", "1"), "k", {"v": 2})
    assert [item.value for item in mine.search(())] == [{"v": 1}]
    assert first.store(user=1).get(("users", "1"), "k").value == {"v": 2}  # type: ignore[union-attr]
    if place.memory is None:
        first.close()
        second.close()


def test_labels_are_compared_whole_and_as_they_are(db: clew.Database) -> None:
    store = ClewStore(db)
    for label in ("1", "12", "%", "_", "A", "a", "1' OR '1'='1"):
        store.put(("users", label), "k", {"label": label})
    for label in ("1", "%", "_", "A", "1' OR '1'='1"):
        assert [item.value["label"] for item in store.search(("users", label))] == [label]
    assert store.search(("user",)) == []
    assert store.list_namespaces(prefix=("users", "*"), suffix=("1",)) == [("users", "1")]
    with pytest.raises(InvalidNamespaceError):
        store.put(("users", "a.b"), "k", {})


def test_what_cannot_be_ordered(db: clew.Database) -> None:
    """InMemoryStore raises at these. Dates as text compare as texts, as in LangGraph's SQL stores."""
    store = ClewStore(db)
    store.put(("n",), "number", {"v": 3})
    store.put(("n",), "text", {"v": "2026-05-01"})
    store.put(("n",), "none", {"v": None})
    store.put(("n",), "missing", {})
    store.put(("n",), "list", {"v": [1]})
    assert keys(store.search(("n",), filter={"v": {"$gt": 2}})) == ["number"]
    assert keys(store.search(("n",), filter={"v": {"$gte": "2026-01-01"}})) == ["text"]
    assert keys(store.search(("n",), filter={"v": {"$lt": "2026-01-01"}})) == []
    with pytest.raises(BadInput, match=r"no operator '\$regex'.*\$eq"):
        store.search(("n",), filter={"v": {"$regex": "x"}})


def test_a_batch_reads_what_was_before_and_writes_at_once(db: clew.Database) -> None:
    store = ClewStore(db)
    store.put(("b",), "old", {"v": 1})
    results = store.batch(
        [
            PutOp(("b",), "new", {"v": 1}),
            PutOp(("b",), "old", None),
            GetOp(("b",), "new"),
            PutOp(("b",), "new", {"v": 2}),
            SearchOp(("b",)),
        ]
    )
    assert results[:4] == [None] * 4
    assert keys(results[4]) == ["old"]  # type: ignore[arg-type]
    assert [(item.key, item.value) for item in store.search(("b",))] == [("new", {"v": 2})]
    with pytest.raises(clew.errors.Unserialisable):
        store.batch([PutOp(("b",), "new", None), PutOp(("b",), "bad", {"v": object()})])
    assert keys(store.search(("b",))) == ["new"]


def test_time_to_live(place: Place, db: clew.Database) -> None:
    store = ClewStore(db, ttl={"default_ttl": 10, "refresh_on_read": True})
    store.put(("t",), "default", {})
    store.put(("t",), "for good", {}, ttl=None)
    store.put(("t",), "short", {}, ttl=1)
    place.let_pass(db, 2 * MINUTE)
    assert set(keys(store.search(("t",), refresh_ttl=False))) == {"default", "for good"}
    place.let_pass(db, 6 * MINUTE)
    assert store.get(("t",), "default") is not None  # ten minutes from now
    place.let_pass(db, 6 * MINUTE)
    assert "default" in keys(store.search(("t",), limit=1, offset=1)) + keys(store.search(("t",), limit=1))
    place.let_pass(db, 6 * MINUTE)
    assert store.get(("t",), "default", refresh_ttl=False) is not None
    place.let_pass(db, 6 * MINUTE)
    assert store.get(("t",), "default") is None
    assert keys(store.search(("t",))) == ["for good"]
    assert store.sweep_ttl() == 2
    assert store.sweep_ttl() == 0


def test_by_meaning(db: clew.Database) -> None:
    store = ClewStore(db, index={"dims": 4, "embed": letters, "fields": ["text", "tags[*].name"]})
    store.put(("n",), "abba", {"text": "abba"})
    store.put(("n",), "dada", {"text": "dada", "tags": [{"name": "bbb"}, {"name": "ccc"}]})
    store.put(("n",), "hidden", {"text": "bab"}, index=False)
    store.put(("n",), "other", {"text": "dddd", "title": "bab"}, index=["title"])
    found = store.search(("n",), query="bab")
    assert keys(found) == ["other", "abba", "dada", "hidden"]
    assert [item.score is None for item in found] == [False, False, False, True]
    assert keys(store.search(("n",), query="bab", limit=2, offset=2)) == ["dada", "hidden"]
    assert keys(store.search(("n",), query="bab", filter={"text": "dada"})) == ["dada"]
    whole = ClewStore(db, scope={"all": "of it"}, index={"dims": 4, "embed": letters})
    whole.put(("n",), "1", {"at": datetime(2026, 1, 1, tzinfo=UTC)})  # InMemoryStore refuses what is not JSON
    assert whole.search(("n",), query="abba")[0].score is not None


def test_an_index_that_comes_later(db: clew.Database) -> None:
    ClewStore(db).put(("n",), "1", {"text": "abba"})
    store = ClewStore(db, index={"dims": 4, "embed": letters})
    with pytest.raises(BadInput, match=r"reindex\(\)"):
        store.search(("n",), query="a")
    assert store.reindex() == 1
    assert store.reindex() == 0
    assert store.search(("n",), query="a")[0].score is not None


def test_a_file_of_its_own(tmp_path: Path) -> None:
    url = str(tmp_path / "agent.db")
    with ClewStore.open(url) as store:
        store.put(("a",), "k", {"v": 1})
    with pytest.raises(Closed):
        store.get(("a",), "k")

    async def again() -> None:
        async with ClewStore.open(url) as store:
            found = await store.aget(("a",), "k")
            assert found is not None

    asyncio.run(again())


def test_in_a_graph(db: clew.Database) -> None:
    def remember(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        told = [item.value["said"] for item in runtime.store.search(("said",))]
        text = state["messages"][-1].content
        runtime.store.put(("said",), str(len(told)), {"said": text})
        return {"messages": [("ai", f"before: {told}")]}

    async def aremember(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        told = [item.value["said"] for item in await runtime.store.asearch(("said",))]
        return {"messages": [("ai", f"before: {told}")]}

    def graph(node: Any) -> Any:
        return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(store=ClewStore(db))

    assert graph(remember).invoke({"messages": "one"})["messages"][-1].content == "before: []"
    assert graph(remember).invoke({"messages": "two"})["messages"][-1].content == "before: ['one']"
    answer = asyncio.run(graph(aremember).ainvoke({"messages": "three"}))
    assert answer["messages"][-1].content == "before: ['two', 'one']"


def test_importing_the_package_does_not_import_langgraph() -> None:
    program = "import clew.adapters.langgraph, sys; assert 'langgraph' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=60)
