"""`clew.aio` has the same names with the same parameters, awaitable."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import clew
import clew.aio
from clew.errors import Busy, Conflict

PAIRS = [(clew.Database, clew.aio.Database), (clew.Thread, clew.aio.Thread)]
if hasattr(clew, "Store"):
    PAIRS.append((clew.Store, clew.aio.Store))
PAIRS.append((clew.Run, clew.aio.Run))
CONTEXTS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "aio"), PAIRS, ids=lambda cls: cls.__name__)
def test_names_and_parameters_agree(sync: type, aio: type) -> None:
    assert public(sync) == public(aio)
    for name in public(sync):
        one, other = inspect.getattr_static(sync, name), inspect.getattr_static(aio, name)
        assert isinstance(one, property) == isinstance(other, property), name
        if not isinstance(one, property):
            ours = inspect.signature(other).parameters.values()
            assert [(p.name, p.kind, p.default) for p in inspect.signature(one).parameters.values()] == [
                (p.name, p.kind, p.default) for p in ours
            ], name


def test_a_request_is_the_same_awaited() -> None:
    plain = {"id", "check", "explain", "as_json"}
    names = {name for name in public(clew.Request) if callable(getattr(clew.Request, name))}
    assert names - plain == {name for name in public(clew.aio.Request) if callable(getattr(clew.aio.Request, name))}
    for name in names - plain:
        ours, theirs = getattr(clew.Request, name), getattr(clew.aio.Request, name)
        assert inspect.iscoroutinefunction(theirs)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters


def test_open_takes_the_same() -> None:
    assert str(inspect.signature(clew.open).parameters) == str(inspect.signature(clew.aio.open).parameters)


def test_a_turn_with_everything() -> None:
    async def work() -> None:
        async with clew.aio.open("memory:") as db:
            thread = db.thread("t")
            async with thread.edit("first") as state:
                state["n"] = 1
            head = await thread.head
            assert head is not None
            assert await head.state() == {"n": 1}
            saved = await thread.save({"n": 2}, label="second")
            assert (saved.step, saved.parent) == (2, 1)
            fork = await thread.fork("~1", branch="other", update={"n": 9})
            assert await fork.state() == {"n": 9}
            assert await thread.branches == {"main": 2, "other": 3}
            assert [cp.step for cp in await thread.history()] == [2, 1]
            assert bool(await thread.diff("~1"))
            await thread.tag("good", 1)
            assert await thread.tags == {"good": 1}
            assert (await thread.rewind(1)).step == 1
            copy = await thread.copy("head", to="u")
            assert await copy.state() == {"n": 1}
            assert len(await db.threads()) == 2
            await db.delete(copy)
            assert (await db.usage()).threads == 1

    asyncio.run(work())


def test_tasks_that_share_a_handle_conflict() -> None:
    async def work() -> None:
        async with clew.aio.open("memory:") as db:
            thread = db.thread("t")
            await thread.save({"n": 0})
            read = asyncio.Barrier(2)

            async def one(n: int) -> object:
                state = await thread.state()
                await read.wait()
                state["n"] = n
                try:
                    return (await thread.save(state)).step
                except Conflict as conflict:
                    return conflict

            first, second = sorted(await asyncio.gather(one(1), one(2)), key=str)
            assert {type(first), type(second)} == {int, Conflict}

    asyncio.run(work())


def test_a_cancelled_save_has_an_outcome_and_a_cancelled_edit_leaves_no_lease() -> None:
    async def work() -> None:
        async with clew.aio.open("memory:") as db:
            thread = db.thread("t")
            for number in range(20):
                task = asyncio.create_task(db.thread(f"t{number}").save({"n": number}))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                # The commit is over when the await is: whatever it did does not change any more.
                before = await db.thread(f"t{number}").head
                assert before is None or before.step == 1

            async def edit() -> None:
                async with thread.edit("never", wait=0) as state:
                    state["n"] = 1
                    await asyncio.Event().wait()

            task = asyncio.create_task(edit())
            while not (await db.threads(where=None)) or not any(
                info.busy for info in await db.threads() if info.id == "t"
            ):
                await asyncio.sleep(0)
            with pytest.raises(Busy):
                async with thread.lease():
                    pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with thread.lease():
                assert await thread.state() == {}

    asyncio.run(work())
