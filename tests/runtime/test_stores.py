"""`clew.store` in a node: what it writes is written with the node's end, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

import clew
from clew.errors import ActivationClosed, BadInput, NoRun
from clew.testing.outside import Fault, Outside, say
from clew.testing.points import storage_calls
from outsiders import Ground


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]


def keys(db: clew.Database, **scope: Any) -> list[str]:
    return [item.key for item in db.store(**scope).search(limit=100)]


def test_writes_come_with_the_nodes_end_and_are_read_before(thread: clew.Thread, db: clew.Database) -> None:
    db.store(user="42").put(("notes",), "old", {"text": "likes window seats"})
    seen: list[Any] = []

    @clew.agent(state=Trip)
    def node(state: Trip) -> Any:
        mine = clew.store(user="42")
        mine.put(("notes",), "new", {"text": "likes aisle seats"})
        clew.store(user="42").put_many([(("notes",), "more", {"text": "seats"})], delete=[(("notes",), "old")])
        assert mine.delete(("notes",), "more")
        assert not mine.delete(("notes",), "more")
        found = mine.get(("notes",), "new")
        assert found is not None
        seen.append((found.value, [item.key for item in mine.search(query="seats")], list(mine.namespaces())))
        seen.append(keys(db, user="42"))
        assert clew.store(user="43").get(("notes",), "new") is None
        return {"log": [item.key for item in mine.search()]}

    assert node.run(thread).state["log"] == ["new"]
    assert seen == [({"text": "likes aisle seats"}, ["new"], [("notes",)]), ["old"]]
    assert keys(db, user="42") == ["new"]


def test_a_node_that_fails_or_waits_has_written_nothing(thread: clew.Thread, db: clew.Database) -> None:
    fails = [True]

    @clew.agent(state=Trip)
    def node(state: Trip) -> Any:
        mine = clew.store()
        count = mine.get((), "n")
        mine.put((), "n", {"n": 1 if count is None else count.value["n"] + 1})
        if fails:
            fails.clear()
            raise ValueError("no")
        clew.ask("Sure?")
        return {"log": [mine.get((), "n").value["n"]]}  # type: ignore[union-attr]

    with pytest.raises(ValueError, match="no"):
        node.run(thread)
    assert keys(db) == []
    run = node.resume(thread)
    assert (run.status, keys(db)) == ("waiting", [])
    run.requests[0].answer("yes", by="alice")
    assert node.resume(thread).state["log"] == [1]
    assert keys(db) == ["n"]


def test_what_a_finished_sibling_wrote_is_kept_with_its_record(thread: clew.Thread, db: clew.Database) -> None:
    agent, ran = clew.Agent("two", state=Trip), []

    @agent.node(start=True)
    def quick(state: Trip) -> Any:
        ran.append("quick")
        clew.store().put((), "quick", {"n": len(ran)})
        return {"log": ["quick"]}

    @agent.node(start=True)
    def asks(state: Trip) -> Any:
        clew.store().put((), "asks", {})
        return {"log": [clew.ask("Sure?")]}

    run = agent.run(thread)
    assert keys(db) == ["quick"]
    db.store().delete((), "quick")  # by somebody else, meanwhile
    run.requests[0].answer("yes", by="alice")
    assert agent.resume(thread).state["log"] == ["quick", "yes"]
    assert (keys(db), ran) == (["asks"], ["quick"]), "what was written once is not written again"


def test_cancelling_keeps_what_finished_nodes_have_written(thread: clew.Thread, db: clew.Database) -> None:
    agent = clew.Agent("two", state=Trip)
    agent.node(name="one", start=True)(lambda state: clew.store().put((), "one", {}))
    agent.node(name="asks", start=True)(lambda state: {"log": [clew.store().put((), "asks", {}), clew.ask("?")]})
    agent.run(thread)
    agent.cancel(thread)
    assert keys(db) == ["one"]


def test_a_node_that_is_over_writes_no_more(thread: clew.Thread, db: clew.Database) -> None:
    over, errors, tried = threading.Event(), [], threading.Event()

    def later(mine: clew.Store) -> None:
        assert over.wait(10)
        try:
            mine.put((), "late", {})
        except BaseException as error:
            errors.append(error)
        tried.set()

    @clew.agent(state=Trip)
    def node(state: Trip) -> Any:
        threading.Thread(target=later, args=(clew.store(),)).start()

    node.run(thread)
    over.set()
    assert tried.wait(10)
    assert [type(error) for error in errors] == [ActivationClosed]
    assert keys(db) == []


def test_awaited(url: str) -> None:
    async def work() -> None:
        agent = clew.aio.Agent("awaits", state=Trip)

        @agent.node
        async def node(state: Trip) -> Any:
            mine = clew.aio.store(user="42")
            await mine.put((), "theme", {"value": "dark"})
            found = await mine.get((), "theme")
            return {"log": [found.value]}

        async with clew.aio.open(url, durability="relaxed") as db:
            run = await agent.run(db.thread("trip-7"))
            assert (await run.state)["log"] == [{"value": "dark"}]
            assert [item.key for item in await db.store(user="42").search()] == ["theme"]

    asyncio.run(work())


def test_with_embeddings(thread: clew.Thread, db: clew.Database) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float("sea" in text), float("hill" in text)] for text in texts]

    @clew.agent(state=Trip)
    def node(state: Trip) -> Any:
        mine = clew.store(embed=embed, dims=2)
        mine.put((), "a", {"text": "by the sea"})
        mine.put((), "b", {"text": "on a hill"})
        return {"log": [item.key for item in mine.search(query="hill", limit=1)]}

    assert node.run(thread).state["log"] == ["b"]
    assert keys(db) == ["a", "b"]


def test_elsewhere_it_says_so(thread: clew.Thread) -> None:
    with pytest.raises(NoRun, match=r"clew\.store was called outside of a run"):
        clew.store()

    @clew.effect(key="e", not_done=BadInput)
    def inside() -> None:
        clew.store()

    agent = clew.Agent("inside")
    agent.node(name="node")(lambda state: inside())
    with pytest.raises(BadInput, match="within the effect 'inside'"):
        agent.run(thread)


# -- killed


def counting(store: Callable[[], clew.Store] = clew.store) -> clew.Agent:
    agent = clew.Agent("count", state=Trip)

    def add(name: str) -> Any:
        mine = store()
        found = mine.get((), name)
        mine.put((), name, {"n": (found.value["n"] if found else 0) + 1})
        say(name)
        return {"log": [name]}

    agent.node(name="one", start=True, then="last")(lambda state: add("one"))
    agent.node(name="two", start=True)(lambda state: add("two"))
    agent.node(name="last")(lambda state: add("last"))
    return agent


def killed(ground: Ground, fault: Fault, *, apart: bool = False) -> Any:
    """What the run comes to, killed once; `apart`: what its nodes write does not wait for their end."""

    def go() -> Any:
        with (
            storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")),
            ground.open() as db,
        ):
            thread = db.thread("trip-7")
            agent = counting(db.store) if apart else counting()
            try:
                run = agent.resume(thread)
            except clew.errors.NotFound:
                run = agent.run(thread)
            return run.status, {item.key: item.value["n"] for item in db.store().search()}

    with Outside() as outside:
        ended = outside.live(go, fault)
        found = ended.value if ended.how == "returned" else outside.live(go).value
        outside.live(lambda: ground.open().delete("trip-7"))
        outside.live(lambda: [ground.open().store().delete((), name) for name in ("one", "two", "last")])
    return found


def test_killed_anywhere_each_node_has_written_once(ground: Ground, long: bool) -> None:
    for when in ("storing", "stored"):
        for number in range(1, 14, 1 if long else 3):
            fault = Fault(when, number)
            assert killed(ground, fault) == ["done", {"one": 1, "two": 1, "last": 1}], fault


def test_the_control_whose_nodes_write_at_once_counts_twice(ground: Ground) -> None:
    status, counts = killed(ground, Fault("stored:put", 3), apart=True)
    assert (status, counts) == ("done", {"one": 1, "two": 1, "last": 2})
