"""Clew's schema in a PostgreSQL database: what is there, and bringing it up to date.

1. The number of the newest migration that ran is the format; it stands in clew.meta.
2. Each migration is one transaction, under a lock that all migrations share: racing processes run each once.
3. A role that may not migrate can open a database that is up to date, and is told what to do about any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from clew.errors import FormatTooNew, NotADatabase, StorageError
from clew.storage.statements import migrations

_LOCK = 0x434C4557
_LOOK = """
SELECT to_regnamespace('clew') IS NOT NULL,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'clew' AND c.relname = 'meta' AND c.relkind = 'r'),
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'clew'),
       coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'clew'), false),
       coalesce((SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'clew'),
                has_database_privilege(current_database(), 'CREATE')),
       current_user::text, current_database()::text
"""
_GRANT_AGAIN = """
SELECT clew.grant_to(r.rolname) FROM pg_roles r WHERE r.oid IN (
    SELECT a.grantee FROM pg_namespace n, aclexplode(n.nspacl) a
    WHERE n.nspname = 'clew' AND a.privilege_type = 'USAGE' AND a.grantee <> n.nspowner)
"""


class Found(NamedTuple):
    """What is in the database, as far as this role may know."""

    schema: bool
    ours: bool
    filled: bool
    usable: bool
    may_migrate: bool
    role: str
    database: str


def newest() -> int:
    """The format that this release writes."""
    return migrations("postgres")[-1][0]


def ready(connection: psycopg.Connection[Any]) -> None:
    """Check that the database has the format of this release, or give it that format if this role may."""
    found = Found(*_one(connection, _LOOK))
    if found.filled and not found.ours:
        raise NotADatabase(
            f"database {found.database!r} has a schema `clew` that is not Clew's",
            hint="rename that schema, or use another database",
        )
    if found.ours and not found.usable:
        raise StorageError(
            f"role {found.role!r} may not use Clew's schema in database {found.database!r}",
            hint=f"as the owner of the schema, run SELECT clew.grant_to('{found.role}')",
        )
    have = _format(connection) if found.ours else 0
    _refuse_newer(have, found.database)
    if have == newest():
        return
    if not found.may_migrate:
        state = f"has format {have}, this release needs {newest()}" if have else "holds no Clew schema yet"
        raise StorageError(
            f"database {found.database!r} {state}, and role {found.role!r} may not change that",
            hint=f"open it once as its owner (that migrates it), then SELECT clew.grant_to('{found.role}')",
        )
    migrate(connection)


def migrate(connection: psycopg.Connection[Any]) -> int:
    """Run the migrations that are missing; returns how many ran. The connection is in autocommit."""
    ran = 0
    for number, script in migrations("postgres"):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            found = Found(*_one(connection, _LOOK))
            have = _format(connection) if found.ours else 0
            _refuse_newer(have, found.database)
            if number <= have:
                continue
            connection.execute(script.encode())
            if have == 0:
                connection.execute("INSERT INTO clew.meta (format) VALUES (%s)", (number,))
            else:
                connection.execute("UPDATE clew.meta SET format = %s", (number,))
            connection.execute(_GRANT_AGAIN)
            ran += 1
    return ran


def _format(connection: psycopg.Connection[Any]) -> int:
    return int(_one(connection, "SELECT coalesce(max(format), 0) FROM clew.meta")[0])


def _refuse_newer(have: int, database: str) -> None:
    if have > newest():
        raise FormatTooNew(f"database {database!r} has format {have}; this release knows up to {newest()}")


def _one(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None  # noqa: S101  (each of these queries has exactly one row)
    return tuple(row)
