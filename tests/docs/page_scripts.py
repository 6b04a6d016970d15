"""The scripts that write pages, as modules."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType

from pages import ROOT


def script(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(f"script_{name}", str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
