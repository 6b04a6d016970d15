"""Threads for nodes that run side by side: kept for the next round, and not waited for when the process ends."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

Work = Callable[[], object]
_MOST = 32
"""Threads that are kept when nothing is to be done."""
_idle: list[queue.SimpleQueue[Work]] = []
os.register_at_fork(after_in_child=_idle.clear)


def call(work: Work) -> None:
    """Do this on a thread of the crew. It raises nothing; it may take as long as it likes."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="clew-node", daemon=True).start()
    inbox.put(work)


def _serve(inbox: queue.SimpleQueue[Work]) -> None:
    while True:
        inbox.get()()
        if len(_idle) >= _MOST:
            return
        _idle.append(inbox)
