"""Telling where a graph is: a span for each attempt of a node, and the node's name in log records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.constants import TAG_HIDDEN
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from clew import observing

_NODE = "graph:step:"
"""LangGraph's tag of a node's call, among all the calls that callbacks hear of."""


class Noticing(BaseCallbackHandler):
    """Is called by LangGraph where the node itself runs, so that what the node calls stands below its span."""

    run_inline = True

    def __init__(self, where: observing.Where) -> None:
        self._where = where
        self._begun: dict[UUID, tuple[observing.Span, observing.Where | None]] = {}
        self._attempts: dict[object, int] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - LangChain's names, here and below
        inputs: dict[str, Any],  # noqa: ARG002
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **others: Any,  # noqa: ARG002
    ) -> None:
        told = tags or ()
        if TAG_HIDDEN in told or not any(tag.startswith(_NODE) for tag in told):
            return
        known = metadata or {}
        name, task = str(known.get("langgraph_node", "")), known.get("langgraph_checkpoint_ns")
        self._attempts[task] = attempt = self._attempts.get(task, 0) + 1
        here = self._where._replace(node=name)
        span = observing.span("node", name, here, attempt=attempt)
        self._begun[run_id] = span.__enter__(), observing.where.get()
        observing.where.set(here)

    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **others: Any) -> None:  # noqa: ARG002
        self._ended(run_id, "done", None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **others: Any) -> None:  # noqa: ARG002
        if isinstance(error, GraphInterrupt):
            self._ended(run_id, "waiting", None)
        elif isinstance(error, GraphBubbleUp):
            self._ended(run_id, "done", None)  # a command for the graph around it, or a stop between supersteps
        else:
            self._ended(run_id, "failed" if isinstance(error, Exception) else "cancelled", error)

    def _ended(self, run_id: UUID, outcome: str, error: BaseException | None) -> None:
        found = self._begun.pop(run_id, None)
        if found is None:
            return
        span, before = found
        span.ends(outcome, error)
        span.__exit__(None, None, None)
        observing.where.set(before)  # an awaited end comes in a context of its own, where no token could be reset
