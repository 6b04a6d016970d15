"""Telling where a graph is: a span for each attempt of a node, and the node's name in log records."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.constants import TAG_HIDDEN
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from clew import observing

_NODE = "graph:step:"
"""LangGraph's tag of a node's call, among all the calls that callbacks hear of."""


class Place(NamedTuple):
    """A run, or an attempt of a node: what begins within it stands below its span."""

    where: observing.Where
    span: observing.Span


class Noticing(BaseCallbackHandler):
    """Is called by LangGraph where the node itself runs, so that what the node calls stands below its span.

    Where it ends may be another context, in which nothing can be put back. So each beginning puts its own place right.
    """

    run_inline = True

    def __init__(self, where: observing.Where) -> None:
        self._run = Place(where, observing.UNOBSERVED)
        self._under_way: dict[UUID, tuple[str, Place]] = {}
        self._by_task: dict[str, Place] = {}
        self._attempts: dict[str, int] = {}

    def within(self, span: observing.Span) -> None:
        """The span of the run that the nodes are of."""
        self._run = self._run._replace(span=span)

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
        told, known = tags or (), metadata or {}
        if TAG_HIDDEN in told or not any(tag.startswith(_NODE) for tag in told):
            return
        name, task = str(known.get("langgraph_node", "")), str(known.get("langgraph_checkpoint_ns", ""))
        self._attempts[task] = attempt = self._attempts.get(task, 0) + 1
        where = self._run.where._replace(node=name)
        self._around(task).span.stand()
        place = Place(where, observing.span("node", name, where, attempt=attempt).__enter__())
        observing.where.set(where)
        self._under_way[run_id] = task, place
        self._by_task[task] = place

    def _around(self, task: str) -> Place:
        """The node that a subgraph's node is in; for others, the run."""
        while task:
            task = task.rpartition("|")[0]
            if task in self._by_task:
                return self._by_task[task]
        return self._run

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
        task, place = self._under_way.pop(run_id, (None, None))
        if task is None or place is None:
            return
        self._by_task.pop(task, None)
        place.span.ends(outcome, error)
        place.span.__exit__(None, None, None)
        observing.where.set(self._around(task).where)
