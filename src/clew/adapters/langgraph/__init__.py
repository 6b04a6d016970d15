"""LangGraph on Clew: `ClewSaver` keeps its checkpoints, `ClewStore` its memory across threads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.adapters.langgraph.saver import ClewSaver, RaceWarning
    from clew.adapters.langgraph.store import ClewStore

# Each is imported when it is asked for: neither needs what the other one does.
_HOMES = {"ClewSaver": "saver", "RaceWarning": "saver", "ClewStore": "store"}

__all__ = ["ClewSaver", "ClewStore", "RaceWarning"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
