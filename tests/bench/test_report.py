"""How the figures of a page are written."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    ("figure", "written"),
    [
        (0.0, "0.00 ms"),
        (0.000461, "0.00046 ms"),
        (0.0024, "0.0024 ms"),
        (0.01, "0.01 ms"),
        (0.147, "0.15 ms"),
        (27.651, "27.65 ms"),
        (2133.4, "2,133 ms"),
    ],
)
def test_a_small_figure_keeps_two_digits_that_say_something(figure: float, written: str) -> None:
    from bench.report import number
    from bench.rows import Row

    assert number(Row("langgraph", "a listing", figure, "ms")) == written


def test_counts_are_whole_and_what_could_not_be_measured_is_a_dash() -> None:
    from bench.report import number
    from bench.rows import Row

    assert number(Row("history", "queries for the page itself", 1, "")) == "1"
    assert number(Row("history", "queries for the page itself", None, "")) == "-"
