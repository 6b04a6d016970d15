"""Reading: a listing is what reading each by itself gives, whatever happens to the thread or to what was handed out."""

from __future__ import annotations

import operator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from places import Place
from playing import differences, plain
from pydantic import BaseModel, Field

import clew
from clew.adapters.langgraph import ClewSaver
from clew.errors import Corrupt
from clew.testing import exactly_equal

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Mixed(MessagesState):
    facts: Annotated[list[dict[str, Any]], operator.add]


def put(saver: ClewSaver, number: int, values: dict[str, Any], thread: str = "t", ns: str = "") -> None:
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
    if number > 1:
        config["configurable"]["checkpoint_id"] = f"{number - 1:05}"
    versions = dict.fromkeys(values, number)
    checkpoint: Any = {
        "v": 4,
        "id": f"{number:05}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
    }
    saver.put(config, checkpoint, {"step": number}, versions)


def one_by_one(saver: ClewSaver, listed: list[Any]) -> list[Any]:
    return [saver.get_tuple(one.config) for one in listed]


def grown(saver: ClewSaver, turns: int) -> Any:
    """A conversation, with facts as plain dicts beside it; two of its messages are replaced and removed on the way."""
    builder = StateGraph(Mixed)

    def reply(state: Any) -> Any:
        at = len(state["facts"])
        messages: list[Any] = [AIMessage(f"answer {at} " * 20, id=f"a{at}")]
        if at == 7:
            messages.append(AIMessage("another answer", id="a3"))
        return {"messages": messages, "facts": [{"at": at, "more": {"deep": [at]}}] * (1 if at % 2 else 20)}

    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    graph = builder.compile(checkpointer=saver)
    for number in range(turns):
        graph.invoke({"messages": [HumanMessage(f"question {number} " * 20, id=f"q{number}")], "facts": []}, CONFIG)
    return graph


def test_a_listing_is_what_reading_each_gives(db: clew.Database) -> None:
    saver = ClewSaver(db)
    graph = grown(saver, 12)
    graph.update_state(
        next(iter(graph.get_state_history(CONFIG, limit=1))).parent_config, {"messages": [("user", "x")]}
    )
    listed = list(saver.list(CONFIG))
    assert len(listed) == 37
    assert list(differences(plain(listed), plain(one_by_one(saver, listed)))) == []
    assert [one.config for one in saver.list(CONFIG, limit=5)] == [one.config for one in listed[:5]]


def test_more_than_a_page_in_several_namespaces(db: clew.Database) -> None:
    saver = ClewSaver(db)
    for number in range(1, 251):
        put(saver, number, {"log": [f"item {at}" * 10 for at in range(number)], "n": number})
        if number > 150:
            put(saver, number, {"n": -number}, ns="within:1")
    listed = list(saver.list(CONFIG))
    assert [one.checkpoint["channel_values"]["n"] for one in listed[:4]] == [-250, 250, -249, 249]
    assert len(listed) == 350
    assert list(differences(plain(listed[::7]), plain(one_by_one(saver, listed[::7])))) == []
    root = list(saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}))
    assert [one.checkpoint["channel_values"]["n"] for one in root] == list(range(250, 0, -1))
    assert [len(one.checkpoint["channel_values"]["log"]) for one in root] == list(range(250, 0, -1))


def test_what_was_handed_out_may_be_changed(db: clew.Database) -> None:
    """Containers of every tuple are its own; so are those of a state that is read again."""
    saver = ClewSaver(db)
    grown(saver, 6)
    before = plain(list(saver.list(CONFIG)))
    for one in saver.list(CONFIG):
        values = one.checkpoint["channel_values"]
        for fact in values.get("facts", ()):
            fact["more"]["deep"].append("changed")
            fact["at"] = None
        values.get("messages", []).append("changed")
        values["facts"] = None
        one.metadata["step"] = -7
        one.checkpoint["channel_versions"].clear()
    read = saver.get_tuple(CONFIG)
    assert read is not None
    read.checkpoint["channel_values"]["facts"][0]["more"]["deep"].append("changed")
    read.checkpoint["channel_values"]["messages"][0].content = "changed"
    read.checkpoint["channel_values"]["messages"][0].additional_kwargs["new"] = 1
    assert list(differences(plain(list(saver.list(CONFIG))), before)) == []
    again = saver.get_tuple(CONFIG)
    assert list(differences(plain([again]), plain([next(saver.list(CONFIG))]))) == []


def test_the_saver_may_be_called_inside_the_loop(db: clew.Database) -> None:
    saver = ClewSaver(db)
    graph = grown(saver, 5)
    count = 0
    for one in saver.list(CONFIG):
        assert saver.get_tuple(one.config) is not None
        assert next(saver.list(CONFIG)) is not None
        if count == 3:
            graph.invoke({"messages": [("user", "meanwhile")], "facts": []}, CONFIG)
        if count == 5:
            saver.put_writes(one.config, [("messages", ["late"])], "task")
        count += 1
    assert count == 15


def test_another_thread_of_the_same_name_is_not_taken_for_it(db: clew.Database) -> None:
    """Between two pages the thread goes, and another one comes: what was read of the first is not part of it."""
    saver = ClewSaver(db)
    for number in range(1, 260):
        put(saver, number, {"log": ["the first " * 20] * (number // 10)})
    pages = saver.list(CONFIG)
    first = next(pages)
    saver.delete_thread("t")
    for number in range(1, 60):
        put(saver, number, {"log": ["the other " * 20] * (number // 10)})
    rest = list(pages)
    assert first.checkpoint["channel_values"]["log"][0].startswith("the first")
    of_the_other = [one for one in rest if int(one.checkpoint["id"]) < 60]
    assert of_the_other
    assert {text for one in of_the_other for text in one.checkpoint["channel_values"]["log"]} == {"the other " * 20}


def test_deleting_in_the_loop(db: clew.Database) -> None:
    saver = ClewSaver(db)
    grown(saver, 3)
    for one in saver.list(CONFIG):
        saver.delete_thread("t")
        assert one.config["configurable"]["thread_id"] == "t"
    assert list(saver.list(CONFIG)) == []


@pytest.mark.parametrize(
    "value", [[{"a": [1]}] * 3, [(1, [2])] * 400, [{1, 2}, bytearray(b"x" * 2000)], {"a": {"b": "x" * 3000}}]
)
def test_containers_of_any_sort_are_fresh(db: clew.Database, value: Any) -> None:
    saver = ClewSaver(db)
    for number in range(1, 4):
        put(saver, number, {"value": value})
    first, second, _ = (one.checkpoint["channel_values"]["value"] for one in saver.list(CONFIG))
    assert first == second == value
    assert not _ids(first) & _ids(second)


def _ids(value: Any) -> set[int]:
    """The identities of what can be changed in a value."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(_ids, value.values()))
    if isinstance(value, (list, tuple)):
        return ({id(value)} if isinstance(value, list) else set()).union(*map(_ids, value))
    return {id(value)} if isinstance(value, (set, bytearray)) else set()


def test_what_was_placed_again_has_its_place_in_the_history(db: clew.Database) -> None:
    """It is newer than its children then, and still their parent."""
    saver = ClewSaver(db)
    for number, value in ((1, "a"), (2, "b"), (3, "c"), (2, "B"), (1, "A")):
        put(saver, number, {"m": value})
    thread = db.thread("t")
    assert [checkpoint.state() for checkpoint in thread.history()] == [{"m": "c"}, {"m": "B"}, {"m": "A"}]
    assert thread.state("~2") == {"m": "A"}
    assert db.prune(keep_last=2).checkpoints == 1
    assert [checkpoint.state() for checkpoint in thread.history()] == [{"m": "c"}, {"m": "B"}]


def test_another_saver_placed_it_again(place: Place) -> None:
    """What is remembered of a checkpoint is only used while it is the one that stands there."""
    with place.open() as db, place.open() as other:
        saver, second = ClewSaver(db), ClewSaver(other)
        put(saver, 1, {"log": ["mine " * 20] * 50})
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["log"] == ["mine " * 20] * 50
        put(second, 1, {"log": ["theirs " * 20] * 50})
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["log"] == ["theirs " * 20] * 50
        second.delete_thread("t")
        assert saver.get_tuple(CONFIG) is None
        put(second, 1, {"log": ["new " * 20] * 50})
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["log"] == ["new " * 20] * 50
        put(saver, 2, {"log": ["new " * 20] * 50 + ["more"]})
        assert second.get_tuple(CONFIG).checkpoint["channel_values"]["log"][-1] == "more"


def test_a_checkpoint_whose_row_is_gone_is_told_of(db: clew.Database, place: Place) -> None:
    saver = ClewSaver(db)
    for number in (1, 2, 3):
        put(saver, number, {"m": number})
    place.execute(db, "DELETE FROM checkpoint WHERE id = ?", "00003")
    for reader in (saver, ClewSaver(db)):
        for id_ in ({}, {"checkpoint_id": "00003"}):
            with pytest.raises(Corrupt, match="'00003' should be step 3, which is missing"):
                reader.get_tuple({"configurable": {"thread_id": "t", **id_}})
    with pytest.raises(Corrupt, match="missing"):
        list(saver.list(CONFIG))
    before: Any = {"configurable": {"thread_id": "t", "checkpoint_id": "00002"}}
    assert saver.get_tuple(before).checkpoint["channel_values"] == {"m": 2}
    assert saver.get_tuple(before).parent_config["configurable"]["checkpoint_id"] == "00001"


class Odd(BaseModel):
    name: str
    more: dict[str, Any] = Field(default_factory=dict)


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)


VALUES: dict[str, Any] = {
    "messages": [HumanMessage("x" * 300, id=str(at), additional_kwargs={"a": [at]}) for at in range(20)],
    "models": [Odd(name="n" * 200, more={"a": [1]}) for _ in range(20)],
    "model": Odd(name="one", more={"list": ["x" * 100] * 30}),
    "notes": [Note("n" * 200, ["a"]) for _ in range(10)] + [{"a": 1}],
    "text": "long " * 1000,
    "bytes": bytearray(b"x" * 3000),
    "dict": {f"key {at}": {"n": [at], "t": (1, [at])} for at in range(100)},
    "set": {1, 2, frozenset({3})},
    "nested": [[["deep " * 300] * 3]] * 3,
    "numbers": [1, 1.0, True, -0.0, None, 10**30],
}


@pytest.mark.parametrize("name", [*VALUES, "all"])
def test_from_memory_or_from_the_database(place: Place, name: str) -> None:
    """The process that wrote a state and one that reads it for the first time see the same."""
    values = VALUES if name == "all" else {name: VALUES[name], "n": 1}
    with place.open() as db, place.open() as other:
        saver = ClewSaver(db)
        put(saver, 1, deepcopy(values))
        read = [saver.get_tuple(CONFIG) for _ in range(3)]
        cold = ClewSaver(other).get_tuple(CONFIG)
        for one in [*read, cold]:
            assert exactly_equal(one.checkpoint["channel_values"], values)
        for one in (read[1], read[2]):
            assert not _ids(one.checkpoint["channel_values"]) & _ids(read[0].checkpoint["channel_values"])
        changed = read[2].checkpoint["channel_values"]
        for value in list(changed.values()):
            if isinstance(value, list):
                value.append(value[0])
        put(saver, 2, changed)
        assert exactly_equal(ClewSaver(other).get_tuple(CONFIG).checkpoint["channel_values"], changed)
        assert exactly_equal(saver.get_tuple(CONFIG).checkpoint["channel_values"], changed)


def test_a_value_whose_version_is_the_same_is_not_written(db: clew.Database) -> None:
    """As with LangGraph's savers that keep a value for each version."""
    saver, theirs = ClewSaver(db), InMemorySaver()
    for one in (saver, theirs):
        for number, values in ((1, {"a": [1], "b": 1}), (2, {"a": [1, 2], "b": 2})):
            checkpoint: Any = {
                "v": 4,
                "id": str(number),
                "ts": "",
                "channel_values": values,
                "channel_versions": {"a": 1, "b": number},
                "versions_seen": {},
            }
            on: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            if number > 1:
                on["configurable"]["checkpoint_id"] = "1"
            one.put(on, checkpoint, {}, {"b": number} if number > 1 else {"a": 1, "b": 1})
    assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"a": [1], "b": 2}
    assert theirs.get_tuple(CONFIG).checkpoint["channel_values"] == {"a": [1], "b": 2}
