"""Writing: from a value and the shadow of its predecessor to a manifest and the payload it brings.

A `Draft` is one commit in the making. It never changes the tree it starts from: what a successful commit has to
change there is staged, and done by `accept()`. So a commit that is refused leaves the handle as it was.

Sizes decide. What weighs less than `OWN_LOG_FROM` stays in its parent; longer lists, dicts and texts get logs of their
own along the path from the root through dicts and objects. New items of a list are written whole (messages do not
change); one that is changed later is taken apart then. Single values past `SPILL_OVER` go to blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from clew.errors import BadInput, CodecError
from clew.state.capture import Capture
from clew.state.codec import (
    IMMUTABLE,
    SPILL_OVER,
    Parts,
    encode,
    is_frozen,
    pack_dict,
    pack_list,
    put_together,
    take_apart,
)
from clew.state.codec_format import FREE_EXTS
from clew.state.depth import Depth
from clew.state.layout import (
    BINARY,
    DICT,
    LIST,
    TEXT,
    Tree,
    lazy_ref,
    pack_manifest,
    place_ref,
)
from clew.state.payload import Payload
from clew.state.resync import ItemPlan, add_run, plan_items, plan_text, sub_runs
from clew.state.shadow import (
    DictNode,
    Encoded,
    ListNode,
    ObjectShadow,
    Place,
    Run,
    TextNode,
    holds_nodes,
    is_flat,
    same,
    shadow,
    unchanged_prefix,
)
from clew.state.values import Blob

OWN_LOG_FROM = 1024
"""Bytes from which a value leaves its parent for a log or slot of its own."""

FEW_RUNS = 16
MOST_PATCHES = 1000
Put = tuple[bytes, Any]
"""What stands in the parent, and the shadow."""


class Extend:
    """Told, not detected: these items are appended to a list (`clew.extend([...])`)."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any]) -> None:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise BadInput(f"clew.extend takes a list of items, not {items!r:.60}", hint="clew.extend([item])")
        self.items = list(items)

    def __repr__(self) -> str:
        return f"extend({self.items!r})"


class Draft(Payload):
    """What one commit will write. Make one, `put` the state (or `tell` the change), then `manifest` and `payload`."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.next_log, tree.slot_tail)
        self._tree = tree
        self._staged: list[Callable[[], None]] = []
        self._root: Put = (b"", None)
        self._depth = Depth()

    # -- the outcome

    def put_state(self, state: dict[str, Any], same: Collection[str] = ()) -> None:
        """Detect what has changed between the tree and this state. Keys in `same` have not: they are not looked at."""
        put = partial(self._changed_keys, same) if same and type(self._tree.root) is dict else self._dict
        self._root = self._within(put, state, self._tree.root, "")

    def _changed_keys(self, same: Collection[str], state: dict[str, Any], root: dict[str, Any], path: str) -> Put:
        parts: dict[str, bytes] = {}
        kids: dict[str, Any] = {}
        for key, value in state.items():
            if key in same and key in root:
                parts[key], kids[key] = self._again(root[key]), root[key]
            else:
                parts[key], kids[key] = self._put(value, root.get(key), _under(path, key))
        return self._inline_dict(kids, parts, None)

    def tell_state(self, changes: dict[str, Any]) -> None:
        """Apply told changes: `Extend` appends to a list, any other value replaces its key. Costs the change alone.

        The tree that `accept` returns then knows where everything lies, but no longer every value.
        """
        root = self._tree.root
        kids: dict[Any, Any] = (root.kids or {}) if isinstance(root, DictNode) else root
        after = dict(kids)
        parts: dict[str, bytes] = {}
        for key, change in changes.items():
            old = kids.get(key)
            if isinstance(change, Extend):
                parts[key], after[key] = self._extend(change.items, old, key)
            else:
                parts[key], after[key] = self._put(change, old, key)
        if isinstance(root, DictNode):
            self._root = self._patch(root, after, parts, [])
        elif list(parts) == list(after):
            self._root = self._inline_dict(after, parts, None)
        else:
            self._root = self._inline_dict(after, self._completed(after, parts), None)

    def manifest(self) -> bytes:
        return pack_manifest(self._next_log, self._next_slot(), self._root[0])

    def accept(self) -> Tree:
        """The commit is written: bring the tree up to date and return it."""
        for change in self._staged:
            change()
        self._staged = []
        return Tree(self._root[1], self._next_log, self._next_slot())

    # -- any value

    def _put(self, value: Any, old: Any, path: str) -> Put:
        """A value that may take space of its own."""
        kind = type(value)
        if kind is str or kind is bytes:
            return self._long(value, old, path) if len(value) > OWN_LOG_FROM else (encode(value, path=path), value)
        if kind is dict:
            return self._within(self._dict, value, old, path)
        if kind is list:
            return self._within(self._list, value, old, path)
        if kind in IMMUTABLE:
            return encode(value, path=path), value
        parts = take_apart(value)
        if parts is not None:
            return self._within(partial(self._object, parts), value, old, path)
        return self._leaf(value, old, path)

    def _within(self, put: Callable[[Any, Any, str], Put], value: Any, old: Any, path: str) -> Put:
        """A container, and what is in it."""
        self._depth.enter(value, path)
        done = put(value, old, path)
        self._depth.leave(value)
        return done

    def _leaf(self, value: Any, old: Any, path: str) -> Put:
        """A value that is not taken apart: kept in a slot when it is large, and found again by its bytes."""
        if type(value) is Blob:
            if type(old) is Blob and old == value:
                self._refs += 1
                return lazy_ref(value), old
            return self.blob(value), value
        data = encode(value, path=path, within=self._depth.objects)
        if isinstance(old, Encoded) and old.data == data:
            self._refs += old.ref is not None
            return old.ref or data, old
        if len(data) > SPILL_OVER:
            spilled = self._whole(value, path)[0]
            ref = spilled if len(spilled) <= OWN_LOG_FROM else self.leaf(data)
            return ref, Encoded(data, ref)
        if len(data) > OWN_LOG_FROM:
            ref = self._append_slot(data)
            return ref, Encoded(data, ref)
        return data, (value if is_frozen(value) else Encoded(data))

    def _object(self, apart: Parts, value: Any, old: Any, path: str) -> Put:
        head, fields = apart
        before = old.fields if isinstance(old, ObjectShadow) and old.type is type(value) else {}
        parts: list[bytes] = []
        shadows: dict[str, Any] = {}
        self._depth.objects += 1
        for name, field in fields.items():
            part, shadows[name] = self._put(field, before.get(name), f"{path}.{name}")
            parts.append(part)
        if self._depth.objects > FREE_EXTS:
            self._depth.check_object(head[1:] + pack_dict(list(fields), parts), path)
        self._depth.objects -= 1
        return put_together(head, list(fields), parts), ObjectShadow(type(value), head, shadows)

    def _whole(self, value: Any, path: str, within: int = 0) -> tuple[bytes, int]:
        """An item written whole, and whether it refers to anything."""
        refs = self._refs
        data = encode(value, path=path, spill=self, within=within)
        return data, int(self._refs != refs)

    # -- text and bytes

    def _long(self, value: str | bytes, old: Any, path: str) -> Put:
        tag = TEXT if type(value) is str else BINARY
        if not isinstance(old, TextNode) or type(old.value) is not type(value):
            old = None
        elif old.value == value:
            if old.ref is not None:
                self._refs += 1
                return old.ref, old
            return self._ref(tag, old.place), old
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        place = old.place if old is not None else Place(())
        kept = plan_text(old.value, value) if old is not None else None
        if kept is None and len(data) > SPILL_OVER:
            ref = self.leaf(encode(value, path=path))
            return ref, TextNode(value, Place(()), tag, ref)
        if kept is None or (old is not None and old.ref is not None):
            run, place = self._append_bytes(place, data)
            place = place._replace(runs=(run,))
        else:
            place = self._splice_bytes(place, kept)
            if len(place.runs) > FEW_RUNS and len(place.runs) ** 2 > len(data):
                run, place = self._append_bytes(place, data)
                place = place._replace(runs=(run,))
        return self._ref(tag, place), TextNode(value, place, tag)

    def _splice_bytes(self, place: Place, plan: Sequence[tuple[int, int] | bytes]) -> Place:
        """A text from stretches of the old one and new bytes."""
        old_runs, runs = place.runs, list[Run]()
        for part in plan:
            if isinstance(part, bytes):
                run, place = self._append_bytes(place, part)
                add_run(runs, run)
            else:
                for run in sub_runs(old_runs, *part):
                    add_run(runs, run)
        return place._replace(runs=tuple(runs))

    # -- lists

    def _list(self, value: list[Any], old: Any, path: str) -> Put:
        if isinstance(old, ListNode):
            if not old.loaded:
                return self._fresh_list(value, old.place, path)
            prefix = unchanged_prefix(old, value)
            if prefix == len(old.ids):
                return self._appended(value[prefix:] if prefix < len(value) else [], old, path)
            return self._relisted(value, old, prefix, path)
        return self._new_list(value, path)

    def _new_list(self, value: list[Any], path: str) -> Put:
        data, flag = self._whole(value, path, self._depth.objects)
        if len(data) <= OWN_LOG_FROM and not flag:
            return data, shadow(value)
        return self._fresh_list(value, Place(()), path)

    def _fresh_list(self, value: list[Any], place: Place, path: str) -> Put:
        """Every item written anew, in one run."""
        items, flags = self._encode_items(value, path)
        if not items:
            place = place._replace(runs=())
        else:
            run, place = self._append_items(place, items, flags)
            place = place._replace(runs=(run,))
        with_refs = {index for index, flag in enumerate(flags) if flag}
        return self._ref(LIST, place), ListNode.of(place, value, with_refs)

    def _encode_items(self, values: Sequence[Any], path: str, first: int = 0) -> tuple[list[bytes], list[int]]:
        items: list[bytes] = []
        flags: list[int] = []
        for index, value in enumerate(values, first):
            refs = self._refs
            try:
                items.append(encode(value, spill=self))
            except CodecError:
                encode(value, path=f"{path}[{index}]", spill=self)  # again, to say where: a path costs time to write
                raise
            flags.append(int(self._refs != refs))
        return items, flags

    def _extend(self, values: list[Any], old: Any, path: str) -> Put:
        """Told: these items were appended. Of a long list only the place is remembered: nobody holds its items."""
        if isinstance(old, ListNode):
            place = old.place
            if values:
                sizes, items = self._encode_flat(values) if all(map(is_flat, values)) else ([], [])
                if not sizes:
                    items, flags = self._encode_items(values, path, sum([run[3] for run in place.runs]))
                    sizes = [len(item) << 1 | flag for item, flag in zip(items, flags, strict=True)]
                place = self._extended(place, sizes, items)
            return self._ref(LIST, place), ListNode(place, None, [], set(), loaded=False)
        if old is not None and type(old) is not list:
            raise BadInput(f"cannot extend {path}: it is not a list", hint="give the whole new value instead")
        before = old or []
        new, new_flags = self._encode_items(values, path, len(before))
        items = [*map(self._again, before), *new]
        flags = [0] * len(before) + new_flags
        objects = [*before, *values]
        shadows = [*before, *map(shadow, values)]
        if sum(map(len, items)) <= OWN_LOG_FROM and not any(flags):
            return pack_list(items), shadows
        run, place = self._append_items(Place(()), items, flags)
        with_refs = {index for index, flag in enumerate(flags) if flag}
        place = place._replace(runs=(run,))
        return self._ref(LIST, place), ListNode(place, shadows, objects, with_refs)

    def _appended(self, values: list[Any], old: ListNode, path: str) -> Put:
        """Items at the end of a list: what nearly every step of an agent does, so this path is kept short."""
        place = old.place
        if not values:
            return self._ref(LIST, place), old
        # What is remembered of items is what is encoded, even if somebody changes them meanwhile: of flat ones a copy
        # is encoded, what others consist of is taken down first.
        flat: list[Any] = list(map(dict.copy, values)) if all(map(is_flat, values)) else []
        sizes, items = self._encode_flat(flat) if all(map(is_flat, flat)) else ([], [])
        more = Capture.of(flat if sizes else values) if old.capture is not None else None
        shadows: list[Any] = []
        with_refs: set[int] = set()
        if not sizes:
            known = sum(run[3] for run in place.runs)
            items, flags = self._encode_items(values, path, known)
            sizes = [len(item) << 1 | flag for item, flag in zip(items, flags, strict=True)]
            with_refs = {known + index for index, flag in enumerate(flags) if flag}
            if more is None or with_refs:
                more, shadows = None, list(map(shadow, values))
        place = self._extended(place, sizes, items)
        self._staged.append(lambda: old.append(place, values, with_refs, more, shadows))
        return self._ref(LIST, place), old

    @staticmethod
    def _encode_flat(values: list[dict[Any, Any]]) -> tuple[list[int], list[bytes]]:
        """Sizes and encodings of flat dicts; nothing when one of them needs the long way (a path, a blob)."""
        if not values:
            return [], []
        try:
            items = list(map(encode, values))
        except CodecError:
            return [], []
        if max(map(len, items)) > SPILL_OVER:
            return [], []
        return [len(item) << 1 for item in items], items

    def _relisted(self, value: list[Any], old: ListNode, prefix: int, path: str) -> Put:
        """Items were removed, moved, replaced or changed: keep the positions of those that are the same."""
        plan = plan_items(old, value, prefix)
        afresh = _count_runs(plan, old.place.runs) > max(FEW_RUNS, len(value) // 2)
        before = old.items
        place, runs = old.place, list[Run]()
        shadows: list[Any] = []
        with_refs: set[int] = set()
        for index, (item, (source, base)) in enumerate(zip(value, plan, strict=True)):
            if source is not None and not afresh:
                (run,) = sub_runs(old.place.runs, source, source + 1)
                kid, flag = before[source], int(source in old.with_refs)
            else:
                kept = before[source] if source is not None and source in old.with_refs else None
                changed = before[base] if base is not None else None
                data, flag, kid = self._item(item, kept, changed, f"{path}[{index}]")
                run, place = self._append_items(place, [data], [flag])
            add_run(runs, run)
            shadows.append(kid)
            if flag:
                with_refs.add(index)
        place = place._replace(runs=tuple(runs))
        self._refs += len(with_refs)
        return self._ref(LIST, place), ListNode(place, shadows, list(value), with_refs)

    def _item(self, item: Any, kept: Any, changed: Any, path: str) -> tuple[bytes, int, Any]:
        """An item of a changed list, to be written: its bytes, whether they refer to anything, and its shadow.

        `kept` is the shadow of an item that is the same but refers to logs, `changed` that of what it was before.
        """
        refs = self._refs
        if kept is not None and holds_nodes(kept):
            return self._again(kept), 1, kept
        if changed is not None:
            within, self._depth.objects = self._depth.objects, 0  # it is read by itself
            data, kid = self._put(item, changed, path)
            self._depth.objects = within
            return data, int(self._refs != refs), kid
        data, flag = self._whole(item, path)
        return data, flag, shadow(item)

    # -- dicts

    def _dict(self, value: dict[Any, Any], old: Any, path: str) -> Put:
        if isinstance(old, DictNode) and old.kids is not None:
            put = self._changed_dict(value, old, path)
            if put is not None:
                return put
        before = old.kids or {} if isinstance(old, DictNode) else old if type(old) is dict else {}
        parts: dict[Any, bytes] = {}
        kids: dict[Any, Any] = {}
        for key, item in value.items():
            parts[key], kids[key] = self._put(item, before.get(key), _under(path, key))
        return self._inline_dict(kids, parts, old if isinstance(old, DictNode) else None)

    def _inline_dict(self, kids: dict[Any, Any], parts: dict[Any, bytes], old: DictNode | None) -> Put:
        """A dict in its parent, or as the base of a log when it is large. `parts` are in the order of `kids`."""
        data = pack_dict(list(kids), list(parts.values()))
        if len(data) <= OWN_LOG_FROM:
            return data, kids
        base = encode(parts)
        run, place = self._append_items(old.place if old else Place(()), [base], [0])
        place = place._replace(runs=(run,), base=len(base), patches=0)
        return self._ref(DICT, place), DictNode(kids, place)

    def _changed_dict(self, value: dict[Any, Any], old: DictNode, path: str) -> Put | None:
        """A patch over the old dict; None when writing it afresh is needed (order) or cheaper."""
        kids = old.kids or {}
        known = {(type(key), key) for key in kids}
        dropped = [key for key in kids if key not in value]
        dropped += [key for key in value if key in kids and (type(key), key) not in known]
        gone = set(dropped)
        added = [key for key in value if key not in kids or key in gone]
        if [key for key in kids if key not in gone] + added != list(value):
            return None
        parts: dict[Any, bytes] = {}
        after = {key: kid for key, kid in kids.items() if key not in gone}
        for key, item in value.items():
            if key in after and type(kid := after[key]) is not ListNode and same(kid, item):
                continue
            kid = after.get(key)
            part, after[key] = self._put(item, kid, _under(path, key))
            if not (isinstance(kid, ListNode) and after[key] is kid and part == place_ref(LIST, kid.place)):
                parts[key] = part
        return self._patch(old, after, parts, dropped)

    def _patch(self, old: DictNode, kids: dict[Any, Any], parts: dict[Any, bytes], dropped: list[Any]) -> Put:
        if not parts and not dropped:
            return self._ref(DICT, old.place), DictNode(kids, old.place)
        data = encode([parts, dropped])
        place = old.place
        if place.patches + len(data) > place.base or sum(run[3] for run in place.runs) >= MOST_PATCHES:
            return self._inline_dict(kids, self._completed(kids, parts), old)
        run, moved = self._append_items(place, [data], [0])
        runs = list(place.runs)
        add_run(runs, run)
        place = moved._replace(runs=tuple(runs), patches=place.patches + len(data))
        return self._ref(DICT, place), DictNode(kids, place)

    def _completed(self, kids: dict[Any, Any], parts: dict[Any, bytes]) -> dict[Any, bytes]:
        """The parts that were written, and those of the kids that stayed, in the kids' order."""
        return {key: parts[key] if key in parts else self._again(kid) for key, kid in kids.items()}

    def _again(self, kid: Any) -> bytes:
        """The encoding of an unchanged part, from its shadow."""
        kind = type(kid)
        if kind in (ListNode, DictNode):
            return self._ref(LIST if kind is ListNode else DICT, kid.place)
        if kind is TextNode:
            if kid.ref is not None:
                self._refs += 1
                return bytes(kid.ref)
            return self._ref(kid.tag, kid.place)
        if kind is Encoded:
            self._refs += kid.ref is not None
            return bytes(kid.ref or kid.data)
        if kind is Blob:
            self._refs += 1
            return lazy_ref(kid)
        if kind is ObjectShadow:
            return put_together(kid.head, list(kid.fields), [self._again(field) for field in kid.fields.values()])
        if kind is dict:
            return pack_dict(list(kid), [self._again(item) for item in kid.values()])
        if kind is list:
            return pack_list([self._again(item) for item in kid])
        return encode(kid)


def _under(path: str, key: Any) -> str:
    """The path of a dict's entry: `messages`, then `.args`, or `["odd key"]`."""
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _count_runs(plan: ItemPlan, runs: tuple[Run, ...]) -> int:
    """How many runs a planned list would have."""
    edges = set()
    at = 0
    for run in runs:
        edges.add(at)
        at += run[3]
    count, last = 0, -2
    for source, _ in plan:
        if source is None:
            count += last != -1
            last = -1
        else:
            count += source != last + 1 or last == -1 or source in edges
            last = source
    return count
