"""The text in a value, and the words in a text: what full-text search finds items by.

Words are made here and not by a database, so that the same query finds the same items on each. A word is a run of
letters, digits, marks and underscores, compared without case and compatibility forms; each Chinese or Japanese
character is a word of its own, since nothing separates the words there. All else separates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from clew.state.codec import take_apart

MAX_TEXT = 65_536
"""Characters of a text that are searched for words, and given to an embedding."""
MAX_WORD = 100
MAX_QUERY_WORDS = 64

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE = re.compile(r"\S{1,1000}")  # normalising takes the square of the length when marks pile up
_STRANGE = re.compile(r"[^\w\x00-\x7f]")
_WORD = re.compile(rf"[{_CJK}]|[^\x00-/:-@\[-^`{{-\x7f{_CJK}]+")


def words(text: str, limit: int | None = None) -> list[str]:
    """The different words of a text, in the order in which they first stand there.

    >>> words("Don't PANIC: it's only 東京 (NEAR*)")
    ['don', 't', 'panic', 'it', 's', 'only', '東', '京', 'near']
    """
    found: dict[str, None] = {}
    room = MAX_TEXT
    for piece in _PIECE.finditer(text, 0, MAX_TEXT):
        plain = piece[0].casefold()
        if not plain.isascii():
            plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())
            plain = _STRANGE.sub(_space_unless_mark, plain)
        for word in _WORD.findall(plain):
            found[word[:MAX_WORD]] = None
            room -= len(word)
            if len(found) == limit or room < 0:
                return list(found)
    return list(found)


def _space_unless_mark(strange: re.Match[str]) -> str:
    return strange[0] if unicodedata.category(strange[0])[0] == "M" else " "


def texts(value: Any, fields: Sequence[str] | None) -> list[str]:
    """The texts to find a value by: one of all its strings, or one for each field. Empty ones are left out.

    Dots in a field lead into dicts; a list on the way stands for each of its items.

    >>> texts({"title": "Dune", "tags": ["sand", "worm"]}, None)
    ['Dune\\nsand\\nworm']
    >>> texts({"title": "Dune", "cast": [{"name": "Paul"}, {"name": "Chani"}]}, ["cast.name"])
    ['Paul\\nChani']
    """
    roots = [[value]] if fields is None else [list(_at(value, field)) for field in fields]
    found = ("\n".join(text for root in part for text in _strings(root))[:MAX_TEXT] for part in roots)
    return [text for text in found if text and not text.isspace()]


def _at(value: Any, field: str) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _at(item, field)
    elif isinstance(value, dict):
        if field in value:
            yield value[field]
            return
        name, dot, rest = field.partition(".")
        if dot and name in value:
            yield from _at(value[name], rest)


def _strings(value: Any) -> Iterator[str]:
    """Every string inside, but for the keys of dicts."""
    if type(value) is str:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, set | frozenset):
        yield from sorted(text for item in value for text in _strings(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    else:
        parts = take_apart(value)
        if parts is not None:
            yield from _strings(parts.fields)
