"""Inputs that are taken in between two supersteps, as writes of nobody's task on the latest checkpoint.

LangGraph applies all of them at once, and in one superstep a channel without a reducer takes one value, and one with a
reducer one `Overwrite`. Inputs come one after the other: so what a later one says takes the place of what it overrides.
Records are kept by their place in the list, which therefore never gets shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.errors import BadInput

try:
    from langgraph.channels import EphemeralValue, LastValue, UntrackedValue
    from langgraph.pregel import _messages
    from langgraph.types import Command, Overwrite
except ImportError as error:
    raise BadInput("LangGraphAgent needs the package langgraph", hint='pip install "clew[langgraph]"') from error

_give_ids = getattr(_messages, "ensure_message_ids", lambda *_: None)
"""Messages get ids when they become writes; older versions of LangGraph give none."""
_ONE = (EphemeralValue, LastValue, UntrackedValue)
"""Channels that take one value a superstep."""


def take_in(writes: list[tuple[str, Any]], given: Any, channels: Mapping[str, Any]) -> None:
    """Add an input to what others have written before it."""
    update = list(Command(update=given)._update_as_tuples())
    _give_ids(channels, update)
    for name, value in update:
        channel = channels.get(name)
        at = next((at for at, write in enumerate(writes) if write[0] == name and _yields(channel, write[1])), None)
        if at is None:
            writes.append((name, value))
        elif isinstance(channel, _ONE) or isinstance(value, Overwrite):
            writes[at] = name, value
        else:
            writes[at] = name, Overwrite(_reduced(channel, writes[at][1].value, value))


def _yields(channel: Any, value: Any) -> bool:
    """Whether a later value of the channel cannot stand beside this one."""
    return isinstance(channel, _ONE) or isinstance(value, Overwrite)


def _reduced(channel: Any, before: Any, value: Any) -> Any:
    channel = channel.from_checkpoint(before)
    channel.update([value])
    return channel.get()
