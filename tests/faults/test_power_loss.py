"""The power goes: a strict database keeps all that was acknowledged, a relaxed one may lose the newest, never more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_work as work
import pytest

import clew
from clew.testing.faults import Call, Disk, Platter, in_child, write_image

OPS = work.everything()


def record(path: Path, keys: list[str], durability: Any, pragma: str = "") -> list[Any]:
    def child(tell: Any) -> None:
        Disk(lambda call: tell(("disk", call))).install()
        with clew.open(str(path), durability=durability) as db:
            if pragma:
                db._engine.writer.execute(pragma).fetchall()
            work.run(db, OPS, keys, tell)

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    return outcome.told


def images(
    told: list[Any], every: int, more: int, chance: random.Random
) -> Iterator[tuple[dict[str, bytes], list[Any]]]:
    """What the disk may hold before each n-th call and right after each acknowledgement, with what was told by then."""
    platter = Platter()
    until: list[Any] = []
    at = 0
    for sort, value in told:
        if sort == "disk":
            at += 1
            if at % every == 0:
                for image in platter.images(chance, more):
                    yield image, until
            platter.feed(Call(*value))
        else:
            until.append((sort, value))
            if sort == "done" and every <= 20:
                for image in platter.images(chance, 0):
                    yield image, until


def judged(ram: Path, durability: Any, every: int, more: int, pragma: str = "", seed: int = 7) -> dict[str, int]:
    """How often each verdict was given; "" is none."""
    keys = work.nonces(len(OPS))
    told = record(ram / "a.db", keys, durability, pragma)
    given: dict[str, int] = {}
    for image, until in images(told, every, more, random.Random(seed)):
        write_image(image, str(ram / "a.db"), ram / "b.db")
        verdict = work.verdict(ram / "b.db", OPS, keys, until)
        given[verdict] = given.get(verdict, 0) + 1
    return given


def test_a_strict_database_loses_nothing(ram: Path, long: bool) -> None:
    given = judged(ram, "strict", *((1, 6) if long else (19, 2)))
    assert set(given) == {""}
    assert given[""] > 100


def test_a_relaxed_database_may_lose_the_newest_but_stays_whole(ram: Path, long: bool) -> None:
    given = judged(ram, "relaxed", *((1, 6) if long else (19, 2)))
    assert {verdict for verdict in given if not verdict.endswith("acknowledged steps are lost")} == {""}


def test_control_without_syncs_a_database_loses_or_breaks(ram: Path) -> None:
    given = judged(ram, "strict", 29, 2, "PRAGMA synchronous = OFF")
    assert any(given[verdict] for verdict in given if verdict)


@pytest.mark.parametrize("pragma", ["PRAGMA synchronous = NORMAL"])
def test_control_a_database_that_is_strict_in_name_only_loses_steps(ram: Path, pragma: str) -> None:
    given = judged(ram, "strict", 29, 1, pragma)
    assert any("lost" in verdict for verdict in given)
