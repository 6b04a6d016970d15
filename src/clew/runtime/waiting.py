"""What a node waits for: people, signals, time. The process may end meanwhile; the node runs again from its beginning,
and gets here with what it waited for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from clew.asking import new_request
from clew.errors import BadInput
from clew.items import Store, Texts
from clew.runtime.activation import Activation, Pause, here
from clew.state.codec import decode, encode
from clew.writing import check_text

T = TypeVar("T")
_NONE: Any = ...


@overload
def ask(
    question: Any,
    *,
    schema: type[T],
    id: str | None = None,
    assignee: str | None = None,
    expires: timedelta | float | None = None,
    default: Any = ...,
    approvals: int = 1,
) -> T: ...
@overload
def ask(
    question: Any,
    *,
    schema: Any = None,
    id: str | None = None,
    assignee: str | None = None,
    expires: timedelta | float | None = None,
    default: Any = ...,
    approvals: int = 1,
) -> Any: ...
def ask(
    question: Any,
    *,
    schema: Any = None,
    id: str | None = None,  # noqa: A002
    assignee: str | None = None,
    expires: timedelta | float | None = None,
    default: Any = _NONE,
    approvals: int = 1,
) -> Any:
    """Ask a person, and get the answer: at once if it was given before, else when the run is resumed after it.

    `schema` says what an answer looks like: a type (bool, a Literal, a dataclass, a pydantic model …) or a JSON Schema;
    the answer comes back as that type. `id` names the question within the node; without it, the question itself does.
    `expires` (seconds, or a timedelta) decides for `default`, or raises `RequestExpired` here. With `approvals=2`, two
    people have to give the same answer. Who refuses where the schema has no way to say no raises `Rejected` here.
    """
    activation = here("clew.ask")
    if id is None:
        told = encode([question, assignee, approvals], path="question")
        id = f"q-{hashlib.blake2b(told, digest_size=6).hexdigest()}"  # noqa: A001
    slot = activation.slot(f"ask {id}")
    if slot.idx:
        id = f"{id}#{slot.idx}"  # noqa: A001 - asked again in the same node, in a loop
    request = new_request(
        question,
        schema,
        **asking(activation, id),
        assignee=assignee,
        expires=expires,
        default=default,
        approvals=approvals,
    )
    return activation.answer(request, schema)


def asking(activation: Activation, id: str) -> dict[str, Any]:  # noqa: A002
    """What a request says of the node that asks it."""
    return {
        "activation": activation.id,
        "ask": id,
        "branch": activation.branch,
        "run": activation.run,
        "step": activation.step,
    }


def wait(signal: str, timeout: timedelta | float | None = None) -> Any:
    """Wait for `db.signal(signal, value)`, and get the value. A signal that came before counts, and is taken once.

    `TimeoutError` when none has come in time, by the database's clock.
    """
    activation = here("clew.wait")
    check_text(signal, "signal's name")
    slot = activation.slot(f"wait {signal}")
    state, value = _wait(activation, f"{slot.call}#{slot.idx}", signal, timeout)
    if state == "open":
        activation.pause(Pause(f"waits for the signal {signal!r}"))
    if state == "over":
        raise TimeoutError(f"no signal {signal!r} has come in time")
    return decode(value)


def sleep(seconds: timedelta | float) -> None:
    """Sleep without a process: the run goes on when the time is over, by the database's clock, after a restart too."""
    activation = here("clew.sleep")
    slot = activation.slot("sleep")
    state, _ = _wait(activation, f"sleep#{slot.idx}", None, seconds)
    if state == "open":
        activation.pause(Pause("sleeps", sleeping=True))


def _wait(activation: Activation, id: str, name: str | None, time: timedelta | float | None) -> tuple[str, Any]:  # noqa: A002
    row = activation.wait(id, name, None if time is None else microseconds(time))
    return row.state, row.value


def microseconds(time: timedelta | float) -> int:
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if type(seconds) not in (int, float) or not 0 <= seconds < _LONGEST:
        raise BadInput(f"{time!r:.60} is no time to wait", hint="give seconds, or a timedelta")
    return int(seconds * 1_000_000)


_LONGEST = 100 * 366 * 24 * 3600


def emit(value: Any) -> None:
    """Tell whoever listens to the run (`agent.stream`): tokens, progress. Nothing is stored."""
    here("clew.emit", anywhere=True).emit(value)


def checkpoint(label: str, update: Mapping[str, Any] | None = None) -> None:
    """Write a checkpoint in the middle of a long node, with an update of the state if there is one.

    After a crash the node begins anew, on the state with that update; what it had recorded is not called again.
    """
    here("clew.checkpoint").checkpoint(label, update)


def store(
    *,
    embed: Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
    dims: int | None = None,
    texts: Texts | None = None,
    **scope: str | int,
) -> Store:
    """`db.store(…)` of the run's database, in a node: what the node writes there is written when it ends.

    In the commit that keeps what it returns, or not at all: a node that fails, waits or loses its process has written
    nothing, and writes it when it runs again. It reads what it has written; others see it after that commit.
    """
    activation = here("clew.store")
    found: Store = activation.database._store(activation.items, scope, embed=embed, dims=dims, texts=texts)
    return found


def context() -> Any:
    """What this run was started with as `context=`."""
    return here("clew.context", anywhere=True).context
