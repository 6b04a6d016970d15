"""A state once more, from what is remembered of it: nothing is read and little is decoded."""

from __future__ import annotations

from typing import Any

from clew.state.codec import IMMUTABLE, decode, is_frozen
from clew.state.layout import Tree
from clew.state.shadow import DictNode, Encoded, ListNode, TextNode
from clew.state.values import Blob


class _NotKnown(Exception):
    """Something is only known by where it lies."""


def recalled(tree: Tree) -> Any:
    """The state that a tree remembers, in containers of its own; None if it does not remember all of it.

    The tree is of this state from now on: nobody else may use it.
    """
    try:
        return _value(tree.root)
    except _NotKnown:
        return None


def _value(kid: Any) -> Any:
    kind = type(kid)
    if kind in IMMUTABLE or kind is Blob:
        return kid
    if kind is ListNode:
        return _items(kid)
    if kind is dict:
        return {key: _value(item) for key, item in kid.items()}
    if kind is list:
        return [_value(item) for item in kid]
    if kind is TextNode and kid.value is not None:
        return kid.value
    if kind is DictNode and kid.kids is not None:
        return {key: _value(item) for key, item in kid.kids.items()}
    if kind is Encoded and kid.data:
        return decode(kid.data)
    if is_frozen(kid):
        return kid
    raise _NotKnown


def _items(node: ListNode) -> list[Any]:
    if not node.loaded:
        raise _NotKnown
    items = node.capture.renew() if node.capture is not None else [_value(item) for item in node.items]
    node.seen(items)
    return items
