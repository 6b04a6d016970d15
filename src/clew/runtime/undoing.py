"""Undoing what a run has done: its effects, the newest first; each undoing is an effect itself.

Word of it stands in the run's row from its beginning to its end, so that whoever takes the run up goes on with it. An
effect is marked as compensated when its undoing is known to be done, and is passed by from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clew.errors import BadInput, Fenced, StorageError
from clew.runtime.activation import Activation, Pause, Slot, current
from clew.runtime.effect_questions import ask_whether, in_a_line
from clew.runtime.effects import Declared, called, declared
from clew.runtime.transactions import within
from clew.state.codec import decode, encode
from clew.storage.ledger import Complete, EffectRow, RunStatus, Want, Withdraw
from clew.storage.wanted import ROLL_BACK, UNDO

if TYPE_CHECKING:
    from clew.runtime.executor import Held

_PAGE = 100
STOPPING = ("cancel", "interrupt", "compensate", "rollback", UNDO, ROLL_BACK)
"""Words that end a run."""


class Undoing(Activation):
    """What undoing runs in. The run is being cancelled, but this goes on."""

    def __init__(self, held: Held) -> None:
        row = held.row
        self.held = held
        self.ledger = held.ledger
        self.lease = held.lease
        self.tenant = held.db.tenant_name
        super().__init__(f"{row.id}/undo", "undo", row.thread_id, row.branch, row.id)

    @property
    def step(self) -> int | None:
        base = self.held.thread._memory.base
        return None if base is None else base.step

    def find(self, slot: Slot) -> bytes | None:  # noqa: ARG002 - an undoing is one call, and is recorded itself
        return None

    def keep(self, slot: Slot, value: bytes) -> None:
        pass

    def emit(self, value: Any) -> None:
        pass

    def checkpoint(self, label: str, update: Mapping[str, Any] | None) -> None:  # noqa: ARG002
        raise BadInput(f"clew.checkpoint({label!r}) was called while a run is undone")

    @property
    def database(self) -> Any:
        return self.held.db

    @property
    def context(self) -> Any:
        return self.held.context


def undo(held: Held, heard: str | None, word: str) -> RunStatus | None:
    """Undo all effects of a run that are declared with `compensate=`; None when that is done.

    Else the run's status: somebody has to be asked first, or something is in the way. `heard` is the word of the run;
    it is `word` when an earlier attempt has begun with this.
    """
    run, thread_id = held.row.id, held.row.thread_id
    if heard != word:
        held.ledger.apply(thread_id, [Want(run, word), Withdraw(run=run)], lease=held.lease)
    activation = Undoing(held)
    token = current.set(activation)
    try:
        for row in sorted(_made(held), key=lambda row: (row.created, row.attempt), reverse=True):
            _undo(activation, row)
    except Pause as pause:
        asked = held.ledger.requests(thread_id=thread_id, status="open", run=run)
        others = Withdraw([row.number for row in asked if row.number not in pause.requests])
        return held.end("waiting", requests=pause.requests, entries=[others])
    except (StorageError, Fenced):
        raise
    except Exception as error:  # noqa: BLE001 - whatever is in the way: the run shows it
        held.error = error
        return held.end("paused", error=error)
    finally:
        activation.close("is over")
        current.reset(token)
    return None


def _made(held: Held) -> list[EffectRow]:
    """The claims of the run that may have changed the world."""
    made: list[EffectRow] = []
    after: tuple[str, int] | None = None
    while page := held.ledger.effects(held.row.thread_id, after=after, limit=_PAGE):
        made += [row for row in page if row.run == held.row.id and row.state not in ("failed", "compensated")]
        after = page[-1].key, page[-1].attempt
    return [row for row in made if row.activation != f"{held.row.id}/undo"]


def _undo(activation: Undoing, row: EffectRow) -> None:
    of = declared.get(row.name)
    if of is None:
        raise BadInput(
            f"{in_a_line(row.name, row.shown)} cannot be undone: this process knows no effect {row.name!r}",
            hint="import the module that declares it, then resume the run",
        )
    if of.compensate is None:
        return
    if row.state != "done":
        found = _told(activation, of, row)
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
        start(made, activation.held.loop or own_loop()).result()
    newest = activation.ledger.effects(activation.thread_id, key=key)
    if newest and newest[-1].state == "done":  # not, when a person has chosen to go on without it
        activation.ledger.complete(activation.thread_id, Complete(row.key, row.token, "compensated"))


def _told(activation: Undoing, of: Declared, row: EffectRow) -> EffectRow | None:
    """The claim, if a person says that it was done: nobody else knows. Its late result counts as well, and comes first.

    Nothing waits for a call that is under way: it may never end.
    """
    activation.ledger.complete(activation.thread_id, Complete(row.key, row.token, "unknown"))
    answer = ask_whether(activation, of.fn, row)
    if answer == "not done":
        activation.ledger.complete(activation.thread_id, Complete(row.key, row.token, "failed", row.value))
        return None
    activation.ledger.complete(activation.thread_id, Complete(row.key, row.token, "done", encode(answer["done"])))
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
