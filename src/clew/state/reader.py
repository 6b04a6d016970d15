"""Reading: from a manifest, and what it refers to, back to a state.

Reading asks for what it needs and is fed, level by level: it does no I/O of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby, starmap
from operator import itemgetter
from typing import Any, NamedTuple

from clew.errors import Corrupt
from clew.state.capture import Building, Capture
from clew.state.codec import Built, Resolve, decode, decode_list, encode, pack_ext
from clew.state.layout import (
    BINARY,
    DICT,
    LAZY,
    LIST,
    SLOT,
    TEXT,
    VALUE,
    Stretch,
    Tree,
    read_place,
    slot_ref,
    slot_run,
    unpack_manifest,
)
from clew.state.pieces import Pieces, Segment, batches
from clew.state.shadow import Batch, DictNode, Encoded, ListNode, Place, Run, Stored, TextNode, shadow
from clew.state.values import Blob

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict})
"""Items that are quickly encoded again. That a list consists of them is read off the first few."""
_FEW = 8
_SIZES, _BODY, _REFS = itemgetter(3), itemgetter(4), itemgetter(5)
AT_ONCE = 1 << 18
"""Bytes of items that are decoded in one call. They are copied for it: a copy of this size stays in the processor's
cache, while the pages of a large one, fresh from the system, cost several times the decoding (measured: 1 MB, 5 times).
Much less, and it is the calls that cost.
"""


class Needs(NamedTuple):
    """What has to be fetched before reading can go on."""

    stretches: list[Stretch]
    blobs: list[str]


class Scan:
    """Finds everything that some manifests refer to. Ask `needs()` and feed what it names, until it returns None."""

    def __init__(self, seal: int) -> None:
        self.stretches: set[Stretch] = set()
        """Every stretch of payload that has been met."""
        self.blobs: dict[str, bytes] = {}
        """Blobs that hold values, once they were fed."""
        self.digests: set[str] = set()
        """Every blob that has been met, lazy ones included."""
        self._pieces = Pieces(seal)
        self._pending: list[tuple[bytes, int]] = []
        self._waiting: list[Stretch] = []
        self._dicts: list[tuple[Run, ...]] = []

    def add_manifest(self, manifest: bytes, lane: int) -> None:
        self._pending.append((unpack_manifest(manifest)[2], lane))

    def add(self, lane: int, data: bytes) -> None:
        self._pieces.add(lane, data)

    def needs(self) -> Needs | None:
        """The stretches and blobs that are still unknown, or None when everything is here."""
        for lane, log, start, stop in self._waiting:
            for segment in self._pieces.read(lane, log, start, stop - start):
                if segment[5]:
                    self._pending.extend((item, lane) for item in _items_with_refs(segment))
        for runs in self._dicts:
            self._pending.extend(self._entries(runs).values())
        self._waiting, self._dicts = [], []
        blobs: list[str] = []
        for data, lane in self._pending:
            self._scan(data, lane, blobs)
        self._pending = []
        return Needs(list(self._waiting), blobs) if self._waiting or blobs or self._dicts else None

    def _scan(self, data: bytes, lane: int, blobs: list[str]) -> None:
        """Note every reference in an encoding."""

        def note(tag: int, payload: bytes) -> None:
            if tag == VALUE:
                digest = payload.hex()
                if digest not in self.digests:
                    self.digests.add(digest)
                    blobs.append(digest)
            elif tag == LAZY:
                self.digests.add(decode(payload)[0])
            elif tag == SLOT:
                self._want((slot_run(payload, lane),))
            else:
                runs = read_place(tag, payload, lane).runs
                if tag == DICT:
                    # Only the values that no later patch overrides are read: scanned when the patches are here.
                    self._dicts.append(runs)
                self._want(runs)

        decode(data, resolve=note)

    def _want(self, runs: Iterable[Run]) -> None:
        for lane, log, start, count in runs:
            stretch = (lane, log, start, start + count)
            if stretch not in self.stretches:
                self.stretches.add(stretch)
                self._waiting.append(stretch)

    def _entries(self, runs: Iterable[Run]) -> dict[Any, tuple[bytes, int]]:
        """A dict's entries, still encoded, each with the lane that its references are relative to."""
        entries: dict[Any, tuple[bytes, int]] = {}
        for index, (item, lane) in enumerate(self._raw_items(runs)):
            patch = item if index else [item, []]
            if type(patch) is not list or len(patch) != 2 or type(patch[0]) is not dict or type(patch[1]) is not list:
                raise Corrupt("a dict's log holds something that is not a patch")
            for key in patch[1]:
                entries.pop(key, None)
            for key, data in patch[0].items():
                if type(data) is not bytes:
                    raise Corrupt("a dict's log holds an entry that is not encoded")
                entries[key] = (data, lane)
        return entries

    def _raw_items(self, runs: Iterable[Run]) -> Iterator[tuple[Any, int]]:
        for run in runs:
            for segment in self._pieces.read(*run):
                if not isinstance(segment[3], list):
                    raise Corrupt("a dict refers to a log of bytes")
                for item in decode_list(len(segment[3]), segment[4:5]):
                    yield item, run[0]


class Reader(Scan):
    """Reads one checkpoint's state: once `needs()` is None, take `state()`.

    `lane` is the checkpoint's. With `own`, the tree is for writing the next checkpoint of the same lane: places in it
    keep lane 0. Otherwise they are foreign, and whatever grows opens logs of its own.
    """

    def __init__(
        self,
        manifest: bytes,
        lane: int,
        seal: int,
        *,
        own: bool = False,
        open_blob: Callable[[str], bytes] | None = None,
    ) -> None:
        super().__init__(seal)
        next_log, slot_tail, self._root = unpack_manifest(manifest)
        self._pending.append((self._root, lane))
        self._counters = (next_log, slot_tail) if own else (1, 0)
        self._lane = lane
        self._alias = 0 if own else lane
        self._open_blob = open_blob
        self._nodes: dict[int, Any] | None = None
        self._keep: list[Any] = []

    def state(self) -> Any:
        """The state: fresh containers."""
        return self._decode(self._root, self._lane, self._alias)

    def state_and_tree(self) -> tuple[Any, Tree]:
        """The state, and the shadow tree from which the next checkpoint is written."""
        self._nodes = {}
        state = self.state()
        root = shadow(state, self._nodes)
        self._nodes, self._keep = None, []
        return state, Tree(root, *self._counters)

    def layout(self) -> Tree | None:
        """The tree without values, from the manifest alone; None when the root itself lies in a log."""
        values: dict[int, Any] = {}

        def node(tag: int, payload: bytes) -> Any:
            reference = _unloaded(tag, payload, self._alias)
            token = _Token()
            values[id(token)] = reference
            self._keep.append(token)
            return token

        root = decode(self._root, resolve=node)
        if type(root) is not dict:
            return None
        return Tree({key: shadow(value, values) for key, value in root.items()}, *self._counters)

    # -- resolving references

    def _decode(self, data: bytes, lane: int, alias: int) -> Any:
        return decode(data, resolve=self._resolver(lane, alias))

    def _resolver(self, lane: int, alias: int) -> Resolve:
        """What gives the values of references within a row of `lane`."""

        def resolve(tag: int, payload: bytes) -> Any:
            if tag == VALUE:
                return self._value(payload)
            if tag == LAZY:
                return self._lazy(payload)
            if tag == SLOT:
                return self._slot(payload, lane, alias)
            return self._sequence(tag, payload, lane, alias)

        return resolve

    def _sequence(self, tag: int, payload: bytes, lane: int, alias: int) -> Any:
        runs = read_place(tag, payload, lane).runs
        value: Any
        with_refs: set[int] = set()
        building = Building() if self._nodes is not None else None
        if tag == LIST:
            value = self._items(runs, with_refs, alias, building)
        elif tag == DICT:
            entries = self._entries(runs)
            value = {key: self._decode(data, at, self._alias_of(at, alias)) for key, (data, at) in entries.items()}
        else:
            data = b"".join([segment[4] for run in runs for segment in self._pieces.read(*run)])
            value = _text(data) if tag == TEXT else data
        if self._nodes is not None:
            capture = building.capture if building is not None else None
            self._remember(tag, value, read_place(tag, payload, alias), with_refs, runs, capture)
        return value

    def _alias_of(self, lane: int, alias: int) -> int:
        return 0 if alias == 0 and lane == self._lane else lane

    def _items(
        self, runs: Iterable[Run], with_refs: set[int], alias: int, building: Building | None = None
    ) -> list[Any]:
        """The items of all runs, decoded in as few calls as pay (see AT_ONCE). None spans two lanes."""
        items: list[Any] = []
        for lane, of_lane in groupby(runs, key=itemgetter(0)):
            resolve = self._resolver(lane, self._alias_of(lane, alias))
            segments = list(chain.from_iterable(starmap(self._pieces.read, of_lane)))
            tables = list(map(_SIZES, segments))
            if not {list}.issuperset(map(type, tables)):
                raise Corrupt("a list refers to a log of bytes")
            if self._nodes is not None and any(map(_REFS, segments)):
                sizes = enumerate(chain.from_iterable(tables), len(items))
                with_refs.update(index for index, size in sizes if size & 1)
            for count, bodies in _in_batches(segments):
                built: list[Built] = []
                read = decode_list(count, bodies, resolve=resolve, built=built)
                if building is not None:
                    building.take(read, built)
                items += read
        return items

    def _slot(self, payload: bytes, lane: int, alias: int) -> Any:
        items = self._items((slot_run(payload, lane),), set(), alias)
        if self._nodes is not None:
            run = slot_run(payload, alias)
            self._note(items[0], Encoded(encode(items[0]), slot_ref(run[0], run[2])))
        return items[0]

    def _value(self, payload: bytes) -> Any:
        data = self.blobs.get(payload.hex())
        if data is None:
            raise Corrupt(f"the blob {payload.hex()[:12]}… is missing")
        value = decode(data)
        if self._nodes is not None:
            kept = pack_ext(VALUE, payload)
            if type(value) in (str, bytes):
                self._note(value, TextNode(value, Place(()), TEXT if type(value) is str else BINARY, kept))
            else:
                self._note(value, Encoded(data, kept))
        return value

    def _lazy(self, payload: bytes) -> Blob:
        digest, size, media_type = decode(payload)
        open_blob = self._open_blob
        if open_blob is None:
            raise Corrupt("a lazy blob was met where none can be opened")
        return Blob.lazy(digest, size, media_type, lambda: open_blob(digest))

    def _remember(
        self,
        tag: int,
        value: Any,
        place: Place,
        with_refs: set[int],
        runs: Iterable[Run],
        capture: Capture | None,
    ) -> None:
        if tag == LIST and not with_refs and _PLAIN.issuperset(map(type, value[:_FEW])):
            segments = [segment for run in runs for segment in self._pieces.read(*run)]
            stored = Stored(partial(_in_batches, segments))
            self._note(value, ListNode(place, None, value.copy(), with_refs, stored=stored))
        elif tag == LIST:
            self._note(value, ListNode.of(place, value, with_refs, self._nodes, capture))
        elif tag == DICT:
            self._note(value, DictNode({key: shadow(item, self._nodes) for key, item in value.items()}, place))
        else:
            self._note(value, TextNode(value, place, tag))

    def _note(self, value: Any, node: Any) -> None:
        """Remember where a value lives, by identity; holding it keeps the identity from being reused."""
        if self._nodes is not None:
            self._nodes[id(value)] = node
            self._keep.append(value)


def root_keys(manifest: bytes) -> frozenset[str]:
    """The keys of the state, from the manifest alone; none when the state itself lies in a log."""
    root = decode(unpack_manifest(manifest)[2], resolve=lambda _tag, _payload: None)
    return frozenset(root) if type(root) is dict else frozenset()


def _in_batches(segments: list[Segment]) -> Iterator[Batch]:
    """The items of segments, as many at once as pay."""
    tables, bodies = list(map(_SIZES, segments)), list(map(_BODY, segments))
    for at, upto in batches(map(len, bodies), AT_ONCE):
        yield sum(map(len, tables[at:upto])), bodies[at:upto]


class _Token:
    """Stands for a part whose values were not loaded."""


def _unloaded(tag: int, payload: bytes, alias: int) -> Any:
    if tag == LIST:
        return ListNode(read_place(tag, payload, alias), None, [], set(), loaded=False)
    if tag == DICT:
        return DictNode(None, read_place(tag, payload, alias))
    if tag in (TEXT, BINARY):
        return TextNode(None, read_place(tag, payload, alias), tag)
    if tag == SLOT:
        run = slot_run(payload, alias)
        return Encoded(b"", slot_ref(run[0], run[2]))
    return Encoded(b"", pack_ext(tag, payload))


def _items_with_refs(segment: Segment) -> Iterator[bytes]:
    _, _, _, sizes, body, _ = segment
    at = 0
    for size in sizes if isinstance(sizes, list) else ():
        if size & 1:
            yield bytes(body[at : at + (size >> 1)])
        at += size >> 1


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Corrupt(f"a stored text is damaged: {error}") from None
