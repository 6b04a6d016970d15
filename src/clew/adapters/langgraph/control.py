"""LangGraph's checkpoints taken apart: the user's state, and control data that only the graph needs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from clew.errors import Corrupt
from clew.model import Kind
from clew.placed import Found, New, Question

INTERRUPT, RESUME = "__interrupt__", "__resume__"
NULL_TASK = "00000000-0000-0000-0000-000000000000"
"""Whose writes are nobody's: a command's from outside."""
_HIDDEN = ("branch:", "join:", "__pregel_")
_INPUT = "__start__"
_TASKS = "__pregel_tasks"
_KINDS: dict[str, Kind] = {"input": "input", "update": "edit", "fork": "fork"}
_PARTS = frozenset({dict, type(None)})
_KNOWN = frozenset({"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"})


def is_hidden(channel: str) -> bool:
    """Whether a channel is the graph's own, not the user's."""
    return channel == _INPUT or channel.startswith(_HIDDEN)


def take_apart(checkpoint: Mapping[str, Any], metadata: dict[str, Any]) -> New:
    """A checkpoint and its metadata, ready to be placed."""
    values: dict[str, Any] = checkpoint["channel_values"]
    state = {name: value for name, value in values.items() if not is_hidden(name)}
    control: dict[str, Any] = {
        "v": checkpoint.get("v"),
        "ts": checkpoint.get("ts"),
        "versions": checkpoint["channel_versions"],
        "seen": checkpoint["versions_seen"],
    }
    if len(state) != len(values):
        control["values"] = {name: value for name, value in values.items() if is_hidden(name)}
    if "updated_channels" in checkpoint:
        control["updated"] = checkpoint["updated_channels"]
    if len(checkpoint) > len(_KNOWN) or not _KNOWN.issuperset(checkpoint):
        control["more"] = {name: value for name, value in checkpoint.items() if name not in _KNOWN}
    run, source = metadata.get("run_id"), metadata.get("source")
    delta = metadata.get("counters_since_delta_snapshot") or ()
    return New(
        state,
        control,
        metadata,
        kind=_KINDS.get(source, "step") if isinstance(source, str) else "step",
        run=run if isinstance(run, str) else None,
        next=next_nodes(values, checkpoint["channel_versions"], checkpoint["versions_seen"]),
        leans=any(name not in values for name in delta),
    )


def versions(control: Mapping[str, Any]) -> Mapping[str, object]:
    """The channels' versions: a value is written only if its version is another than in the parent."""
    found: Any = control.get("versions")
    if type(found) is not dict:
        raise Corrupt("the control data of a checkpoint names no versions")
    return found


def put_together(found: Found) -> Any:
    """The checkpoint as LangGraph put it."""
    control = found.control
    parts = [control.get(name) for name in ("versions", "seen", "more", "values")]
    if not _PARTS.issuperset(map(type, parts)):
        raise Corrupt(f"the control data of checkpoint {found.id!r} is not LangGraph's")
    versions, seen, more, values = [{} if part is None else part for part in parts]
    checkpoint = {
        "v": control.get("v"),
        "ts": control.get("ts"),
        "id": found.id,
        "channel_versions": versions,
        "versions_seen": seen,
        **more,
        "channel_values": {**found.state, **values},
    }
    if "updated" in control:
        checkpoint["updated_channels"] = control["updated"]
    return checkpoint


def next_nodes(values: Mapping[str, Any], versions: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    """The nodes that run next, as far as the checkpoint alone tells."""
    nodes: list[str] = []
    for channel in values:
        if channel != _INPUT and not channel.startswith("branch:to:"):
            continue
        node = channel.removeprefix("branch:to:")
        last = seen.get(node, {}).get(channel)
        version = versions.get(channel)
        if version is not None and (last is None or version > last):
            nodes.append(node)
    sent = (getattr(task, "node", None) for task in values.get(_TASKS) or ())
    return [*nodes, *(name for name in sent if isinstance(name, str))]


def has_ended(writes: Mapping[str, Any]) -> bool:
    """Whether a task that writes this has come to its end, and is not run again."""
    return not any(name in writes for name in (INTERRUPT, RESUME, "__error__", "__error_source_node__"))


def asked(writes: Mapping[str, Any]) -> list[Question]:
    """What a task asks people with these writes."""
    interrupts = writes.get(INTERRUPT)
    if not isinstance(interrupts, (list, tuple)):
        return []
    from langgraph.types import Interrupt

    return [Question(one.id, one.value) for one in interrupts if isinstance(one, Interrupt)]


def answered(task: str, writes: Mapping[str, Any]) -> str | None:
    """The task whose questions are answered with these writes; "" are all of the checkpoint."""
    if RESUME not in writes or INTERRUPT in writes:
        return None
    return "" if task == NULL_TASK else task


def next_version(current: str | float | None) -> str | int:
    """The version after `current`. Numbers count on; a thread that came from elsewhere keeps its texts."""
    if current is None:
        return 1
    if isinstance(current, str):
        count = int(current.partition(".")[0]) + 1
        return f"{count:032}.{random.random():016}"  # noqa: S311 - as LangGraph's own, to sort after it
    return int(current) + 1
