"""Patterns of schemas: the texts that Python's `re` finds them in, in time that no text can blow up."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import BadInput
from clew.state.pattern import MAX_WORK, compile_pattern

_ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c0-9]", r"\d", r"\w", r"\s", r"\W", r"\.", "^", "$", r"\b", r"[\d-]", r"\x61"]
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["({})", "(?:{})", "(?={})", "(?!{})"])
    repeated = st.builds(
        "(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{1,2}?"])
    )
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds(str.format, groups, inner),
        repeated,
    )


PATTERNS = st.recursive(_ATOMS, _grown, max_leaves=8)
TEXTS = st.text(alphabet="abc 1-.\n", max_size=8)


@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=8))
def test_it_finds_what_python_finds(pattern, texts):
    theirs = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    ours = compile_pattern(pattern)
    for text in texts:
        assert ours.found_in(text) == bool(theirs.search(text)), text


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        (r"^[A-Z]{3}-\d{2,4}$", ["ABC-12", "XYZ-1234"], ["ABC-1", "ABCD-12", "abc-12", "ABC-12\n", "ABC-١٢"]),
        (r"^$", [""], [" ", "\n"]),
        (r"", ["", "x"], []),
        (r"[\]\-\\]", ["]", "-", "\\"], ["a", "["]),
        (r"^(?:ja|nein)$", ["ja", "nein"], ["jan", "ja|nein"]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["4.20", "-1", "007"], ["", "-", ".", "1.2.3", "1e5"]),
        (r"^é\u00e9\u{1F600}$", ["éé😀"], ["é", "ee"]),
        (r"^[^\s@]+@[^\s@]+$", ["a@b"], ["a b@c", "@", "a@b@c"]),
        (r"^(a|b)*?c{0}$", ["", "abba"], ["c"]),
        (r"\bend\b", ["the end.", "end"], ["bend", "ending"]),
    ],
)
def test_examples(pattern, fitting, other):
    compiled = compile_pattern(pattern)
    assert [text for text in fitting if not compiled.found_in(text)] == []
    assert [text for text in other if compiled.found_in(text)] == []


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "[a", "[z-a]", "(?<=a)", "(?<!a)", r"(a)\1", "(?P=x)", "a**", "*", "+a", "a{3,2}", "a{x}", r"\p{L}",
     r"\q", "a{5000}", "(a{100}){100}", r"\u{110000}", r"\x6", "\\", "(?i)a", "(" * 60 + ")" * 60, "(?P<x", "[\\d-z]"],
)  # fmt: skip
def test_what_is_not_known_is_refused(pattern):
    with pytest.raises(BadInput, match="pattern"):
        compile_pattern(pattern)


def _steps(pattern: str, text: str) -> int:
    """How many lines of Python it takes."""
    compiled, count = compile_pattern(pattern), 0

    def counted(*_: object) -> object:
        nonlocal count
        count += 1
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        compiled.found_in(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("pattern", [r"^(a|a)*(a*)*b$", r"(a+)+$x", r"^(?:a?){20}a{20}b$"])
def test_twice_the_text_is_twice_the_work(pattern):
    assert _steps(pattern, "a" * 200) < 2.2 * _steps(pattern, "a" * 100)


def test_a_text_that_is_too_long_for_a_pattern_is_not_searched():
    assert compile_pattern("^a+$").fits("a" * 10_000)
    assert not compile_pattern("^a+$").fits("a" * MAX_WORK)
    assert compile_pattern("^(?=a*b)").fits("a" * 100)
    assert not compile_pattern("^(?=a*b)").fits("a" * 10_000)
