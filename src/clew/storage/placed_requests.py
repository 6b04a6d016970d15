"""The requests that placed checkpoints open: questions of tasks, each in the transaction that records them.

1. A question is known by its id, which is unique in its thread. A task within a task asks, and what is around it asks
   the same on: that is one request, of the innermost one that was heard of.
2. A task asks all that it asks at once: what it asked before is withdrawn.
3. A recorded answer withdraws the requests that it is for. So does a checkpoint that becomes the latest of its
   namespace: those of the checkpoints before it there, and in the namespaces within. Nothing stays open that no run can
   come back to; and a run that waits for an answer to one of these is due, for it stands elsewhere now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.storage.ledger import NewRequest, Withdraw
from clew.storage.ledger_entries import Writer
from clew.storage.relational import Run

_ASKED = "placed"
_WITHIN = "|"
"""Between a namespace and one within it."""


class Asking(NamedTuple):
    """What a task asks and answers, with its records. `answered`: a task, or "" for all tasks of the checkpoint."""

    ns: str
    id: str
    requests: Sequence[NewRequest] = ()
    answered: str | None = None


class _Open(NamedTuple):
    """An open request, and the task that asked."""

    number: int
    activation: str
    ask: str
    ns: str
    id: str


def activation_of(ns: str, id_: str, task: str) -> str:
    """What names a task of a placed checkpoint in its requests."""
    return f"{_ASKED}:{len(ns)}:{len(id_)}:{ns}{id_}{task}"


def ask(run: Run, tenant: int, thread: int, thread_id: str, asking: Asking) -> None:
    """Open and withdraw what is asked and answered."""
    found = _open(run, thread)
    placed = run("placed", thread=thread, ns=asking.ns, id=asking.id)
    writer = Writer(run, tenant, thread, thread_id, placed[0][2] if placed else None)
    if asking.answered is not None:
        only = asking.answered and activation_of(asking.ns, asking.id, asking.answered)
        answered = [one for one in _of(found, asking.ns) if not only or one.activation == only]
        _withdraw(writer, answered)
        found = [one for one in found if one not in answered]
    if asking.requests:
        asked = {request.ask for request in asking.requests}
        mine = asking.requests[0].activation
        _withdraw(writer, [one for one in found if one.activation == mine and one.ask not in asked])
    for request in asking.requests:
        others = [one for one in found if one.ask == request.ask and one.activation != request.activation]
        if any(one.ns != asking.ns for one in _of(others, asking.ns)):
            continue  # it only comes up from within
        _withdraw(writer, others)
        writer.ask(request)


def overtake(run: Run, tenant: int, thread: int, thread_id: str, ns: str, id_: str) -> None:
    """A checkpoint has become the latest of its namespace: what was asked before it is no longer asked."""
    gone = [one for one in _of(_open(run, thread), ns) if one.id < id_]
    writer = Writer(run, tenant, thread, thread_id)
    _withdraw(writer, gone)
    if gone:
        writer.query("wake_askers", numbers=[one.number for one in gone])


def seat(run: Run, thread: int, step: int, ns: str, id_: str) -> None:
    """A checkpoint has come after what its tasks have asked: its requests stand on it from now on."""
    first = activation_of(ns, id_, "")
    run("seat_requests", thread=thread, step=step, low=first, high=first + "\U0010ffff")


def _open(run: Run, thread: int) -> list[_Open]:
    found = []
    for number, activation, asked in run("placed_requests", thread=thread, low=f"{_ASKED}:", high=f"{_ASKED};"):
        _, of_ns, of_id, rest = activation.split(":", 3)
        ns, beyond = int(of_ns), int(of_ns) + int(of_id)
        found.append(_Open(number, activation, asked, rest[:ns], rest[ns:beyond]))
    return found


def _of(found: list[_Open], ns: str) -> list[_Open]:
    """Those of a namespace, and of the ones within it."""
    return [one for one in found if one.ns == ns or not ns or one.ns.startswith(ns + _WITHIN)]


def _withdraw(writer: Writer, gone: Sequence[_Open]) -> None:
    if gone:
        writer.write(Withdraw(numbers=[one.number for one in gone]))
