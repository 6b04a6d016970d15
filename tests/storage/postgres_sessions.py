"""What stands between a program and PostgreSQL's sessions, acted out."""

from __future__ import annotations

import random
from typing import Any

import psycopg

from clew.storage.postgres import PostgresEngine, begin_use


class PassedAround:
    """Stands in for the pool as a transaction-mode pooler would act: each transaction gets some server session, which
    others have used and left their settings in."""

    def __init__(self, url: str, engine: PostgresEngine, count: int = 4, *, forgets: bool = True) -> None:
        self.idle: list[Any] = [psycopg.connect(url, autocommit=True, prepare_threshold=None) for _ in range(count)]
        for connection in self.idle:
            begin_use(connection, engine._preparing)
            connection.calls._uses = self.idle[0].calls._uses  # what its client thinks: it knows of one connection
            connection.calls._known = self.idle[0].calls._known
        self.forgets = forgets
        """Whether sessions forget what was prepared in them before others get them."""
        self.served = 0

    def getconn(self) -> psycopg.Connection[Any]:
        connection = self.idle.pop(random.randrange(len(self.idle)))
        if self.forgets:
            connection.execute("DISCARD ALL")
        connection.execute("SET clew.tenant = 4711; SET search_path = pg_catalog; SET synchronous_commit = off")
        self.served += 1
        return connection

    def putconn(self, connection: psycopg.Connection[Any]) -> None:
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        left = connection.execute(
            "SELECT current_setting('clew.tenant'), current_setting('search_path'),"
            " current_setting('synchronous_commit'),"
            " (SELECT count(*) FROM pg_prepared_statements WHERE name NOT LIKE 'clew%'),"
            " (SELECT count(*) FROM pg_listening_channels()),"
            " (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),"
            " current_setting('statement_timeout'), current_setting('lock_timeout')"
        ).fetchone()
        assert left == ("4711", "pg_catalog", "off", 0, 0, 0, "0", "0")
        self.idle.append(connection)

    def check(self) -> None:
        raise AssertionError("no connection broke here")

    def close(self) -> None:
        for connection in self.idle:
            connection.close()
