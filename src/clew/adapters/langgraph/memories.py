"""What subgraphs keep for themselves (`checkpointer=True`): it stands in namespaces that outlive a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.errors import BadInput
from clew.placed import PlacedThreads

try:
    from langgraph.checkpoint.base import empty_checkpoint
except ImportError as error:
    raise BadInput("LangGraphAgent needs the package langgraph", hint='pip install "clew[langgraph]"') from error

if TYPE_CHECKING:
    from clew.adapters.langgraph.saver import ClewSaver

_OF_A_TASK = ":"
"""In a namespace: it is that of one task, and no other task will ask for it."""


def put_back(saver: ClewSaver, thread_id: str, step: int) -> None:
    """Let them remember what they did before a step: LangGraph's latest is the greatest id, so it is placed again."""
    for ns, id_ in PlacedThreads(saver.db).grown(thread_id, step).items():
        if not ns or _OF_A_TASK in ns:
            continue
        if id_ is None:
            put_nothing(saver, thread_id, ns)
            continue
        found = saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id_}})
        if found is not None:
            again: Any = {**found.checkpoint, "id": empty_checkpoint()["id"]}
            saver.put(found.config, again, {**found.metadata, "source": "fork"}, {})


def put_nothing(saver: ClewSaver, thread_id: str, ns: str) -> None:
    """Let a namespace go on from an empty state."""
    of: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
    saver.put(of, empty_checkpoint(), {"source": "fork", "step": -2, "parents": {}}, {})
