"""LangGraph on Clew: `ClewSaver` keeps its checkpoints, `ClewStore` its memory across threads.

`LangGraphAgent` makes a graph's runs durable: they come back by themselves, and stand in line.

`import_database` brings over what LangGraph's own savers have stored.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.adapters.langgraph.agent import LangGraphAgent
    from clew.adapters.langgraph.importing import Imported, import_database
    from clew.adapters.langgraph.saver import ClewSaver, RaceWarning
    from clew.adapters.langgraph.store import ClewStore

# Each is imported when it is asked for: neither needs what the other one does.
_HOMES = {
    "ClewSaver": "saver",
    "RaceWarning": "saver",
    "ClewStore": "store",
    "LangGraphAgent": "agent",
    "import_database": "importing",
    "Imported": "importing",
}

__all__ = ["ClewSaver", "ClewStore", "LangGraphAgent", "RaceWarning", "import_database", "Imported"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
