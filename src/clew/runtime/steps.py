"""A procedure that plain and asynchronous callers share: a generator of steps, and the two ways to take them.

What it decides stands once. A step says what is to be done next; its outcome is what the generator goes on with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from clew.runtime.hops import hop


class Store(NamedTuple):
    """A short call to storage."""

    call: Callable[[], Any]


class Outside(NamedTuple):
    """A function of the user's, which may take long, and what it runs within."""

    call: Callable[[], Any]
    within: AbstractContextManager[Any]


class Rest(NamedTuple):
    """So many seconds, or until a call that is under way in this process has ended."""

    seconds: float
    until: Future[None] | None = None


Step = Store | Outside | Rest
Steps = Generator[Step, Any, Any]


def take(steps: Steps) -> Any:
    """Take the steps here and now; what the generator returns."""
    resume: Callable[[], Step] = partial(next, steps)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            return end.value
        resume = _next(steps, *_outcome(step))


def _next(steps: Steps, found: Any, error: BaseException | None) -> Callable[[], Step]:
    return partial(steps.send, found) if error is None else partial(steps.throw, error)


def _outcome(step: Step) -> tuple[Any, BaseException | None]:
    try:
        return _taken(step), None
    except BaseException as error:  # noqa: BLE001 - the generator decides what it means
        return None, error


def _taken(step: Step) -> Any:
    if isinstance(step, Store):
        return step.call()
    if isinstance(step, Outside):
        with step.within:
            return step.call()
    if step.until is None:
        return time.sleep(step.seconds)
    try:
        return step.until.result(step.seconds)
    except TimeoutError:
        return None


async def take_async(steps: Steps) -> Any:
    """Take the steps without blocking the loop."""
    resume: Callable[[], Step] = partial(next, steps)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            return end.value
        resume = _next(steps, *await _outcome_async(step))


async def _outcome_async(step: Step) -> tuple[Any, BaseException | None]:
    try:
        return await _taken_async(step), None
    except BaseException as error:  # noqa: BLE001
        return None, error


async def _taken_async(step: Step) -> Any:
    if isinstance(step, Store):
        return await hop(step.call)
    if isinstance(step, Outside):
        with step.within:
            found = step.call()
            return await found if hasattr(found, "__await__") else found
    if step.until is None:
        return await asyncio.sleep(step.seconds)
    await asyncio.wait([asyncio.wrap_future(step.until)], timeout=step.seconds)
    return None
