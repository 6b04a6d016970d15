"""LangGraph's stored values, read by a closed decoder: no name found in the data is imported, called or looked up
anywhere but in the tables below and among the classes that running code has registered. All else becomes `Opaque`.

LangGraph stores msgpack in which an object is an extension: a code, and [module, class, arguments]; older versions
stored JSON with `{"lc": 2, "id": [module, class], …}`; LangChain's own objects there have `"lc": 1`.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache, partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from clew.placed.foreign import known, nests_too_deep, of_fields, of_state

_ONE, _MANY, _NAMED, _METHOD, _MODEL_1, _MODEL_2, _ARRAY, _SNAPSHOT = range(8)
"""Codes of the extensions: one argument, several, named ones, a method, pydantic's models, numpy, a delta channel."""

_DEEPEST = 60
"""Objects within objects. Past the first few, lists and dicts may not nest much in them either: it bounds the stack."""
_FREE = 4
_REMEMBERED, _LARGEST = 20_000, 65_536
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_FAILURES = (ValueError, TypeError, ArithmeticError, KeyError, IndexError, AttributeError, OSError)
_FORMER = {
    "langgraph.constants:Send": "langgraph.types:Send",
    "langgraph.constants:Interrupt": "langgraph.types:Interrupt",
}


class Undecodable(Exception):
    """Bytes that are no value, or may not be read; the text says why."""


class Unknown(Exception):
    """An object of a class that is on no list."""


def _path(name: str, parts: Any) -> Any:
    pure = pathlib.PureWindowsPath if "Windows" in name else pathlib.PurePosixPath
    if name.startswith("Pure"):
        return pure(*parts)
    return pathlib.Path(*parts) if isinstance(pathlib.Path(), pure) else pure(*parts)


@cache
def _zones() -> set[str]:
    return available_timezones()


def _zone(key: Any) -> ZoneInfo:
    # ZoneInfo tries to import a package by the key's name when it does not know it.
    if key not in _zones():
        raise Unknown
    return ZoneInfo(key)


def _pairs() -> Iterator[tuple[tuple[int, str], Callable[[Any], Any]]]:
    yield (_ONE, "uuid:UUID"), UUID
    yield (_ONE, "decimal:Decimal"), Decimal
    yield (_ONE, "builtins:set"), set
    yield (_ONE, "builtins:frozenset"), frozenset
    yield (_ONE, "collections:deque"), deque
    yield (_ONE, "zoneinfo:ZoneInfo"), _zone
    yield (_MANY, "datetime:date"), lambda parts: date(*parts)
    yield (_MANY, "datetime:timedelta"), lambda parts: timedelta(*parts)
    yield (_MANY, "datetime:timezone"), lambda parts: timezone(*parts)
    yield (_NAMED, "datetime:time"), lambda parts: time(**parts)
    yield (_METHOD, "datetime:datetime"), datetime.fromisoformat
    yield (_MANY, "re:compile"), lambda parts: of_state("re:Pattern", list(parts))
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"):
            yield (_MANY, f"{module}:{name}"), partial(_path, name)


_STANDARD = dict(_pairs())


@cache
def _of_langchain() -> dict[str, Any]:
    """LangChain's messages and documents, by the last part of their ids: the parts before it have changed over time."""
    from langchain_core import documents, messages

    found: dict[str, Any] = {"Document": documents.Document}
    for name in messages.__all__:
        cls = getattr(messages, name)
        if isinstance(cls, type) and issubclass(cls, messages.BaseMessage):
            found[name] = cls
    return found


def _bytes(data: object) -> bytes:
    """SQLite keeps anything in any column."""
    if isinstance(data, str):
        return data.encode()
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b""


class Decoder:
    """Reads values, and counts those whose class it does not know (`opaque`), by `module:Class`.

    An object whose bytes it has just read before is the same object: what it gives out is not to be changed.
    """

    def __init__(self) -> None:
        self.opaque: Counter[str] = Counter()
        self._depth = 0
        self._newer: dict[tuple[int, bytes], Any] = {}
        self._older: dict[tuple[int, bytes], Any] = {}

    def read(self, kind: str | None, data: bytes | None) -> Any:
        """A value, as the serialiser kept it: the name of its format, and its bytes. Raises `Undecodable`."""
        data = _bytes(data)
        if kind == "null":
            return None
        if kind == "bytes":
            return data
        if kind == "bytearray":
            return bytearray(data)
        try:
            if kind == "msgpack":
                return self._unpack(data)
            if kind == "json" or (not kind and data[:1] in (b"{", b"[", b'"')):
                return self.from_json(data)
        except (*_FAILURES, RecursionError) as error:
            raise Undecodable(f"damaged {kind or 'json'}: {error}"[:200]) from None
        finally:
            self._depth = 0
        if kind == "pickle":
            raise Undecodable("it is a pickle, which could run any code")
        raise Undecodable(f"its format {str(kind)[:60]!r} is not known" + " (encrypted?)" * ("+" in str(kind)))

    def kept(self, kind: str | None, data: bytes | None) -> Any:
        """The same; what cannot be read is kept as it is."""
        try:
            return self.read(kind, data)
        except Undecodable:
            return self._opaque(f"langgraph {str(kind)[:60]}", _bytes(data))

    def from_json(self, data: bytes | str) -> Any:
        """JSON with objects in it."""
        return json.loads(data, object_hook=self._envelope)

    # -- msgpack

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._extension, option=_OPTIONS)

    def _extension(self, code: int, data: bytes) -> Any:
        key = (code, data)
        found = self._newer.get(key, self)
        if found is self:
            found = self._older.get(key, self)
        if found is not self:
            return found
        self._depth += 1
        if self._depth > _DEEPEST or (self._depth > _FREE and nests_too_deep(data)):
            raise ValueError("nested too deeply")
        value = self._object(code, data)
        self._depth -= 1
        if len(data) <= _LARGEST:
            if len(self._newer) >= _REMEMBERED:
                self._older, self._newer = self._newer, {}
            self._newer[key] = value
        return value

    def _object(self, code: int, data: bytes) -> Any:
        if code > _SNAPSHOT:
            return self._opaque(f"langgraph extension {code}", data)
        parts = self._unpack(data)
        if code == _SNAPSHOT:
            return _DeltaSnapshot(parts)
        if code == _ARRAY:
            return self._array(parts, data)
        named = type(parts) is list and len(parts) >= 3 and type(parts[0]) is str and type(parts[1]) is str
        if not named or (code == _METHOD and parts[3:] != ["fromisoformat"]):
            return self._opaque(f"langgraph extension {code}", data)
        return self._build(code, f"{parts[0]}:{parts[1]}", parts[2])

    def _array(self, parts: Any, data: bytes) -> Any:
        try:
            import numpy

            dtype, shape, order, buffer = parts
            return numpy.frombuffer(buffer, dtype=numpy.dtype(dtype)).reshape(shape, order=order)
        except (ImportError, SyntaxError, *_FAILURES):
            return self._opaque("numpy:ndarray", data)

    # -- json

    def _envelope(self, found: dict[str, Any]) -> Any:
        id_ = found.get("id")
        if found.get("lc") not in (1, 2) or found.get("type") != "constructor" or type(id_) is not list:
            return found
        if len(id_) < 2 or not all(type(part) is str for part in id_):
            return found
        if found["lc"] == 1:
            return self._of_langchain(id_, found.get("kwargs"))
        name = f"{'.'.join(id_[:-1])}:{id_[-1]}"
        args, kwargs = found.get("args") or [], found.get("kwargs") or {}
        if found.get("method") == "fromisoformat" and len(args) == 1:
            return self._build(_METHOD, name, args[0])
        if found.get("method") == "fromhex" and name in ("builtins:bytes", "builtins:bytearray") and len(args) == 1:
            return (bytes if name == "builtins:bytes" else bytearray).fromhex(args[0])
        if kwargs or not args:
            entry = known(_FORMER.get(name, name))
            return self._build(_MODEL_2 if entry is not None and entry.kind == "model" else _NAMED, name, kwargs)
        one = len(args) == 1 and (_MANY, name) not in _STANDARD
        return self._build(_ONE if one else _MANY, name, args[0] if one else args)

    def _of_langchain(self, id_: list[str], kwargs: Any) -> Any:
        cls = _of_langchain().get(id_[-1]) if id_[0] in ("langchain", "langchain_core") else None
        if cls is not None and isinstance(kwargs, dict):
            try:
                return cls(**kwargs)
            except _FAILURES:
                pass
        return self._opaque(f"{'.'.join(id_[:-1])}:{id_[-1]}", kwargs)

    # -- objects

    def _build(self, code: int, name: str, content: Any) -> Any:
        name = _FORMER.get(name, name)
        try:
            standard = _STANDARD.get((code, name))
            return _registered(code, name, content) if standard is None else standard(content)
        except Exception:  # noqa: BLE001, S110 - not on the list, or its own class refuses it with whatever it raises
            pass
        return self._opaque(name, content, fields=code == _NAMED)

    def _opaque(self, name: str, content: Any, *, fields: bool = False) -> Any:
        self.opaque[name] += 1
        if fields and isinstance(content, dict) and all(type(key) is str for key in content):
            return of_fields(name, content)
        return of_state(name, content)


def _registered(code: int, name: str, content: Any) -> Any:
    """An instance of a class on the list, made as LangGraph makes it, if that is how it takes such a class apart."""
    entry = known(name)
    if entry is None:
        raise Unknown
    cls: Any = entry.cls
    if code in (_MODEL_1, _MODEL_2) and entry.kind == "model" and isinstance(content, Mapping):
        try:
            return cls(**content)
        except Exception:  # noqa: BLE001 - whatever its validators raise
            return cls.model_construct(**content)
    if code == _NAMED and entry.kind in ("dataclass", "namedtuple", "plain") and isinstance(content, Mapping):
        return cls(**content)
    if code == _ONE and entry.kind == "enum":
        return cls(content)
    if code == _MANY and name == "langgraph.types:Send" and len(content) in (2, 3):
        return cls(*content[:2], timeout=content[2]) if len(content) == 3 else cls(*content)
    raise Unknown
