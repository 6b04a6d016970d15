"""The saver's own calls, in any order, on LangGraph's saver in memory and on ours: every reading is the same."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver
from playing import differences, plain

import clew
from clew.adapters.langgraph import ClewSaver

_EXAMPLES = count()
# Names that would mean something to a database that they were pasted into.
ODD = ["a", "A", "a%", "_", "' OR 1=1 --", "a:b|c:d", "é", "e\u0301", 'x"y', "$.a", "\\", "a\nb", "1", "12"]
threads = st.sampled_from(["t", "T", "t%", "t'; DROP TABLE placed --", "t:1"])
namespaces = st.sampled_from(["", *ODD[:6], "12:x"])
ids = st.integers(0, 7).map(lambda number: f"{number:04}")
channels = st.sampled_from(ODD)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from(ODD)
    | st.binary(max_size=20)
    | st.sampled_from([HumanMessage("hello", id="1"), AIMessage("a" * 600, id="2", tool_calls=[])])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(ODD), inner, max_size=3),
    max_leaves=8,
)
plain_values = st.sampled_from([None, True, 1, 2, "loop", "input", "' OR 1=1 --", "%", [1], {"a": 1}, {"$gt": 0}])
metadata = st.dictionaries(st.sampled_from(["source", "step", "who", *ODD]), plain_values, max_size=3)


class Put(NamedTuple):
    thread: str
    ns: str
    id: str
    on: int | None
    """Which of the smaller ids of the namespace it stands on."""
    values: dict[str, Any]
    without: list[str]
    """Channels that have a version and no value."""
    metadata: dict[str, Any]


class Writes(NamedTuple):
    thread: str
    ns: str
    id: str
    task: str
    path: str
    writes: list[tuple[str, Any]]


class Get(NamedTuple):
    thread: str
    ns: str
    id: str | None


class List(NamedTuple):
    thread: str
    ns: str
    id: str | None
    filter: dict[str, Any] | None
    before: str | None
    limit: int | None


class History(NamedTuple):
    thread: str
    ns: str
    id: str | None
    channels: list[str]


class Delete(NamedTuple):
    thread: str


writes = st.lists(st.tuples(channels | st.sampled_from(list(WRITES_IDX_MAP)), values), max_size=3)
steps = st.lists(
    st.one_of(
        st.builds(
            Put,
            threads,
            namespaces,
            ids,
            st.none() | st.integers(0, 7),
            st.dictionaries(channels, values, max_size=4),
            st.lists(channels, max_size=2),
            metadata,
        ),
        st.builds(
            Writes, threads, namespaces, ids, st.sampled_from(["t1", "t2"]), st.sampled_from(["", "~a", "b"]), writes
        ),
        st.builds(Get, threads, namespaces, st.none() | ids),
        st.builds(
            List,
            threads,
            namespaces,
            st.none() | ids,
            st.none() | metadata,
            st.none() | ids,
            st.none() | st.integers(0, 5),
        ),
        st.builds(History, threads, namespaces, st.none() | ids, st.lists(channels, max_size=3, unique=True)),
        st.builds(Delete, threads),
    ),
    max_size=20,
)


class Both:
    """One sequence of calls, on both."""

    def __init__(self, db: clew.Database) -> None:
        self._ours = ClewSaver(db)
        self._theirs = InMemorySaver()
        self._prefix = f"{next(_EXAMPLES)} "
        self._version = 0
        self._known: dict[tuple[str, str], set[str]] = {}

    def config(self, thread: str, ns: str | None = None, id_: str | None = None) -> Any:
        told = {"thread_id": self._prefix + thread, "checkpoint_ns": ns, "checkpoint_id": id_}
        return {"configurable": {name: value for name, value in told.items() if value is not None}}

    def do(self, step: Any) -> None:
        match step:
            case Put():
                self.put(step)
            case Writes(thread, ns, id_, task, path, made):
                # LangGraph itself gives each special channel once.
                once = list({name: (name, value) for name, value in made}.values())
                for saver in (self._ours, self._theirs):
                    saver.put_writes(self.config(thread, ns, id_), once, task, path)
            case Get(thread, ns, id_):
                self.same(lambda saver: tuple_of(saver.get_tuple(self.config(thread, ns, id_))))
            case List(thread, ns, id_, wanted, before, limit):
                named = {"filter": wanted, "limit": limit, "before": before and self.config(thread, ns, before)}
                self.same(lambda saver: [tuple_of(one) for one in saver.list(self.config(thread, ns, id_), **named)])
            case History(thread, ns, id_, names):
                self.same(
                    lambda saver: dict(
                        saver.get_delta_channel_history(config=self.config(thread, ns, id_), channels=names)
                    )
                )
            case Delete(thread):
                for saver in (self._ours, self._theirs):
                    saver.delete_thread(self._prefix + thread)
                for key in [key for key in self._known if key[0] == thread]:
                    del self._known[key]

    def put(self, step: Put) -> None:
        known = self._known.setdefault((step.thread, step.ns), set())
        # A parent that is not there makes a root with us; LangGraph's names what never was.
        smaller = sorted(id_ for id_ in known if id_ < step.id)
        parent = smaller[step.on % len(smaller)] if smaller and step.on is not None else None
        self._version += 1
        versions = dict.fromkeys([*step.values, *step.without], self._version)
        checkpoint = {
            "v": 4,
            "id": step.id,
            "ts": "2024-01-01T00:00:00+00:00",
            "channel_values": step.values,
            "channel_versions": versions,
            "versions_seen": {"node": versions},
            "updated_channels": list(versions),
        }
        for saver in (self._ours, self._theirs):
            config = self.config(step.thread, step.ns, parent)
            saver.put(config, checkpoint, step.metadata, versions)  # type: ignore[arg-type]
        known.add(step.id)

    def same(self, read: Any) -> None:
        assert list(differences(plain(read(self._ours)), plain(read(self._theirs)))) == []

    def end(self) -> None:
        for thread, ns in self._known:
            self.same(lambda saver, of=thread: by_place(saver.list(self.config(of))))
            self.do(List(thread, ns, None, None, None, None))
            self.do(Get(thread, ns, None))
        self.same(lambda saver: by_place(saver.list(None)))
        for thread in {thread for thread, _ in self._known}:
            self.do(Delete(thread))
        self.same(lambda saver: list(saver.list(None)))


def tuple_of(found: Any) -> Any:
    return found and found._replace(config={"configurable": {**found.config["configurable"]}})


def by_place(found: Any) -> dict[Any, Any]:
    """All namespaces together come in no promised order."""
    return {tuple(sorted(one.config["configurable"].items())): one for one in found}


@pytest.mark.filterwarnings("ignore::clew.adapters.langgraph.RaceWarning")
def test_any_sequence_of_calls_reads_the_same(shared: clew.Database, examples: int) -> None:
    @settings(max_examples=2 * examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(steps)
    def check(made: list[Any]) -> None:
        both = Both(shared)
        try:
            for step in made:
                both.do(step)
        finally:
            both.end()

    check()


def test_the_comparison_sees_a_difference(shared: clew.Database) -> None:
    """The control: what only one of them is told is seen."""
    both = Both(shared)
    both.do(Put("t", "", "0001", None, {"a": 1}, [], {}))
    both._ours.put_writes(both.config("t", "", "0001"), [("a", 2)], "t1")
    with pytest.raises(AssertionError, match="pending_writes"):
        both.end()
    both.do(Delete("t"))
