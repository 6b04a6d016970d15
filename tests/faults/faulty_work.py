"""The work that the fault tests interrupt, and the model that tells what must be there afterwards.

Every step brings a random nonce, and the state is made of the nonces on its path. So a checkpoint is known by its
content: one that was lost and written again, doubled, or mixed from two is never taken for the right one.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import clew
from clew.errors import ThreadNotFound
from clew.testing import exactly_equal

Path_ = tuple[tuple[str, ...], ...]
"""A branch's checkpoints, the oldest first; each is the nonces that its state holds."""


class Op(NamedTuple):
    """One thing that a user does."""

    do: str
    branch: str = "main"
    name: str = ""
    number: int = 0


class Model(NamedTuple):
    """What a thread holds."""

    branches: dict[str, Path_]
    tags: dict[str, tuple[str, ...]]


EMPTY = Model({}, {})


def everything(saves: int = 34) -> list[Op]:
    """A history with all that a user can do in it: a fold, edits, told changes, forks, rewinds, tags, prunes."""
    return [
        *[Op("save")] * saves,
        *(Op("edit"), Op("tell"), Op("edit"), Op("tag", name="before", number=5)),
        *(Op("fork", name="osaka", number=7), Op("save", "osaka"), Op("edit", "osaka"), Op("tell", "osaka")),
        *(Op("rewind", number=3), Op("save"), Op("edit"), Op("prune", number=6), Op("save"), Op("tell")),
        *(Op("save", "osaka"), Op("prune", number=2), Op("edit"), Op("save")),
    ]


def nonces(count: int) -> list[str]:
    return [secrets.token_hex(6) for _ in range(count)]


def text(nonce: str, most: int = 1500) -> str:
    """Text of some length that follows from the nonce, and that does not compress."""
    chance = random.Random(nonce)
    return chance.randbytes(chance.randrange(10, most // 2)).hex()


def state_of(path: tuple[str, ...]) -> dict[str, Any]:
    messages = [{"nonce": nonce, "text": text(nonce)} for nonce in path]
    return {"messages": messages, "scratch": {"last": text(path[-1], 3000)}, "count": len(path)}


def add(state: dict[str, Any], nonce: str) -> None:
    """The change that a step makes."""
    state.setdefault("messages", []).append({"nonce": nonce, "text": text(nonce)})
    state["scratch"] = {"last": text(nonce, 3000)}
    state["count"] = len(state["messages"])


def after(model: Model, op: Op, nonce: str) -> Model:
    """The model after one more op."""
    branches, tags = dict(model.branches), dict(model.tags)
    path = branches.get(op.branch, ())
    if op.do in ("save", "edit", "tell"):
        branches[op.branch] = (*path, ((*path[-1], nonce) if path else (nonce,)))
    elif op.do == "fork":
        branches[op.name] = path[: len(path) - op.number]
    elif op.do == "rewind":
        branches[op.branch] = path[: len(path) - op.number]
    elif op.do == "tag":
        tags[op.name] = path[-1 - op.number]
    else:
        kept = {content for path in branches.values() for content in path[-op.number :]} | set(tags.values())
        branches = {name: tuple(c for c in path if c in kept) for name, path in branches.items()}
    return Model(branches, tags)


class Worker:
    """Does ops on one thread, with a handle for each branch, as a long-lived user would."""

    def __init__(self, db: clew.Database, thread_id: str = "trip") -> None:
        self.db = db
        self.id = thread_id
        self.handles: dict[str, tuple[clew.Thread, dict[str, Any]]] = {}

    def handle(self, branch: str) -> tuple[clew.Thread, dict[str, Any]]:
        if branch not in self.handles:
            thread = self.db.thread(self.id, branch=branch)
            self.handles[branch] = (thread, thread.state())
        return self.handles[branch]

    def do(self, op: Op, nonce: str) -> None:
        thread = self.db.thread(self.id, branch=op.branch)
        if op.do == "save":
            thread, state = self.handle(op.branch)
            if all(message["nonce"] != nonce for message in state.get("messages", ())):
                add(state, nonce)
            thread.save(state, label="save")
            return
        if op.do == "edit":
            with thread.edit("edit", wait=1.0) as state:
                add(state, nonce)
        elif op.do == "tell":
            more = {"nonce": nonce, "text": text(nonce)}
            count = thread.state().get("count", 0)
            changes = {"messages": clew.extend([more]), "scratch": {"last": text(nonce, 3000)}, "count": count + 1}
            thread.update(changes, label="tell", parent="head" if count else None)
        elif op.do == "fork":
            thread.fork(f"~{op.number}", branch=op.name)
        elif op.do == "rewind":
            thread.rewind(f"~{op.number}")
        elif op.do == "tag":
            thread.tag(op.name, f"~{op.number}")
        elif op.do == "prune":
            self.db.prune(keep_last=op.number, threads=[self.id])
        self.handles.pop(op.branch, None)


def run(db: clew.Database, ops: list[Op], keys: list[str], tell: Callable[[Any], None]) -> None:
    """Do all ops, telling before and after each."""
    worker = Worker(db)
    for number, (op, nonce) in enumerate(zip(ops, keys, strict=True)):
        tell(("begun", number + 1))
        worker.do(op, nonce)
        tell(("done", number + 1))


def counts(told: list[Any]) -> tuple[int, int]:
    """(ops acknowledged, ops begun)."""
    done = max((number for sort, number in told if sort == "done"), default=0)
    return done, max((number for sort, number in told if sort == "begun"), default=0)


def actual(db: clew.Database, thread_id: str = "trip") -> Model:
    """What the database holds, every state of it compared with what its nonces say."""
    thread = db.thread(thread_id)
    try:
        names, tags = thread.branches, thread.tags
    except ThreadNotFound:
        return EMPTY
    read: dict[int, tuple[str, ...]] = {}

    def content(step: int) -> tuple[str, ...]:
        if step not in read:
            state = thread.state(step)
            path = tuple(message["nonce"] for message in state["messages"])
            assert exactly_equal(state, state_of(path)), f"step {step} is not what was saved"
            read[step] = path
        return read[step]

    branches = {}
    for name, head in names.items():
        if head is not None:
            history = db.thread(thread_id, branch=name).history()
            branches[name] = tuple(content(checkpoint.step) for checkpoint in reversed(history))
    return Model(branches, {name: content(step) for name, step in tags.items() if step is not None})


def agrees(found: Model, before: Model, op: Op | None, nonce: str) -> bool:
    """Whether the database may look so: as before the op that was begun, or (prune) anywhere on its way."""
    if found == before:
        return True
    if op is None or op.do != "prune":
        return False
    pruned = after(before, op, nonce)
    if found.tags != before.tags or set(found.branches) != set(before.branches):
        return False
    for name, path in found.branches.items():
        rest = iter(before.branches[name])
        if not all(content in rest for content in path) or not set(pruned.branches[name]) <= set(path):
            return False
    return True


def reached(db: clew.Database, ops: list[Op], keys: list[str], begun: int) -> int | None:
    """After how many of the begun ops the database looks as it does; None when it never looked so."""
    found = actual(db)
    models = [EMPTY]
    for op, nonce in zip(ops[:begun], keys[:begun], strict=True):
        models.append(after(models[-1], op, nonce))
    for at in range(begun, -1, -1):
        started = ops[at] if at < begun else None
        if agrees(found, models[at], started, keys[at] if at < begun else ""):
            return at
    return None


def is_whole(db: clew.Database) -> bool:
    with db._engine.reader() as execute:
        return bool(execute("PRAGMA integrity_check").fetchall() == [("ok",)])


def goes_on(db: clew.Database) -> None:
    """Whatever happened before, the next user can work, at once."""
    nonce = secrets.token_hex(6)
    thread = db.thread("trip")
    with thread.edit("after", wait=0) as state:
        add(state, nonce)
        wanted = tuple(message["nonce"] for message in state["messages"])
    assert exactly_equal(db.thread("trip").state(), state_of(wanted))
    again = db.thread("trip")
    state = again.state()
    add(state, nonce + "b")
    again.save(state)
    assert exactly_equal(again.state(), state_of((*wanted, nonce + "b")))


def verdict(path: Path, ops: list[Op], keys: list[str], told: list[Any], *, may_lose: bool = False) -> str:
    """ "" when the file at `path` keeps every promise after `told`, else what is wrong with it."""
    done, begun = counts(told)
    try:
        with clew.open(str(path), durability="relaxed") as db:
            if not is_whole(db):
                return "the file is corrupt"
            at = reached(db, ops, keys, begun)
            if at is None:
                return "this state never existed"
            if at < done and not may_lose:
                return f"{done - at} acknowledged steps are lost"
            goes_on(db)
    except clew.errors.ClewError as error:
        return f"{type(error).__name__}: {error}"
    except AssertionError as error:
        return f"wrong content: {error}"
    return ""
