"""The last written first, filters that are functions, texts that are told, and several items in one commit."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew.errors import BadInput

NOTES = ("notes",)


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


def everything(store: clew.Store, **asked: Any) -> list[str]:
    found, cursor = [], None
    while True:
        page = store.search(cursor=cursor, **asked)
        found += keys(page)
        cursor = page.cursor
        if cursor is None:
            return found


def test_the_last_written_come_first_in_pages_of_any_size(db: clew.Database) -> None:
    store = db.store(user=1)
    db.store().put(NOTES, "elsewhere", {})
    names = [f"{number * 7 % 40:02}" for number in range(40)]
    for name in names:
        store.put(("a" if name < "20" else "b",), name, {"n": int(name)})
    for limit in (1, 3, 40, 100):
        assert everything(store, order="updated", limit=limit) == names[::-1]
    odd = [name for name in names[::-1] if int(name) % 2]
    for limit in (1, 3, 100):
        assert everything(store, order="updated", limit=limit, filter=lambda value: value["n"] % 2) == odd
    assert everything(store, namespace=("a",), order="updated") == [name for name in names[::-1] if name < "20"]


def test_what_was_put_in_one_go_is_not_lost_between_pages(db: clew.Database) -> None:
    store = db.store()
    store.put_many([(NOTES, str(number), {}) for number in range(30)])
    for limit in (1, 4, 7):
        assert sorted(everything(store, order="updated", limit=limit)) == sorted(map(str, range(30)))


def test_a_cursor_belongs_to_its_order(db: clew.Database) -> None:
    store = db.store()
    store.put_many([(NOTES, str(number), {}) for number in range(3)])
    page = store.search(limit=1, order="updated")
    with pytest.raises(BadInput, match="cursor"):
        store.search(limit=1, cursor=page.cursor)
    with pytest.raises(BadInput, match='"key" or "updated"'):
        store.search(order="newest")  # type: ignore[arg-type]


def test_a_filter_may_be_a_function(db: clew.Database) -> None:
    store = db.store()
    store.put_many([(NOTES, str(number), {"n": number, "text": "tea"}) for number in range(9)])
    assert keys(store.search(filter=lambda value: value["n"] > 6)) == ["7", "8"]
    assert keys(store.search(query="tea", filter=lambda value: value["n"] < 2)) == ["0", "1"]
    assert everything(store, filter=lambda value: value["n"] % 3 == 0, limit=1) == ["0", "3", "6"]


def test_puts_and_deletions_in_one_commit(db: clew.Database) -> None:
    store = db.store()
    store.put_many([(NOTES, key, {"text": "tea"}) for key in "abc"])
    store.put_many(
        [(NOTES, "d", {"text": "tea"}), (NOTES, "b", {"v": 2})], delete=[(NOTES, "a"), (NOTES, "b"), (NOTES, "x")]
    )
    assert keys(store.search()) == ["b", "c", "d"]
    assert keys(store.search(query="tea")) == ["c", "d"]
    store.put_many([], delete=[(NOTES, "c")])
    assert keys(store.search()) == ["b", "d"]
    with pytest.raises(clew.errors.Unserialisable):
        store.put_many([(NOTES, "e", {"v": object()})], delete=[(NOTES, "b")])
    assert keys(store.search()) == ["b", "d"]


def test_touch(place: Any, db: clew.Database) -> None:
    store = db.store()
    store.put_many([(NOTES, "a", {}, 100.0), (NOTES, "b", {}, 100.0), (NOTES, "c", {})])
    place.let_pass(db, 60)
    store.touch([(NOTES, "a"), (NOTES, "c"), (NOTES, "nothing")])
    place.let_pass(db, 60)
    assert keys(store.search()) == ["a", "c"]
    store.touch([])


def test_texts_may_be_told(db: clew.Database) -> None:
    def texts(value: dict[str, Any], fields: list[str] | None) -> list[str] | None:
        return [value["title"].upper(), " "] if fields is None else None

    store = db.store(texts=texts)
    store.put(NOTES, "1", {"title": "Dune", "by": "Frank"})
    store.put(NOTES, "2", {"title": "Emma", "by": "Jane"}, index=["by"])
    assert keys(store.search(query="dune")) == ["1"]
    assert keys(store.search(query="frank")) == []
    assert keys(store.search(query="jane")) == ["2"]
