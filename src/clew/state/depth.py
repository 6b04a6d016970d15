"""How deep a state may be: bounded where it is written, so that whatever was saved can be read back."""

from __future__ import annotations

from clew.errors import Unserialisable
from clew.state import codec_format as f


class Depth:
    """The containers that a draft is within. What it takes apart is put together again, and read as a whole."""

    __slots__ = ("_open", "objects")

    def __init__(self) -> None:
        self.objects = 0
        self._open: set[int] = set()

    def enter(self, value: object, path: str) -> None:
        """Go into a dict, a list or an object."""
        if id(value) in self._open:
            raise contains_itself(path)
        if len(self._open) >= f.MAX_LISTS:
            raise too_deep(path)
        self._open.add(id(value))

    def leave(self, value: object) -> None:
        self._open.discard(id(value))

    def check_object(self, payload: bytes, path: str) -> None:
        """What an object consists of, put together: the bound that its reader has."""
        if self.objects > f.MAX_EXTS or f.nests_too_deep(payload):
            raise too_deep(path)


def contains_itself(path: str) -> Unserialisable:
    return Unserialisable(
        f"{path or 'the value'} contains itself",
        path=path,
        hint="store an id there instead of the object, and look it up when the state is loaded",
    )


def too_deep(path: str) -> Unserialisable:
    short = path if len(path) <= 120 else f"{path[:60]}…{path[-50:]}"
    return Unserialisable(
        f"{short or 'the value'} is nested too deeply: at most {f.MAX_LISTS} lists and dicts directly in "
        f"each other and {f.MAX_EXTS} objects, tuples or sets",
        path=path,
        hint="keep the items in one flat list or dict, and refer to them by id",
    )
