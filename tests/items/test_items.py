"""The store, promise by promise, on every backend."""

from __future__ import annotations

import base64
import json
import math
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from places import Place

import clew
from clew.errors import BadInput, BadName, Corrupt, TooLarge, Unserialisable
from clew.state.codec import encode
from clew.storage.items import UNSEARCHED
from clew.testing.postgres import TestDatabase

BOOKS = ("books",)
HOSTILE = [
    "'; DROP TABLE item; --",
    '"',
    '" OR "',
    "*",
    "a*",
    "-a",
    "NEAR(a b)",
    "words:a",
    "a AND",
    "(",
    "^a",
    "{a b}:c",
    "a\0b",
    "\\",
    "' & 'a' | !'b",
    ":match",
    "%s",
    "%(tenant)s",
    "$1",
    "\ud800",
    "a:*",
    "<->",
    "@1_",
    "",
    " ",
    "\u0301",
    "x" * 100_000,
    "w " * 50_000,
    "{}",
    "' || pg_sleep(9) || '",
]


def keys(page: Any) -> list[str]:
    return [item.key for item in page]


# -- one item


def test_what_is_put_comes_back_with_its_types(db: clew.Database) -> None:
    store = db.store()
    value = {
        "t": (1, {2, 3}),
        "d": Decimal("1.10"),
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "n": [None, b"\0", "\0", "\ud800"],
    }
    store.put(BOOKS, "k", value)
    item = store.get(BOOKS, "k")
    assert item is not None
    assert item.value == value
    assert type(item.value["t"]) is tuple
    assert (item.namespace, item.key, item.expires_at, item.score) == (BOOKS, "k", None, None)
    assert abs(item.created_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_snapshot_of_the_value_is_kept(db: clew.Database) -> None:
    value: dict[str, Any] = {"list": [1]}
    db.store().put(BOOKS, "k", value)
    value["list"].append(2)
    item = db.store().get(BOOKS, "k")
    assert item is not None
    assert item.value == {"list": [1]}


def test_replacing_keeps_the_time_of_creation(place: Place, db: clew.Database) -> None:
    store = db.store()
    store.put(BOOKS, "k", {"v": 1}, ttl=50)
    place.execute(db, "UPDATE item SET created = created - 5000000, updated = updated - 5000000")
    first = store.get(BOOKS, "k")
    store.put(BOOKS, "k", {"v": 2})
    second = store.get(BOOKS, "k")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert (second.value, second.expires_at) == ({"v": 2}, None)


def test_an_item_that_expired_is_gone_for_every_verb(place: Place, db: clew.Database) -> None:
    store = db.store(user="1")
    store.put(BOOKS, "k", {"t": "dune"}, ttl=1000)
    for namespace in (("a",), ("c",)):
        store.put(namespace, "stays", {})
    first = store.get(BOOKS, "k")
    assert first is not None
    assert first.expires_at is not None
    assert timedelta(seconds=990) < first.expires_at - first.created_at <= timedelta(seconds=1001)
    place.let_pass(db, 2000)
    assert store.get(BOOKS, "k") is None
    assert store.get(BOOKS, "k", refresh_ttl=True) is None
    assert keys(store.search()) == ["stays", "stays"]
    assert keys(store.search(query="dune")) == []
    assert list(store.namespaces()) == [("a",), ("c",)]
    assert store.delete(BOOKS, "k") is False
    store.put(BOOKS, "k", {"t": "dune"}, ttl=1000)
    place.let_pass(db, 2000)
    place.execute(db, "UPDATE item SET created = created - 5000000")
    store.put(BOOKS, "k", {"t": "dune"})
    again = store.get(BOOKS, "k")
    assert again is not None
    assert again.created_at == again.updated_at  # a new item, not the old one


def test_a_time_to_live_can_begin_anew(place: Place, db: clew.Database) -> None:
    store = db.store()
    store.put(BOOKS, "a", {}, ttl=1000)
    store.put(BOOKS, "b", {}, ttl=1000)
    store.put(BOOKS, "c", {})
    for _ in range(3):
        place.let_pass(db, 600)
        assert store.get(BOOKS, "a", refresh_ttl=True) is not None
    assert keys(store.search()) == ["a", "c"]
    place.let_pass(db, 600)
    assert keys(store.search(refresh_ttl=True)) == ["a", "c"]
    place.let_pass(db, 600)
    assert keys(store.search()) == ["a", "c"]


def test_expired_rows_are_swept_a_few_at_a_time(place: Place, db: clew.Database) -> None:
    mine, other = db.store(user="1"), db.store(user="2")
    mine.put_many([(BOOKS, str(n), {"t": "old"}, 10) for n in range(20)])
    other.put_many([(BOOKS, str(n), {"t": "old"}, 10) for n in range(5)])
    assert db.usage().items == 25
    place.let_pass(db, 20)
    mine.put(BOOKS, "new", {})
    assert db.usage().items == 26 - 8
    assert mine.sweep(limit=3) == 3
    assert db.usage().items == 15
    assert (mine.sweep(), other.sweep()) == (20 - 8 - 3, 5)
    assert (db.usage().items, keys(mine.search())) == (1, ["new"])
    assert keys(mine.search(query="old")) == []


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, "5", True, 1e30, [1]])
def test_a_ttl_is_a_number_of_seconds(ttl: Any) -> None:
    store = clew.open("memory:").store()
    with pytest.raises(BadInput):
        store.put(BOOKS, "k", {}, ttl=ttl)
    assert store.get(BOOKS, "k") is None


def test_what_cannot_be_put() -> None:
    store = clew.open("memory:").store()
    for value in (None, [1], "x", {1: 2}):
        with pytest.raises(BadInput):
            store.put(BOOKS, "k", value)  # type: ignore[arg-type]
    for key in ("", "a\0b", "\ud800", 5, "x" * 513):
        with pytest.raises(BadName):
            store.put(BOOKS, key, {})  # type: ignore[arg-type]
        with pytest.raises(BadName):
            store.get(BOOKS, key)  # type: ignore[arg-type]
    for index in ("title", True, [1], {"a": 1}):
        with pytest.raises(BadInput):
            store.put(BOOKS, "k", {}, index=index)  # type: ignore[arg-type]
    with pytest.raises(Unserialisable) as refused:
        store.put(BOOKS, "k", {"deep": [{"f": len}]})
    assert refused.value.path == "deep[0].f"
    with pytest.raises(TooLarge) as large:
        store.put(BOOKS, "k", {"small": 1, "deep": [0, {"x": "y" * (16 * 1024 * 1024)}]})
    assert large.value.path == "deep[1].x"
    for arguments in ({"limit": 0}, {"limit": True}, {"limit": "5"}, {"query": b"x"}, {"filter": 5}):
        with pytest.raises(BadInput):
            store.search(**arguments)  # type: ignore[arg-type]
    for scope in ({"embed": "x"}, {"dims": 3}, {"embed": len, "dims": 0}):
        with pytest.raises(BadInput):
            clew.open("memory:").store(**scope)  # type: ignore[arg-type]


def test_put_many_is_all_or_nothing(db: clew.Database) -> None:
    store = db.store()
    with pytest.raises(Unserialisable):
        store.put_many([(BOOKS, "a", {}), (BOOKS, "b", {"x": len})])
    with pytest.raises(BadInput):
        store.put_many([(BOOKS, "a", {}), (BOOKS,)])
    assert keys(store.search()) == []
    store.put_many([(BOOKS, "a", {"v": 1}), (BOOKS, "b", {}, 100, False), (BOOKS, "a", {"v": 2})])
    assert [item.value for item in store.search()] == [{"v": 2}, {}]
    store.put_many([])


def test_a_damaged_or_transplanted_row_is_noticed(place: Place, db: clew.Database) -> None:
    store = db.store(user="1")
    for change in (
        ("UPDATE item SET value = ?", encode({"v": 2})),
        ("UPDATE item SET key = ?", "other"),
        ("UPDATE item SET place = ?", b"user\x002\x00\x01books\x00"),
    ):
        place.execute(db, "DELETE FROM item")
        store.put(BOOKS, "k", {"v": 1})
        place.execute(db, *change)
        with pytest.raises(Corrupt):
            store.get(BOOKS, "k") or list(store.search()) or list(db.store(user="2").search())


# -- scopes and tenants


def test_a_scope_sees_only_itself(db: clew.Database) -> None:
    scopes: list[dict[str, Any]] = [
        {},
        {"user": "1"},
        {"user": "12"},
        {"user": "1", "b": "2"},
        {"user": "1/b=2"},
        {"user": "%"},
    ]
    stores = [(db.tenant(tenant).store(**scope)) for tenant in ("t1", "t2") for scope in scopes]
    for number, store in enumerate(stores):
        store.put(("1",), "k", {"n": number, "t": "word"})
        store.put(("12",), "k", {"n": number, "t": "word"})
    for number, store in enumerate(stores):
        for page in (store.search(), store.search(query="word"), store.search(filter={"t": "word"})):
            assert [(item.namespace, item.value["n"]) for item in page] == [(("1",), number), (("12",), number)]
        assert keys(store.search(("1",))) == ["k"]
        assert list(store.namespaces()) == [("1",), ("12",)]
    assert stores[0].delete(("1",), "k")
    assert all(store.get(("1",), "k") for store in stores[1:])
    assert db.tenant("t1").usage().items == 11
    assert db.tenant("t2").usage().items == 12
    assert db.tenant("t1").usage().item_bytes > 0


def test_the_score_tells_nothing_about_others(db: clew.Database) -> None:
    mine = db.store(user="1")
    mine.put(BOOKS, "k", {"t": "rare words here"})
    before = mine.search(query="rare")[0].score
    db.store(user="2").put_many([(BOOKS, str(n), {"t": "rare rare rare"}) for n in range(50)])
    assert mine.search(query="rare")[0].score == before == pytest.approx(math.sqrt(1 / 3))


def test_row_level_security_fences_the_items(postgres: TestDatabase) -> None:
    with clew.open(postgres.url, tenant="a") as db:
        db.store().put(BOOKS, "k", {})
        db.tenant("b").store().put(BOOKS, "k", {})
        with psycopg.connect(postgres.url, autocommit=True) as app:
            assert app.execute("SELECT count(*) FROM clew.item").fetchone() == (0,)
            mine = app.execute("SELECT clew.tenant_key('a')").fetchone()
            assert mine is not None
            app.execute("SELECT set_config('clew.tenant', %s, false)", (str(mine[0]),))
            assert app.execute("SELECT count(*), min(tenant) FROM clew.item").fetchone() == (1, mine[0])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(
                    "INSERT INTO clew.item (tenant, words, created, updated, crc, place, key, value)"
                    " VALUES (%s, 0, 0, 0, 0, '', '', '')",
                    (mine[0] + 1,),
                )
        with psycopg.connect(postgres.admin_url) as admin:
            flags = "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = 'clew.item'::regclass"
            assert admin.execute(flags).fetchone() == (True, True)


# -- searching


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_query_is_syntax(hostile: str) -> None:
    store = clew.open("memory:").store()
    _survives(store, hostile)


def test_no_query_key_or_field_is_syntax_anywhere(db: clew.Database) -> None:
    store = db.store(user="'; DROP TABLE item; --")
    store.put(BOOKS, "k", {"t": "a b", "x": "' \" * -"})
    for hostile in HOSTILE:
        _survives(store, hostile)
    assert keys(store.search(query="A *b* -")) == ["k"]
    assert keys(store.search(query="a near b")) == []


def _survives(store: clew.Store, hostile: str) -> None:
    store.search(query=hostile)
    if hostile.isprintable() and 0 < len(hostile) < 500:
        field = "x" + hostile
        store.put((hostile,), hostile, {field: hostile})
        assert [item.value for item in store.search((hostile,), filter={field: hostile})] == [{field: hostile}]
        assert store.delete((hostile,), hostile)
    else:
        with pytest.raises(BadName):
            store.put((hostile,), hostile, {})
    with pytest.raises(BadInput):
        store.search(filter={"f": {"$" + hostile: 1}})
    with pytest.raises(BadInput):
        store.search(cursor=hostile)


def test_index_says_what_a_query_looks_at(db: clew.Database) -> None:
    store = db.store()
    value = {"title": "red", "by": {"name": "blue"}, "tags": [{"t": "green"}]}
    store.put(BOOKS, "all", value)
    store.put(BOOKS, "none", value, index=False)
    store.put(BOOKS, "some", value, index=["by.name", "tags.t"])
    assert keys(store.search(query="red")) == ["all"]
    assert keys(store.search(query="blue green")) == ["some", "all"]
    store.put(BOOKS, "all", value, index=False)
    store.put(BOOKS, "none", value)
    assert keys(store.search(query="red")) == ["none"]
    assert keys(store.search(query="title")) == []


def test_paging_with_a_filter_reads_in_pages(db: clew.Database) -> None:
    store = db.store()
    store.put_many([((f"n{n % 3}",), f"{n:04}", {"n": n, "t": "word " * (n % 5)}) for n in range(400)])
    for arguments in (
        {"filter": {"n": {"$gte": 390}}},
        {"query": "word", "filter": {"n": {"$lt": 50}}},
        {"query": "word"},
        {},
    ):
        whole = store.search(**arguments, limit=1000)
        assert whole.cursor is None
        paged, cursor = [], None
        while True:
            page = store.search(**arguments, limit=7, cursor=cursor)
            paged += page
            cursor = page.cursor
            if cursor is None:
                break
        assert paged == list(whole)
    assert len(store.search(filter={"n": {"$gte": 390}}, limit=10)) == 10
    assert store.search(filter={"n": {"$gte": 390}}, limit=10).cursor is None


def test_a_page_goes_on_where_its_last_item_was(db: clew.Database) -> None:
    store = db.store()
    store.put_many([(BOOKS, str(n), {}) for n in range(6)])
    page = store.search(limit=3)
    store.delete(BOOKS, "2")
    store.delete(BOOKS, "3")
    store.put(BOOKS, "1x", {})
    assert keys(store.search(limit=3, cursor=page.cursor)) == ["4", "5"]


def test_a_cursor_is_for_its_own_search_only(db: clew.Database) -> None:
    mine, other = db.store(user="1"), db.store(user="2")
    for store in (mine, other):
        store.put_many([((n,), n, {"t": "word", "secret": store is other}) for n in "abcdef"])
    cursor = mine.search(limit=2).cursor
    assert cursor is not None
    assert "user" not in base64.b64decode(cursor).decode()
    for store, arguments in [
        (other, {}),
        (mine, {"query": "word"}),
        (mine, {"filter": {"t": "word"}}),
        (mine, {"namespace": ("a",)}),
    ]:
        with pytest.raises(BadInput):
            store.search(**arguments, limit=2, cursor=cursor)
    with pytest.raises(BadInput):
        mine.namespaces(cursor=cursor)
    kind, digest, place, key = json.loads(base64.urlsafe_b64decode(cursor))
    forged = [
        [kind, digest],
        [kind, digest, place],
        [kind, digest, "zz", key],
        [kind, digest, place, 5],
        [kind, digest, place, "\ud800"],
        [kind, digest, place, "a\0"],
        [kind, "0", place, key],
        ["words", digest, 1, place, key],
        [],
        {},
        None,
        5,
        [kind, digest, place, key, 1],
        [kind, digest, None, key],
        [[kind], digest, place, key],
    ]
    for told in forged:
        with pytest.raises(BadInput):
            mine.search(limit=2, cursor=base64.urlsafe_b64encode(json.dumps(told).encode()).decode())
    for text in (cursor[:-3], cursor + "A", "é", "!!!", " ", base64.b64encode(b"[" * 100_000).decode()):
        with pytest.raises(BadInput):
            mine.search(limit=2, cursor=text)
    for where in ("", "00", "ff" * 10, b"\x00".hex(), b"user\x002\x00\x01".hex()):
        told = json.dumps([kind, digest, where, ""]).encode()
        page = mine.search(limit=2, cursor=base64.urlsafe_b64encode(told).decode())
        assert not any(item.value["secret"] for item in page)


# -- vectors


def letters(texts: list[str]) -> list[list[float]]:
    """A vector of how often some letters occur."""
    return [[text.count(letter) + 0.01 for letter in "abcd"] for text in texts]


def test_items_by_meaning(db: clew.Database) -> None:
    store = db.store(user="1", embed=letters, dims=4)
    store.put(BOOKS, "a", {"t": "aaaa"})
    store.put(BOOKS, "ab", {"t": "aabb"})
    store.put(BOOKS, "b", {"t": "bbbb", "kind": "x"})
    store.put(BOOKS, "two", {"t": "dddd", "u": "aaab"}, index=["t", "u"])
    store.put(BOOKS, "none", {"t": "aaaa"}, index=False)
    store.put(BOOKS, "empty", {"n": 1})
    page = store.search(query="aaa")
    assert keys(page) == ["a", "two", "ab", "b"]
    scores = [item.score or 0.0 for item in page]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0, abs=1e-4)
    assert keys(store.search(query="aaa", filter={"kind": "x"})) == ["b"]
    paged, cursor = [], None
    while True:
        step = store.search(query="aaa", limit=1, cursor=cursor)
        paged += step
        cursor = step.cursor
        if cursor is None:
            break
    assert paged == list(page)
    assert keys(db.store(user="1").search(query="aaaa")) == ["a"]  # words find them as well
    assert keys(db.store(user="2", embed=letters, dims=4).search(query="aaa")) == []


def test_another_embedding_is_noticed(db: clew.Database) -> None:
    def more(texts: list[str]) -> list[list[float]]:
        return [[*vector, 1.0] for vector in letters(texts)]

    db.store().put_many([(BOOKS, str(n), {"t": "ab" * n}) for n in range(100)])
    store = db.store(embed=letters)
    with pytest.raises(BadInput, match="reindex"):
        store.search(query="a")
    assert store.reindex() == 100
    assert store.reindex() == 0
    assert len(store.search(query="a", limit=200)) == 99  # one has no text
    other = db.store(embed=more)
    with pytest.raises(BadInput, match="letters/4"):
        other.search(query="a")
    assert other.reindex(("nothing",)) == 0
    assert other.reindex(BOOKS) == 100
    assert len(other.search(query="a", limit=200)) == 99


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [[1.0]],
        [[0.0, 0.0]],
        [[math.nan, 1.0]],
        [["x", 1.0]],
        [None],
        [[1.0, 2.0], [1.0, 2.0]],
        [[math.inf, 1]],
        [[]],
    ],
)
def test_what_is_no_embedding_is_refused(answer: Any) -> None:
    store = clew.open("memory:").store(embed=lambda _texts: answer, dims=2)
    with pytest.raises(BadInput):
        store.put(BOOKS, "k", {"t": "x"})
    assert store.get(BOOKS, "k") is None


def test_embedding_happens_outside_of_any_transaction(db: clew.Database) -> None:
    seen: list[int] = []

    def embed(texts: list[str]) -> list[list[float]]:
        done = threading.Thread(target=lambda: db.store(user="2").put(BOOKS, "k", {}))
        done.start()
        done.join(5)
        assert not done.is_alive()
        seen.append(len(texts))
        return letters(texts)

    store = db.store(user="1", embed=embed, dims=4)
    store.put_many([(BOOKS, str(n), {"t": "a"}) for n in range(3)])
    store.search(query="a")
    assert seen == [3, 1]


# -- beside each other


def test_two_threads_that_put_the_same_items_wait_for_each_other(db: clew.Database) -> None:
    failures: list[BaseException] = []

    def put(order: int) -> None:
        try:
            for _ in range(20):
                names = [f"{n}" for n in range(10)][::order]
                db.store().put_many([(BOOKS, name, {"by": order, "t": "word"}) for name in names])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=put, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len({item.value["by"] for item in db.store().search(limit=100)}) == 1
    assert len(db.store().search(query="word", limit=100)) == 10


def test_items_survive_closing_where_anything_does(place: Place) -> None:
    with clew.open(place.url) as db:
        db.store(user=7).put(BOOKS, "k", {"t": "word"})
    with clew.open(place.url) as db:
        assert keys(db.store(user="7").search(query="word")) == ([] if place.url == "memory:" else ["k"])


def test_a_database_without_items_has_no_text_index() -> None:
    db = clew.open("memory:")
    tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'item_text%'"
    place = Place("memory:")
    db.store().put(BOOKS, "k", {"n": 1})
    assert keys(db.store().search(query="x")) == []
    assert place.execute(db, tables) == [(0,)]
    db.store().put(BOOKS, "k", {"t": "x"})
    assert keys(db.store().search(query="x")) == ["k"]
    assert place.execute(db, tables) != [(0,)]
    db.store().put(BOOKS, "k", {"t": "x"}, ttl=10)
    place.let_pass(db, 20)
    assert db.store().sweep() == 1
    assert place.execute(db, "SELECT count(*) FROM item_text_docsize") == [(0,)]


def test_the_mark_of_unsearched_items_is_the_codecs() -> None:
    assert encode(False) == UNSEARCHED
