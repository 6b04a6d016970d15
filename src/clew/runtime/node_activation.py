"""The activation of a node of an agent: its journal is that of the run, its way out that of the drive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clew.asking import new_request
from clew.errors import ActivationClosed, Rejected
from clew.runtime.activation import Activation, Slot, Stop
from clew.runtime.machine import Task
from clew.runtime.waiting import asking
from clew.state.private import Lent
from clew.storage.ledger import NewRequest

_WRITTEN = b"\xc0"

if TYPE_CHECKING:
    from clew.runtime.drive import Drive
    from clew.runtime.nodes import Node


class NodeActivation(Activation):
    """One attempt of a task of a run."""

    def __init__(self, drive: Drive, task: Task) -> None:
        self._drive = drive
        self._key = drive.key(task)
        self.is_sent = task.sent >= 0
        self.lent: dict[int, Lent] = {}
        """The long lists of the node's view, by their `id`."""
        self.ledger = drive.ledger
        self.lease = drive.lease
        self.tenant = drive.thread._tenant
        self.origin = drive.origin
        super().__init__(f"{drive.run}/{self._key}", task.name, drive.thread.id, drive.thread.branch, drive.run)

    @property
    def step(self) -> int | None:
        base = self._drive.thread._memory.base
        return None if base is None else base.step

    def gate(self, node: Node) -> None:
        """Ask before the node begins, if it was declared so."""
        if not node.ask_before:
            return
        question = node.ask_before if isinstance(node.ask_before, str) else f"Run {node.name}?"
        if not self.answer(new_request(question, bool, **asking(self, "before")), bool):
            raise Rejected(f"{question!r} was answered with no", hint="answer yes to a new run, or cancel this one")

    def digest_of(self, value: list[Any]) -> bytes | None:
        lent = self.lent.get(id(value))
        return None if lent is None else lent.digest(value)

    def distrust(self) -> None:
        """The node has changed the state in place: what calls were made with is not what they are known by."""
        for slot in self.trusting:
            self._drive.journal.void(f"{self._key}/{slot.call}", slot.idx)

    def find(self, slot: Slot) -> bytes | None:
        return self._drive.journal.find(f"{self._key}/{slot.call}", slot.idx)

    def keep(self, slot: Slot, value: bytes) -> None:
        super().check()
        self._drive.journal.keep(f"{self._key}/{slot.call}", slot.idx, value)

    def check(self) -> None:
        super().check()
        self._drive.look()
        if self._drive.stopping:
            raise Stop("the run is being cancelled")

    def answer(self, request: NewRequest, schema: Any = None) -> Any:
        self._drive.opened()
        return super().answer(request, schema)

    def emit(self, value: Any) -> None:
        self.check()
        self._drive.tell("emit", self.node, value)

    def checkpoint(self, label: str, update: Mapping[str, Any] | None) -> None:
        slot = self.slot(f"checkpoint {label}")
        if self.pauses:
            raise ActivationClosed(f"node {self.node!r} is on its way out: it {self.pauses[0]}")
        if self.find(slot) is not None:
            return  # an earlier attempt has written it
        journal = self._drive.journal
        place = f"{self._key}/{slot.call}", slot.idx, _WRITTEN
        taken = self._drive.agent.schema.update_of(update, f"clew.checkpoint({label!r})")
        self._drive.write_within(label, taken, journal.record(*place))
        journal.note(*place)

    @property
    def database(self) -> Any:
        return self._drive.thread._db

    @property
    def context(self) -> Any:
        return self._drive.context
