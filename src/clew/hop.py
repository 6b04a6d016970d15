"""From an event loop onto threads of Clew's own and back: how `clew.aio` and the adapters await what blocks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from clew.errors import Closed

P = ParamSpec("P")
R = TypeVar("R")
_THREADS = 8


class Hop:
    """Runs calls on threads of our own, never on the event loop's default executor."""

    def __init__(self) -> None:
        self._start()
        self._closed = False

    def _start(self) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="clew")

    async def __call__(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._closed:
            raise Closed("what this awaits on is closed")
        if self._process != os.getpid():
            self._start()  # a forked process has none of its parent's threads
        outcome = asyncio.get_running_loop().run_in_executor(self._executor, partial(call, *args, **kwargs))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            while not outcome.done():
                try:
                    await asyncio.wait([outcome])
                except asyncio.CancelledError:
                    continue
            if not outcome.cancelled():
                outcome.exception()  # looked at, so that nobody is warned of it
            raise

    def close(self) -> None:
        self._closed = True
        if self._process != os.getpid():
            return
        self._executor.shutdown(wait=True)
