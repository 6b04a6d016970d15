"""The project's pages: their Python blocks as programs, their links as paths."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("README.md")],
    key=lambda page: page.relative_to(ROOT),
)
_BLOCK = re.compile(r"^```python\n(.*?)^```|^<!-- setup\n(.*?)^-->", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_OPTIONS = doctest.ELLIPSIS


class Block(NamedTuple):
    """A piece of Python on a page. A `<!-- setup … -->` comment is one that readers do not see."""

    line: int
    code: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(text.count("\n", 0, match.start()) + 1, match[1] if match[1] is not None else match[2])
        for match in _BLOCK.finditer(text)
    ]


def run(page: Path, names: dict[str, Any]) -> int:
    """Run a page from top to bottom in one namespace; returns how many blocks there were. Raises where one fails."""
    found = blocks(page)
    for line, code in found:
        if ">>>" not in code:
            exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, f"{name(page)}:{line}", str(page), line)
        said: list[str] = []
        failed = doctest.DocTestRunner(optionflags=_OPTIONS).run(test, out=said.append, clear_globs=False).failed
        assert not failed, "".join(said)
        names.update(test.globs)
    return len(found)


def links(page: Path) -> list[str]:
    """Where the page points inside the project."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    return [link for link in _LINK.findall(text) if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """The names by which GitHub lets one jump to the page's headings."""
    headings = _HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
