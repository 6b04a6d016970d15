"""Running one task of a round: attempts, timeouts, and what a node's end means."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import observing
from clew.errors import BadInput, ClewError
from clew.runtime.activation import Pause, Stop, current
from clew.runtime.machine import Task
from clew.runtime.retry import Retry
from clew.state.private import Lent, Watch, private
from clew.storage.ledger import Entry

if TYPE_CHECKING:
    from clew.runtime.drive import Drive
    from clew.runtime.node_activation import NodeActivation


class Node(NamedTuple):
    """A function of an agent, and how it is run."""

    name: str
    fn: Callable[[Any], Any]
    timeout: float | None = None
    retry: Retry = Retry(attempts=1)
    ask_before: bool | str = False

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)


def made_node(name: str, fn: Any, timeout: Any, retry: Retry, ask_before: Any) -> Node:
    """A node, checked as far as one can before it runs."""
    if not callable(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise BadInput(
            f"node {name!r} is not a plain or async function", hint="a node takes the state and returns what changes"
        )
    if timeout is not None and (type(timeout) not in (int, float) or not timeout > 0):
        raise BadInput(f"timeout={timeout!r:.60} of node {name!r} is not a number of seconds greater than 0")
    if not isinstance(ask_before, bool | str):
        raise BadInput(f"ask_before={ask_before!r:.60} of node {name!r} is neither True nor a question")
    return Node(name, fn, timeout, retry, ask_before)


class Done(NamedTuple):
    """`beside` is what is written in the commit that brings the update."""

    update: dict[str, Any]
    beside: Sequence[Entry] = ()


class Paused(NamedTuple):
    pauses: list[Pause]


class Failed(NamedTuple):
    error: BaseException


class Stopped(NamedTuple):
    """The run is being cancelled, and this task did not finish before."""


Outcome = Done | Paused | Failed | Stopped


class Attempt:
    """One attempt of a task: what the node was lent, and what came of it."""

    def __init__(self, drive: Drive, node: Node, task: Task, number: int) -> None:
        self.drive = drive
        self.node = node
        self.where = drive.where._replace(node=task.name)
        self.number = number
        self.activation: NodeActivation = drive.activation(task)
        self._known: dict[str, Lent] = {}
        self._lend(task)

    def _lend(self, task: Task) -> None:
        schema = self.drive.agent.schema
        if task.sent >= 0:
            self.view: Any = private(task.value)
            self._read: Callable[[], dict[str, Any]] = lambda: {"value": self.view}
            self._watch = Watch(self._read())
            return
        lent, known = self.drive.lend()
        self.view = schema.view(lent)
        self.activation.lent = {id(lent[key]): kept for key, kept in known.items()}
        if self.view is lent:
            self._known = known
        self._read = lambda: schema.read_back(self.view)
        self._watch = Watch(self._read(), self._known)

    def observed(self) -> observing.Span:
        return observing.span("node", self.node.name, self.where, attempt=self.number)

    def done(self, returned: Any) -> Outcome:
        """The node has returned."""
        if self.activation.pauses:  # its code has swallowed the signal
            return Paused(self.activation.pauses)
        if inspect.isawaitable(returned) or inspect.isgenerator(returned):
            raise BadInput(
                f"node {self.node.name!r} returned {type(returned).__name__}", hint="nodes are plain or async functions"
            )
        if (key := self._watch.changed(self._read())) is not None:
            self.activation.distrust()
            raise BadInput(
                f"node {self.node.name!r} changed {self._shown(key)} in place",
                hint=f"return what changes: {{{key!r}: …}}, or {{{key!r}: clew.extend([…])}} to append",
            )
        self.drive.take_back(self._known)
        return Done(self.drive.agent.schema.update_of(returned, f"node {self.node.name!r}"), self.activation.beside())

    def _shown(self, key: str) -> str:
        return "the value it was sent" if self.activation.is_sent else f"state[{key!r}]"

    def ended(self, error: BaseException) -> Outcome:
        """The node has raised."""
        if self.activation.pauses and not real_errors(error):
            return Paused(self.activation.pauses)
        if self.drive.stopping and not real_errors(error):
            return Stopped()
        real = real_errors(error)
        return Failed(real[0] if len(real) == 1 else error)


def real_errors(error: BaseException) -> list[BaseException]:
    """The errors in an exception or group, without the signals that only say: go no further."""
    import asyncio

    if isinstance(error, BaseExceptionGroup):
        found = [leaf for part in error.exceptions for leaf in real_errors(part)]
        return [error] if len(found) > 1 else found
    return [] if isinstance(error, (Pause, Stop, asyncio.CancelledError)) else [error]


def tell_end(span: observing.Span, outcome: Outcome) -> None:
    match outcome:
        case Failed(error):
            span.ends("failed", error)
        case Paused(pauses):
            span.ends("sleeping" if all(pause.sleeping for pause in pauses) else "waiting")
        case Stopped():
            span.ends("cancelled")
        case Done():
            span.ends("done")


def run_sync(drive: Drive, node: Node, task: Task) -> Outcome:
    """Run a plain function, attempt after attempt."""
    number = 1
    while True:
        try:
            attempt = Attempt(drive, node, task, number)
        except (ClewError, ValueError, TypeError) as error:
            return Failed(error)
        with attempt.observed() as span:
            outcome = _once(attempt)
            tell_end(span, outcome)
        if not isinstance(outcome, Failed):
            return outcome
        pause = node.retry.pause(number, outcome.error)
        if pause is None or drive.stopping:
            return outcome
        drive.wait(pause)
        number += 1


def _once(attempt: Attempt) -> Outcome:
    activation = attempt.activation
    call = _with_timeout if attempt.node.timeout is not None else _inline
    try:
        activation.gate(attempt.node)
        outcome = attempt.done(call(attempt))
    except BaseException as error:
        outcome = attempt.ended(error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
    finally:
        activation.close("is over")
    return outcome


def _inline(attempt: Attempt) -> Any:
    token = current.set(attempt.activation)
    place = observing.where.set(attempt.where)
    try:
        return attempt.node.fn(attempt.view)
    finally:
        observing.where.reset(place)
        current.reset(token)


def _with_timeout(attempt: Attempt) -> Any:
    """On a thread that is left alone when its time is over: nothing stops it, but it may not write any more."""
    import contextvars

    over = threading.Event()
    result: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            result.append(_inline(attempt))
        except BaseException as error:  # noqa: BLE001 - raised where the node was called
            errors.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
    thread.start()
    if not over.wait(attempt.node.timeout):
        attempt.activation.close("has run out of time")
        raise _timeout(attempt.node)
    if errors:
        raise errors[0]
    return result[0]


async def run_async(drive: Drive, node: Node, task: Task) -> Outcome:
    """Run an async function, attempt after attempt."""
    import asyncio

    number = 1
    while True:
        try:
            attempt = Attempt(drive, node, task, number)
        except (ClewError, ValueError, TypeError) as error:
            return Failed(error)
        with attempt.observed() as span:
            outcome = await _once_async(attempt)
            tell_end(span, outcome)
        if not isinstance(outcome, Failed):
            return outcome
        pause = node.retry.pause(number, outcome.error)
        if pause is None or drive.stopping:
            return outcome
        await asyncio.sleep(pause)
        number += 1


async def _once_async(attempt: Attempt) -> Outcome:
    import asyncio

    from clew.runtime.loops import gather_up

    activation = attempt.activation
    token = current.set(activation)
    place = observing.where.set(attempt.where)
    try:
        activation.gate(attempt.node)
        try:
            async with asyncio.timeout(attempt.node.timeout) as limit:
                returned = await attempt.node.fn(attempt.view)
        except TimeoutError as error:
            raise (_timeout(attempt.node) if limit.expired() else error) from None
        outcome = attempt.done(returned)
    except BaseException as error:
        outcome = attempt.ended(error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
    finally:
        activation.close("is over")
        await gather_up(activation)
        observing.where.reset(place)
        current.reset(token)
    return outcome


def _timeout(node: Node) -> TimeoutError:
    return TimeoutError(f"node {node.name!r} took longer than {node.timeout:g} s")
