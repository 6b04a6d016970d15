"""What a handle remembers of the state that was last read or saved, to tell what has changed since.

A *shadow* copies the containers and shares the leaves:

    an immutable leaf      itself; so is a `Blob`, whose digest tells
    dict, list             dict, list of shadows
    a registered object    `ObjectShadow`: its class, head and fields' shadows
    anything else          `Encoded`: its bytes, compared by encoding again
    what has its own log   a node (`ListNode`, `DictNode`, `TextNode`) that also knows its place

Identity is exact for immutable leaves: the same object cannot have changed. `==` alone is not: `1`, `1.0` and `True`
are equal, and different values. Where identity fails, types and values decide; in doubt, the encoded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, NamedTuple

from clew.errors import CodecError
from clew.state.capture import Capture
from clew.state.codec import IMMUTABLE, decode_list, encode, is_frozen, take_apart
from clew.state.codec_format import array_header
from clew.state.values import Blob

EQUAL_IS_SAME = frozenset({str, bytes, int, bool})
"""Exact types for which `==` between two values of that type means the same value, bit for bit."""

Run = tuple[int, int, int, int]
"""(lane, log, start, count): lane 0 is the lane of whoever holds the reference."""


class Place(NamedTuple):
    """Where a sequence lives: the runs that make it up, and the log that its next items are appended to.

    `log` is 0 while the sequence has no log of its own in this lane; `tail` is that log's next position.
    """

    runs: tuple[Run, ...]
    log: int = 0
    tail: int = 0
    base: int = 0
    patches: int = 0
    """For dicts: bytes of the base item, and of the patches since."""


class ObjectShadow:
    """A dataclass, model or registered object, field by field."""

    __slots__ = ("fields", "head", "type")

    def __init__(self, type_: type, head: bytes, fields: dict[str, Any]) -> None:
        self.type = type_
        self.head = head
        self.fields = fields


class Encoded:
    """A leaf that may change in place: only its bytes can tell."""

    __slots__ = ("data", "ref")

    def __init__(self, data: bytes, ref: bytes | None = None) -> None:
        self.data = data
        self.ref = ref
        """What stands for it in its parent, when it is kept in a slot or a blob."""


class TextNode:
    """A long text or binary value, in extents over a log of bytes (or whole in a blob, when `ref` is set)."""

    __slots__ = ("place", "ref", "tag", "value")

    def __init__(self, value: str | bytes | None, place: Place, tag: int, ref: bytes | None = None) -> None:
        self.value = value
        self.place = place
        self.tag = tag
        self.ref = ref


class DictNode:
    """A large dict: a base and patches, in a log of its own."""

    __slots__ = ("kids", "place")

    def __init__(self, kids: dict[Any, Any] | None, place: Place) -> None:
        self.kids = kids
        self.place = place


Batch = tuple[int, "list[bytes | memoryview]"]
"""A number of items, and their encodings one after the other."""


class Stored:
    """The items of a list as they were read, still encoded. Most that is read is never saved by whoever read it."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Callable[[], Iterable[Batch]]) -> None:
        self._batches = batches

    def same(self, values: list[Any]) -> bool:
        at = 0
        try:
            for count, bodies in self._batches():
                if encode(values[at : at + count]) != b"".join((array_header(count), *bodies)):
                    return False
                at += count
        except CodecError:  # whoever writes these will say where
            return False
        return at == len(values)

    def values(self) -> list[Any]:
        return [value for count, bodies in self._batches() for value in decode_list(count, bodies)]


class ListNode:
    """A long list, in extents over logs of items. When only its layout was loaded, nothing is known of the items."""

    __slots__ = ("_capture", "_items", "_stored", "ids", "loaded", "place", "types", "with_refs")

    def __init__(
        self,
        place: Place,
        items: list[Any] | None,
        values: list[Any],
        with_refs: set[int],
        *,
        loaded: bool = True,
        stored: Stored | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.place = place
        self.ids: list[int] = []
        """The identities of the items as the user holds them: they tell where one has moved to. The items are not held:
        most are gone by the next time, and another one may have an identity then."""
        self.types: list[type] = []
        self.seen(values)
        self.with_refs = with_refs
        """Indexes of items that contain references of their own."""
        self.loaded = loaded
        self._stored = stored
        self._capture = capture or (Capture.of(values) if loaded and stored is None else None)
        self._items = items

    @classmethod
    def of(
        cls,
        place: Place,
        values: list[Any],
        with_refs: set[int],
        nodes: dict[int, Any] | None = None,
        capture: Capture | None = None,
    ) -> ListNode:
        """The node of a list that was just read or written. Shadows are made when asked for, if they can be."""
        node = cls(place, None, list(values), with_refs, capture=capture)
        if node.capture is None or with_refs:
            node._items = [shadow(value, nodes) for value in values]
        return node

    def seen(self, values: list[Any]) -> None:
        """The user holds the items as these."""
        self.ids = list(map(id, values))
        self.types = list(map(type, values))

    @property
    def capture(self) -> Capture | None:
        """What the items consist of, if they are such that this can be compared quickly."""
        if self._stored is not None:
            self._take_down(self._stored.values())
        return self._capture

    @property
    def items(self) -> list[Any]:
        """The items' shadows."""
        if self._items is None:
            self._items = list(map(shadow, self.capture.copies())) if self.capture is not None else []
        return self._items

    def _take_down(self, values: list[Any]) -> None:
        self._capture = Capture.of(values)
        self._items = None if self._capture is not None else list(map(shadow, values))
        self._stored = None

    def begins_as_stored(self, values: list[Any]) -> bool:
        """Whether these begin with the items that were read and not compared since. Then those are remembered."""
        stored, count = self._stored, len(self.ids)
        if stored is None or len(values) < count:
            return False
        values = values[:count]
        # Taken down first, encoded then: what somebody changes meanwhile differs from what is remembered.
        self._take_down(values)
        if stored.same(values):
            self.seen(values)
            return True
        self._take_down(stored.values())
        return False

    def append(
        self, place: Place, values: list[Any], with_refs: set[int], more: Capture | None, shadows: list[Any]
    ) -> None:
        """Items were written at the end: `more` of what they were, or else their shadows."""
        self.place = place
        if not self.loaded:
            return
        joined = self.capture is not None and more is not None and self.capture.join(more)
        if self._items is not None or not joined:
            self.items.extend(shadows if more is None else map(shadow, more.copies()))
        if not joined:
            self._capture = None
        self.ids += map(id, values)
        self.types += map(type, values)
        self.with_refs |= with_refs


def is_flat(value: Any) -> bool:
    """A plain dict whose values are immutable leaves (its keys are, or it could not be stored)."""
    return type(value) is dict and IMMUTABLE.issuperset(map(type, value.values()))


def holds_nodes(kid: Any) -> bool:
    """Does anything within a shadow live in a log of its own?"""
    kind = type(kid)
    if kind is dict:
        return any(map(holds_nodes, kid.values()))
    if kind is list:
        return any(map(holds_nodes, kid))
    if kind is ObjectShadow:
        return any(map(holds_nodes, kid.fields.values()))
    return kind in (ListNode, DictNode, TextNode, Blob) or (kind is Encoded and kid.ref is not None)


def shadow(value: Any, nodes: dict[int, Any] | None = None) -> Any:
    """The shadow of a value; `nodes` gives, by identity, the parts that live in logs of their own."""
    kind = type(value)
    if nodes and (node := nodes.get(id(value))) is not None:
        return node
    if kind in IMMUTABLE or kind is Blob:
        return value
    if kind is dict:
        if IMMUTABLE.issuperset(map(type, value.values())) and not nodes:
            return value.copy()
        return {key: shadow(item, nodes) for key, item in value.items()}
    if kind is list:
        return [shadow(item, nodes) for item in value]
    parts = take_apart(value)
    if parts is not None:
        return ObjectShadow(kind, parts.head, {name: shadow(item, nodes) for name, item in parts.fields.items()})
    if is_frozen(value):
        return value
    return Encoded(encode(value))


def same(old: Any, value: Any) -> bool:
    """Is the value exactly what its shadow remembers?"""
    kind = type(old)
    if kind in IMMUTABLE:
        if old is value:
            return True
        if type(value) is not kind:
            return False
        return old == value if kind in EQUAL_IS_SAME else encode(old) == encode(value)
    compare = _COMPARE.get(kind)
    if compare is not None:
        return compare(old, value)
    return old is value or (type(value) is kind and encode(old) == encode(value))


def _same_dict(old: dict[Any, Any], value: Any) -> bool:
    if type(value) is not dict or len(old) != len(value):
        return False
    if all(map(is_, old, value)) and all(map(is_, old.values(), value.values())):
        return True
    return all(map(same, old, value)) and all(map(same, old.values(), value.values()))


def _same_list(old: list[Any], value: Any) -> bool:
    return type(value) is list and len(old) == len(value) and all(map(same, old, value))


def _same_object(old: ObjectShadow, value: Any) -> bool:
    if type(value) is not old.type:
        return False
    parts = take_apart(value)
    return parts is not None and parts.head == old.head and _same_dict(old.fields, parts.fields)


def _same_encoded(old: Encoded, value: Any) -> bool:
    return type(value) not in IMMUTABLE and encode(value) == old.data


def _same_blob(old: Blob, value: Any) -> bool:
    return type(value) is Blob and old == value  # by digest: the bytes are not read


def _same_text(old: TextNode, value: Any) -> bool:
    return old.value is value or (type(old.value) is type(value) and old.value == value)


def _same_dict_node(old: DictNode, value: Any) -> bool:
    return old.kids is not None and _same_dict(old.kids, value)


def _same_list_node(old: ListNode, value: Any) -> bool:
    count = len(old.ids)
    return old.loaded and type(value) is list and len(value) == count and unchanged_prefix(old, value) == count


_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    dict: _same_dict,
    list: _same_list,
    ObjectShadow: _same_object,
    Encoded: _same_encoded,
    Blob: _same_blob,
    TextNode: _same_text,
    DictNode: _same_dict_node,
    ListNode: _same_list_node,
}


def unchanged_prefix(old: ListNode, value: list[Any]) -> int:
    """How many items at the front are exactly what they were."""
    if old.begins_as_stored(value):
        return len(old.ids)
    if old.capture is not None and len(value) >= len(old.ids) and old.capture.same(value):
        return len(old.ids)
    count = 0
    for before, now in zip(old.items, value, strict=False):
        if not same(before, now):
            break
        count += 1
    return count
