"""Undoing what a run has done: its effects, the newest first; each undoing is an effect itself.

Word of it stands in the run's row from its beginning to its end, so that whoever takes the run up goes on with it. An
effect is marked as compensated when its undoing is known to be done, and is passed by from then on.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from clew.errors import BadInput, Fenced, StorageError
from clew.runtime.activation import Activation, Pause, current
from clew.runtime.effect_questions import ask_whether, in_a_line
from clew.runtime.effects import Declared, called, declared
from clew.runtime.machine import Task
from clew.runtime.node_activation import NodeActivation
from clew.runtime.transactions import within
from clew.state.codec import decode, encode
from clew.storage.ledger import Complete, EffectRow, RunStatus, Want, Withdraw
from clew.storage.wanted import ROLL_BACK, UNDO

if TYPE_CHECKING:
    from clew.runtime.drive import Drive

_PAGE = 100
STOPPING = ("cancel", "interrupt", "compensate", "rollback", UNDO, ROLL_BACK)
"""Words that end a run."""


class Undoing(NodeActivation):
    """What undoing runs in. The run is being cancelled, but this goes on."""

    def __init__(self, drive: Drive) -> None:
        super().__init__(drive, Task("undo"))
        self.id = f"{drive.run}/undo"
        self.origin = None  # what other paths have undone is no matter of this one

    def check(self) -> None:
        Activation.check(self)


def undone(drive: Drive, heard: str | None, word: str) -> RunStatus:
    """Undo all effects of the run that are declared with `compensate=`, then end it, as the word says.

    The word is `heard` when an earlier attempt has begun with this. Somebody may have to be asked on the way.
    """
    held = drive.held
    if heard != word:
        drive.ledger.apply(drive.thread.id, [Want(drive.run, word), Withdraw(run=drive.run)], lease=drive.lease)
    activation = Undoing(drive)
    token = current.set(activation)
    try:
        for row in sorted(_made(drive), key=lambda row: (row.created, row.attempt), reverse=True):
            _undo(drive, activation, row)
    except Pause as pause:
        return held.end("waiting", requests=pause.requests, entries=drive.not_asked_again(pause.requests))
    except (StorageError, Fenced):
        raise
    except Exception as error:  # noqa: BLE001 - whatever is in the way: the run shows it
        held.error = error
        return held.end("paused", error=error)
    finally:
        activation.close("is over")
        current.reset(token)
    return held.roll_back() if word == ROLL_BACK else held.end("cancelled")


def _made(drive: Drive) -> list[EffectRow]:
    """The claims of the run that may have changed the world."""
    made: list[EffectRow] = []
    after: tuple[str, int] | None = None
    while page := drive.ledger.effects(drive.thread.id, after=after, limit=_PAGE):
        made += [row for row in page if row.run == drive.run and row.state not in ("failed", "compensated")]
        after = page[-1].key, page[-1].attempt
    return [row for row in made if row.activation != f"{drive.run}/undo"]


def _undo(drive: Drive, activation: Undoing, row: EffectRow) -> None:
    of = declared.get(row.name)
    if of is None:
        raise BadInput(
            f"{in_a_line(row.name, row.shown)} cannot be undone: this process knows no effect {row.name!r}",
            hint="import the module that declares it, then resume the run",
        )
    if of.compensate is None:
        return
    if row.state != "done":
        found = _told(drive, activation, of, row)
        if found is None:
            return
        row = found
    key = f"undo {row.key} #{row.attempt}"
    args, kwargs = _arguments(of, row)
    result = None if row.value is None else decode(row.value)
    from clew.runtime.loops import own_loop, start

    name = f"undo {of.name}"
    undo = Declared(of.compensate, name, key)
    if of.transaction is not None:
        undo = within(of.compensate, name, key, of.transaction.seconds)
    made = called(undo)(result, *args, **kwargs)
    if inspect.iscoroutine(made):
        start(made, drive.held.loop or own_loop()).result()
    newest = drive.ledger.effects(drive.thread.id, key=key)
    if newest and newest[-1].state == "done":  # not, when a person has chosen to go on without it
        drive.ledger.complete(drive.thread.id, Complete(row.key, row.token, "compensated"))


def _told(drive: Drive, activation: Undoing, of: Declared, row: EffectRow) -> EffectRow | None:
    """The claim, if a person says that it was done: nobody else knows. Its late result counts as well, and comes first.

    Nothing waits for a call that is under way: it may never end.
    """
    drive.ledger.complete(drive.thread.id, Complete(row.key, row.token, "unknown"))
    answer = ask_whether(activation, of.fn, row)
    if answer == "not done":
        drive.ledger.complete(drive.thread.id, Complete(row.key, row.token, "failed", row.value))
        return None
    drive.ledger.complete(drive.thread.id, Complete(row.key, row.token, "done", encode(answer["done"])))
    return row._replace(state="done", value=encode(answer["done"]))


def _arguments(of: Declared, row: EffectRow) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the effect was called with."""
    given: dict[str, Any] = {} if row.shown is None else decode(row.shown)
    try:
        signature = inspect.signature(of.fn)
    except (TypeError, ValueError):  # not written in Python
        return tuple(given["args"]), dict(given["kwargs"])
    if strange := [name for name in given if name not in signature.parameters]:
        raise BadInput(
            f"{in_a_line(row.name, row.shown)} cannot be undone: {of.name!r} has no parameter {strange[0]!r} any more",
            hint="bring it back, and resume the run",
        )
    bound = inspect.BoundArguments(signature, given)
    return bound.args, bound.kwargs
