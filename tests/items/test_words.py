"""Words and texts: what a query finds, whatever the database."""

from __future__ import annotations

import time
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.state.words import MAX_TEXT, MAX_WORD, texts, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" \n\t", []),
        ("***", []),
        ('"', []),
        ("Red red RED", ["red"]),
        ("a-b a:b a*", ["a", "b"]),
        ("NEAR(x, 5) OR NOT", ["near", "x", "5", "or", "not"]),
        ("snake_case x.y", ["snake_case", "x", "y"]),
        ("STRASSE straße", ["strasse"]),
        ("\uff26\uff35\uff2c\uff2c \u2460", ["full", "1"]),
        ("cafe\u0301 café", ["café"]),
        ("东京 tower", ["东", "京", "tower"]),
        ("हिन्दी", ["हिन्दी"]),
        ("a\0b\ud800c", ["a", "b", "c"]),
        ("\u200bx\u00a0y", ["x", "y"]),
        ("\u00bd", ["1", "2"]),
        ("'; --", []),
    ],
)
def test_words_of_a_text(text: str, found: list[str]) -> None:
    assert words(text) == found


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_words_are_plain(text: str) -> None:
    for word in words(text):
        assert word
        assert not set(word) & set("\"'\\@*:-()^ \0")
        word.encode()
        assert words(word)[:1] == [word]
    assert set(words(text)) == set(words(text.upper())) or not text.isascii()


def test_words_are_capped() -> None:
    assert words("x" * 5000) == ["x" * MAX_WORD]
    assert len(words(" ".join(map(str, range(100_000))))) < MAX_TEXT
    assert words("a b c d", 2) == ["a", "b"]


def test_marks_in_heaps_do_not_take_for_ever() -> None:
    started = time.process_time()
    words("a" + "\u0301\u0316" * 500_000)
    assert time.process_time() - started < 2.0


@dataclass
class Note:
    title: str
    body: list[str]


def test_texts_of_a_value() -> None:
    value = {
        "a": "one",
        "b": ["two", ("three", {"four"})],
        "n": 5,
        "note": Note("five", ["six"]),
        "e": "",
        "k": {"key": None},
    }
    assert texts(value, None) == ["one\ntwo\nthree\nfour\nfive\nsix\n"]
    assert texts(value, ["a", "b", "missing", "n", "e"]) == ["one", "two\nthree\nfour"]
    assert texts({"list": [{"x": "1"}, {"x": "2"}, {"y": "3"}]}, ["list.x"]) == ["1\n2"]
    assert texts({"a.b": "top", "a": {"b": "inner"}}, ["a.b"]) == ["top"]
    assert texts({"n": 1}, None) == []
    assert len(texts({"a": "x" * (2 * MAX_TEXT)}, None)[0]) == MAX_TEXT
