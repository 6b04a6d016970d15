"""Bytes: what a history weighs, against what was put into it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import clew
from bench.content import message, payload, prose, squeezed, text
from bench.ground import Ground
from bench.rows import TIMES, Row
from bench.shapes import LIST, NESTED, Shape

STEPS = Callable[[clew.Thread], int]
"""Writes a history, and returns the bytes of its payload."""

SIZES = (300, 700, 1024, 1331, 2150)
SCRATCH = 5 * 1024
DOCUMENT = 50 * 1024
SMALL_STEP = 250
SQLITE, POSTGRES, OVERWRITTEN, EDITED = 1.35, 1.8, 1.25, 1.5 * 1024
EMPTY = 600


def growing(shape: Shape, steps: int, size: int, make: Callable[[random.Random, int], str] = text) -> STEPS:
    """Each step appends one message; nothing else is in the state."""

    def write(thread: clew.Thread) -> int:
        rng = random.Random(size)
        state = shape.begin()
        contents = [make(rng, size) for _ in range(steps)]
        for step, content in enumerate(contents):
            shape.messages(state).append(shape.make(content, step))
            thread.save(state)
        return payload(contents)

    return write


def told(steps: int, size: int) -> STEPS:
    def write(thread: clew.Thread) -> int:
        rng = random.Random(size)
        contents = [text(rng, size) for _ in range(steps)]
        for step, content in enumerate(contents):
            thread.update({"messages": clew.extend([message(content, step)])})
        return payload(contents)

    return write


def overwritten(steps: int) -> STEPS:
    def write(thread: clew.Thread) -> int:
        rng = random.Random(1)
        values = [text(rng, SCRATCH) for _ in range(steps)]
        for value in values:
            thread.save({"scratch": value})
        return payload(values)

    return write


def edited(steps: int) -> STEPS:
    """A text in which 20 characters at a random place are replaced in each step."""

    def write(thread: clew.Thread) -> int:
        rng = random.Random(2)
        document = text(rng, DOCUMENT)
        for _ in range(steps):
            at = rng.randrange(len(document))
            document = document[:at] + text(rng, 20) + document[at + 20 :]
            thread.save({"document": document})
        return DOCUMENT + 20 * steps

    return write


def appended(steps: int) -> STEPS:
    """A text that grows by 100 characters in each step."""

    def write(thread: clew.Thread) -> int:
        rng = random.Random(3)
        document = text(rng, DOCUMENT)
        for _ in range(steps):
            document += text(rng, 100)
            thread.save({"document": document})
        return DOCUMENT + 100 * steps

    return write


def entry_changed(steps: int) -> STEPS:
    """A dict of 300 entries of 100 characters, one of which is replaced in each step."""

    def write(thread: clew.Thread) -> int:
        rng = random.Random(4)
        table = {f"entry-{number:03d}": text(rng, 100) for number in range(300)}
        for _ in range(steps):
            table[f"entry-{rng.randrange(300):03d}"] = text(rng, 100)
            thread.save({"table": table})
        return (300 + steps) * 100

    return write


def on_sqlite(ground: Ground, write: STEPS) -> tuple[int, int]:
    """The file's bytes after it was closed, and the payload's."""
    path = ground.file()
    with clew.open(str(path), durability="relaxed") as db:
        put_in = write(db.thread("bench"))
    return ground.discard(path), put_in


def on_postgres(ground: Ground, write: STEPS) -> tuple[int, int]:
    """The bytes of tables and indexes, and the payload's."""
    server = ground.postgres
    place = server.database()
    with clew.open(place.application, durability="relaxed") as db:
        put_in = write(db.thread("bench"))
    size = server.weigh(place)
    server.drop(place)
    return size, put_in


ENGINES = {"SQLite": (on_sqlite, SQLITE), "PostgreSQL": (on_postgres, POSTGRES)}


def nothing(thread: clew.Thread) -> int:
    """A database in which nothing was saved."""
    del thread
    return 0


def begun(thread: clew.Thread) -> int:
    """One empty state: on PostgreSQL, the first row of a table brings a page to it and one to each of its indexes."""
    thread.save({})
    return 0


def beyond_nothing(ground: Ground, engine: str, write: STEPS) -> tuple[int, int]:
    """The bytes that a history takes beyond those of a database that was begun, and the payload's."""
    measure = ENGINES[engine][0]
    if engine not in ground.empty:
        ground.empty[engine] = measure(ground, begun)[0]
    stored, put_in = measure(ground, write)
    return stored - ground.empty[engine], put_in


def _whole(ground: Ground, engine: str, stored: int, put_in: int) -> str:
    """The other way to count: with the tables and indexes that have nothing in them."""
    what = "the whole file" if engine == "SQLite" else "all tables and indexes"
    return f"; {what}: {(stored + ground.empty[engine]) / put_in:.2f} {TIMES}"


def _appending(ground: Ground, engine: str, what: str, write: STEPS, size: int) -> Row:
    limit = ENGINES[engine][1]
    steps = ground.sizes.steps
    stored, put_in = beyond_nothing(ground, engine, write)
    allowed, said = limit, f"≤ {limit} {TIMES}"
    if engine == "SQLite" and size < 1024:
        allowed = (limit * put_in + SMALL_STEP * steps) / put_in
        said = f"≤ {limit} {TIMES} + {SMALL_STEP} B a step"
    numbers = {"stored": stored, "payload": put_in, "steps": steps}
    detail = f"{stored:,} B stored, {put_in:,} B payload; {(stored - put_in) / steps:.0f} B a step beside it"
    detail += _whole(ground, engine, stored, put_in)
    return Row("space", f"{engine}: {what}", stored / put_in, TIMES, allowed, said, detail, numbers=numbers)


def _per_step(ground: Ground, engine: str, what: str, write: STEPS) -> Row:
    steps = ground.sizes.steps
    stored, put_in = beyond_nothing(ground, engine, write)
    numbers = {"stored": stored, "payload": put_in, "steps": steps}
    detail = f"{stored:,} B stored, {put_in / steps:.0f} B a step put in"
    return Row("space", f"{engine}: {what}", stored / steps, "B", EDITED, "≤ 1.5 KB a step", detail, numbers=numbers)


def space(ground: Ground) -> Iterator[Row]:
    """Each row is a history of its own, in a database of its own; what an empty one weighs has a row of its own."""
    steps, quick = ground.sizes.steps, ground.sizes.quick
    yield _content()
    for engine, (measure, _) in ENGINES.items():
        stored, _ = measure(ground, nothing)
        ground.empty[engine] = measure(ground, begun)[0]
        detail = (
            f"{stored:,} B; one empty state: {ground.empty[engine]:,} B, and the rows below count what comes beyond"
        )
        yield Row("space", f"{engine}: an empty database", stored / 1000, "KB", EMPTY, f"≤ {EMPTY} KB", detail)
        for size in (1024,) if quick and engine == "PostgreSQL" else SIZES:
            what = f"{steps} steps, one message of {size} B each"
            yield _appending(ground, engine, what, growing(LIST, steps, size), size)
        yield _appending(ground, engine, f"{steps} steps, 1024 B each, told", told(steps, 1024), 1024)
        if quick and engine == "PostgreSQL":
            continue
        for size in (1024,) if quick or engine == "PostgreSQL" else (300, 1024):
            for shape in NESTED:
                what = f"{steps} steps, {size} B each, {shape.name}"
                yield _appending(ground, engine, what, growing(shape, steps, size), size)
        yield _overwriting(ground, engine)
        yield _per_step(ground, engine, "50 KB text, 20 characters replaced a step", edited(steps))
        yield _per_step(ground, engine, "50 KB text, 100 characters appended a step", appended(steps))
        yield _per_step(ground, engine, "dict of 300 entries of 100 B, one replaced a step", entry_changed(steps))
        yield _natural(ground, engine)


def _overwriting(ground: Ground, engine: str) -> Row:
    steps = ground.sizes.steps
    stored, put_in = beyond_nothing(ground, engine, overwritten(steps))
    numbers = {"stored": stored, "payload": put_in, "steps": steps}
    what = f"{engine}: a value of 5 KB, overwritten in each of {steps} steps"
    detail = f"{stored:,} B stored, {put_in:,} B payload" + _whole(ground, engine, stored, put_in)
    return Row("space", what, stored / put_in, TIMES, OVERWRITTEN, f"≤ {OVERWRITTEN} {TIMES}", detail, numbers=numbers)


def _natural(ground: Ground, engine: str) -> Row:
    """For information: what compression makes of text that reads like text."""
    steps = ground.sizes.steps
    stored, put_in = beyond_nothing(ground, engine, growing(LIST, steps, 1024, prose))
    numbers: dict[str, Any] = {"stored": stored, "payload": put_in, "steps": steps}
    detail = f"{stored:,} B stored, {put_in:,} B payload; zstd alone, in pieces of 64 KB: {_prose_alone():.2f} {TIMES}"
    return Row(
        "space", f"{engine}: {steps} steps, 1 KB of prose each", stored / put_in, TIMES, detail=detail, numbers=numbers
    )


def _prose_alone() -> float:
    return squeezed(prose(random.Random(1), 64 * 1024), 3)


def _content() -> Row:
    """The yardstick itself: what a compressor could save on the messages of all the other rows."""
    sample = text(random.Random(1), 1 << 20)
    saved = {level: 1 - squeezed(sample, level) for level in (3, 19)}
    what = "what zstd could save on the messages' text (random printable ASCII)"
    detail = ", ".join(f"level {level}: {part:.1%}" for level, part in saved.items())
    return Row("space", what, 100 * max(saved.values()), "%", 25, "≤ 25 %, or the rows below flatter", detail)
