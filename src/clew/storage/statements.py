"""Named queries and numbered migrations, read from the `.sql` files beside this module.

A query file holds blocks that begin with `-- name: <name>`; `-- name: <name> (sqlite)` is read for that dialect
only. `-- part: <name>` defines a fragment, and `{name}` puts it into a later block. The dialects spell differently:

    {now}           the clock that leases expire by, in nanoseconds
    {live}          the owner row `o` has not expired
    {stamp}         the clock that items expire by, in microseconds since 1970
    {each:steps}    a subquery over a bound list of integers (its column is `item`)
    {each_text:ids} a subquery over a bound list of strings

Parameters are `:name`; PostgreSQL gets them as `%(name)s`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Literal

Dialect = Literal["sqlite", "postgres"]

_POSTGRES_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
_POSTGRES_STAMP = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_WORDS: dict[Dialect, dict[str, str]] = {
    "sqlite": {
        "now": ":now",
        "live": "o.expires > :now AND o.boot = :boot",
        "stamp": ":stamp",
        "placed_key": "thread, ns, id",
    },
    "postgres": {
        "now": _POSTGRES_NOW,
        "live": f"o.expires > {_POSTGRES_NOW}",
        "stamp": _POSTGRES_STAMP,
        "placed_key": "tenant, thread, ns, id",
    },
}
_EACH: dict[Dialect, dict[str, str]] = {
    "sqlite": {
        "each": "SELECT value AS item FROM json_each(:{})",
        "each_text": "SELECT value AS item FROM json_each(:{})",
    },
    "postgres": {
        "each": "SELECT unnest(:{}::bigint[]) AS item",
        "each_text": "SELECT unnest(:{}::text[]) AS item",
    },
}
_HEADING = re.compile(r"^-- (name|part): (\w+)(?: \((sqlite|postgres)\))?[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


@cache
def queries(dialect: Dialect) -> dict[str, str]:
    """Every query by its name, ready for the dialect's driver."""
    sql = files("clew.storage") / "sql"
    names = ("queries.sql", "items.sql", "records.sql", "placed.sql", "ledger.sql")
    text = "\n".join((sql / name).read_text("utf-8") for name in names)
    headings = list(_HEADING.finditer(text))
    parts = dict(_WORDS[dialect])
    named: dict[str, str] = {}
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        sort, name, only = heading.groups()
        if only not in (None, dialect):
            continue
        body = text[heading.end() : following.start() if following else len(text)]
        body = " ".join(_COMMENT.sub("", body).split()).rstrip(";")
        body = _PLACE.sub(lambda place: _fill(place, dialect, parts), body)
        (parts if sort == "part" else named)[name] = body
    if dialect == "postgres":
        named = {name: _PARAMETER.sub(r"%(\1)s", body.replace("%", "%%")) for name, body in named.items()}
    return named


def _fill(place: re.Match[str], dialect: Dialect, parts: dict[str, str]) -> str:
    word, argument = place.groups()
    return _EACH[dialect][word].format(argument) if argument else parts[word]


@cache
def migrations(dialect: Dialect) -> tuple[tuple[int, str], ...]:
    """The dialect's migrations as (number, SQL script), in the order in which they run."""
    found: list[tuple[int, str]] = []
    for entry in (files("clew.storage") / "sql").iterdir():
        match = re.fullmatch(rf"{dialect}_(\d+)_\w+\.sql", entry.name)
        if match:
            found.append((int(match[1]), entry.read_text("utf-8")))
    return tuple(sorted(found))
