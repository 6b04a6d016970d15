"""The types that need more than a table: Opaque, Blob, exceptions, numpy, registered classes; and the refusals."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import ormsgpack

from clew.errors import Unserialisable
from clew.state import codec_arrays
from clew.state import codec_format as f
from clew.state import registry as registering
from clew.state.codec_builtins import Reduced
from clew.state.codec_objects import reduce_object
from clew.state.values import Blob, ExceptionSummary

_CAUSES = 8
_MESSAGE = 16384
_ARGS = 8
_ARG = 200
_READABLE = (str, bytes, int, float, bool, type(None))


def reduce_special(value: Any) -> Reduced | None:
    """(tag, payload) of a value whose type stands in no table; None for one that cannot be stored."""
    entry = registering.registry.by_class.get(type(value))
    if entry is not None:
        return reduce_object(value, entry)
    if isinstance(value, BaseException):
        return _summary_parts(summarise(value))
    reduced = codec_arrays.reduce_array(value)
    if reduced is not None:
        return reduced
    entry = registering.registry.meet(type(value))
    return None if entry is None else reduce_object(value, entry)


# --- exceptions ------------------------------------------------------------------------------------------------------


def summarise(error: BaseException, depth: int = 0) -> ExceptionSummary:
    """What is kept of an exception."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own __str__
        message = "(its text could not be made)"
    notes = getattr(error, "__notes__", ())
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    cls = type(error)
    return ExceptionSummary(
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}",
        _shorten(message, _MESSAGE),
        tuple(_shorten(str(note), _MESSAGE) for note in notes) if isinstance(notes, list | tuple) else (),
        tuple(_argument(argument) for argument in error.args[:_ARGS]),
        summarise(cause, depth + 1) if cause is not None and depth < _CAUSES else None,
    )


def _argument(value: object) -> str:
    if type(value) in _READABLE:
        return _shorten(repr(value[:_ARG] if isinstance(value, str | bytes) else value), _ARG)
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def _summary_parts(summary: ExceptionSummary) -> Reduced:
    return f.EXCEPTION, [summary.type_name, summary.message, list(summary.notes), list(summary.args), summary.cause]


def _build_summary(parts: list[Any]) -> ExceptionSummary:
    type_name, message, notes, arguments, cause = parts
    texts = (type_name, message, *notes, *arguments)
    if type(notes) is not list or type(arguments) is not list or not all(type(text) is str for text in texts):
        raise ValueError("a malformed exception summary")
    if cause is not None and type(cause) is not ExceptionSummary:
        raise ValueError("an exception summary with a malformed cause")
    return ExceptionSummary(type_name, message, tuple(notes), tuple(arguments), cause)


# --- blobs -----------------------------------------------------------------------------------------------------------


def _blob(value: Blob) -> Reduced:
    return f.BLOB, [value.media_type, value.read()]


def _build_blob(parts: list[Any]) -> Blob:
    media_type, data = parts
    if type(data) is not bytes or (media_type is not None and type(media_type) is not str):
        raise ValueError("a malformed blob")
    return Blob(data, media_type=media_type)


REDUCE_OWN: dict[type, Callable[[Any], Reduced]] = {ExceptionSummary: _summary_parts, Blob: _blob}
BUILD_OWN = {f.EXCEPTION: _build_summary, f.BLOB: _build_blob}


# --- refusals --------------------------------------------------------------------------------------------------------

_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.CodeType,
)
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType)
_BUILTINS = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)


def refusal(value: object, path: str) -> Unserialisable:
    """The error for a value of a type that cannot be stored: what it is, where, and what to do."""
    cls = type(value)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return Unserialisable(f"{path or 'the value'} is a {name}, which cannot be stored", path=path, hint=_hint(value))


def _hint(value: object) -> str:
    cls = type(value)
    if isinstance(value, _CODE):
        return "store a name, and look the function up by it when the state is loaded"
    if isinstance(value, type):
        return "store the class's name, and look it up when the state is loaded"
    if isinstance(value, types.ModuleType):
        return "modules are imported, not stored: leave it out of the state"
    if isinstance(value, _RUNNING):
        return "store what it produces (`list(…)`, `await …`), not the running thing"
    if isinstance(value, memoryview):
        return "store `bytes(view)`"
    if isinstance(value, ormsgpack.Ext | ormsgpack.Fragment):
        return "raw encoded parts are not values: decode them first"
    for base in _BUILTINS:
        if isinstance(value, base):
            return (
                f"it is a {base.__name__} of a type of its own: turn it into a plain {base.__name__}, or register it: "
                f"clew.register({cls.__qualname__}, encode=…, decode=…)"
            )
    if (
        hasattr(value, "fileno")
        or hasattr(value, "acquire")
        or cls.__module__ in ("_io", "_thread", "threading", "socket")
    ):
        return "it belongs to this process: leave it out of the state and make it anew after loading"
    return (
        f"register it: clew.register({cls.__qualname__}), or with encode=… and decode=…; "
        "dataclasses, pydantic models, named tuples and enums need no registering to be saved"
    )
