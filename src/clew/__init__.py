"""Durable state, recovery and time travel for LLM agents.

>>> import clew
>>> db = clew.open("memory:")
>>> with db.thread("trip-7").edit("reply") as state:
...     state.setdefault("messages", []).append({"role": "user", "content": "Tokyo, please"})
>>> db.thread("trip-7").state("head")["messages"][0]["content"]
'Tokyo, please'
"""

from clew.database import Database, open  # noqa: A004 - `clew.open` is the name people guess
from clew.items import Item, Store
from clew.model import Checkpoint, Notified, Overview, Page, Pruned, ThreadInfo, Usage
from clew.references import thread_id
from clew.requests import Answer, Request
from clew.runs import Run, RunInfo
from clew.runtime.activation import bind
from clew.runtime.agent import Agent, Event, agent
from clew.runtime.calls import call_key, recorded
from clew.runtime.effects import Done, effect
from clew.runtime.machine import Send
from clew.runtime.reducers import merge, messages
from clew.runtime.retry import Retry
from clew.runtime.transactions import transaction
from clew.runtime.waiting import ask, checkpoint, context, emit, sleep, store, wait
from clew.runtime.worker import Worker
from clew.state.diff import Diff, diff
from clew.state.diff_json import as_json
from clew.state.draft import Extend as extend  # noqa: N813 - reads as a verb where it is used
from clew.state.registry import register, upcast
from clew.state.values import Blob, ExceptionSummary, Opaque, UnknownType
from clew.thread import Thread

__all__ = [
    "open",
    "thread_id",
    "register",
    "upcast",
    "extend",
    "diff",
    "as_json",
    "agent",
    "recorded",
    "effect",
    "transaction",
    "call_key",
    "ask",
    "wait",
    "sleep",
    "store",
    "emit",
    "checkpoint",
    "context",
    "bind",
    "merge",
    "messages",
    "Agent",
    "Worker",
    "Run",
    "RunInfo",
    "Event",
    "Retry",
    "Done",
    "Send",
    "Database",
    "Thread",
    "Store",
    "Item",
    "Request",
    "Answer",
    "Diff",
    "Checkpoint",
    "ThreadInfo",
    "Page",
    "Pruned",
    "Notified",
    "Overview",
    "Usage",
    "Blob",
    "Opaque",
    "ExceptionSummary",
    "UnknownType",
]


def __getattr__(name: str) -> object:
    # `clew.aio` brings asyncio, and the version is read from the installation: both only for those who ask.
    if name == "aio":
        from importlib import import_module

        return import_module("clew.aio")
    if name == "__version__":
        from importlib.metadata import version

        return version("clew")
    raise AttributeError(f"module 'clew' has no attribute {name!r}")
