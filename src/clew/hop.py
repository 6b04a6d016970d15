"""From an event loop onto threads of Clew's own and back: how `clew.aio` and the adapters await what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_THREADS = 8


class Hop:
    """Runs calls on threads of our own, never on the event loop's default executor."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="clew")

    async def __call__(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
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
        self._executor.shutdown(wait=True)
