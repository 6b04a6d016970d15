"""What the pages show is so: their programs run, their links lead somewhere, their output is real."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_scripts import script
from pages import PAGES, ROOT, anchors, blocks, links, name, run


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_python_on_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACE", "0")  # the README's program takes its time, so that one can kill it
    if "AGENT_DB" in page.read_text("utf-8"):
        monkeypatch.setenv("AGENT_DB", request.getfixturevalue("postgres").url)
    assert run(page, {"__name__": "page"})


@pytest.mark.parametrize(
    "block", [">>> 1 + 1\n3\n", ">>> 1 / 0\n", "assert 1 == 2\n", "nothing_of_this_name\n", ">>> print('a')\nb\n"]
)
def test_a_page_that_is_wrong_is_noticed(block: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```python\nright = 1\n```\n\n```python\n{block}```\n")
    with pytest.raises((AssertionError, NameError)):
        run(page, {})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_the_page_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} points at {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} points at {link}"


def test_the_output_in_the_readme_is_real() -> None:
    readme_script = script("readme")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme_script.ageless(readme) == readme_script.ageless(readme_script.written(readme)), "run scripts/readme"


def test_the_figures_about_langgraph_are_those_that_were_measured() -> None:
    readme_script = script("readme")
    assert readme_script.savers() in readme_script.LANGGRAPH.read_text("utf-8"), "run scripts/readme"


def test_the_figures_in_the_readme_are_those_that_were_measured() -> None:
    readme_script = script("readme")
    table = readme_script.bench()
    assert table in (ROOT / "README.md").read_text("utf-8"), "run scripts/readme"
    if readme_script.RESULTS.exists():
        rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
        assert len(rows) >= 4
        assert any("bytes" in row for row in rows)
        assert any("latest" in row for row in rows), "also where the other is faster"
