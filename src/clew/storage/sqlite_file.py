"""Opening an SQLite file: what it must be, how it is set up, how it grows from format to format; and its errors.

Nothing here opens the file except through SQLite: closing any other descriptor of it would drop this process's locks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import apsw

from clew.errors import (
    ClewError,
    Closed,
    Corrupt,
    DiskFull,
    FormatTooNew,
    NotADatabase,
    ReadOnly,
    StorageError,
    TooLarge,
)
from clew.model import Durability
from clew.storage.statements import migrations

APPLICATION_ID = 0x434C4557
BUSY_SECONDS = 10.0
WAL_PAGES = 2000
SMALLEST = 512
"""A file of fewer bytes is empty to SQLite, which would write over it."""
MEMORY = ":memory:"
_LEVELS: dict[Durability, tuple[str, int]] = {"strict": ("FULL", 2), "relaxed": ("NORMAL", 1), "volatile": ("OFF", 0)}


def open_writer(path: str, durability: Durability) -> apsw.Connection:
    """A connection that may write, to a file of the newest format; read-only when the file is."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        if path != MEMORY and connection.readonly("main"):
            return _open_unwritable(path, connection)
        _set_up(connection, path, durability)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: apsw.Connection, path: str, durability: Durability) -> None:
    _check_format(connection, path)
    if path != MEMORY:
        _pragma(connection, "page_size = 4096")
        _pragma(connection, "auto_vacuum = INCREMENTAL")
        if _into_wal(connection) != "wal":
            raise StorageError(
                f"{path}: SQLite cannot keep a write-ahead log here",
                hint="put the database on a local disk: network shares cannot hold it safely",
            )
        connection.wal_autocheckpoint(WAL_PAGES)
        _pragma(connection, f"journal_size_limit = {4 * WAL_PAGES * 4096}")
    level, number = _LEVELS[durability]
    _pragma(connection, f"synchronous = {level}")
    if durability == "strict":
        _pragma(connection, "fullfsync = ON")  # on macOS a plain fsync leaves data in the drive's cache
    if _pragma(connection, "synchronous") != number:
        raise StorageError(f"{path}: SQLite does not give the durability {durability!r}")
    _migrate(connection, path)
    if path != MEMORY and _pragma(connection, "auto_vacuum") != 2:
        raise NotADatabase(f"{path}: this database was not created by Clew: it cannot give space back")


def open_reader(path: str) -> apsw.Connection:
    """A connection for snapshots. It may write the shared-memory file beside the database, but never the database."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        if connection.readonly("main"):
            connection = _open_unwritable(path, connection)
        _pragma(connection, "query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: str, flags: int) -> apsw.Connection:
    if path != MEMORY:
        try:
            _check_place(Path(path))
        except OSError as error:
            denied = isinstance(error, PermissionError)
            hint = "give this user the rights to the directories above it" if denied else "name another file"
            raise StorageError(f"{path:.200}: {error.strerror}", hint=hint) from None
    connection = apsw.Connection(path, flags)
    connection.set_busy_handler(_patience())
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # Without this a statement whose plan might depend on a bound value is planned again each time: 10 µs instead of 1.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for setting in ("temp_store = MEMORY", "mmap_size = 0", "cell_size_check = ON"):
        _pragma(connection, setting)
    return connection


def _check_place(path: Path) -> None:
    """What SQLite would tell as "unable to open"."""
    parent = path.parent
    if not parent.is_dir():
        raise StorageError(f"{path}: there is no directory {str(parent)!r}", hint=f"create it: mkdir -p {parent}")
    if path.is_dir():
        raise StorageError(f"{path} is a directory", hint="name a file in it")
    if path.is_file() and 0 < path.stat().st_size < SMALLEST:
        raise NotADatabase(f"{path} is not an SQLite database")


def _open_unwritable(path: str, connection: apsw.Connection) -> apsw.Connection:
    """A connection to a file that this process may not write to.

    Reading a write-ahead log needs its shared-memory file. Where that cannot be made, a file without a log is read as
    one that nobody changes; with a log beside it, that would misread it.
    """
    try:
        _check_format(connection, path)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if Path(path + "-wal").exists():
            raise ReadOnly(f"{path}: its write-ahead log cannot be read without writing beside it") from None
        connection = apsw.Connection(
            f"file:{quote(str(Path(path).absolute()))}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        _check_format(connection, path)
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise NotADatabase(f"{path} is empty, and this user may not write to it")
    if _version(connection) < migrations("sqlite")[-1][0]:
        raise ReadOnly(f"{path} is of an older format, which must be migrated before it can be read")
    return connection


def _pragma(connection: apsw.Connection, text: str) -> object:
    # Until its last row is fetched, a pragma may not have run.
    found = connection.execute(f"PRAGMA {text}").fetchall()
    return found[0][0] if found else None


def _version(connection: apsw.Connection) -> int:
    version = _pragma(connection, "user_version")
    assert isinstance(version, int)  # noqa: S101
    return version


def _check_format(connection: apsw.Connection, path: str) -> None:
    """Raise unless the file is ours, of a format that is known, or empty."""
    application = _pragma(connection, "application_id")
    if application != APPLICATION_ID:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
        if not application and not tables:
            return
        # Unless somebody has made it one of ours between the two looks.
        if application or _pragma(connection, "application_id") != APPLICATION_ID:
            raise NotADatabase(f"{path} is an SQLite database of another program", hint="give another file name")
    newest = migrations("sqlite")[-1][0]
    if _version(connection) > newest:
        raise FormatTooNew(f"{path} has format {_version(connection)}; this Clew knows formats up to {newest}")


def _into_wal(connection: apsw.Connection) -> object:
    # Entering WAL mode needs the file for itself and does not ask the busy handler.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _pragma(connection, "journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.005))  # noqa: S311


def _migrate(connection: apsw.Connection, path: str) -> None:
    """Run the migrations that this file lacks, each in a transaction of its own."""
    for number, script in migrations("sqlite"):
        if _version(connection) >= number:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            _check_format(connection, path)
            if _version(connection) < number:  # another process may have been faster
                connection.execute(script).fetchall()
                _pragma(connection, f"application_id = {APPLICATION_ID}")
                _pragma(connection, f"user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _patience() -> Callable[[int], bool]:
    """A busy handler: short waits of random length, so that waiting writers take turns, for some seconds in all."""
    deadline = 0.0

    def wait(attempt: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if attempt == 0:
            deadline = now + BUSY_SECONDS
        elif now > deadline:
            return False
        time.sleep(random.uniform(0.3, 1.0) * min(0.0001 * (1 << min(attempt, 6)), 0.004))  # noqa: S311
        return True

    return wait


def translate(error: apsw.Error, path: str) -> ClewError:
    """What an SQLite error means to the caller."""
    where = "the database in memory" if path == MEMORY else path
    reason = str(error)
    match error:
        case apsw.BusyError() | apsw.LockedError():
            message = f"{where}: other writers have held it for more than {BUSY_SECONDS:.0f} seconds"
            return StorageError(message, retryable=True, hint="try again")
        case apsw.ReadOnlyError():
            return ReadOnly(f"{where} cannot be written to")
        case apsw.FullError():
            return DiskFull(f"{where}: no space is left to write to")
        case apsw.NotADBError():
            return NotADatabase(f"{where} is not an SQLite database")
        case apsw.CorruptError():
            return Corrupt(f"{where}: {reason}")
        case apsw.ConstraintError():
            return Corrupt(f"{where}: a row stands where a new one should go ({reason})")
        case apsw.ConnectionClosedError():
            return Closed(f"{where} is closed")
        case apsw.TooBigError():
            return TooLarge(f"{where}: a value is larger than SQLite can store")
        case apsw.CantOpenError():
            return StorageError(f"{where} cannot be opened", hint="check the path, and the rights to it")
        case apsw.IOError():
            message = f"{where}: the disk reported an error ({reason})"
            return StorageError(message, retryable=True, hint="nothing was saved by this call; try again")
        case _:
            return StorageError(f"{where}: {reason}")
