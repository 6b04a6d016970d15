"""What a graph keeps comes back with its exact types; a class that this process does not know, as `Opaque`."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send
from places import Place
from test_saver_reading import CONFIG, put

import clew
from clew.adapters.langgraph import ClewSaver
from clew.testing import exactly_equal

MESSAGES = [
    HumanMessage("hi", id="1", additional_kwargs={"deep": [{"a": (1, 2)}]}),
    HumanMessage([{"type": "image_url", "image_url": {"url": "data:,"}}, "text"]),
    AIMessage(
        "x",
        tool_calls=[{"name": "f", "args": {"n": 1}, "id": "c"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"logprobs": None},
    ),
    AIMessageChunk("part", tool_call_chunks=[{"name": "f", "args": "{", "id": "c", "index": 0}]),
    SystemMessage("s"),
    ToolMessage("done", tool_call_id="c", artifact={"bytes": b"\x00"}, status="error"),
    FunctionMessage("f", name="f"),
    ChatMessage("c", role="critic"),
    RemoveMessage(id="1"),
]
VALUES = {
    "messages": MESSAGES,
    "document": Document("page", metadata={"n": 1}, id="d"),
    "send": [Send("node", {"x": (1, [2])})],
    "command": Command(goto=[Send("a", 1)], update={"x": 1}, resume={"i": 2}),
    "interrupt": (Interrupt({"q": 1}, id="i"),),
    "snapshot": _DeltaSnapshot(MESSAGES[:2]),
    "tuple": (1, (2, [3]), frozenset({4})),
}
SHOP = """
from dataclasses import dataclass, field
from pydantic import BaseModel

@dataclass
class Order:
    item: str
    parts: list = field(default_factory=list)

class Offer(BaseModel):
    price: int
"""
WRITE = """
import sys
sys.path.insert(0, sys.argv[2])
import shop
from test_saver_reading import put
from clew.adapters.langgraph import ClewSaver

with ClewSaver.open(sys.argv[1]) as saver:
    put(saver, 1, {"order": shop.Order("tea", [1]), "offers": [shop.Offer(price=n) for n in range(50)]})
"""


def test_exact_types_from_memory_and_from_the_database(place: Place) -> None:
    with place.open() as db, place.open() as other:
        saver = ClewSaver(db)
        put(saver, 1, VALUES)
        saver.put_writes(
            {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "00001"}},
            list(VALUES.items()),
            "task",
        )
        for reader in (saver, ClewSaver(other)):
            found = reader.get_tuple(CONFIG)
            assert found is not None
            values = found.checkpoint["channel_values"]
            assert found.pending_writes is not None
            for given in (values, {name: value for _, name, value in found.pending_writes}):
                assert exactly_equal(given["messages"], VALUES["messages"])
                assert exactly_equal(given["document"], VALUES["document"])
                assert exactly_equal(given["tuple"], VALUES["tuple"])
                for name in ("send", "command", "interrupt", "snapshot"):
                    assert type(given[name]) is type(VALUES[name])
                    assert given[name] == VALUES[name], name


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A database that another process wrote, with classes that this one has never seen."""
    (tmp_path / "shop.py").write_text(SHOP)
    url = str(tmp_path / "a.db")
    path = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", WRITE, url, str(tmp_path)], env=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return url


def test_an_unknown_class_is_opaque_and_the_warning_names_the_line_to_add(
    elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with ClewSaver.open(elsewhere) as saver:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = _values(saver)
        assert isinstance(values["order"], clew.Opaque)
        assert {type(offer) for offer in values["offers"]} == {clew.Opaque}
        assert "shop" not in sys.modules, "it would have been imported by a name found in the data"
        told = {str(one.message) for one in caught if "Opaque" in str(one.message)}
        assert any("shop:Order" in text and "clew.register" in text for text in told), told
        # Kept as they are, also through another checkpoint.
        put(saver, 2, {**values, "n": 1})
        import shop  # type: ignore[import-not-found]

        known = saver.with_allowlist([("shop", "Order"), ("shop", "Offer")])
        assert _values(known)["order"] == shop.Order("tea", [1])
        assert _values(known)["offers"] == [shop.Offer(price=n) for n in range(50)]
    monkeypatch.delitem(sys.modules, "shop")


def _values(saver: Any) -> Any:
    return saver.get_tuple(CONFIG).checkpoint["channel_values"]
