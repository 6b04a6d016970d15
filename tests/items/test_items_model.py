"""The store of two tenants and several scopes, whatever is done to it, against a dict."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from places import Place

import clew

SCOPES: list[dict[str, str]] = [{}, {"user": "1"}, {"user": "12"}]
SEGMENTS = ["users", "1", "12", "%", "_", "a/b", "a", "A", "\\", ".", ":", "é", "東京", "'; DROP TABLE item; --", "*"]
VOCABULARY = ["red", "blue", "green", "near", "and", "not", "or", "x1"]
LONG, LONGER, PASSING = 10_000.0, 1_000_000.0, 100_000.0

segments = st.sampled_from(SEGMENTS)
# Few, so that they often meet.
namespaces = st.lists(st.sampled_from(["users", "1", "12", "%", "A", "a/b"]), max_size=3).map(tuple)
prefixes = st.just(()) | namespaces.map(lambda namespace: namespace[:1]) | namespaces
numbers = st.sampled_from([0, 1, 2, 1.0, 1.5, True, False, None, "1", "red", [1], {"x": 1}])
phrases = st.lists(st.sampled_from(VOCABULARY), max_size=4).map(" ".join)
values = st.fixed_dictionaries({}, optional={"n": numbers, "t": phrases, "in": st.fixed_dictionaries({"t": phrases})})
handles = st.tuples(st.integers(0, 1), st.integers(0, len(SCOPES) - 1))
limits = st.sampled_from([1, 2, 3, 100])


ttls = st.sampled_from([None, LONG, LONGER])
entries_put = st.tuples(namespaces, segments, values, ttls)


class Kept(NamedTuple):
    value: dict[str, Any]
    created: datetime
    ttl: float | None
    expires: float | None


def plain_words(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(re.findall("[a-z0-9]+", value.lower()))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(plain_words, parts))


def kind(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "number" if number else type(value).__name__


def naive(value: dict[str, Any], operator: str, operand: Any) -> bool:
    if "n" not in value:
        return operator == "$ne"
    n = value["n"]
    alike = kind(n) == kind(operand)
    if operator in ("$eq", "$ne"):
        return (alike and n == operand) == (operator == "$eq")
    if not alike or kind(n) not in ("number", "str"):
        return False
    return {"$gt": n > operand, "$gte": n >= operand, "$lt": n < operand, "$lte": n <= operand}[operator]


class StoreMachine(RuleBasedStateMachine):
    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.dbs = [self.place.open(self.place.new_tenant()) for _ in range(2)]
        self.kept: dict[tuple[int, int], dict[tuple[tuple[str, ...], str], Kept]] = {}

    def store(self, handle: tuple[int, int]) -> clew.Store:
        return self.dbs[handle[0]].store(**SCOPES[handle[1]])

    def there(self, handle: tuple[int, int]) -> dict[tuple[tuple[str, ...], str], Kept]:
        kept = self.kept.setdefault(handle, {})
        for name in [name for name, item in kept.items() if item.expires is not None and item.expires <= self.now]:
            del kept[name]
        return kept

    def note(
        self, handle: tuple[int, int], namespace: tuple[str, ...], key: str, value: Any, ttl: float | None
    ) -> None:
        """What a put has written."""
        kept = self.there(handle)
        item = self.store(handle).get(namespace, key)
        assert item is not None
        assert item.created_at <= item.updated_at
        before = kept.get((namespace, key))
        if before is not None:
            assert item.created_at == before.created
        kept[namespace, key] = Kept(value, item.created_at, ttl, None if ttl is None else self.now + ttl)

    @rule(handle=handles, namespace=namespaces, key=segments, value=values, ttl=ttls)
    def put(self, handle: Any, namespace: Any, key: str, value: Any, ttl: float | None) -> None:
        self.store(handle).put(namespace, key, value, ttl=ttl)
        self.note(handle, namespace, key, value, ttl)

    @initialize(
        left=st.lists(entries_put, min_size=5, max_size=15), right=st.lists(entries_put, min_size=5, max_size=15)
    )
    def begin_with_some(self, left: Any, right: Any) -> None:
        self.put_many((0, 1), left)
        self.put_many((0, 2), right)
        self.put_many((1, 1), right)

    @rule(handle=handles, entries=st.lists(entries_put, min_size=3, max_size=8))
    def put_many(self, handle: Any, entries: Any) -> None:
        self.store(handle).put_many(entries)
        for namespace, key, value, ttl in {entry[:2]: entry for entry in entries}.values():
            self.note(handle, namespace, key, value, ttl)

    @rule(handle=handles, namespace=namespaces, key=segments)
    def delete(self, handle: Any, namespace: Any, key: str) -> None:
        was = self.there(handle).pop((namespace, key), None) is not None
        assert self.store(handle).delete(namespace, key) is was

    @rule(handle=handles, namespace=namespaces, key=segments, refresh=st.booleans())
    def get(self, handle: Any, namespace: Any, key: str, refresh: bool) -> None:
        item = self.store(handle).get(namespace, key, refresh_ttl=refresh)
        kept = self.there(handle)
        expected = kept.get((namespace, key))
        assert (item and item.value) == (expected and expected.value)
        if expected is not None and refresh and expected.ttl is not None:
            kept[namespace, key] = expected._replace(expires=self.now + expected.ttl)

    @rule()
    def time_passes(self) -> None:
        self.now += PASSING
        self.place.let_pass(self.dbs[0], PASSING)

    @rule(handle=handles)
    def sweep(self, handle: Any) -> None:
        before = [len(self.everything((t, s))) for t in range(2) for s in range(len(SCOPES))]
        self.store(handle).sweep()
        assert self.store(handle).sweep() == 0
        assert before == [len(self.everything((t, s))) for t in range(2) for s in range(len(SCOPES))]

    def everything(self, handle: tuple[int, int]) -> list[clew.Item]:
        return list(self.store(handle).search(limit=10_000))

    @rule(
        handle=handles,
        prefix=prefixes,
        operator=st.none() | st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
        operand=numbers,
        query=st.none() | st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=3),
        limit=limits,
    )
    def search(self, handle: Any, prefix: Any, operator: Any, operand: Any, query: Any, limit: int) -> None:
        expected = {
            name: kept.value
            for name, kept in self.there(handle).items()
            if name[0][: len(prefix)] == prefix
            and (operator is None or naive(kept.value, operator, operand))
            and (query is None or set(query) <= plain_words(kept.value))
        }
        order = (
            sorted(expected) if query is None else sorted(expected, key=lambda n: (len(plain_words(expected[n])), n))
        )
        arguments = {
            "filter": None if operator is None else {"n": {operator: operand}},
            "query": None if query is None else " ".join(query).upper(),
        }
        found, cursor = [], None
        while True:
            page = self.store(handle).search(prefix, **arguments, limit=limit, cursor=cursor)
            assert len(page) <= limit
            found += page
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page) == limit
        assert [(item.namespace, item.key) for item in found] == order
        assert [item.value for item in found] == [expected[name] for name in order]
        assert all((item.score is None) == (query is None) for item in found)

    @rule(handle=handles, prefix=prefixes, suffix=prefixes, depth=st.none() | st.integers(1, 3), limit=limits)
    def namespaces(self, handle: Any, prefix: Any, suffix: Any, depth: Any, limit: int) -> None:
        expected = sorted(
            {
                namespace[:depth]
                for namespace, _ in self.there(handle)
                if namespace[: len(prefix)] == prefix and namespace[len(namespace) - len(suffix) :] == suffix
            }
        )
        found, cursor = [], None
        while True:
            page = self.store(handle).namespaces(prefix, suffix, max_depth=depth, limit=limit, cursor=cursor)
            found += page
            cursor = page.cursor
            if cursor is None:
                break
        assert found == expected

    def teardown(self) -> None:
        for tenant in range(2):
            for scope in range(len(SCOPES)):
                kept = self.there((tenant, scope))
                found = {(item.namespace, item.key): item.value for item in self.everything((tenant, scope))}
                assert found == {name: item.value for name, item in kept.items()}
        for tenant, db in enumerate(self.dbs):
            for scope in range(len(SCOPES)):
                self.store((tenant, scope)).sweep()
            assert db.usage().items == sum(len(self.there((tenant, scope))) for scope in range(len(SCOPES)))
            if self.place.memory is None:
                db.close()


def test_the_store_is_a_dict_with_scopes(place: Place, examples: int) -> None:
    machine = type("Machine", (StoreMachine,), {"place": place})
    few = settings(max_examples=examples // 2 if place.admin_url else examples, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(machine, settings=few)
