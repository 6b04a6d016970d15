"""A history that is written once for each released format, and read back for ever: what each step of it must be.

Everything is worked out from the step's number alone, so that what is expected does not come from what is stored. Types
registered here may be renamed or moved, but not change what they hold.
"""

from __future__ import annotations

import datetime as dt
import enum
import zoneinfo
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID

import numpy
import pydantic

import clew

State = dict[str, Any]


@clew.register("fixture.Agent")
@dataclass
class Agent:
    name: str
    history: list[State] = field(default_factory=list)


@clew.register("fixture.Trip")
class Trip(pydantic.BaseModel):
    city: str
    days: int = 3


@clew.register("fixture.Point")
class Point(NamedTuple):
    x: int
    y: float


@clew.register("fixture.Colour")
class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@clew.register("fixture.Rights")
class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@clew.register("fixture.Plain")
class Plain:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


clew.register(Money, name="fixture.Money", encode=lambda money: money.cents, decode=Money)


def every_type() -> State:
    return {
        "none": None,
        "bools": [True, False],
        "ints": [0, -1, 127, 128, -33, 2**31, 2**63, -(2**63), 2**64, -(2**200)],
        "floats": [0.0, -0.0, 1.5, float("inf"), float("nan")],
        "texts": ["", "é😀", "nul \x00", "lone \ud800", "long " * 20],
        "bytes": [b"", b"\x00\xff" * 10, bytearray(b"abc")],
        "tuples": (1, (2, ()), [3]),
        "sets": [{1, 2, "a"}, frozenset([(1,)]), set()],
        "dicts": [{}, {1: "a", (2, "b"): "c", None: b"d"}, {"\ud800": 1}, OrderedDict([("b", 1), ("a", 2)])],
        "deques": [deque([1, 2], 3), deque()],
        "numbers": [1 + 2j, Decimal("1.10"), Decimal("NaN"), Fraction(1, 3), range(1, 9, 2)],
        "times": [
            dt.datetime(2026, 1, 2, 3, 4, 5, 6),
            dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
            dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=1),
            dt.date(2026, 1, 2),
            dt.time(1, 2, 3, 4),
            dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=2), "summer")),
            dt.timedelta(-1, 2, 3),
            zoneinfo.ZoneInfo("UTC"),
        ],
        "ids": [UUID(int=5), PurePosixPath("a/b"), PureWindowsPath("c:/d")],
        "enums": [Colour.RED, Rights.READ, Rights.READ | Rights.WRITE],
        "objects": [Point(1, 2.5), Agent("a", [{"n": 1}]), Trip(city="Oslo"), Plain(7), Money(420)],
        "arrays": [
            numpy.arange(6, dtype="<i2").reshape(2, 3),
            numpy.array([(1, b"x")], dtype=[("a", "<i4"), ("b", "S3")]),
            numpy.float32(1.5),
            numpy.datetime64("2026-01-02"),
        ],
        "blob": clew.Blob(b"\x89PNG" * 700, media_type="image/png"),
        "deep": [[[[[[{"a": [({"b": [1]},)]}]]]]]],
    }


EXCEPTION = clew.ExceptionSummary(
    "ValueError",
    "('outer', 3)",
    ("a note",),
    ("'outer'", "3"),
    clew.ExceptionSummary("KeyError", "'inner'", (), ("'inner'",)),
)
LARGE = "A text that is too large for a row. " * 1900


def message(number: int) -> State:
    text = f"Message {number}: " + " ".join(f"{(number * 7919 + at * 104729) % 99991:05d}" for at in range(12))
    return {"role": "assistant" if number % 2 else "user", "content": text, "number": number}


def document(step: int) -> str:
    """Forty paragraphs, one of which each step revises."""
    last = {number: max((s for s in range(1, step + 1) if s % 40 == number), default=0) for number in range(40)}
    return "\n".join(f"Paragraph {number}, as of step {last[number]}: {'so it goes on, ' * 3}" for number in range(40))


def notes(step: int) -> dict[str, str]:
    """Sixty entries, one of which each step replaces; from step 25 on, one is gone."""
    last = {number: max((s for s in range(1, step + 1) if s % 60 == number), default=0) for number in range(60)}
    found = {f"note-{number}": f"written at step {last[number]}" for number in range(60)}
    if step >= 25:
        del found["note-50"]
    return found


def main_state(step: int) -> State:
    """Branch main of the conversation, steps 1 to 40: appended to, edited in the middle, cut."""
    messages = [message(number) for number in range(2 * step)]
    if step >= 30:
        messages[3]["content"] += " (corrected)"
    if step >= 33:
        del messages[5:8]
    return {
        "title": "Tokyo",
        "messages": messages,
        "document": document(step),
        "notes": notes(step),
        "agent": Agent("planner", [message(-number) for number in range(1, step + 1)]),
        "seen": {f"item-{number}" for number in range(150 if step < 10 else 160)},
        "count": step,
    }


def conversation(step: int) -> State:
    """41 forks from 20 with another title, 42 to 45 go on there; 46 to 48 go on from 36, where main was rewound to."""
    if step <= 40:
        return main_state(step)
    start, first = (20, 42) if step <= 45 else (36, 46)
    state = main_state(start)
    if step <= 45:
        state["title"] = "Osaka"
    state["messages"] += [message(100 * start + later) for later in range(first, step + 1)]
    return state


def pruned(step: int) -> State:
    return {"messages": [message(3000 + number) for number in range(step)][-20:], "scratch": f"{step:05d}" * 300}


PRUNED_STEPS = [20, 58, 59, 60]
ITEMS = {
    (("preferences",), "seat"): {"text": "likes window seats", "since": dt.date(2026, 1, 2)},
    (("preferences",), "theme"): {"value": "dark"},
    (("notes", "2026"), "1"): {"text": "Osaka is nice in spring", "places": ("Osaka", "Nara")},
}
