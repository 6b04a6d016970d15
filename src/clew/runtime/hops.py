"""Short calls to storage from within asynchronous nodes, on threads of the runtime's own."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from clew.hop import Hop

P = ParamSpec("P")
R = TypeVar("R")
_hops: list[Hop] = []
os.register_at_fork(after_in_child=_hops.clear)


async def hop(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Make the call on another thread, in this context. An await that is cancelled waits for its outcome first."""
    if not _hops:
        _hops.append(Hop())
    return await _hops[0](partial(contextvars.copy_context().run, partial(call, *args, **kwargs)))
