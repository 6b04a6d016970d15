"""The architecture, held by tests: layers, sizes, names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
import clew.aio

SOURCE = Path(clew.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py"))

# What a room may import from within the package, beside itself. Rooms are the first names that match.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "references": {"errors", "model"},
    # Told by every layer that does something, so it stands under all of them.
    "observing": set(),
    "state": {"errors"},
    "storage": {"errors", "model", "storage"},
    "reading": {"errors", "model", "references", "state", "storage.port"},
    "retention": {"errors", "model", "references", "state", "storage.placed", "storage.port"},
    # What adapters may use besides the public API.
    "placed": {
        "asking",
        "errors",
        "model",
        "references",
        "database",
        "observing",
        "reading",
        "retention",
        "state",
        "storage.changes",
        "storage.ledger",
        "storage.queue",
        "storage.placed",
        "storage.placed_requests",
        "storage.port",
        "writing",
    },
    "thread": {"errors", "model", "references", "reading", "state", "storage.port", "writing"},
    "writing": {
        "errors",
        "model",
        "observing",
        "references",
        "reading",
        "state",
        "storage.changes",
        "storage.ledger",
        "storage.port",
    },
    "items": {"errors", "items_search", "model", "references", "state", "storage.items"},
    "items_search": {"errors", "model", "state", "storage.items"},
    "asking": {"errors", "state", "storage.ledger"},
    "requests": {"asking", "errors", "model", "references", "state", "storage.ledger", "storage.port", "thread"},
    "notifying": {"errors", "model", "references", "requests", "storage.ledger"},
    "database": {
        "errors",
        "model",
        "references",
        "requests",
        "notifying",
        "retention",
        "runs",
        "state",
        "items",
        "submitting",
        "thread",
        "writing",
        "storage.port",
        "storage.items",
        "storage.ledger",
        "storage.queue",
        # The one place that chooses a backend.
        "storage.sqlite",
        "storage.postgres",
        "storage.blobs",
    },
    "hop": {"errors"},
    "runs": {
        "errors",
        "model",
        "reading",
        "references",
        "requests",
        "state",
        "storage.ledger",
        "storage.placed",
        "storage.port",
        "storage.queue",
        "thread",
        "writing",
    },
    "submitting": {
        "database",
        "errors",
        "observing",
        "references",
        "runs",
        "state",
        "storage.ledger",
        "storage.queue",
        "thread",
        "writing",
    },
    "runtime": {
        "asking",
        "storage.wanted",
        "database",
        "errors",
        "hop",
        "items",
        "storage.items",
        "model",
        "observing",
        "reading",
        "references",
        "requests",
        "runs",
        "state",
        "storage.changes",
        "storage.ledger",
        "storage.port",
        "storage.queue",
        "submitting",
        "thread",
        "writing",
    },
    "aio": {
        "aio_runtime",
        "database",
        "hop",
        "items",
        "model",
        "requests",
        "runs",
        "thread",
        "writing",
        "state",
        "storage.ledger",
        "storage.port",
        "storage.queue",
        "submitting",
    },
    "aio_runtime": {
        "aio",
        "items",
        "hop",
        "model",
        "runs",
        "runtime",
        "state",
        "storage.ledger",
        "storage.queue",
        "thread",
        "writing",
    },
    "adapters": {
        "errors",
        "model",
        "hop",
        "observing",
        "placed",
        # A framework's runs are run as an agent's are.
        "runs",
        "runtime.crew",
        "runtime.executor",
        # And in a framework's nodes, Clew's functions find what they find in an agent's.
        "runtime.activation",
        "runtime.journal",
        "runtime.undoing",
        "storage.wanted",
        "asking",
        "state",
        "storage.changes",
        "runtime.loops",
        "runtime.retry",
        "storage.ledger",
        "storage.queue",
        "submitting",
        "aio",
        "",
    },
    "cli": {"adapters", "errors", ""},
    "__main__": {"cli"},
}
STATE_MAY_USE = {
    "stdlib",
    "ormsgpack",
    "zstandard",
}
IO_MODULES = {"os", "socket", "subprocess", "time", "random", "secrets", "asyncio", "sqlite3", "apsw"}


def room(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it the import stands."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            if module == "clew":
                for name in node.names:
                    inner = SOURCE / name.name
                    yield (
                        node.lineno,
                        f"clew.{name.name}" if inner.is_dir() or inner.with_suffix(".py").exists() else "clew",
                    )
            else:
                yield node.lineno, module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_layers(path: Path) -> None:
    here = room(path)
    if here in ("", "testing"):
        return
    for line, module in imports(path):
        if module != "clew" and not module.startswith("clew."):
            continue
        inner = module.removeprefix("clew").removeprefix(".")
        first = inner.split(".", maxsplit=1)[0]
        allowed = LAYERS[here]
        fine = (
            first == here
            or first in allowed
            or any(inner == name or inner.startswith(f"{name}.") for name in allowed if name)
        )
        assert fine, f"{path.name}:{line}: {here} may not import {module}"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if room(path) == "state"], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_the_state_layer_is_pure(path: Path) -> None:
    """No I/O, no clock, no randomness, no database. (`os.urandom` marks the end of an encoding; see codec_read.)"""
    for line, module in imports(path):
        top = module.split(".", maxsplit=1)[0]
        assert top not in IO_MODULES or path.name == "codec_read.py", f"{path.name}:{line}: {module}"
        assert top == "clew" or top in sys.stdlib_module_names or top in STATE_MAY_USE, f"{path.name}:{line}: {module}"


def test_modules_have_at_most_500_lines() -> None:
    sizes = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > 500} == {}
    assert sorted(sizes.values())[len(sizes) // 2] < 250


def test_functions_have_at_most_70_lines() -> None:
    long = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > 70:
                    long[f"{path.name}:{node.name}"] = size
    assert long == {}


def test_exported_names() -> None:
    for module in (clew, clew.aio):
        for name in module.__all__:
            assert hasattr(module, name)
    public = {
        name for name in vars(clew) if not name.startswith("_") and not isinstance(getattr(clew, name), type(sys))
    }
    assert public == set(clew.__all__)


def test_only_the_command_line_reads_the_environment() -> None:
    for path in MODULES:
        if room(path) in ("cli", "testing"):
            continue
        text = path.read_text()
        assert "environ" not in text, path
        assert "getenv" not in text, path


def test_sql_is_never_built_from_data() -> None:
    """Statements stand in .sql files or constants: no f-string or % in a call that executes."""
    for path in MODULES:
        if room(path) != "storage":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("execute", "run")
            ):
                first = node.args[0] if node.args else None
                built = isinstance(first, (ast.JoinedStr, ast.BinOp))
                allowed = path.name == "sqlite_file.py"  # pragmas take no parameters
                assert not built or allowed, f"{path.name}:{node.lineno}"
