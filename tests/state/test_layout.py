"""The layout against a plain model: whatever is done to a state, every checkpoint reads back as it was saved.

A `Bench` is the smallest store there is: manifests in a list, payload rows by lane. It stands for the database, so that
these tests hold the pure layer alone to its promises.
"""

from __future__ import annotations

import copy
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from clew.errors import Corrupt
from clew.state import registry as registering
from clew.state.draft import Draft, Extend
from clew.state.layout import EMPTY, Tree
from clew.state.pieces import fold, unpack
from clew.state.reader import Reader
from clew.state.shadow import DictNode, ListNode, ObjectShadow
from clew.state.values import Opaque, UnknownType
from clew.testing import exactly_equal

SEAL = 7


@dataclass
class Kept:
    lane: int
    manifest: bytes
    state: dict[str, Any]


@dataclass
class Bench:
    """Lanes of payload rows, and the checkpoints that see into them."""

    rows: dict[int, list[bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    tree: Tree = EMPTY
    lane: int = 0
    lanes: int = 0

    def save(self, state: dict[str, Any], *, refused: bool = False) -> int:
        """Save like a handle does; with `refused`, the first attempt is dropped as after a conflict. Returns bytes."""
        if refused:
            dropped = Draft(self.tree)
            dropped.put_state(state)
            dropped.payload(SEAL)
        draft = Draft(self.tree)
        draft.put_state(state)
        return self.commit(draft, state)

    def tell(self, changes: dict[str, Any], state: dict[str, Any]) -> int:
        draft = Draft(self.tree)
        draft.tell_state(changes)
        return self.commit(draft, state)

    def commit(self, draft: Draft, state: dict[str, Any]) -> int:
        if self.lane == 0:
            self.lanes += 1
            self.lane = self.lanes
        payload = draft.payload(SEAL)
        manifest = draft.manifest()
        if payload is not None:
            self.rows.setdefault(self.lane, []).append(payload)
        self.blobs.update(draft.blobs)
        self.kept.append(Kept(self.lane, manifest, copy.deepcopy(state)))
        self.tree = draft.accept()
        return len(manifest) + len(payload or b"")

    def reader(self, index: int, *, own: bool = False) -> Reader:
        kept = self.kept[index]
        reading = Reader(kept.manifest, kept.lane, SEAL, own=own, open_blob=self.blobs.__getitem__)
        fed: set[int] = set()
        while (needs := reading.needs()) is not None:
            for lane in {stretch[0] for stretch in needs.stretches} - fed:
                fed.add(lane)
                for row in self.rows[lane]:
                    reading.add(lane, row)
            for digest in needs.blobs:
                reading.blobs[digest] = self.blobs[digest]
        return reading

    def load(self, index: int, *, own: bool) -> dict[str, Any]:
        """Read a checkpoint to go on from it: in its own lane, or as a fork."""
        state, self.tree = self.reader(index, own=own).state_and_tree()
        self.lane = self.kept[index].lane if own else 0
        return state

    def fold(self) -> None:
        for lane, rows in self.rows.items():
            segments = [segment for row in rows for segment in unpack(row, SEAL)]
            self.rows[lane] = [bound.data for bound in fold(segments, SEAL)]

    def check(self) -> None:
        for index, kept in enumerate(self.kept):
            state = self.reader(index).state()
            assert exactly_equal(state, kept.state), index


def message(number: int, size: int = 300) -> dict[str, Any]:
    return {"role": "user", "content": f"{number}:" + chr(97 + number % 26) * size}


@dataclass
class Agent:
    name: str
    history: list[Any]
    notes: dict[str, Any] = field(default_factory=dict)


class Session(BaseModel):
    user: str
    history: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}


def grow_plain(state: dict[str, Any], item: Any) -> None:
    state.setdefault("messages", []).append(item)


def grow_nested(state: dict[str, Any], item: Any) -> None:
    state.setdefault("a", {"x": 1}).setdefault("b", {}).setdefault("c", []).append(item)


def grow_dataclass(state: dict[str, Any], item: Any) -> None:
    state.setdefault("agent", Agent("scout", [])).history.append(item)


def grow_model(state: dict[str, Any], item: Any) -> None:
    state.setdefault("session", Session(user="anna")).history.append(item)


def grow_list_of_agents(state: dict[str, Any], item: Any) -> None:
    agents = state.setdefault("agents", [Agent("scout", []), {"history": [], "name": "cook"}])
    agents[0].history.append(item)
    agents[1]["history"].append(item)


@pytest.mark.parametrize("grow", [grow_plain, grow_nested, grow_dataclass, grow_model, grow_list_of_agents])
def test_a_step_costs_what_it_adds_wherever_the_list_stands(grow: Any) -> None:
    bench, state = Bench(), {}
    costs = []
    for number in range(120):
        grow(state, message(number))
        costs.append(bench.save(state))
    added = 330 * (2 if grow is grow_list_of_agents else 1)
    assert max(costs[20:]) < added + 200
    bench.check()
    bench.load(len(bench.kept) - 1, own=True)
    for number in range(120, 123):
        grow(state, message(number))
        assert bench.save(state) < added + 200
    bench.check()


def test_an_appended_text_and_an_edited_text_cost_the_change() -> None:
    bench = Bench()
    text = "".join(f"line {number} of the report\n" for number in range(2000))
    state = {"report": text}
    bench.save(state)
    costs = []
    for number in range(100):
        if number % 2:
            state["report"] += f"more {number}\n"
        else:
            at = number * 397 % len(state["report"])
            state["report"] = state["report"][:at] + f"<{number}é>" + state["report"][at + 5 :]
        costs.append(bench.save(state))
    bench.check()
    assert sum(costs) / len(costs) < 1500


def test_a_large_dict_costs_the_entry_that_changed() -> None:
    bench = Bench()
    state: dict[str, Any] = {"seen": {f"page-{number}": {"hits": number, "title": "x" * 60} for number in range(300)}}
    bench.save(state)
    costs = []
    for number in range(300):
        state["seen"][f"page-{number * 7 % 300}"]["hits"] += 1
        costs.append(bench.save(state))
    bench.check()
    assert sum(costs) / len(costs) < 600


def test_a_window_that_slides_costs_what_is_new() -> None:
    bench = Bench()
    messages = [message(number) for number in range(50)]
    state = {"messages": messages}
    bench.save(state)
    for number in range(50, 90):
        del messages[0]
        messages.append(message(number))
        assert bench.save(state) < 600
    bench.load(len(bench.kept) - 1, own=True)
    fresh = copy.deepcopy(state)
    del fresh["messages"][:2]
    fresh["messages"].append(message(90))
    assert bench.save(fresh) < 600
    bench.check()


def test_told_changes_cost_the_change_and_need_no_values() -> None:
    bench = Bench()
    bench.save({"messages": [message(number) for number in range(30)], "city": "Tokyo"})
    layout = bench.reader(0, own=True).layout()
    assert layout is not None
    bench.tree = layout
    expected = copy.deepcopy(bench.kept[0].state)
    for number in range(30, 50):
        expected["messages"].append(message(number))
        expected["city"] = f"city {number}"
        assert bench.tell({"messages": Extend([message(number)]), "city": f"city {number}"}, expected) < 500
    bench.check()


def test_told_keys_may_come_in_another_order() -> None:
    bench = Bench()
    bench.save({"messages": False})
    bench.tell({"notes": 0, "messages": "x"}, {"messages": "x", "notes": 0})
    bench.check()


def test_two_places_of_one_object_never_share_a_log() -> None:
    agent = {"name": "scout", "history": [message(number) for number in range(20)]}
    bench, state = Bench(), {"agents": [agent, {"name": "x" * 2000}]}
    bench.save(state)
    agent["history"].append(message(20))
    bench.save(state)
    state["agents"].append(agent)
    bench.save(state)
    loaded = bench.load(len(bench.kept) - 1, own=True)
    for turn in range(3):
        for index in (0, 2):
            loaded["agents"][index]["history"].append(message(100 + turn * 10 + index))
            bench.save(loaded)
    bench.check()


def test_a_missing_run_is_corrupt_not_short() -> None:
    bench = Bench()
    state: dict[str, Any] = {"messages": []}
    for number in range(10):
        state["messages"].append(message(number))
        bench.save(state)
    del bench.rows[1][5]
    with pytest.raises(Corrupt, match="payload is missing"):
        bench.reader(9).state()


def test_an_unknown_object_keeps_what_its_references_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without the class reads, saves elsewhere in a new lane, and one with the class reads that."""
    bench = Bench()
    state: dict[str, Any] = {"agent": Agent("scout", [])}
    for number in range(12):
        grow_dataclass(state, message(number))
        bench.save(state)
    known = registering.registry
    monkeypatch.setattr(registering, "registry", registering.Registry())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownType)
        stranger = bench.load(5, own=False)
    assert isinstance(stranger["agent"], Opaque)
    stranger["note"] = "seen by a stranger"
    bench.save(stranger)
    bench.save({**stranger, "note": "again"})
    monkeypatch.setattr(registering, "registry", known)
    read = bench.reader(len(bench.kept) - 1).state()
    assert exactly_equal(read, {**bench.kept[5].state, "note": "again"})


# -- any history

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, float("nan")]),
    st.text(max_size=8),
    st.builds(lambda char, size: char * size, st.sampled_from("aé\ud800"), st.integers(500, 3000)),
    st.binary(max_size=4),
    st.builds(lambda size: b"z" * size, st.integers(1000, 2000)),
    st.tuples(st.integers(0, 2), st.text(max_size=2)),
    st.frozensets(st.integers(0, 5), max_size=3),
    st.builds(lambda size: {1, size}, st.integers(0, 3)),
    st.builds(lambda size: bytearray(b"b" * size), st.sampled_from([3, 2000])),
)
keys = st.one_of(st.sampled_from(["a", "b", "c", "messages"]), st.integers(0, 2), st.booleans())


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(keys, children, max_size=5),
        st.builds(
            Agent, st.text(max_size=3), st.lists(children, max_size=4), st.dictionaries(keys, children, max_size=2)
        ),
        st.builds(lambda item, count: [copy.deepcopy(item) for _ in range(count)], children, st.integers(5, 30)),
    )


values = st.recursive(leaves, containers, max_leaves=12)
states = st.dictionaries(st.sampled_from(["a", "b", "messages", "report", "agent"]), values, max_size=4)


def spots(value: Any) -> list[Any]:
    """Every container within a value."""
    found = []
    if isinstance(value, list):
        found.append(value)
        for item in value:
            found += spots(item)
    elif isinstance(value, dict):
        found.append(value)
        for item in value.values():
            found += spots(item)
    elif isinstance(value, Agent):
        found += spots(value.__dict__)[1:]
    return found


def mutate(data: st.DataObject, state: dict[str, Any]) -> None:
    spot = data.draw(st.sampled_from(spots(state)))
    value = data.draw(values)
    if isinstance(spot, dict):
        action = data.draw(st.sampled_from(["set", "delete", "reorder"]))
        key = data.draw(st.sampled_from(["a", "b", "messages"]) if spot is state else keys)
        if action == "set":
            spot[key] = value
        elif action == "delete" and spot:
            del spot[data.draw(st.sampled_from(list(spot)))]
        elif spot:
            first = next(iter(spot))
            spot[first] = spot.pop(first)
        return
    action = data.draw(st.sampled_from(["append", "insert", "set", "trim", "delete", "swap", "repeat", "text"]))
    if action == "append" or not spot:
        spot.extend([value] * data.draw(st.integers(1, 3)))
        return
    at = data.draw(st.integers(0, len(spot) - 1))
    if action == "insert":
        spot.insert(at, value)
    elif action == "set":
        spot[at] = value
    elif action == "trim":
        del spot[: at + 1]
        spot.append(value)
    elif action == "delete":
        del spot[at]
    elif action == "swap":
        spot[at], spot[-1] = spot[-1], spot[at]
    elif action == "repeat":
        spot.append(spot[at])
    elif isinstance(spot[at], str):
        text = spot[at]
        spot[at] = text[: len(text) // 2] + "é+" + text[len(text) // 2 + 1 :]


def list_nodes(kid: Any) -> list[ListNode]:
    within: Any = ()
    if isinstance(kid, ListNode):
        within = kid.items if kid.loaded else ()
    elif isinstance(kid, DictNode):
        within = (kid.kids or {}).values()
    elif isinstance(kid, ObjectShadow):
        within = kid.fields.values()
    elif isinstance(kid, dict):
        within = kid.values()
    elif isinstance(kid, list):
        within = kid
    return [kid] * isinstance(kid, ListNode) + [node for one in within for node in list_nodes(one)]


def reuse_identities(tree: Any, state: dict[str, Any], rng: random.Random) -> None:
    """As if what was saved is gone, and what is there now has come to stand where that stood in memory."""
    now = [id(item) for spot in spots(state) if isinstance(spot, list) for item in spot]
    for node in list_nodes(tree):
        node.ids = [rng.choice(now) if now else 0 for _ in node.ids]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_checkpoint_of_any_history_reads_back(data: st.DataObject) -> None:
    bench = Bench()
    state = data.draw(states)
    bench.save(state)
    for _ in range(data.draw(st.integers(1, 14))):
        action = data.draw(
            st.sampled_from(
                ["mutate", "mutate", "mutate", "reload", "fork", "replace", "fold", "copy", "tell", "reuse"]
            )
        )
        if action == "mutate":
            mutate(data, state)
            bench.save(state, refused=data.draw(st.booleans()))
        elif action == "reload":
            # Only the tip of a lane can be continued in it.
            state = bench.load(len(bench.kept) - 1, own=True)
        elif action == "fork":
            index = data.draw(st.integers(0, len(bench.kept) - 1))
            state = bench.load(index, own=False)
        elif action == "replace":
            state = data.draw(states)
            bench.save(state)
        elif action == "copy":
            state = copy.deepcopy(state)
            bench.save(state)
        elif action == "reuse":
            reuse_identities(bench.tree.root, state, data.draw(st.randoms(use_true_random=False)))
        elif action == "tell":
            key = data.draw(st.sampled_from(["messages", "b"]))
            value = data.draw(values)
            if isinstance(state.get(key, []), list) and isinstance(value, list):
                state = {**state, key: state.get(key, []) + value}
                bench.tell({key: Extend(value)}, state)
            else:
                state = {**state, key: value}
                bench.tell({key: value}, state)
        else:
            bench.fold()
    bench.check()


def test_what_a_step_brings_to_one_list_is_not_taken_for_what_it_brings_to_another() -> None:
    """Two items that refer to blobs, beside one that is a single byte: their sizes add up to the same."""
    bench = Bench()
    state: dict[str, Any] = {"large": ["x" * 2000], "small": ["y" * 2000]}
    bench.save(state)
    state["large"] += ["a" * 100_000, "b" * 100_000]
    state["small"].append(1)
    bench.save(state)
    bench.check()
    bench.fold()
    bench.check()
