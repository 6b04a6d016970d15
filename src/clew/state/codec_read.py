"""From bytes to values. What cannot be built becomes Opaque; what is malformed, Corrupt."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ormsgpack import unpackb

from clew.errors import Corrupt
from clew.state import codec_arrays
from clew.state import codec_builtins as builtins
from clew.state import codec_format as f
from clew.state import registry as registering
from clew.state.codec_builtins import Unknown
from clew.state.codec_models import Built, same_models
from clew.state.codec_objects import build_object
from clew.state.codec_special import BUILD_OWN
from clew.state.values import Opaque, UnknownType

_FREE_EXTS = f.FREE_EXTS
Resolve = Callable[[int, bytes], object]

# ormsgpack does not say where a value ended. So each is read as the first of two, the second of which is a mark that
# stored bytes cannot contain on purpose: anything behind the value stands where the mark should.
_MARK = os.urandom(8)
_END = b"\xc4\x08" + _MARK

_BUILD = builtins.BUILD | BUILD_OWN
_LEAVES = {tag: builtins.BUILD[tag] for tag in builtins.LEAVES} | {
    f.ARRAY: codec_arrays.build_array,
    f.NUMPY_SCALAR: codec_arrays.build_scalar,
}
_OBJECTS = frozenset({f.ENUM, f.NAMEDTUPLE, f.OBJECT, f.MODEL, f.STATE})

_unknown: list[Opaque] = []  # met since the last decode ended; warned of outside the C call, which would swallow it
_interrupts: list[BaseException] = []  # a KeyboardInterrupt inside the hook: the C call swallows that as well
_warned: set[tuple[str, str]] = set()


def decode(data: bytes | memoryview, *, resolve: Resolve | None = None) -> Any:
    """The value that `encode` made these bytes of, with exactly its types.

    Never imports or calls anything but the builders of registered types. What is not registered here comes back as
    `Opaque`; malformed bytes are `Corrupt`. `resolve(tag, payload)` is asked for references, tags from REF_FIRST on.
    """
    return _decoded(b"".join((b"\x92", data, _END)), resolve)


def decode_list(
    count: int,
    bodies: Iterable[bytes | memoryview],
    *,
    resolve: Resolve | None = None,
    built: list[Built] | None = None,
) -> list[Any]:
    """The items of `count` encodings that stand one after the other in `bodies`: decoded in one call, copied once.

    If all of them are models that could be built together, `built` gets what they consist of.
    """
    marked = b"".join((b"\x92", f.array_header(count), *bodies, _END))
    items: list[Any] | None = _together(marked, resolve, built) if count >= _MANY else None
    if items is None:
        items = _decoded(marked, resolve)
    return items


_MANY = 8
_AT_ONCE = 128
"""Models whose bytes are copied together: a copy of some tens of kilobytes stays in the processor's cache."""
_LATER = object()
"""Stands for a model that is built together with others."""


def _together(marked: bytes, resolve: Resolve | None, built: list[Built] | None) -> Any:
    """A list with many models in it: all of them are decoded in one call and built in C loops. None where that cannot
    be, or where there is an error: whoever reads one by one says which."""
    reader = _Reader(resolve)
    later: list[bytes] = []
    others: list[int] = []

    def hook(tag: int, payload: bytes) -> Any:
        if tag != f.MODEL:
            others.append(tag)
            return reader.hook(tag, payload)
        later.append(payload)
        return _LATER

    try:
        items, mark = unpackb(marked, ext_hook=hook)
        if type(mark) is not bytes or mark != _MARK:
            return None
        if later:
            made: list[Built] = []
            models = _models(later, resolve, made)
            if models is None:
                return None
            places = [at for at, item in enumerate(items) if item is _LATER]
            if len(items) == len(places) == len(models):
                items = models
                if built is not None:
                    built += made
            elif len(places) == len(models):
                for at, model in zip(places, models, strict=True):
                    items[at] = model
            elif others:
                return None  # reading these a second time may be more than reading
            else:  # some stand within others: once more, in the same order
                again = iter(models)
                items, _ = unpackb(marked, ext_hook=lambda _tag, _payload: next(again))
    except ValueError:
        if _interrupts:
            raise _interrupts.pop() from None
        return None
    if _unknown:
        _warn()
    return items


def _models(payloads: list[bytes], resolve: Resolve | None, built: list[Built]) -> list[Any] | None:
    """The models that these stand for; None if some of them are not as they were written."""
    reader = _Reader(resolve)
    reader.depth = 1
    parts: list[Any] = []
    for at in range(0, len(payloads), _AT_ONCE):
        some = payloads[at : at + _AT_ONCE]
        first = b"".join((b"\x92", f.array_header(2 * len(some)), some[0]))
        read, mark = unpackb(_END.join((first, *some[1:], b"", b"")), ext_hook=reader.hook)
        if type(mark) is not bytes or mark != _MARK or read[1::2] != [_MARK] * len(some):
            return None
        parts += read[::2]
    return same_models(parts, registering.registry, built)


def _decoded(marked: bytes, resolve: Resolve | None) -> Any:
    try:
        hook = _read if resolve is None else _Reader(resolve).hook
        value, mark = unpackb(marked, ext_hook=hook)
    except ValueError:
        return _explain(marked, resolve)
    if type(mark) is not bytes or mark != _MARK:
        raise Corrupt("there are more bytes than the value has")
    if _unknown:
        _warn()
    return value


def _explain(marked: bytes, resolve: Resolve | None) -> Any:
    """Read again, keeping what the hook raises, and raise that."""
    if _interrupts:
        raise _interrupts.pop()
    reader = _Reader(resolve)
    try:
        value, mark = unpackb(marked, ext_hook=reader.hook)
    except ValueError as error:
        _unknown.clear()
        if _interrupts:
            raise _interrupts.pop() from None
        if reader.foreign is not None:
            raise reader.foreign from None
        cause = reader.error or error
        if isinstance(cause, RecursionError):
            hint = "the bytes may be fine: read them from a place that is not so deep in calls"
            raise Corrupt("too little stack is left to read a nested value", hint=hint) from None
        raise Corrupt(f"the stored bytes are malformed: {cause}") from cause
    if type(mark) is not bytes or mark != _MARK:
        raise Corrupt("there are more bytes than the value has")
    _warn()
    return value


def _read(tag: int, payload: bytes) -> Any:
    return _Reader(None).hook(tag, payload)


class _Reader:
    """One decoding: how deep it is, and what went wrong in it."""

    __slots__ = ("depth", "error", "followed", "foreign", "resolve")

    def __init__(self, resolve: Resolve | None) -> None:
        self.resolve = resolve
        self.depth = 0
        self.followed = 0
        self.error: Exception | None = None
        self.foreign: BaseException | None = None

    def hook(self, tag: int, payload: bytes) -> Any:
        followed = self.followed
        parts: list[Any] = []
        try:
            if tag in _OBJECTS:
                parts = self._list(payload)
                return build_object(tag, parts, registering.registry)
            leaf = _LEAVES.get(tag)
            if leaf is not None:
                return leaf(payload)
            if tag >= f.REF_FIRST:
                return self._reference(tag, payload)
            build = _BUILD.get(tag)
            if build is not None:
                parts = self._list(payload)
                return build(parts)
            return self._opaque(tag, payload, Unknown("no meaning is known for this tag", type_name=f"extension {tag}"))
        except Unknown as unknown:
            if self.followed != followed:
                # References hold only where they stand: what is kept for another place must contain what they name.
                payload = _encoded(parts)
            return self._opaque(tag, payload, unknown)
        except Exception as error:
            if self.error is None:
                self.error = error
            raise
        except BaseException as interrupt:
            _interrupts.append(interrupt)
            raise

    @staticmethod
    def _opaque(tag: int, payload: bytes, unknown: Unknown) -> Opaque:
        value = Opaque(tag, payload, type_name=unknown.type_name, version=unknown.version, reason=str(unknown))
        _unknown.append(value)
        return value

    def _list(self, payload: bytes) -> list[Any]:
        self.depth += 1
        if self.depth > _FREE_EXTS and (self.depth > f.MAX_EXTS or f.nests_too_deep(payload)):
            raise ValueError("nested too deeply")
        parts, mark = unpackb(b"".join((b"\x92", payload, _END)), ext_hook=self.hook)
        if type(mark) is not bytes or mark != _MARK or type(parts) is not list:
            raise ValueError("an extension value that holds no list")
        self.depth -= 1
        return parts

    def _reference(self, tag: int, payload: bytes) -> Any:
        if self.resolve is None:
            raise ValueError(f"a reference (tag {tag}) where none can be followed")
        self.followed += 1
        try:
            return self.resolve(tag, payload)
        except BaseException as error:
            self.foreign = error
            raise


def _encoded(parts: list[Any]) -> bytes:
    from clew.state.codec import encode  # it is built upon this module

    return encode(parts)


def _warn() -> None:
    """One warning per type and reason in this process."""
    while _unknown:
        try:
            opaque = _unknown.pop()
        except IndexError:
            return
        key = (opaque.type_name, opaque.reason)
        if key in _warned or len(_warned) > 1000:
            continue
        _warned.add(key)
        warnings.warn(str(opaque), UnknownType, stacklevel=4)
