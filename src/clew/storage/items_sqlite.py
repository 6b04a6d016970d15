"""Items in SQLite: words in an FTS5 table, which the first item that has words brings into being.

The table serves all tenants, so each text also has a word that says whose it is, by tenant and scope: a search reads
the lists of its own scope's rows only. Nothing here ranks by FTS5's numbers, which count everybody's texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from clew.storage.items import Items, NewItem
from clew.storage.relational import Run
from clew.storage.sqlite_storage import SqliteStorage

_END_OF_SCOPE = b"\x01"
"""Stands in each place once: behind the scope, before the namespace."""


class SqliteItems(Items):
    def __init__(self, storage: SqliteStorage) -> None:
        super().__init__(storage)
        self._tenant = storage._tenant

    def _owner(self, place: bytes) -> str:
        """The word of all items of this tenant in the scope of this place."""
        return f"@{self._tenant}_{blake2b(place.partition(_END_OF_SCOPE)[0], digest_size=8).hexdigest()}"

    def _store(self, run: Run, item: NewItem, values: dict[str, Any]) -> None:
        row = run("put_item", **values)[0][0]
        if not item.words:
            self._forget_text(run, [row])
            return
        if not run("item_text_exists"):
            run("create_item_text")
        run("put_item_text", item=row, text=" ".join((self._owner(item.place), *item.words)))

    def _forget_text(self, run: Run, rows: Iterable[int]) -> None:
        gone = list(rows)
        if gone and run("item_text_exists"):
            for row in gone:
                run("delete_item_text", item=row)

    def _find(self, run: Run, words: Sequence[str], values: dict[str, Any]) -> list[tuple[Any, ...]]:
        if not run("item_text_exists"):
            return []
        terms = (self._owner(values["low"]), *words)
        return run("items_by_words", match=" ".join(f'"{term}"' for term in terms), **values)
