"""Items in PostgreSQL: words as a tsvector in the row, made without PostgreSQL's parsers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clew.storage.items import Items, NewItem
from clew.storage.relational import Run


class PostgresItems(Items):
    def _store(self, run: Run, item: NewItem, values: dict[str, Any]) -> None:
        run("put_item", **values, text=list(item.words))

    def _forget_text(self, run: Run, rows: Iterable[int]) -> None:
        """The words stood in the row."""

    def _find(self, run: Run, words: Sequence[str], values: dict[str, Any]) -> list[tuple[Any, ...]]:
        # A word holds neither ' nor \, so that in quotes it is a lexeme as it stands.
        return run("items_by_words", match=" & ".join(f"'{word}'" for word in words), **values)
