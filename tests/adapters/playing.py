"""Playing one story on different savers, and pictures of what it left there, with everything random named by number."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Durability, StateSnapshot

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_TIMES = ("ts", "created_at")


@dataclass(frozen=True)
class Manner:
    """How a story is played: called or awaited, and how durable."""

    how: Literal["called", "awaited"]
    durability: Durability

    def __str__(self) -> str:
        return f"{self.how}-{self.durability}"


MANNERS = [
    Manner("called", "sync"),
    Manner("called", "async"),
    Manner("called", "exit"),
    Manner("awaited", "sync"),
    Manner("awaited", "async"),
    Manner("awaited", "exit"),
]


@dataclass
class Play:
    """One playing of a story. What it `note`s is compared, besides what it left in the saver."""

    saver: Any
    manner: Manner
    thread_id: str
    noted: list[Any] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    _runner: asyncio.Runner | None = None

    def config(self, id_: str | None = None, **more: Any) -> Any:
        told: dict[str, Any] = {"thread_id": self.thread_id}
        if id_ is not None:
            told["checkpoint_id"] = id_
        return {"configurable": told, **more}

    def ran(self, node: str) -> int:
        """Count a node's run; how many there were."""
        self.runs[node] = self.runs.get(node, 0) + 1
        return self.runs[node]

    def note(self, value: Any) -> Any:
        self.noted.append(value)
        return value

    def _do(self, graph: Any, name: str, *args: Any, **named: Any) -> Any:
        if self.manner.how == "called":
            return getattr(graph, name)(*args, **named)
        assert self._runner is not None
        return self._runner.run(getattr(graph, f"a{name}")(*args, **named))

    def invoke(self, graph: Any, given: Any, config: Any = None) -> Any:
        config = config or self.config()
        return self.note(self._do(graph, "invoke", given, config, durability=self.manner.durability))

    def tries(self, graph: Any, given: Any, config: Any = None) -> None:
        """Invoke, and note the error that comes out, if one does."""
        try:
            self.invoke(graph, given, config)
        except Exception as error:
            self.note((type(error).__name__, str(error)))

    def state(self, graph: Any, config: Any = None, **named: Any) -> StateSnapshot:
        state: StateSnapshot = self._do(graph, "get_state", config or self.config(), **named)
        self.note(state)
        return state

    def update(self, graph: Any, values: Any, *, config: Any = None, **named: Any) -> Any:
        return self.note(self._do(graph, "update_state", config or self.config(), values, **named))

    def bulk_update(self, graph: Any, supersteps: Any) -> Any:
        return self.note(self._do(graph, "bulk_update_state", self.config(), supersteps))

    def history(self, graph: Any, config: Any = None, **named: Any) -> list[StateSnapshot]:
        config = config or self.config()
        if self.manner.how == "called":
            found = list(graph.get_state_history(config, **named))
        else:
            assert self._runner is not None
            found = self._runner.run(_all(graph.aget_state_history(config, **named)))
        return self.note(found)

    def tuples(self, config: Any = None, **named: Any) -> list[Any]:
        """What the saver itself lists, grouped by namespace: their order among each other is nobody's promise."""
        config = config or self.config()
        if self.manner.how == "called":
            found = list(self.saver.list(config, **named))
        else:
            assert self._runner is not None
            found = self._runner.run(_all(self.saver.alist(config, **named)))
        of: dict[str, list[Any]] = {}
        for one in found:
            of.setdefault(one.config["configurable"]["checkpoint_ns"], []).append(one)
        return sorted(of.values(), key=lambda group: group[-1].config["configurable"]["checkpoint_id"])


async def _all(found: Any) -> list[Any]:
    return [one async for one in found]


@contextmanager
def playing(saver: Any, manner: Manner, thread_id: str) -> Iterator[Play]:
    play = Play(saver, manner, thread_id)
    if manner.how == "called":
        yield play
        return
    with asyncio.Runner() as runner:
        play._runner = runner
        yield play


Story = Callable[[Play], Any]


def picture(saver: Any, manner: Manner, thread_id: str, story: Story) -> Any:
    """What a story came to: all it noted, how often nodes ran, what the saver holds and the graph reads at the end."""
    with playing(saver, manner, thread_id) as play:
        graph = story(play)
        play.state(graph, subgraphs=True)
        play.history(graph)
        held = play.tuples()
        # From the saver first, the oldest first: so ids get their numbers in the order in which they were made.
        return plain([[group[::-1] for group in held], play.noted, play.runs])


def plain(value: Any) -> Any:
    """Nested lists that compare as they look: types named, ids numbered by appearance, times left out."""
    return _Plain().of(value)


class _Plain:
    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def text(self, text: str) -> str:
        return _RANDOM.sub(lambda found: self._numbers.setdefault(found[0], f"<{len(self._numbers)}>"), text)

    def of(self, value: Any) -> Any:
        kind = type(value).__name__
        if isinstance(value, str):
            return self.text(value) if type(value) is str else [kind, self.text(value)]
        if isinstance(value, BaseMessage):
            return [kind, self.of(value.__dict__)]
        if isinstance(value, BaseException):
            return [kind, self.text(str(value))]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [kind, *([name, self._field(name, getattr(value, name))] for name in value._fields)]
        if isinstance(value, dict):
            # Ids get their numbers on the way, so the way must not depend on the dict's order.
            items = sorted(value.items(), key=lambda item: _RANDOM.sub("", repr(item[0])))
            return ["dict", *([self.of(key), self._field(key, one)] for key, one in items)]
        if isinstance(value, (list, tuple)):
            # LangGraph's own serialiser makes lists of tuples. Ours does not (test_saver_types.py).
            return ["list", *(self.of(one) for one in value)]
        if isinstance(value, (set, frozenset)):
            return [kind, *sorted((self.of(one) for one in value), key=repr)]
        if is_dataclass(value) and not isinstance(value, type):
            return [kind, *([name, self.of(getattr(value, name))] for name in value.__dataclass_fields__)]
        slots = getattr(type(value), "__slots__", None)
        if slots:
            return [kind, *([name, self.of(getattr(value, name, None))] for name in slots)]
        return [kind, repr(value)]

    def _field(self, name: Any, value: Any) -> Any:
        if name in _TIMES:
            return "a time"
        if name in ("channel_versions", "versions_seen"):
            return self.of(_counts(value))
        if name == "channel_values":
            # Kept by version (in memory) or by checkpoint (SQLite's, ours), a snapshot is seen from other checkpoints
            # or not. What a graph makes of it is compared in the states.
            return self.of({key: one for key, one in value.items() if not isinstance(one, _DeltaSnapshot)})
        return self.of(value)


def _counts(versions: Any) -> Any:
    if isinstance(versions, dict):
        return {name: _counts(one) for name, one in versions.items()}
    return int(versions.partition(".")[0]) if isinstance(versions, str) else versions


def differences(found: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Where two pictures differ: a line for each place."""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            name = one[0] if isinstance(one, list) and one and isinstance(one[0], str) else place
            yield from differences(one, other, f"{path}/{name}")
    elif found != wanted:
        yield f"{path}: {str(found)[:300]} instead of {str(wanted)[:300]}"
