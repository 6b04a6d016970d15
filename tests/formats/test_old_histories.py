"""Every format that was released can be read, for ever: by Clew, and by the reader that docs/format.md specifies.

`scripts/make-fixture` has written the files here; known_history.py says what is in them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import known_history as known
import ormsgpack
import pytest

import clew
from clew.state.codec import encode
from clew.testing import exactly_equal

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("sqlite-*.gz"))
pytestmark = pytest.mark.filterwarnings("ignore::clew.UnknownType")  # there is one, on purpose
FORMAT = HERE.parents[1] / "docs" / "format.md"


def name(file: Path) -> str:
    return file.name.partition(".")[0]


@clew.register("fixture.Item", version=2)
@dataclass
class Item:
    name: str
    currency: str


@clew.upcast("fixture.Item", to=2)
def add_currency(old: dict[str, Any]) -> dict[str, Any]:
    return {"name": old["title"], "currency": "EUR"}


@pytest.fixture(params=FILES, ids=name)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    return path


@pytest.fixture
def db(file: Path) -> Iterator[clew.Database]:
    with clew.open(str(file)) as database:
        yield database


def test_there_is_a_history_of_the_current_format() -> None:
    from clew.storage.statements import migrations

    assert f"sqlite-{migrations('sqlite')[-1][0]}" in map(name, FILES)
    assert all(file.stat().st_size <= 200_000 for file in FILES)


def test_every_type_comes_back_as_it_was(db: clew.Database) -> None:
    thread = db.thread("types")
    found, expected = thread.state(1), known.every_type()
    blob = found.pop("blob")
    assert blob == expected["blob"]
    assert blob.read() == expected.pop("blob").read()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert exactly_equal(found[name], value), name


def test_what_was_said_with_a_checkpoint_comes_back(db: clew.Database) -> None:
    first, second = db.thread("types").checkpoint(1), db.thread("types").checkpoint(2)
    assert (first.label, first.kind, first.parent) == ("every type", "step", None)
    assert first.metadata == {"user": "anna", "cost": 0.25, "at": (1, 2)}
    assert (second.label, second.parent) == (None, 1)
    assert first.created_at <= second.created_at
    assert db.thread("types").save({}, parent="head", key="request-1") == second


def test_what_is_not_kept_whole_comes_back_as_it_says(db: clew.Database) -> None:
    state = db.thread("types").state(2)
    assert state["error"] == known.EXCEPTION
    assert state["item"] == Item("tea", "EUR")
    assert isinstance(state["gone"], clew.Opaque)
    assert (state["gone"].type_name, state["gone"].version) == ("fixture.Gone", 1)


def test_large_values_come_back(db: clew.Database) -> None:
    state = db.thread("types").state("head")
    assert state["large"] == known.LARGE
    assert state["again"].read() == b"\x89PNG" * 700
    assert state["again"].media_type is None


@pytest.mark.parametrize("steps", [range(1, 41), range(41, 46), range(46, 49)], ids=["main", "osaka", "rewound"])
def test_every_step_of_the_conversation_is_what_it_was(db: clew.Database, steps: range) -> None:
    thread = db.thread("conversation")
    for step in steps:
        assert exactly_equal(thread.state(step), known.conversation(step)), step


def test_names_and_paths_are_what_they_were(db: clew.Database) -> None:
    thread = db.thread("conversation")
    assert thread.branches == {"empty": 2, "main": 48, "osaka": 45}
    assert thread.tags == {"twenty": 20}
    assert [found.step for found in thread.history()] == [48, 47, 46, *range(36, 0, -1)]
    osaka = db.thread("conversation", branch="osaka")
    assert [found.step for found in osaka.history()] == [*range(45, 40, -1), *range(20, 0, -1)]
    assert osaka.checkpoint(41).kind == "fork"
    copied = db.thread("copied")
    assert copied.state() == known.conversation(45)
    assert copied.checkpoint().metadata["copied_from"] == "conversation@45"


def test_what_was_pruned_is_gone_and_the_rest_is_whole(db: clew.Database) -> None:
    thread = db.thread("pruned")
    assert sorted(found.step for found in thread.history()) == known.PRUNED_STEPS
    for step in known.PRUNED_STEPS:
        assert exactly_equal(thread.state(step), known.pruned(step)), step
    with pytest.raises(clew.errors.RefNotFound):
        thread.state(30)


def test_tenants_are_still_apart(db: clew.Database) -> None:
    assert [info.id for info in db.threads(order="id")] == ["conversation", "copied", "pruned", "types"]
    acme = db.tenant("acme")
    assert [info.id for info in acme.threads()] == ["conversation"]
    assert acme.thread("conversation").state() == {"title": "another tenant's"}


def test_items_are_found(db: clew.Database) -> None:
    store = db.store(user="anna")
    assert {(item.namespace, item.key): item.value for item in store.search(())} == known.ITEMS
    assert [item.key for item in store.search(query="osaka spring")] == ["1"]
    common = db.store().get(("common",), "a")
    assert common is not None
    assert common.value == {"value": 1}
    assert common.expires_at is not None


def test_an_old_history_can_be_continued(db: clew.Database) -> None:
    thread = db.thread("conversation")
    with thread.edit("today") as state:
        state["messages"][0]["content"] = "changed"
        state["messages"].append({"role": "user", "content": "hello again"})
        state["document"] += "\nOne more paragraph."
    expected = known.conversation(48)
    expected["messages"][0]["content"] = "changed"
    expected["messages"].append({"role": "user", "content": "hello again"})
    expected["document"] += "\nOne more paragraph."
    assert exactly_equal(db.thread("conversation").state(), expected)
    db.prune(keep_last=1)
    assert exactly_equal(db.thread("conversation").state(), expected)
    assert exactly_equal(thread.state("twenty"), known.conversation(20))


def test_the_specified_reader_reads_the_same(file: Path) -> None:
    """docs/format.md is enough: its reader knows nothing of Clew, and gives every step exactly."""
    program = FORMAT.read_text("utf-8").split("## A reader", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    names: dict[str, Any] = {}
    exec(program, names)
    found: dict[tuple[str, int], Any] = {}
    for thread_id in ("types", "conversation", "pruned", "copied"):
        history = names["History"](file, "default", thread_id)
        found.update({(thread_id, step): history.state(step) for step in history.steps()})
        history.db.close()
    assert len(found) == 3 + 48 + 4 + 1

    with clew.open(str(file)) as db:
        for (thread_id, step), value in found.items():
            if thread_id != "types" or step == 1:  # its later steps hold an Item, which has another version by now
                assert repr(value) == repr(without_clew(encode(db.thread(thread_id).state(step)))), (thread_id, step)


def without_clew(data: bytes) -> Any:
    """An encoding without references, as the specified reader shows it."""
    encoded = {4, 5, 6, 7, 8, 9, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}
    return ormsgpack.unpackb(
        data, ext_hook=lambda tag, payload: (tag, without_clew(payload) if tag in encoded else payload)
    )
