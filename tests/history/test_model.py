"""Any history against a plain model: dicts of deep copies. The same machine on every backend.

Whatever is saved, edited, told, forked, rewound, tagged, deleted and pruned, every checkpoint that is left reads back
as it was saved, the paths are what they should be, and refused writes change nothing.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import clew
from clew.errors import ClewError, Conflict, NameTaken
from clew.retention import ThreadRetention
from clew.testing import exactly_equal

threads = itertools.count(1)
texts = st.one_of(
    st.text(max_size=6), st.builds(lambda c, n: c * n, st.sampled_from("aé"), st.integers(700, 2500)), st.just("\ud800")
)
messages = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
values = st.one_of(
    st.integers(-2, 2),
    st.booleans(),
    texts,
    st.lists(messages, max_size=4),
    st.dictionaries(texts, messages, max_size=3),
)
keys = st.sampled_from(["messages", "notes", "plan", "seen"])


class History(RuleBasedStateMachine):
    """The model: steps with their states and parents, and where the names point."""

    open_database: Callable[[], Any]

    @initialize()
    def begin(self) -> None:
        self.database = type(self).open_database()
        self.db: clew.Database = self.database.__enter__()
        self.id = f"thread-{next(threads)}"
        self.names = itertools.count(1)
        self.states: dict[int, dict[str, Any]] = {}
        self.parents: dict[int, int | None] = {}
        self.branches: dict[str, int | None] = {"main": None}
        self.tags: dict[str, int] = {}
        self.steps = 0
        self.live: dict[str, tuple[clew.Thread, dict[str, Any]]] = {}

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.__exit__(None, None, None)

    # -- helpers of the model

    def handle(self, branch: str) -> tuple[clew.Thread, dict[str, Any]]:
        """A handle that has the branch's head as its base, and the state that its user holds."""
        if branch not in self.live:
            thread = self.db.thread(self.id, branch=branch)
            self.live[branch] = (thread, thread.state())
        return self.live[branch]

    def wrote(self, branch: str, checkpoint: clew.Checkpoint, state: dict[str, Any]) -> None:
        self.steps += 1
        assert checkpoint.step == self.steps
        assert checkpoint.parent == self.branches[branch]
        self.states[self.steps] = copy.deepcopy(state)
        self.parents[self.steps] = self.branches[branch]
        self.branches[branch] = self.steps

    def path(self, step: int | None) -> Iterator[int]:
        while step is not None:
            yield step
            step = self.parents[step]

    def a_branch(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.branches)))

    def a_step(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.states)))

    @staticmethod
    def change(data: st.DataObject, state: dict[str, Any]) -> None:
        key = data.draw(keys)
        now = state.get(key)
        action = data.draw(st.sampled_from(["append", "append", "trim", "change", "set", "drop"]))
        if action == "append" and isinstance(now, list):
            now.extend(data.draw(st.lists(messages, min_size=1, max_size=3)))
        elif action == "trim" and isinstance(now, list) and now:
            del now[: data.draw(st.integers(1, len(now)))]
            now.append(data.draw(messages))
        elif action == "change" and isinstance(now, list) and now:
            spot = now[data.draw(st.integers(0, len(now) - 1))]
            if isinstance(spot, dict):
                spot["content"] = data.draw(texts)
        elif action == "drop":
            state.pop(key, None)
        else:
            state[key] = data.draw(values)

    # -- what people do

    @rule(data=st.data(), times=st.integers(1, 6))
    def save(self, data: st.DataObject, times: int) -> None:
        branch = self.a_branch(data)
        thread, state = self.handle(branch)
        for _ in range(times):
            self.change(data, state)
            self.wrote(branch, thread.save(state, label="s"), state)

    @rule(data=st.data())
    def save_after_reading_again(self, data: st.DataObject) -> None:
        branch = self.a_branch(data)
        self.live.pop(branch, None)
        thread, state = self.handle(branch)
        self.change(data, state)
        self.wrote(branch, thread.save(state), state)

    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        branch = self.a_branch(data)
        thread = self.db.thread(self.id, branch=branch)
        before = copy.deepcopy(self.states[step]) if (step := self.branches[branch]) is not None else {}
        with thread.edit("e") as state:
            self.change(data, state)
        head = thread.head
        if exactly_equal(before, state):
            assert (head.step if head else None) == step
        else:
            assert head is not None
            self.wrote(branch, head, state)
            self.live.pop(branch, None)

    @rule(data=st.data(), key=keys)
    def tell(self, data: st.DataObject, key: str) -> None:
        branch = self.a_branch(data)
        step = self.branches[branch]
        state = copy.deepcopy(self.states[step]) if step is not None else {}
        told: Any
        if isinstance(state.get(key, []), list):
            more = data.draw(st.lists(messages, max_size=3))
            told, state[key] = clew.extend(more), state.get(key, []) + more
        else:
            told = state[key] = data.draw(values)
        fresh = data.draw(st.booleans())
        thread = self.db.thread(self.id, branch=branch) if fresh else self.handle(branch)[0]
        self.wrote(branch, thread.update({key: told}), state)
        self.live.pop(branch, None)

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        step = self.a_step(data)
        name = f"b{next(self.names)}"
        update = data.draw(st.none() | st.dictionaries(keys, values, max_size=2))
        self.db.thread(self.id).fork(step, branch=name, update=update)
        self.branches[name] = step
        if update is not None:
            forked = self.db.thread(self.id, branch=name).head
            assert forked is not None
            assert forked.kind == "fork"
            self.wrote(name, forked, {**self.states[step], **update})

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        branch = self.a_branch(data)
        if self.branches[branch] is None:
            return
        step = self.a_step(data)
        assert self.db.thread(self.id, branch=branch).rewind(step).step == step
        self.branches[branch] = step
        self.live.pop(branch, None)

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        step = self.a_step(data)
        name = f"t{next(self.names)}"
        self.db.thread(self.id).tag(name, step)
        self.tags[name] = step

    @precondition(lambda self: len(self.branches) > 1)
    @rule(data=st.data())
    def delete_branch(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.branches) - {"main"})))
        self.db.thread(self.id).delete_branch(name)
        del self.branches[name]
        self.live.pop(name, None)

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def remove_any(self, data: st.DataObject) -> None:
        doomed = set(data.draw(st.lists(st.sampled_from(sorted(self.states)), max_size=12)))
        named = {step for step in (*self.branches.values(), *self.tags.values()) if step is not None}
        doomed -= named
        storage = self.db._storage
        assert ThreadRetention(storage, self.db.tenant_name, self.id).remove(doomed) == len(doomed)
        self.gone(doomed)

    @precondition(lambda self: self.states)
    @rule(keep=st.integers(1, 4))
    def prune(self, keep: int) -> None:
        kept = {step for step in (*self.branches.values(), *self.tags.values()) if step is not None}
        for head in self.branches.values():
            kept |= set(itertools.islice(self.path(head), keep))
        doomed = set(self.states) - kept
        told = self.db.prune(keep_last=keep, threads=[self.id], dry_run=True)
        done = self.db.prune(keep_last=keep, threads=[self.id])
        assert told.checkpoints == done.checkpoints == len(doomed)
        self.gone(doomed)

    def gone(self, doomed: set[int]) -> None:
        for step in sorted(doomed):
            for child, parent in self.parents.items():
                if parent == step:
                    self.parents[child] = self.parents[step]
            del self.states[step], self.parents[step]

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def a_stale_base_is_refused(self, data: st.DataObject) -> None:
        branch = self.a_branch(data)
        if self.branches[branch] is None:
            return
        blind = self.db.thread(self.id, branch=branch)
        with pytest.raises(Conflict) as caught:
            blind.save({"lost": True})
        assert caught.value.head.step == self.branches[branch]
        step = self.a_step(data)
        if step != self.branches[branch]:
            with pytest.raises(Conflict) as caught:
                blind.save({"lost": True}, parent=step)
            assert caught.value.base.step == step

    @rule(data=st.data())
    def a_taken_name_is_refused(self, data: st.DataObject) -> None:
        if self.states:
            name = data.draw(st.sampled_from(sorted({*self.branches, *self.tags})))
            with pytest.raises(NameTaken):
                self.db.thread(self.id).fork(self.a_step(data), branch=name)

    # -- what must hold

    @invariant()
    def names_point_where_they_should(self) -> None:
        if not getattr(self, "states", None):
            return
        thread = self.db.thread(self.id)
        expected = {name: step for name, step in self.branches.items() if step is not None or name == "main"}
        assert thread.branches == expected
        assert thread.tags == self.tags

    @invariant()
    def every_checkpoint_reads_back(self) -> None:
        for step, state in getattr(self, "states", {}).items():
            assert exactly_equal(self.db.thread(self.id).state(step), state), step

    @invariant()
    def paths_are_what_they_were(self) -> None:
        for branch, head in getattr(self, "branches", {}).items():
            if head is not None:
                history = self.db.thread(self.id, branch=branch).history()
                assert [checkpoint.step for checkpoint in history] == list(self.path(head))


def run(open_database: Callable[[], Any], examples: int) -> None:
    machine = type("HistoryHere", (History,), {"open_database": staticmethod(open_database)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_any_history(url: str, examples: int) -> None:
    """Each example works in a thread of its own; on a file or server, all of them in one database."""
    if url == "memory:":
        run(lambda: clew.open("memory:"), examples)
        return
    with clew.open(url, durability="relaxed") as db:

        @contextmanager
        def shared() -> Iterator[clew.Database]:
            yield db

        run(shared, examples // 2)


def test_the_model_would_notice_a_lost_write() -> None:
    """The control: a database that drops one save in twenty must not pass."""

    class Forgetful(clew.Database):
        def thread(self, id: str, *, branch: str = "main") -> clew.Thread:  # noqa: A002 - as in the API
            thread = super().thread(id, branch=branch)
            original = thread.state

            def state(ref: Any = "head") -> dict[str, Any]:
                found = original(ref)
                found.pop("plan", None)
                return found

            thread.state = state  # type: ignore[method-assign]
            return thread

    def broken() -> Any:
        db = clew.open("memory:")
        db.__class__ = Forgetful
        return db

    with pytest.raises((AssertionError, ClewError, ExceptionGroup)):
        run(broken, 30)
