"""The command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import clew

SOURCE = str(Path(clew.__file__).parent.parent)


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "clew.cli", *args]


def environment(**more: str) -> dict[str, str]:
    """For a child that finds this very Clew."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CLEW_DB", "NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": SOURCE, "PYTHONIOENCODING": "utf-8", **more}


def shell(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `clew …` as a process of its own."""
    return subprocess.run(
        command(*args), cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=120, encoding="utf-8"
    )
