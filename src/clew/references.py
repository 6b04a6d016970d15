"""How people name checkpoints and things: references, branch and tag names, thread ids. Text in, values out.

A reference is read in this order: all digits, a step (thread-wide); `head`; `~n`, n checkpoints back from the head;
a branch; a tag; the first 8 or more characters of an id. `name~n` counts back from what the name means.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from clew.errors import BadInput, BadName, BadReference
from clew.model import Checkpoint

MAX_ID_BYTES = 512
MAX_NAME_BYTES = 255
SHORTEST_PREFIX = 8
_BACK = re.compile(r"~([0-9]*)\Z")
_FARTHEST = 1 << 31


class Reference(NamedTuple):
    """A parsed reference: go to `step`, or to what `name` means (None: the head), then `back` checkpoints."""

    step: int | None
    name: str | None
    back: int
    text: str


def parse(ref: str | int | Checkpoint) -> Reference:
    """Read a reference.

    >>> parse("osaka~2")
    Reference(step=None, name='osaka', back=2, text='osaka~2')
    >>> parse(7).step
    7
    """
    if isinstance(ref, Checkpoint):
        return Reference(ref.step, None, 0, str(ref.step))
    if isinstance(ref, int) and not isinstance(ref, bool):
        if ref < 1:
            raise BadReference(f"there is no step {ref}: steps count from 1")
        return Reference(ref, None, 0, str(ref))
    if not isinstance(ref, str):
        raise BadReference(f"{ref!r} is a {type(ref).__name__}, not a reference")
    if len(ref) > MAX_ID_BYTES or not ref.isprintable():
        raise BadReference(f"{ref[:40]!r} is not a reference")
    name, back = ref, 0
    if match := _BACK.search(ref):
        name = ref[: match.start()]
        back = min(int(match[1]), _FARTHEST) if match[1] else 1
    if not ref or "@" in name or ":" in name or "~" in name:
        raise BadReference(f"{ref!r} is not a reference")
    if name.isascii() and name.isdigit():
        if int(name) < 1:
            raise BadReference(f"there is no step {name}: steps count from 1")
        return Reference(int(name), None, back, ref)
    return Reference(None, None if name in ("", "head") else name, back, ref)


def check_name(name: str, what: str = "branch") -> str:
    """A branch or tag name that no reference could be mistaken for."""
    if not isinstance(name, str):
        raise BadName(f"a {what} name is a str, not {name!r}")
    _check_text(name, f"{what} name", MAX_NAME_BYTES)
    if name.isascii() and name.isdigit():
        raise BadName(f"the {what} name {name!r} reads as a step", hint="add a letter")
    if name == "head":
        raise BadName(f"'head' cannot be a {what} name: it means what a branch points at")
    if set(name) & set("~@:") or name != name.strip():
        raise BadName(f"the {what} name {name!r} contains ~, @, : or outer spaces", hint="these separate references")
    return name


def check_count(count: object, what: str, least: int) -> int:
    """A number of things, cut to what a database can count."""
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise BadInput(f"{what} is a count from {least}, not {count!r}")
    return min(count, _FARTHEST)


def check_thread_id(thread_id: str) -> str:
    """A thread's id: any printable text up to 512 bytes."""
    if not isinstance(thread_id, str):
        raise BadName(f"a thread id is a str, not {thread_id!r}", hint="str(…) it, or use clew.thread_id(user=…)")
    return _check_text(thread_id, "thread id", MAX_ID_BYTES)


def _check_text(text: str, what: str, limit: int) -> str:
    if not text:
        raise BadName(f"a {what} cannot be empty")
    if not text.isprintable():
        raise BadName(f"the {what} {text!r} contains characters that cannot be printed")
    size = len(text.encode("utf-8"))
    if size > limit:
        raise BadName(f"a {what} has at most {limit} bytes, this one has {size}: {text[:40]!r}…")
    return text


def thread_id(**parts: Any) -> str:
    """A thread id made of named parts, so that no two different sets of parts give the same id.

    >>> thread_id(user="anna", session=3)
    'session=3/user=anna'
    >>> thread_id(user="a/b=c")
    'user=a%2Fb%3Dc'
    """
    if not parts:
        raise BadName("thread_id() needs at least one part", hint='for example thread_id(user="anna", session="1")')
    pieces = []
    for name in sorted(parts):
        value = parts[name]
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise BadName(f"the part {name!r} of a thread id is a non-empty str or an int, not {value!r}")
        pieces.append(f"{name}={_escape(str(value))}")
    return check_thread_id("/".join(pieces))


def _escape(text: str) -> str:
    return re.sub(r"[%/=@~]", lambda match: f"%{ord(match[0]):02X}", text)


def near(wanted: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The names that somebody who typed `wanted` may have meant."""
    known = list(dict.fromkeys(names))
    close = difflib.get_close_matches(wanted, known, n=limit, cutoff=0.5)
    starts = [name for name in known if name.lower().startswith(wanted.lower()) and name not in close]
    return tuple((close + starts)[:limit])
