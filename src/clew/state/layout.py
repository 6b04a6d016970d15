"""The layout: how a state lies in logs, and how it is read back.

A *manifest* is the encoding of a state in which every large part is replaced by a reference. Items in logs are encodings
of the same kind, so references nest. A reference is an extension value; its payload is a list of varints:

    96 LIST      log, gap, runs                 items, each an encoded value
    97 TEXT      log, gap, runs                 bytes of UTF-8 (surrogates pass)
    98 BINARY    log, gap, runs                 bytes
    99 DICT      base, patches, log, gap, runs  first item: {key: encoded value}; then patches [{…}, [deleted keys]]
    100 SLOT     run                            one item: the value
    101 VALUE    digest of a blob that holds the value's encoding
    102 LAZY     digest, size, media type of a `Blob` that is read when asked for

`log` is the log that the sequence's next items go to (0: none yet), `gap` how far its tail lies behind the last run
in it. A run is `delta << 1 | moved`, [lane, log], count: positions relative to the end of the run before in the same log.
Lane 0 is the lane of the row that holds the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from clew.errors import Corrupt, FormatTooNew
from clew.state.codec import decode, encode, join_list, pack_ext
from clew.state.pieces import ITEMS, Pieces, Segment, read_varint, varint
from clew.state.shadow import DictNode, Encoded, ListNode, Place, Run, TextNode, shadow
from clew.state.values import Blob

LIST, TEXT, BINARY, DICT, SLOT, VALUE, LAZY = range(96, 103)
SLOT_LOG = 0
MANIFEST_FORMAT = 1

Stretch = tuple[int, int, int, int]
"""(lane, log, start, stop), with a real lane."""


class Needs(NamedTuple):
    """What has to be fetched before reading can go on."""

    stretches: list[Stretch]
    blobs: list[str]


class Tree(NamedTuple):
    """A state's root shadow, and the counters of the lane it was written in."""

    root: Any
    next_log: int
    slot_tail: int


EMPTY = Tree({}, 1, 0)


# -- references ----------------------------------------------------------------------------------------------------


def place_ref(tag: int, place: Place) -> bytes:
    """A sequence's place, as it is embedded in its parent."""
    numbers = [place.base, place.patches] if tag == DICT else []
    end = max((run[2] + run[3] for run in place.runs if run[0] == 0 and run[1] == place.log), default=0)
    numbers += (place.log, place.tail - end if place.log else 0)
    lane, log, at = 0, place.log, 0
    for run_lane, run_log, start, count in place.runs:
        if run_lane == lane and run_log == log:
            numbers += (_zigzag(start - at) << 1, count)
        else:
            lane, log = run_lane, run_log
            numbers += (_zigzag(start) << 1 | 1, lane, log, count)
        at = start + count
    return pack_ext(tag, _varints(numbers))


def read_place(tag: int, payload: bytes, lane: int) -> Place:
    """A place from its reference. `lane` replaces 0; a foreign sequence has no log of its own to append to."""
    numbers = iter(_read_varints(payload))
    try:
        base, patches = (next(numbers), next(numbers)) if tag == DICT else (0, 0)
        own = next(numbers)
        gap = next(numbers)
        runs: list[Run] = []
        run_lane, log, at, end = 0, own, 0, 0
        for head in numbers:
            if head & 1:
                run_lane, log, at = next(numbers), next(numbers), 0
            start = at + _unzigzag(head >> 1)
            count = next(numbers)
            at = start + count
            if start < 0:
                raise Corrupt("a reference names an impossible position")
            if run_lane == 0 and log == own:
                end = max(end, at)
            runs.append((run_lane or lane, log, start, count))
    except StopIteration:
        raise Corrupt("a reference is cut short") from None
    if lane or not own:
        return Place(tuple(runs), 0, 0, base, patches)
    return Place(tuple(runs), own, end + gap, base, patches)


def slot_ref(lane: int, position: int) -> bytes:
    return pack_ext(SLOT, _varints([lane, SLOT_LOG, position]))


def lazy_ref(blob: Blob) -> bytes:
    return pack_ext(LAZY, encode([blob.digest, blob.size, blob.media_type]))


def value_ref(digest: str) -> bytes:
    return pack_ext(VALUE, bytes.fromhex(digest))


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(number: int) -> int:
    return -((number + 1) >> 1) if number & 1 else number >> 1


def _varints(numbers: list[int]) -> bytes:
    if max(numbers) < 128:
        return bytes(numbers)
    return b"".join(map(varint, numbers))


def _read_varints(data: bytes) -> list[int]:
    if not data or max(data) < 128:
        return list(data)
    numbers: list[int] = []
    at = 0
    while at < len(data):
        number, at = read_varint(data, at)
        numbers.append(number)
    return numbers


# -- manifests -----------------------------------------------------------------------------------------------------


def pack_manifest(next_log: int, slot_tail: int, root: bytes) -> bytes:
    return _varints([MANIFEST_FORMAT, next_log, slot_tail]) + root


def unpack_manifest(manifest: bytes) -> tuple[int, int, bytes]:
    """The lane's next log and slot, and the root's encoding."""
    version, at = read_varint(manifest, 0)
    if version > MANIFEST_FORMAT:
        raise FormatTooNew(f"a checkpoint has format {version}, this Clew reads up to {MANIFEST_FORMAT}")
    if version < 1:
        raise Corrupt(f"a checkpoint has the unknown format {version}")
    next_log, at = read_varint(manifest, at)
    slot_tail, at = read_varint(manifest, at)
    return next_log, slot_tail, manifest[at:]


class Reader:
    """Reads one checkpoint's state. Ask `needs()`, feed what it names, until it returns None; then take `state()`.

    `lane` is the checkpoint's. With `own`, the tree is for writing the next checkpoint of the same lane: places in it
    keep lane 0. Otherwise they are foreign, and whatever grows opens logs of its own.
    """

    def __init__(
        self, manifest: bytes, lane: int, seal: int, *, own: bool = False, open_blob: Callable[[str], bytes] | None = None
    ) -> None:
        next_log, slot_tail, self._root = unpack_manifest(manifest)
        self._counters = (next_log, slot_tail) if own else (1, 0)
        self._lane = lane
        self._alias = 0 if own else lane
        self._pieces = Pieces(seal)
        self._blobs: dict[str, bytes] = {}
        self._open_blob = open_blob
        self._scanned: set[Stretch] = set()
        self._pending: list[tuple[bytes, int]] = [(self._root, lane)]
        self._waiting: list[Stretch] = []
        self._dicts: list[tuple[Run, ...]] = []
        self._nodes: dict[int, Any] | None = None
        self._keep: list[Any] = []

    def add(self, lane: int, data: bytes) -> None:
        self._pieces.add(lane, data)

    def add_blob(self, digest: str, data: bytes) -> None:
        self._blobs[digest] = data

    def needs(self) -> Needs | None:
        """The stretches and blobs that are still unknown, or None when everything is here."""
        for lane, log, start, stop in self._waiting:
            for segment in self._pieces.read(lane, log, start, stop - start):
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
                if payload.hex() not in self._blobs:
                    blobs.append(payload.hex())
            elif tag == SLOT:
                self._want((_slot_run(payload, lane),))
            elif tag == DICT:
                # Only the values that no later patch overrides are read: they are scanned when the patches are here.
                self._dicts.append(read_place(tag, payload, lane).runs)
                self._want(self._dicts[-1])
            elif tag != LAZY:
                self._want(read_place(tag, payload, lane).runs)

        decode(data, resolve=note)

    def _want(self, runs: Iterable[Run]) -> None:
        for lane, log, start, count in runs:
            stretch = (lane, log, start, start + count)
            if stretch not in self._scanned:
                self._scanned.add(stretch)
                self._waiting.append(stretch)

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
        kids = {key: values.get(id(value)) if type(value) is _Token else shadow(value, values) for key, value in root.items()}
        return Tree(kids, *self._counters)

    # -- resolving references

    def _decode(self, data: bytes, lane: int, alias: int) -> Any:
        def resolve(tag: int, payload: bytes) -> Any:
            if tag == VALUE:
                return self._value(payload)
            if tag == LAZY:
                return self._lazy(payload)
            if tag == SLOT:
                return self._slot(payload, lane, alias)
            return self._sequence(tag, payload, lane, alias)

        return decode(data, resolve=resolve)

    def _sequence(self, tag: int, payload: bytes, lane: int, alias: int) -> Any:
        runs = read_place(tag, payload, lane).runs
        value: Any
        with_refs: set[int] = set()
        if tag == LIST:
            value = self._items(runs, with_refs, alias)
        elif tag == DICT:
            entries = self._entries(runs)
            value = {key: self._decode(data, at, self._alias_of(at, alias)) for key, (data, at) in entries.items()}
        else:
            data = b"".join([segment[4] for run in runs for segment in self._pieces.read(*run)])
            value = _text(data) if tag == TEXT else data
        if self._nodes is not None:
            self._remember(tag, value, read_place(tag, payload, alias), with_refs)
        return value

    def _alias_of(self, lane: int, alias: int) -> int:
        return 0 if alias == 0 and lane == self._lane else lane

    def _entries(self, runs: Iterable[Run]) -> dict[Any, tuple[bytes, int]]:
        """A dict's entries, still encoded, each with the lane that its references are relative to."""
        entries: dict[Any, tuple[bytes, int]] = {}
        for index, (patch, lane) in enumerate(self._raw_items(runs)):
            if index == 0:
                patch = [patch, []]
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
                for item in decode(join_list(len(segment[3]), segment[4])):
                    yield item, run[0]

    def _items(self, runs: Iterable[Run], with_refs: set[int], alias: int) -> list[Any]:
        """The items of all runs, decoded lane by lane in as few calls as possible."""
        items: list[Any] = []
        bodies: list[bytes] = []
        count, lane = 0, -1
        for run in runs:
            if run[0] != lane and count:
                items += self._decode(join_list(count, b"".join(bodies)), lane, self._alias_of(lane, alias))
                bodies, count = [], 0
            lane = run[0]
            for segment in self._pieces.read(*run):
                sizes = segment[3]
                if not isinstance(sizes, list):
                    raise Corrupt("a list refers to a log of bytes")
                if self._nodes is not None:
                    with_refs.update(len(items) + count + index for index, size in enumerate(sizes) if size & 1)
                bodies.append(segment[4])
                count += len(sizes)
        if count:
            items += self._decode(join_list(count, b"".join(bodies)), lane, self._alias_of(lane, alias))
        return items

    def _slot(self, payload: bytes, lane: int, alias: int) -> Any:
        items = self._items((_slot_run(payload, lane),), set(), alias)
        if self._nodes is not None:
            run = _slot_run(payload, alias)
            self._note(items[0], Encoded(encode(items[0]), slot_ref(run[0], run[2])))
        return items[0]

    def _value(self, payload: bytes) -> Any:
        data = self._blobs.get(payload.hex())
        if data is None:
            raise Corrupt(f"the blob {payload.hex()[:12]}… is missing")
        value = decode(data)
        if self._nodes is not None:
            kept = pack_ext(VALUE, payload)
            self._note(value, TextNode(value, Place(()), TEXT if type(value) is str else BINARY, kept) if type(value) in (str, bytes) else Encoded(data, kept))
        return value

    def _lazy(self, payload: bytes) -> Blob:
        digest, size, media_type = decode(payload)
        open_blob = self._open_blob
        if open_blob is None:
            raise Corrupt("a lazy blob was met where none can be opened")
        return Blob.lazy(digest, size, media_type, lambda: open_blob(digest))

    def _remember(self, tag: int, value: Any, place: Place, with_refs: set[int]) -> None:
        if tag == LIST:
            shadows = [shadow(item, self._nodes) for item in value]
            self._note(value, ListNode(place, shadows, list(value), with_refs))
        elif tag == DICT:
            self._note(value, DictNode({key: shadow(item, self._nodes) for key, item in value.items()}, place))
        else:
            self._note(value, TextNode(value, place, tag))

    def _note(self, value: Any, node: Any) -> None:
        """Remember where a value lives, by identity; holding it keeps the identity from being reused."""
        if self._nodes is not None:
            self._nodes[id(value)] = node
            self._keep.append(value)


class _Token:
    """Stands for a part whose values were not loaded."""


def _unloaded(tag: int, payload: bytes, alias: int) -> Any:
    if tag == LIST:
        return ListNode(read_place(tag, payload, alias), None, [], set())
    if tag == DICT:
        return DictNode(None, read_place(tag, payload, alias))
    if tag in (TEXT, BINARY):
        return TextNode(None, read_place(tag, payload, alias), tag)
    if tag == SLOT:
        run = _slot_run(payload, alias)
        return Encoded(b"", slot_ref(run[0], run[2]))
    return Encoded(b"", pack_ext(tag, payload))


def _slot_run(payload: bytes, lane: int) -> Run:
    numbers = _read_varints(payload)
    if len(numbers) != 3:
        raise Corrupt("a slot's reference is cut short")
    return (numbers[0] or lane, numbers[1], numbers[2], 1)


def _items_with_refs(segment: Segment) -> list[bytes]:
    _, kind, _, sizes, body = segment
    found: list[bytes] = []
    if kind == ITEMS and isinstance(sizes, list) and 1 in map((1).__and__, sizes):
        at = 0
        for size in sizes:
            if size & 1:
                found.append(body[at : at + (size >> 1)])
            at += size >> 1
    return found


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Corrupt(f"a stored text is damaged: {error}") from None


