"""A value on one line of bounded width, safe to print, with a hint of the size of what was left out."""

from __future__ import annotations

import heapq
import struct
import unicodedata
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from uuid import UUID

from clew.state.diff_shape import Shape, as_array, leaf_state, shape_of
from clew.state.values import Blob, Opaque

_DEPTH = 3  # containers inside containers that are shown before they become `{… 3 keys}`
_INNER = 40  # columns that one part of a container may take
_MEMBERS = 100  # of a set, that are sorted to be shown: more than fit
_PLAIN_TEXT = (date, time, timedelta, Decimal, Fraction, UUID)
_BRACKETS: dict[object, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"), set: ("{", "}")}


def columns(text: str) -> int:
    """The columns a terminal gives this text: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def escaped(text: str) -> str:
    """The text with everything that a terminal could act on, or not show, written as an escape."""
    if text.isascii() and text.isprintable() and "\\" not in text and '"' not in text:
        return text
    return "".join(_escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def clipped(text: str, width: int) -> str:
    """The text, cut with `…` where it is wider than `width` columns. Looks at no more of it than it shows."""
    if len(text) <= width and columns(text) <= width:
        return text
    used = 0
    for position, char in enumerate(text[: width + 1]):
        used += _columns_of(char)
        if used > width - 1:
            return text[:position] + "…"
    return text[:width] + "…"


def tail(text: str, width: int) -> str:
    """The end of the text in at most `width` columns, with `…` in front when it was cut."""
    if len(text) <= width and columns(text) <= width:
        return text
    return "…" + clipped(text[-width:][::-1], width)[::-1].lstrip("…")[-(width - 1) :]


def size(count: int) -> str:
    """Bytes for people: `340 B`, `1.2 KB` (1 KB is 1000 B)."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5 or unit == "GB":
            break
    return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"


def text_size(text: str) -> str:
    return size(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def quoted(text: str, width: int) -> str:
    """The text in double quotes; `"You are …" (1.2 KB)` when it does not fit."""
    if len(text) <= width - 2:
        whole = f'"{escaped(text)}"'
        if columns(whole) <= width:
            return whole
    hint = f" ({text_size(text)})"
    return f'"{clipped(escaped(text[:width]) + "…", max(width - len(hint) - 2, 2))}"{hint}'


def short(value: object, width: int, depth: int = _DEPTH) -> str:
    """The value on one line of at most `width` columns (for width ≥ 20). Deterministic: sets are shown sorted."""
    if type(value) is str:
        return quoted(value, width)
    shape = shape_of(value)
    if shape is None:
        return clipped(_leaf(value), width)
    return clipped(_container(shape, type(value), width, depth), width)


def _leaf(value: object) -> str:
    if value is None or type(value) in (bool, float, complex):
        return repr(value)
    if type(value) is int:
        return repr(value) if value.bit_length() < 400 else f"int of {value.bit_length()} bits"
    if isinstance(value, bytes | bytearray):
        return f"{type(value).__name__} {size(len(value))} #{_digest(value)}"
    array = as_array(value)
    if array is not None:
        if array.shape == () and array.nbytes <= 16:
            return f"{array.dtype} {array}"
        shape = ", ".join(map(str, array.shape))
        return f"{array.dtype}[{shape}] {size(array.nbytes)} #{_digest(array.tobytes())}"
    if isinstance(value, Enum):
        return escaped(f"{type(value).__name__}.{value.name or value.value}")
    if isinstance(value, _PLAIN_TEXT):
        return escaped(str(value))
    return _object(value)


def _object(value: object) -> str:
    name = type(value).__name__
    if isinstance(value, Blob):
        kind = f"{value.media_type} " if value.media_type else ""
        return escaped(f"Blob {kind}{size(value.size)} #{value.digest[:8]}")
    if isinstance(value, Opaque):
        version = "" if value.version is None else f" v{value.version}"
        return escaped(f"Opaque {value.type_name}{version} {size(len(value.payload))} #{_digest(value.payload)}")
    state = leaf_state(value)
    if state is not None:
        return f"{name}({short(state[0], 80, 1)})"
    if type(value).__repr__ is object.__repr__:  # its address would read differently each time
        return f"<{name} object>"
    return escaped(repr(value))


def _digest(data: bytes | bytearray) -> str:
    return blake2b(data, digest_size=4).hexdigest()


def _container(shape: Shape, kind: type, width: int, depth: int) -> str:
    opening, closing = _BRACKETS.get(kind, (f"{kind.__name__}(", ")"))
    count = len(shape.parts)
    if count == 0:
        return "set()" if kind is set else opening + closing
    if depth == 0:
        return opening + _counted(shape) + closing
    if kind is tuple and count == 1:
        closing = ",)"
    return opening + _listed(shape, width - columns(opening) - len(closing), depth) + closing


def _counted(shape: Shape) -> str:
    count = len(shape.parts)
    noun = {"entries": "key", "fields": "field"}.get(shape.kind, "item")
    return f"… {count} {noun}{'s' if count > 1 else ''}"


def _listed(shape: Shape, width: int, depth: int) -> str:
    """As many parts as fit, then `… 12 more`."""
    count = len(shape.parts)
    texts: list[str] = []
    used = 0
    for shown, (label, part) in enumerate(_labelled(shape)):
        is_last = shown == count - 1
        more = 0 if is_last else len(f", … {count - shown - 1} more")
        room = width - used - columns(label) - (2 if shown else 0) - more
        inner = max(room if is_last else min(room, max(_INNER, width // 2)), 4)
        text = short(part, inner, depth - 1) if room > 0 else ""
        if not text or columns(text) > room or (inner < 12 and "…" in text):
            texts.append(f"… {count - shown} more" if shown else _counted(shape))
            break
        used += columns(label) + columns(text) + (2 if shown else 0)
        texts.append(label + text)
    return ", ".join(texts)


def _labelled(shape: Shape) -> Iterator[tuple[str, object]]:
    if shape.kind == "items":
        yield from (("", part) for part in shape.parts)
    elif shape.kind == "members":
        yield from (("", part) for part in heapq.nsmallest(_MEMBERS, shape.parts, key=order_key))
    elif shape.kind == "fields":
        yield from ((f"{name}=", part) for name, part in zip(shape.names, shape.parts, strict=True))
    else:
        yield from ((f"{_key(name)}: ", part) for name, part in zip(shape.names, shape.parts, strict=True))


def _key(key: object) -> str:
    if type(key) is str and key.isidentifier() and key.isprintable():
        return clipped(key, _INNER)
    return short(key, _INNER, 1)


def order_key(member: object) -> tuple[str, str, str]:
    """Sorts members of sets, which need not be comparable, the same way in every process."""
    name = type(member).__name__
    if type(member) is int:
        return name, f"{member < 0:d}{member.bit_length():09d}", short(member, 200)
    return name, member if type(member) is str else "", short(member, 200)


def distinguished(old: object, new: object, width: int) -> tuple[str, str]:
    """Both values on one line together (`width` columns for the two and an arrow), never reading the same.

    Where the types differ they are named: `int 1`, `float 1.0`.
    """
    texts = [short(old, width), short(new, width)]
    if type(old) is not type(new) and old is not None and new is not None:
        names = [type(value).__name__ for value in (old, new)]
        texts = [text if text.startswith(name) else f"{name} {text}" for name, text in zip(names, texts, strict=True)]
    widths = [columns(text) for text in texts]
    room = width - 3
    if sum(widths) > room:
        left = min(widths[0], max(room // 2, room - widths[1]))
        limits = (left, room - left)
        texts = [_refit(value, text, limit) for value, text, limit in zip((old, new), texts, limits, strict=True)]
    if texts[0] == texts[1]:
        texts = _told_apart(old, new, texts, room // 2)
    return texts[0], texts[1]


def _refit(value: object, text: str, limit: int) -> str:
    if columns(text) <= limit:
        return text
    body = short(value, limit)
    name = type(value).__name__
    if text.startswith(f"{name} ") and not body.startswith(name):
        return f"{name} {short(value, limit - len(name) - 1)}"
    return body


def _told_apart(old: object, new: object, texts: list[str], width: int) -> list[str]:
    if isinstance(old, float) and isinstance(new, float):
        return [f"{value!r} (0x{struct.pack('>d', value).hex()})" for value in (old, new)]
    if shape_of(old) is None and type(old) not in (str, bytes):
        whole = [clipped(escaped(repr(value)), width) for value in (old, new)]
        if whole[0] != whole[1]:
            return whole
    other = clipped(texts[1], max(width - 27, 8))
    return [clipped(texts[0], max(width, 8)), f"{other} (another that reads alike)"]
