"""`clew.Blob` in a state: kept by content, and not read before somebody asks for the bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import clew
from clew.reading import Source

PHOTO = clew.Blob(b"\x89PNG" + bytes(100_000), media_type="image/png")


@clew.register("test.Album")
@dataclass
class Album:
    title: str
    cover: clew.Blob


PLACES: dict[str, Callable[[clew.Blob], Any]] = {
    "value": lambda blob: blob,
    "dict": lambda blob: {"cover": blob, "n": 1},
    "list": lambda blob: [blob, 1, blob],
    "messages": lambda blob: [
        {"role": "user", "photo": blob},
        *({"role": "user", "text": "x" * 300},) * 9,
    ],
    "object": lambda blob: Album("x", blob),
    "large dict": lambda blob: {"cover": blob, **{str(number): "x" * 50 for number in range(100)}},
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of the blobs that are read from the database from now on."""
    digests: list[str] = []
    open_blob = Source.open_blob

    def told(self: Source, digest: str) -> bytes:
        digests.append(digest)
        return open_blob(self, digest)

    monkeypatch.setattr(Source, "open_blob", told)
    return digests


@pytest.mark.parametrize("place", PLACES)
def test_a_blob_is_read_when_its_bytes_are_asked_for_and_not_before(
    db: clew.Database, place: str, read: list[str]
) -> None:
    db.thread("t").save({"it": PLACES[place](PHOTO), "n": 0})
    thread = db.thread("t")
    state = thread.state()
    for number in range(1, 4):
        state["n"] = number
        if place == "messages" and number < 3:
            state["it"].pop(1)
        elif place == "messages":
            state["it"][0]["role"] = "assistant"
        thread.save(state)
    with thread.edit() as edited:
        edited["n"] = 9
    thread.update({"n": 10})
    fork = thread.fork("~1", branch="other", update={"n": 11})
    assert fork.state()["n"] == 11
    assert str(thread.diff("~4", "head"))
    assert read == []

    def blobs(value: Any) -> list[clew.Blob]:
        if isinstance(value, clew.Blob):
            return [value]
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [value.cover] if isinstance(value, Album) else [blob for part in parts for blob in blobs(part)]

    found = blobs(thread.state())
    assert {blob.read() for blob in found} == {PHOTO.read()}
    assert read == [PHOTO.digest] * len(found)


def test_another_blob_in_its_place_is_a_change(db: clew.Database) -> None:
    thread = db.thread("t")
    thread.save({"photo": PHOTO})
    thread = db.thread("t")
    with thread.edit() as state:
        state["photo"] = clew.Blob(PHOTO.read(), media_type="image/webp")
    assert thread.head is not None
    assert thread.head.step == 2
    assert thread.state()["photo"].media_type == "image/webp"
    with thread.edit() as state:
        state["photo"] = clew.Blob(PHOTO.read(), media_type="image/webp")
    assert thread.head.step == 2
    with thread.edit() as state:
        state["photo"] = clew.Blob(b"other")
    assert db.thread("t").state()["photo"].read() == b"other"
    assert db.thread("t").state(1)["photo"] == PHOTO
