"""Where the benchmarks run: a temporary directory, and a PostgreSQL server that is started when it is first needed."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from clew.storage import postgres
from clew.testing.postgres import Server

ROLE = "clew_bench"


@dataclass(frozen=True)
class Sizes:
    """How much is done: a little for a test, more for figures."""

    quick: bool
    steps: int
    """Steps of a history whose bytes or reading are measured."""
    repetitions: int
    turns: int
    """Timed pairs in a repetition."""
    long: int
    """Steps of a thread that has grown long."""
    peer_steps: int
    graph_turns: int
    """Turns of a conversation that a graph has had."""


QUICK = Sizes(quick=True, steps=1000, repetitions=2, turns=40, long=300, peer_steps=40, graph_turns=60)
FULL = Sizes(quick=False, steps=1000, repetitions=5, turns=400, long=5000, peer_steps=1000, graph_turns=1000)


class Ground:
    """One run's files and servers; everything is gone after it."""

    def __init__(self, sizes: Sizes, parent: Path | None = None) -> None:
        self.sizes = sizes
        self.directory = Path(tempfile.mkdtemp(prefix="clew-bench-", dir=parent))
        self._made = 0
        self.empty: dict[str, int] = {}
        """What a database weighs before there is a history in it, by engine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "postgres" in self.__dict__:
            self.postgres.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def file(self) -> Path:
        """The name of a new database file."""
        self._made += 1
        return self.directory / f"{self._made}.db"

    def discard(self, path: Path) -> int:
        """The size of a database file that is closed; the file is deleted."""
        size = path.stat().st_size
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        return size

    @cached_property
    def postgres(self) -> Postgres:
        return Postgres()


@dataclass(frozen=True)
class Place:
    """A PostgreSQL database: reached by its owner, and by a role that row-level security binds."""

    name: str
    owner: str
    application: str


class Postgres:
    """A server: the one that CLEW_TEST_POSTGRES_URL names, else one of our own."""

    def __init__(self) -> None:
        given = os.environ.get("CLEW_TEST_POSTGRES_URL")
        self._server = None if given else Server.start()
        self._admin: dict[str, Any] = conninfo_to_dict(given or self._server.url())  # type: ignore[union-attr]
        self._password = secrets.token_hex(12)
        self._databases: list[str] = []
        self._role = f"{ROLE}_{secrets.token_hex(4)}"
        self._run(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD {}").format(
                sql.Identifier(self._role), sql.Literal(self._password)
            )
        )

    def _url(self, **changes: str) -> str:
        settings = {**self._admin, **changes}
        user, secret, database = (settings.pop(key, None) for key in ("user", "password", "dbname"))
        login = quote(user or "", safe="") + (f":{quote(secret, safe='')}" if secret else "")
        return f"postgresql://{login}@/{quote(database or '', safe='')}?{urlencode(settings, quote_via=quote)}"

    def _run(self, *statements: sql.Composable) -> None:
        with psycopg.connect(self._url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    @cached_property
    def version(self) -> str:
        with psycopg.connect(self._url()) as connection:
            return str(connection.execute("SHOW server_version").fetchone()[0])  # type: ignore[index]

    def empty(self) -> Place:
        """A new database without a schema."""
        name = f"clew_bench_{secrets.token_hex(6)}"
        self._run(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._databases.append(name)
        return Place(name, self._url(dbname=name), self._url(dbname=name, user=self._role, password=self._password))

    def database(self) -> Place:
        """A new database with Clew's schema, owned by one role and used by another."""
        place = self.empty()
        postgres.migrate(place.owner)
        with psycopg.connect(place.owner, autocommit=True) as connection:
            connection.execute("SELECT clew.grant_to(%s)", (self._role,))
        return place

    def role_may(self, place: Place, statement: str) -> None:
        """Run a statement as the owner; `{}` in it stands for the application's role."""
        with psycopg.connect(place.owner, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(self._role)))  # type: ignore[arg-type]

    def weigh(self, place: Place, schema: str = "clew") -> int:
        """Tables and indexes of a schema, as they lie there: no vacuum, no rewrite."""
        with psycopg.connect(place.owner) as connection:
            found = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
                " WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'",
                (schema,),
            ).fetchone()
        return int(found[0])  # type: ignore[index]

    def drop(self, place: Place) -> None:
        self._run(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(place.name)))
        self._databases.remove(place.name)

    def close(self) -> None:
        try:
            for name in self._databases:
                self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            self._run(sql.SQL("DROP ROLE {}").format(sql.Identifier(self._role)))
        finally:
            if self._server is not None:
                self._server.stop()
