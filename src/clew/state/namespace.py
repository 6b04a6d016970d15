"""Scopes and namespaces as bytes that sort and compare as the tuples do.

A segment is its UTF-8 bytes and a zero byte. A *place* is the scope (name, value, name, value …, sorted by name), the
byte 01, and the namespace. No segment contains a byte below 20 or the byte FF, so:

- different scopes and namespaces never give the same place;
- what lies in a place, or below it, is the range from the place up to `beyond(place)`;
- places sort as the namespaces do, segment by segment, by code point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.errors import BadName

MAX_SEGMENT_BYTES = 512
MAX_PLACE_BYTES = 2000
"""An index entry of PostgreSQL holds about 2700 bytes: a place, a key, and what goes with them."""

Namespace = tuple[str, ...]

END_OF_SCOPE = b"\x01"
"""Stands in each place once."""


def check_segment(text: object, what: str = "namespace's segment") -> str:
    """A part of a scope or a namespace, or a key: printable text of up to 512 bytes."""
    if not isinstance(text, str):
        raise BadName(f"a {what} is a str, not {text!r:.60}")
    if not text:
        raise BadName(f"a {what} cannot be empty")
    if not text.isprintable():
        raise BadName(f"the {what} {text[:60]!r} contains characters that cannot be printed")
    size = len(text.encode())
    if size > MAX_SEGMENT_BYTES:
        raise BadName(f"a {what} has at most {MAX_SEGMENT_BYTES} bytes, this one has {size}: {text[:40]!r}…")
    return str(text)


def encode_scope(scope: Mapping[str, Any]) -> bytes:
    """The beginning of every place in this scope.

    >>> encode_scope({"user": "42"})
    b'user\\x0042\\x00\\x01'
    >>> encode_scope({})
    b'\\x01'
    """
    pieces = []
    for name in sorted(scope):
        value = scope[name]
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        pieces += [check_segment(name, "scope's name"), check_segment(value, f"scope's {name}")]
    return _check_size(_join(pieces) + END_OF_SCOPE)


def encode_namespace(namespace: Sequence[str], scope: bytes = b"") -> bytes:
    """The place of a namespace in a scope.

    >>> encode_namespace(("users", "1"))
    b'users\\x001\\x00'
    """
    if isinstance(namespace, str) or not isinstance(namespace, tuple | list):
        hint = f"write ({namespace!r},)" if isinstance(namespace, str) else 'for example ("preferences",)'
        raise BadName(f"a namespace is a tuple of str, not {namespace!r:.60}", hint=hint)
    return _check_size(scope + _join([check_segment(segment) for segment in namespace]))


def decode_namespace(place: bytes, scope: bytes = b"") -> Namespace:
    """The namespace of a place.

    >>> decode_namespace(encode_namespace(("users", "1")))
    ('users', '1')
    """
    return tuple(segment.decode("utf-8", "replace") for segment in place[len(scope) :].split(b"\0")[:-1])


def beyond(place: bytes) -> bytes:
    """The end, not included, of the range of a place and all below it."""
    return place + b"\xff"


def _join(segments: Sequence[str]) -> bytes:
    return b"".join(segment.encode() + b"\0" for segment in segments)


def _check_size(place: bytes) -> bytes:
    if len(place) > MAX_PLACE_BYTES:
        raise BadName(f"scope and namespace take {len(place)} bytes together; at most {MAX_PLACE_BYTES} are possible")
    return place
