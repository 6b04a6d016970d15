"""The steps of a path to a difference, and how a path is written: `messages[12].args.when`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from clew.state.diff_short import escaped, quoted, short


@final
class Missing:
    """The type of `MISSING`: the side of a change on which there is no value (None is a value)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Key:
    """A step to the value under a dict key that is no plain `str`: `Key(7)` is a key, `7` a position in a list."""

    value: object


@dataclass(frozen=True, slots=True)
class Member:
    """A step to a member of a set. Members only come and go, so it is always the last step."""

    value: object


Step: TypeAlias = str | int | Key | Member
Path: TypeAlias = tuple[Step, ...]

_KEY_WIDTH = 40


def key_step(key: object) -> Step:
    """The step to what stands under this dict key."""
    return key if type(key) is str else Key(key)


def where(path: Path) -> str:
    """The path as people write it. Keys that are no identifiers stand in brackets: `scores["odd key"][3]`.

    A string key is written whole, whatever its length; other keys and members of sets are shortened.
    """
    pieces: list[str] = []
    for step in path:
        if isinstance(step, str):
            pieces.append(_name(step, first=not pieces))
        elif isinstance(step, int):
            pieces.append(f"[{step}]")
        elif isinstance(step, Key):
            pieces.append(f"[{short(step.value, _KEY_WIDTH)}]")
        else:
            pieces.append(f"{{{short(step.value, _KEY_WIDTH)}}}")
    return "".join(pieces)


def _name(name: str, *, first: bool) -> str:
    if not (name.isidentifier() and name.isprintable()):
        return f"[{quoted(name, len(escaped(name)) + 2)}]"
    return name if first else f".{name}"
