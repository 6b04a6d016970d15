"""The reference is complete: every public name, method, signature, error, command and tag stands on its page."""

from __future__ import annotations

import ast
import re

import pytest
from page_scripts import script
from pages import ROOT

import clew
import clew.aio
import clew.cli
import clew.errors
from clew.state import codec, codec_format
from clew.storage.statements import migrations

DOCS = ROOT / "docs"
API = (DOCS / "api.md").read_text("utf-8")
FORMAT = (DOCS / "format.md").read_text("utf-8")
api = script("api")


@pytest.mark.parametrize("name", clew.__all__)
def test_every_public_name_is_in_the_api(name: str) -> None:
    assert f"clew.{name}(" in API or f"\n### {name}\n" in API, "run scripts/api"


@pytest.mark.parametrize("name", clew.aio.__all__)
def test_every_awaitable_name_is_in_the_api(name: str) -> None:
    assert f"clew.aio.{name}(" in API or f"\n### aio.{name}\n" in API, "run scripts/api"


@pytest.mark.parametrize("name", [name for name in clew.__all__ if isinstance(getattr(clew, name), type)])
def test_every_method_is_in_the_api_as_it_is_now(name: str) -> None:
    for member, value in api.members(getattr(clew, name)):
        if name != "extend":
            assert f"**{api.entry(name.lower(), member, value)}**" in API, f"{name}.{member}: run scripts/api"


@pytest.mark.parametrize("name", [*api.FUNCTIONS, *api.RUNNING])
def test_every_function_is_in_the_api_as_it_is_now(name: str) -> None:
    assert f"**`clew.{name}{api.signature(getattr(clew, name))}`**" in API, "run scripts/api"


@pytest.mark.parametrize("name", ["Database", "Thread", "Store", "Agent", "Run", "Checkpoint"])
def test_every_awaitable_method_is_in_the_api(name: str) -> None:
    section = API.split(f"\n### aio.{name}\n", 1)[1].split("\n#", 1)[0]
    for member, value in api.members(getattr(clew.aio, name)):
        assert api.entry(name.lower(), member, value) in section, f"aio.{name}.{member}: run scripts/api"


def test_every_error_is_in_the_api() -> None:
    for name, cls in vars(clew.errors).items():
        if isinstance(cls, type) and issubclass(cls, clew.errors.ClewError):
            assert f"| `{name}` | `{cls.code}` | {cls.exit_code} |" in API, "run scripts/api"


def test_every_command_is_on_the_page_of_the_command_line() -> None:
    page = (DOCS / "cli.md").read_text("utf-8")
    for name in clew.cli.main.commands:
        assert f"clew {name}" in page


def test_the_format_lists_the_tags_that_the_codec_has() -> None:
    rows = [line for line in (codec.__doc__ or "").splitlines() if line.startswith("|")]
    assert len(rows) > 25
    assert "\n".join(rows) in FORMAT
    listed = {int(tag) for row in rows for tag in re.findall(r"\d+", row.split("|")[1])}
    assert listed >= set(range(codec_format.INT, codec_format.NUMPY_SCALAR + 1))


def test_the_format_names_the_formats_that_are_written() -> None:
    newest = {backend: migrations(backend)[-1][0] for backend in ("sqlite", "postgres")}
    (row,) = [line for line in FORMAT.splitlines() if line.startswith("| the schema |")]
    assert row.endswith(f"| {newest['sqlite']} on SQLite, {newest['postgres']} on PostgreSQL |")


def test_the_reader_in_the_format_needs_nothing_of_clew() -> None:
    program = FORMAT.split("## A reader", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    statements = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.name for node in statements for alias in node.names}
    assert imported == {"sqlite3", "zlib", "ormsgpack", "zstandard"}


def test_every_folder_of_tests_is_on_the_page_about_testing() -> None:
    page = (DOCS / "testing.md").read_text("utf-8")
    for folder in {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}:
        assert f"../tests/{folder}/" in page, folder
