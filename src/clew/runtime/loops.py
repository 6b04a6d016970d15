"""Event loops for asynchronous nodes, and what becomes of the tasks that they leave behind."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any
from weakref import WeakSet

from clew.runtime.activation import Activation, current

_watched: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
_own: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


def _after_fork() -> None:
    global _starting  # noqa: PLW0603 - the child has neither the thread nor whoever held the lock
    _own.clear()
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def own_loop() -> asyncio.AbstractEventLoop:
    """A loop on a thread of ours, for asynchronous nodes of runs that are not awaited."""
    with _starting:
        if not _own:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="clew-loop", daemon=True).start()
            _own.append(loop)
        return _own[0]


def start(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
    """Run a coroutine on the loop; its tasks are known to their activation."""
    return asyncio.run_coroutine_threadsafe(_watch_then(coroutine, loop), loop)


async def _watch_then(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    if loop not in _watched:
        _watch(loop)
    return await coroutine


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Have each new task of the loop noted by the activation it is started in, if any."""
    _watched.add(loop)
    earlier = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task = earlier(loop, coroutine, **options) if earlier else asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        activation = current.get() if context is None else context.get(current)
        if activation is not None:
            activation.tasks.add(task)
        return task

    loop.set_task_factory(make)


async def gather_up(activation: Activation) -> None:
    """Cancel the tasks that a node has left, and wait for their ends."""
    me = asyncio.current_task()
    while True:
        left = [task for task in activation.tasks if task is not me and not task.done()]
        for task in activation.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nobody is warned of it
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left)
