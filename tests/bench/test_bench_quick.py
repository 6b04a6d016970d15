"""The benchmarks run, and what they say of bytes holds. Times are printed by them, never asserted: machines differ."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_BYTES = "space"


def run_quick(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    done = run_quick("--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


def test_every_bench_gives_figures(rows: list[dict[str, Any]]) -> None:
    without = {row["bench"] for row in rows if row["figure"] is None}
    assert without <= (set() if find_spec("langgraph") else {"peers", "langgraph", "runtime"}), [
        row for row in rows if row["figure"] is None
    ]
    assert {row["bench"] for row in rows} == {
        "space",
        "saves",
        "growth",
        "latest",
        "history",
        "prune",
        "peers",
        "langgraph",
        "runtime",
        "capacity",
    }


def test_bytes_stay_within_their_targets_on_sqlite(rows: list[dict[str, Any]]) -> None:
    weighed = [row for row in rows if row["bench"] == IN_BYTES and row["what"].startswith("SQLite")]
    assert len(weighed) > 10
    assert [row["what"] for row in weighed if row["met"] is False] == []


def test_bytes_stay_within_their_targets_on_postgres(rows: list[dict[str, Any]]) -> None:
    weighed = [row for row in rows if row["bench"] == IN_BYTES and row["what"].startswith("PostgreSQL")]
    assert weighed
    assert [row["what"] for row in weighed if row["met"] is False] == []


def test_the_messages_cannot_be_compressed_by_a_quarter(rows: list[dict[str, Any]]) -> None:
    (yardstick,) = [row for row in rows if row["what"].startswith("what zstd could save")]
    assert yardstick["met"]


def test_a_page_of_history_is_one_query(rows: list[dict[str, Any]]) -> None:
    (queries,) = [row for row in rows if row["what"] == "SQLite: queries for the page itself"]
    assert queries["figure"] == 1


def test_a_page_tells_where_we_lose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run_quick("--only", "history", "--output", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "## Where we lose" in text
    assert "SQLite: history of" in text


@pytest.fixture
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench` lies beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.usefixtures("_importable")
def test_losses_are_the_rows_that_miss() -> None:
    from bench.report import losses
    from bench.rows import Row

    won, lost = Row("saves", "won", 1.0, target=2.0), Row("saves", "lost", 3.0, target=2.0)
    broken = Row("saves", "broken", None, problem="the reason")
    assert losses([won]) == "Every target is met, and no peer is ahead in any row."
    told = losses([won, lost, broken])
    assert "lost: 3.00" in told
    assert "the reason" in told
    assert "won" not in told


@pytest.mark.usefixtures("_importable")
def test_a_ratio_is_that_of_the_paired_differences() -> None:
    from bench.timing import Pairs

    pairs = Pairs()
    pairs.add([30, 31, 50], [10, 11, 40])  # differences 20, 20, 10 on a median of 11
    assert pairs.ratio == pytest.approx(31 / 11)


@pytest.mark.usefixtures("_importable")
def test_a_row_whose_repetitions_disagree_says_so() -> None:
    from bench.report import losses, table
    from bench.rows import Row

    split = Row("saves", "split", 2.1, target=2.0, numbers={"ratios": [1.9, 2.1, 2.2]})
    clear = Row("saves", "clear", 2.2, target=2.0, numbers={"ratios": [2.1, 2.2, 2.3]})
    assert (split.unsure, clear.unsure) == (True, False)
    assert "**no**? |" in table([split])
    assert losses([split]).endswith("not in every repetition")
    assert "not in every repetition" not in losses([clear])


@pytest.mark.usefixtures("_importable")
def test_claims_are_measured_where_workers_would_claim(tmp_path, postgres, monkeypatch) -> None:
    from bench.workers import claims

    monkeypatch.setattr(claims, "QUEUED", 40)
    places = [("SQLite", str(tmp_path / "claims.db"), None), ("PostgreSQL", postgres.url, postgres.admin_url)]
    for where, url, admin in places:
        found = list(claims.measure(url, admin, where, (1, 20), 5))
        assert [(one.history, one.p50 > 0) for one in found] == [(1, True), (20, True)]
