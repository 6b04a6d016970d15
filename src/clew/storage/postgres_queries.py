"""The named queries as PostgreSQL gets them."""

from __future__ import annotations

import re
from importlib.resources import files

from clew.storage.statements import queries


def _shaped() -> dict[str, bytes]:
    """The shared queries, and for some of them the shape that suits PostgreSQL (postgres_queries.sql)."""
    text = (files("clew.storage") / "sql" / "postgres_queries.sql").read_text("utf-8")
    text = re.sub(r"^-- (?!name: |part: ).*\n", "", text, flags=re.MULTILINE)
    blocks = re.findall(r"^-- (name|part): (\w+)\n(.*?)(?=^-- |\Z)", text, re.MULTILINE | re.DOTALL)
    parts = {name: body.strip() for sort, name, body in blocks if sort == "part"}
    shaped = {name: body.strip().format_map(parts) for sort, name, body in blocks if sort == "name"}
    return {name: body.encode() for name, body in (queries("postgres") | shaped).items()}


QUERIES = _shaped()
