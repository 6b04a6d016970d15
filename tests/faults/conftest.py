"""Where the images of broken disks are laid down."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one: a sweep opens thousands of files."""
    shared = Path("/dev/shm")
    if not (shared.is_dir() and os.access(shared, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="clew-faults-", dir=shared) as name:
        yield Path(name)
