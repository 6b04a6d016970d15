"""Values that stand for something else: bytes nobody here can read, an exception that was, bytes kept elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class UnknownType(UserWarning):
    """Something was read that this process cannot build; it came back as `Opaque`."""


UNREGISTERED = "no class is registered under this name"


class Opaque:
    """A stored value that cannot be built here, with its exact bytes: saving it again writes the same bytes.

    `.type_name` and `.version` say what it is, `.reason` why it is not that.
    """

    __slots__ = ("_payload", "_reason", "_tag", "_type_name", "_version")

    def __init__(self, tag: int, payload: bytes, *, type_name: str, version: int | None, reason: str) -> None:
        self._tag = tag
        self._payload = payload
        self._type_name = type_name
        self._version = version
        self._reason = reason

    @property
    def tag(self) -> int:
        """The extension tag that the bytes carry."""
        return self._tag

    @property
    def payload(self) -> bytes:
        """The bytes behind the tag, exactly as stored."""
        return self._payload

    @property
    def type_name(self) -> str:
        return self._type_name

    @property
    def version(self) -> int | None:
        return self._version

    @property
    def reason(self) -> str:
        return self._reason

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return self._tag == other._tag and self._payload == other._payload

    def __hash__(self) -> int:
        return hash((self._tag, self._payload))

    def __copy__(self) -> Opaque:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Opaque:
        return self

    def __str__(self) -> str:
        return f"a stored {self._titled()} came back as Opaque: {self._reason}; {self.hint}"

    def __repr__(self) -> str:
        return f"<Opaque {self._titled()}, {len(self._payload)} bytes: {self._reason}; {self.hint}>"

    def _titled(self) -> str:
        name = self._type_name if len(self._type_name) <= 100 else f"{self._type_name[:100]}…"
        return name if self._version is None else f"{name} version {self._version}"

    @property
    def hint(self) -> str:
        """What makes it readable, if anything here does."""
        if self._reason != UNREGISTERED:
            return "saved again, it stays as it is"
        module, colon, cls = self._type_name[:200].partition(":")
        if colon:
            return f"before reading: from {module} import {cls}; clew.register({cls})"
        return f'before reading, import the class that has @clew.register("{self._type_name[:200]}")'


@dataclass(frozen=True, slots=True)
class ExceptionSummary:
    """What is kept of an exception: enough to read, nothing to run.

    `args` are the exception's arguments as text, shortened; `cause` is what it was raised from.
    """

    type_name: str
    message: str
    notes: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    cause: ExceptionSummary | None = None

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


def summary_of(error: BaseException) -> ExceptionSummary:
    """What is kept of an exception, shortened."""
    cause = error.__cause__
    return ExceptionSummary(
        type(error).__qualname__,
        str(error)[:2000],
        tuple(getattr(error, "__notes__", ()))[:20],
        tuple(str(arg)[:200] for arg in error.args[:10]),
        summary_of(cause) if isinstance(cause, Exception) and cause is not error else None,
    )


class Blob:
    """Large bytes kept once, by content, and read when asked for.

        Blob(png, media_type="image/png")

    Equal when digest and media type are; immutable.
    """

    __slots__ = ("_data", "_digest", "_load", "_media_type", "_size")
    _load: Callable[[], bytes]

    def __init__(self, data: bytes, *, media_type: str | None = None) -> None:
        if type(data) is not bytes:
            raise TypeError(f"a Blob is made of bytes, not of {type(data).__name__}")
        self._data: bytes | None = data
        self._digest = digest_of(data)
        self._size = len(data)
        self._media_type = media_type

    @classmethod
    def lazy(cls, digest: str, size: int, media_type: str | None, load: Callable[[], bytes]) -> Blob:
        """A blob whose bytes `load()` brings at the first `read()`."""
        blob = cls.__new__(cls)
        blob._data = None
        blob._load = load
        blob._digest = digest
        blob._size = size
        blob._media_type = media_type
        return blob

    @property
    def digest(self) -> str:
        """BLAKE2b-256 of the bytes, in hex."""
        return self._digest

    @property
    def size(self) -> int:
        return self._size

    @property
    def media_type(self) -> str | None:
        return self._media_type

    def read(self) -> bytes:
        """The bytes. A lazy blob loads them each time, so that they can be let go of."""
        return self._load() if self._data is None else self._data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        return self._digest == other._digest and self._media_type == other._media_type

    def __hash__(self) -> int:
        return hash((self._digest, self._media_type))

    def __copy__(self) -> Blob:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Blob:
        return self

    def __repr__(self) -> str:
        media_type = "" if self._media_type is None else f", {self._media_type}"
        return f"<Blob {self._digest[:12]}, {self._size} bytes{media_type}>"


def digest_of(data: bytes) -> str:
    """The name of these bytes: BLAKE2b-256 in hex."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()
