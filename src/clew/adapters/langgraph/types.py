"""The types of LangGraph and LangChain that are read back from stored bytes. None is found by a name in the data."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

import clew
from clew.placed import meet

_ERROR = "__error__"
_MODULES = {
    "langgraph.types": ("Send", "Command", "Interrupt", "Overwrite", "TimeoutPolicy", "RetryPolicy", "StateSnapshot"),
    "langgraph.checkpoint.serde.types": ("_DeltaSnapshot",),
    "langgraph.store.base": ("Item", "SearchItem", "GetOp", "PutOp", "SearchOp", "ListNamespacesOp"),
    "langchain_core.documents": ("Document",),
    "langchain_core.prompt_values": ("ChatPromptValue", "StringPromptValue"),
    "langchain_core.agents": ("AgentAction", "AgentActionMessageLog", "AgentFinish"),
    "langchain_core.outputs": ("ChatGeneration", "ChatGenerationChunk", "Generation", "GenerationChunk"),
}


@cache
def register() -> None:
    """Make LangGraph's and LangChain's own types readable."""
    from importlib import import_module

    from langchain_core import messages
    from langchain_core.messages import BaseMessage

    for name in messages.__all__:
        cls = getattr(messages, name)
        if isinstance(cls, type) and issubclass(cls, BaseMessage):
            meet(cls)
    for module, names in _MODULES.items():
        found = import_module(module)
        for name in names:
            cls = getattr(found, name, None)
            if isinstance(cls, type) and not meet(cls):
                clew.register(cls)


def allow(names: Iterable[tuple[str, ...]] | Collection[tuple[str, ...]]) -> None:
    """Let classes be read back that running code names as (module, name): a graph's schema."""
    for module, name, *_ in names:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            meet(found)


def storable(channel: str, value: Any) -> Any:
    """A write's value as it is kept: of an error, its text, as LangGraph's own savers do."""
    return repr(value) if channel == _ERROR and isinstance(value, BaseException) else value
