"""The planner: which nodes run next. Pure: positions in, positions out.

A *position* is where a run stands: the tasks of its next round, and which joins have seen which of their nodes. It is
stored with each checkpoint, so that any checkpoint can be continued from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from clew import references
from clew.errors import BadInput
from clew.state.codec import decode, encode


class Send(NamedTuple):
    """Run `node` in the next round on a value of its own, instead of the state: returned by a `then` function.

    >>> Send("fetch", {"url": "…"}).node
    'fetch'
    """

    node: str
    value: Any


Then = str | Sequence[str] | Callable[[Any], Any] | None


class Edge(NamedTuple):
    """What follows a node: names (`static`), or what `choose` says of the state after the round."""

    static: tuple[str, ...]
    choose: Callable[[Any], Any] | None


class Task(NamedTuple):
    """A node to be run. `sent` counts what was sent to nodes, from 0; -1: it runs on the state."""

    node: str
    sent: int = -1
    value: Any = None

    @property
    def name(self) -> str:
        return self.node if self.sent < 0 else f"{self.node}#{self.sent}"


class Position(NamedTuple):
    """`round` counts the rounds of a run; `done` names tasks of this round whose updates are in the state already."""

    round: int
    tasks: tuple[Task, ...]
    arrived: Mapping[str, tuple[str, ...]] = {}
    done: tuple[str, ...] = ()

    def pack(self) -> bytes | None:
        """As stored with a checkpoint; None at the end."""
        if not self.tasks:
            return None
        tasks = [[task.node, task.sent, task.value] if task.sent >= 0 else [task.node] for task in self.tasks]
        stored: dict[str, Any] = {"round": self.round, "tasks": tasks}
        if self.arrived:
            stored["arrived"] = {join: list(names) for join, names in self.arrived.items()}
        if self.done:
            stored["done"] = list(self.done)
        return encode(stored, path="next")


def unpack(stored: bytes | None) -> Position:
    """The position that a checkpoint was stored with. Plain names (from elsewhere) are a first round of these."""
    if stored is None:
        return Position(0, ())
    plan = decode(stored)
    if type(plan) is not dict:
        return Position(0, tuple(Task(name) for name in plan))
    arrived = {join: tuple(names) for join, names in plan.get("arrived", {}).items()}
    return Position(plan["round"], tuple(Task(*task) for task in plan["tasks"]), arrived, tuple(plan.get("done", ())))


class Graph:
    """Nodes and what follows them, checked: every name exists, every node can be reached, and there is an end."""

    def __init__(
        self,
        agent: str,
        nodes: Iterable[str],
        start: Sequence[str],
        then: Mapping[str, Then],
        after: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._agent = agent
        self.nodes = tuple(nodes)
        self._order = {name: at for at, name in enumerate(self.nodes)}
        self.edges = {name: _edge(then.get(name)) for name in self.nodes}
        self.after = dict(after)
        self.start = tuple(start) or self._only_start()
        self._joins: dict[str, list[str]] = {}
        for join, names in self.after.items():
            for name in names:
                self._known(name, f"node {join!r} comes after")
                self._joins.setdefault(name, []).append(join)
        for name, edge in self.edges.items():
            for target in edge.static:
                self._known(target, f"node {name!r} is followed by")
        self._check_paths()

    def _only_start(self) -> tuple[str, ...]:
        if not self.nodes:
            raise BadInput(f"agent {self._agent!r} has no nodes", hint="@agent.node above a function adds one")
        if len(self.nodes) > 1:
            raise BadInput(f"agent {self._agent!r} has no start", hint="@agent.node(start=True) says where it begins")
        return self.nodes

    def _known(self, name: str, where: str) -> None:
        if name in self._order:
            return
        near = references.near(name, list(self.nodes))
        hint = "did you mean " + " or ".join(map(repr, near)) + "?" if near else f"its nodes are {self._names()}"
        raise BadInput(f"{where} {name!r}, which agent {self._agent!r} does not have", hint=hint)

    def _names(self) -> str:
        return ", ".join(self.nodes) or "none"

    def _check_paths(self) -> None:
        reached: set[str] = set()
        todo = list(self.start)
        ends = False
        while todo:
            name = todo.pop()
            if name in reached:
                continue
            reached.add(name)
            edge = self.edges[name]
            if edge.choose is not None:
                return  # it may lead anywhere
            following = [*edge.static, *self._joins.get(name, ())]
            ends = ends or not following
            todo += following
        if lost := [name for name in self.nodes if name not in reached]:
            raise BadInput(
                f"nothing leads to node {lost[0]!r} of agent {self._agent!r}",
                hint=f"name it in the then= of another one, or start=True ({', '.join(lost)})",
            )
        if not ends:
            raise BadInput(
                f"agent {self._agent!r} has no end: every node is followed by another one",
                hint="leave out then= where it ends, or let a function return None",
            )

    # -- planning

    def begin(self) -> Position:
        return Position(0, tuple(Task(name) for name in sorted(self.start, key=self._order.__getitem__)))

    def advance(self, position: Position, view: Callable[[], Any]) -> Position:
        """Where a run stands after a round. `view` gives the state after it, for functions that choose."""
        names: set[str] = set()
        sends: list[Send] = []
        arrived = {join: set(seen) for join, seen in position.arrived.items()}
        for node in dict.fromkeys(task.node for task in position.tasks):
            for target in self._following(node, view):
                if isinstance(target, Send):
                    sends.append(target)
                else:
                    names.add(target)
            for join in self._joins.get(node, ()):
                arrived.setdefault(join, set()).add(node)
        for join, seen in list(arrived.items()):
            if seen.issuperset(self.after[join]):
                names.add(join)
                del arrived[join]
        tasks = [Task(name) for name in sorted(names, key=self._order.__getitem__)]
        tasks += [Task(send.node, index, send.value) for index, send in enumerate(sends)]
        waiting = {join: tuple(sorted(seen, key=self._order.__getitem__)) for join, seen in arrived.items()}
        return Position(position.round + 1, tuple(tasks), waiting if tasks else {})

    def _following(self, node: str, view: Callable[[], Any]) -> Sequence[str | Send]:
        edge = self.edges[node]
        if edge.choose is None:
            return edge.static
        chosen = edge.choose(view())
        if chosen is None:
            return ()
        found = [chosen] if isinstance(chosen, (str, Send)) else chosen
        if not isinstance(found, (list, tuple)) or not all(isinstance(one, (str, Send)) for one in found):
            raise BadInput(
                f"the function after node {node!r} chose {chosen!r:.80}",
                hint="it returns a node's name, clew.Send(node, value), a list of these, or None to end",
            )
        for target in found:
            self._known(target.node if isinstance(target, Send) else target, f"the function after node {node!r} chose")
        return found

    def missing(self, position: Position) -> list[str]:
        """Nodes of a position that this agent does not have (any more)."""
        return sorted({task.node for task in position.tasks} - set(self.nodes))


def _edge(then: Then) -> Edge:
    if then is None:
        return Edge((), None)
    if isinstance(then, str):
        return Edge((then,), None)
    if callable(then):
        return Edge((), then)
    if not isinstance(then, (list, tuple)) or not all(isinstance(name, str) for name in then):
        raise BadInput(
            f"then={then!r:.80} says nothing about what follows",
            hint="a node's name, a list of names, a function that chooses, or None for the end",
        )
    return Edge(tuple(then), None)
