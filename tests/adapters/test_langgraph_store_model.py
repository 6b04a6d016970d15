"""`ClewStore` beside LangGraph's own `InMemoryStore`: the same random operations give the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from places import Place

import clew
from clew.adapters.langgraph import ClewStore

LABELS = ["users", "1", "12", "%", "_", "A", "a", "a'b", 'q"uote', "*x", "ü", "\\", "$"]
VOCABULARY = ["red", "green", "sand worm", "tea", "Dune"]

labels = st.sampled_from(LABELS[:6]) | st.sampled_from(LABELS)
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
prefixes = st.lists(labels, max_size=2).map(tuple)
patterns = st.lists(labels | st.just("*"), min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "K", "1", "%", "a.b", "'; --"])
scalars = st.sampled_from([None, True, False, 0, 1, 2, 1.0, 2.5, -1, "1", "red", "", "2024-01-02"])
leaves = scalars | st.lists(scalars, max_size=2) | st.fixed_dictionaries({}, optional={"x": scalars, "y": scalars})
values = st.fixed_dictionaries(
    {"t": st.sampled_from(VOCABULARY)},
    optional={
        "n": leaves,
        "m": leaves,
        "o'x": scalars,
        "list": st.lists(st.fixed_dictionaries({"t": st.sampled_from(VOCABULARY)}), max_size=2),
    },
)
operands = leaves
conditions = st.one_of(
    leaves,
    st.dictionaries(st.sampled_from(["$eq", "$ne"]), operands, min_size=1),
    # InMemoryStore raises where either side is no number: see test_what_cannot_be_ordered.
    st.dictionaries(
        st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.sampled_from([0, 1, 1.5, "1", True]), min_size=1
    ),
    st.fixed_dictionaries({"x": scalars | st.dictionaries(st.sampled_from(["$eq", "$ne"]), scalars, min_size=1)}),
    st.lists(scalars, max_size=2).map(tuple),
)
filters = st.dictionaries(st.sampled_from(["n", "m", "t", "o'x", "missing"]), conditions, max_size=2)
indexes = st.sampled_from([None, None, False, ["t"], ["list[*].t"], ["list[-1].t"], ["nothing"], ["t", "n.x"]])

puts = st.builds(PutOp, namespaces, keys, values | st.none(), indexes, st.none())
gets = st.builds(GetOp, namespaces, keys, st.booleans())
searches = st.builds(
    SearchOp,
    prefixes,
    st.none() | filters,
    st.sampled_from([1, 3, 100]),
    st.sampled_from([0, 0, 1, 2]),
    st.none() | st.sampled_from(VOCABULARY),
    st.booleans(),
)
lists = st.builds(
    ListNamespacesOp,
    st.none()
    | st.lists(st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), patterns), max_size=2).map(tuple),
    st.sampled_from([None, None, 1, 2, 3]),
    st.sampled_from([1, 2, 100]),
    st.sampled_from([0, 0, 1]),
)
batches = st.lists(puts | puts | gets | searches | lists, min_size=1, max_size=6)


def embed(texts: list[str]) -> list[list[float]]:
    """Every text its own direction, none of them opposed to another."""
    return [[1.0 + text.count(letter) * (place + 1) for place, letter in enumerate("adegnrst")] for text in texts]


INDEX: Any = {"dims": 8, "embed": embed, "fields": ["t", "list[*].t"]}


class Twins:
    """The same operations on both stores, and what is known of InMemoryStore's manners."""

    def __init__(self, ours: ClewStore, theirs: InMemoryStore) -> None:
        self.ours = ours
        self.theirs = theirs
        self.there: set[tuple[str, ...]] = set()

    def run(self, ops: list[Op]) -> None:
        last = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        reading: list[Op] = [op for op in ops if not isinstance(op, PutOp)]
        expected = [self.ask(op) for op in reading]
        whole: list[Op] = [op._replace(limit=10_000, offset=0) if isinstance(op, SearchOp) else op for op in reading]
        found = self.ours.batch([*reading, *last.values(), *whole])
        after = len(reading) + len(last)
        assert found[len(reading) : after] == [None] * len(last)
        for op, mine, everything, his in zip(reading, found, found[after:], expected, strict=False):
            self.compare(op, mine, everything, his)
        for op in last.values():
            # It keeps the vectors of a value that was put before.
            self.theirs.batch([op._replace(value=None)])
            self.theirs.batch([op])

    def ask(self, op: Op) -> Any:
        """What InMemoryStore answers; of a search, all that fits."""
        if isinstance(op, SearchOp):
            op = op._replace(limit=10_000, offset=0)
        if isinstance(op, ListNamespacesOp):
            # It goes on listing a namespace whose last item was deleted, or that was only asked for.
            for namespace in [name for name, items in self.theirs._data.items() if not items]:
                del self.theirs._data[namespace]
        return self.theirs.batch([op])[0]

    def compare(self, op: Op, mine: Any, everything: Any, his: Any) -> None:
        if isinstance(op, GetOp):
            assert facts(mine) == facts(his)
        elif isinstance(op, ListNamespacesOp):
            assert mine == his
        else:
            assert isinstance(op, SearchOp)
            assert named(everything) == named(his)
            # How InMemoryStore orders what has the same score, or none, is its own affair.
            scores = [round(item.score, 5) if item.score is not None else -1.0 for item in everything]
            assert scores == sorted(scores, reverse=True)
            assert [facts(item) for item in mine] == [
                facts(item) for item in everything[op.offset : op.offset + op.limit]
            ]


def facts(item: Item | None) -> Any:
    return None if item is None else (item.namespace, item.key, repr(item.value))


def named(items: list[Any]) -> dict[Any, Any]:
    return {
        (item.namespace, item.key): (repr(item.value), None if item.score is None else round(item.score, 5))
        for item in items
    }


class Answering(InMemoryStore):
    """InMemoryStore, but for where it raises: at values that it cannot compare, and at a text that occurs twice.

    And for empty texts: it asks for their vectors, which services refuse to make; Clew has none of them.
    """

    def _insertinmem_store(self, to_embed: Any, embeddings: list[list[float]]) -> None:
        for (text, indices), embedding in zip(to_embed.items(), embeddings, strict=True):
            for namespace, key, path in indices if text else ():
                self._vectors[namespace][key][path] = embedding

    def _filter_items(self, op: SearchOp) -> Any:
        if not op.filter:
            return super()._filter_items(op)
        found = []
        for item, vectors in super()._filter_items(op._replace(filter=None, limit=10_000, offset=0)):
            alone = InMemoryStore()
            alone.put(("x",), "x", item.value)
            try:
                if alone.search(("x",), filter=op.filter):
                    found.append((item, vectors))
            except (TypeError, ValueError):
                if texts_that_fit(item.value, op.filter):
                    found.append((item, vectors))
        return found


def texts_that_fit(value: dict[str, Any], given: dict[str, Any]) -> bool:
    """Of two texts that are no numbers `$gt` and its like compare the texts; everything else does not fit."""
    order = {"$gt": str.__gt__, "$gte": str.__ge__, "$lt": str.__lt__, "$lte": str.__le__}
    for field, wanted in given.items():
        alone = InMemoryStore()
        alone.put(("x",), "x", {field: value.get(field)})
        for name, operand in (
            wanted.items() if isinstance(wanted, dict) and set(wanted) & set(order) else [(None, wanted)]
        ):
            try:
                if not alone.search(("x",), filter={field: wanted if name is None else {name: operand}}):
                    return False
            except (TypeError, ValueError):
                found = value.get(field)
                if not (isinstance(found, str) and isinstance(operand, str) and order[name](found, operand)):
                    return False
    return True


@contextmanager
def fresh(place: Place) -> Iterator[clew.Database]:
    """A tenant of its own. (Closing one of a database in memory would close all of them.)"""
    db = place.open(place.new_tenant())
    yield db
    if place.memory is None:
        db.close()


def run(place: Place, work: list[list[Op]], index: Any) -> None:
    with fresh(place) as db:
        twins = Twins(ClewStore(db, index=index), Answering(index=index))
        neighbour = ClewStore(db, scope={"user": "other"})
        neighbour.put(("users",), "k", {"t": "another scope's"})
        for ops in work:
            twins.run(ops)
        twins.run([SearchOp((), limit=10_000), ListNamespacesOp()])
        assert [item.value for item in neighbour.search(())] == [{"t": "another scope's"}]


def check(place: Place, examples: int, index: Any) -> None:
    few = settings(
        max_examples=examples // 2 if place.admin_url else examples * 2,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    few(given(st.lists(batches, min_size=1, max_size=12))(lambda work: run(place, work, index)))()


def test_the_same_answers(place: Place, examples: int) -> None:
    check(place, examples, None)


def test_the_same_answers_with_an_index(place: Place, examples: int) -> None:
    check(place, examples, INDEX)


def test_the_same_answers_awaited(place: Place) -> None:
    async def aembed(texts: list[str]) -> list[list[float]]:
        return embed(texts)

    async def work() -> None:
        with fresh(place) as db:
            ours = ClewStore(db, index={"dims": 8, "embed": aembed, "fields": ["t"]})
            theirs = InMemoryStore(index={"dims": 8, "embed": aembed, "fields": ["t"]})
            for store in (ours, theirs):
                for number, text in enumerate(VOCABULARY):
                    await store.aput(("v", str(number % 2)), str(number), {"t": text, "n": number})
                await store.adelete(("v", "0"), "0")
            for question in ("red", "sand worm"):
                assert named(await ours.asearch(("v",), query=question)) == named(
                    await theirs.asearch(("v",), query=question)
                )
            assert facts(await ours.aget(("v", "1"), "1")) == facts(await theirs.aget(("v", "1"), "1"))
            assert await ours.alist_namespaces(max_depth=1) == await theirs.alist_namespaces(max_depth=1)
            found = await asyncio.gather(*(ours.aget(("v", "1"), "1") for _ in range(20)))
            assert {facts(item) for item in found} == {facts(found[0])}

    asyncio.run(work())
