"""One tenant's files of blobs. The invariants stand in blobs.py."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from clew.errors import BadInput, ClewError, Corrupt, DiskFull, ReadOnly, StorageError

PATIENCE = 10.0
"""Seconds to wait for the lock."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_NONBLOCK
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # on macOS a plain fsync leaves data in the drive's cache


def _encoded(tenant: str) -> str:
    """A file name that is the tenant's alone, also where names are cut short or upper and lower case are one."""
    name = "".join(c if re.fullmatch(r"[a-z0-9_-]", c) else "".join(f"%{b:02x}" for b in c.encode()) for c in tenant)
    return name if len(name) <= 200 else f"{name[:100]}~{blake2b(tenant.encode(), digest_size=16).hexdigest()}"


def _failed(error: OSError, path: Path) -> ClewError:
    """What an error of the file system means to the caller."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path}: no space is left to write to")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(f"{path}: {reason}", hint="give this user the rights to the folder of the blobs")
    if error.errno == errno.ENOENT:
        return StorageError(f"{path}: there is no such directory", hint=f"create it: mkdir -p {path.parent}")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
        return StorageError(f"{path} leads through a symbolic link or what is no folder", hint="move that away")
    return StorageError(f"{path}: {reason}", retryable=True, hint="nothing was saved by this call; try again")


def _sync(file: int) -> None:
    if _FULL_SYNC is None:
        os.fsync(file)
    else:
        fcntl.fcntl(file, _FULL_SYNC)


def _flock(file: int, kind: int) -> bool:
    """Get the lock, within some seconds; without waiting in the system, where a signal could not be handled."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        else:
            return True


@contextmanager
def _opened(path: str | Path, flags: int, at: int | None = None) -> Iterator[int]:
    file = os.open(path, flags | os.O_NOFOLLOW, 0o666, dir_fd=at)
    try:
        yield file
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    """What a plain file holds. A pipe or a device holds nothing, and is not waited for."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return b""
    with open(file, "rb", closefd=False) as stream:
        return stream.read()


def _fits(digest: str, data: bytes) -> bool:
    return blake2b(data, digest_size=32).hexdigest() == digest


class Folder:
    """The files of one tenant."""

    def __init__(self, root: Path, tenant: str, *, strict: bool, grace: float) -> None:
        self._root = root
        self.home = root / _encoded(tenant)
        self._strict = strict
        self._grace = grace
        self._synced: set[str] = set()

    def path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise Corrupt(f"{digest!r:.80} is no digest, so no blob has it")
        return self.home / digest[:2] / digest

    @contextmanager
    def _shard(self, name: str, *, make: bool = False) -> Iterator[int]:
        with _opened(self.home, _FOLDER) as home:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=home)
            with _opened(name, _FOLDER, home) as shard:
                yield shard
                if make and self._strict and name not in self._synced:
                    # Once for each process, also where nothing was made: whoever made it may have been killed then.
                    for above in (self.home, self._root.resolve(), self._root.resolve().parent):
                        with _opened(above, _FOLDER) as directory:
                            _sync(directory)
                    self._synced.add(name)

    @contextmanager
    def locked(self, name: bytes | None, *, exclusive: bool = False) -> Iterator[bool]:
        """Hold the lock; yields whether it was got in time. With a name, the folder must be that database's."""
        try:
            if name is None:
                lock = os.open(self.home / "lock", os.O_RDONLY | os.O_NOFOLLOW)
            else:
                self._root.mkdir(exist_ok=True)
                self.home.mkdir(exist_ok=True)
                with _opened(self.home, _FOLDER) as home:
                    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=home)
        except OSError as error:
            raise _failed(error, self.home / "lock") from error
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            got = _flock(lock, kind)
            if got and name is not None and not os.pread(lock, 64, 0) and _flock(lock, fcntl.LOCK_EX):
                if not os.pread(lock, 64, 0):
                    os.pwrite(lock, name, 0)
                got = _flock(lock, kind)
            if got and name is not None and os.pread(lock, 64, 0) != name:
                hint = f"give each a folder of its own; if this one was restored from a copy, delete {self.home}/lock"
                raise BadInput(f"{self._root} keeps the blobs of another database", hint=hint)
            yield got
        finally:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)  # a child forked meanwhile has the file open too
            os.close(lock)

    def put(self, digest: str, data: bytes) -> None:
        """Have these bytes in the digest's file, as durably as the database is."""
        path = self.path(digest)
        if not _fits(digest, data):
            raise BadInput(f"the blob {digest[:12]}… does not hold the bytes that its digest says")
        try:
            with self._shard(digest[:2], make=True) as shard:
                if not self._mark(shard, digest, data):
                    self._write(shard, digest, data)
                if self._strict:
                    _sync(shard)
        except OSError as error:
            raise _failed(error, path) from error

    def _mark(self, shard: int, digest: str, data: bytes) -> bool:
        """Whether the file is there, whole; then it is as good as written now."""
        try:
            with _opened(digest, _READ, shard) as file:
                if _content(file) != data:
                    return False
                os.utime(file)
                if self._strict:
                    _sync(file)
        except OSError:
            return False  # writing it anew mends it, or tells what is wrong
        return True

    def _write(self, shard: int, digest: str, data: bytes) -> None:
        name = f".{digest}.{secrets.token_hex(8)}"
        try:
            with _opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, shard) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
                if self._strict:
                    _sync(file)
            os.rename(name, digest, src_dir_fd=shard, dst_dir_fd=shard)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=shard)
            raise

    def read(self, digest: str) -> bytes | None:
        path = self.path(digest)
        try:
            with self._shard(digest[:2]) as shard, _opened(digest, _READ, shard) as file:
                data = _content(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(error, path) from error
        if not _fits(digest, data):
            hint = "restore this file from a copy, or save the same bytes again"
            raise Corrupt(f"{path} does not hold the bytes that its name says", hint=hint)
        return data

    def size(self, digest: str) -> int:
        try:
            return self.path(digest).lstat().st_size
        except OSError:
            return 0

    def names(self, shard: str) -> list[str]:
        """The files that this module may have written, whole or not."""
        try:
            with self._shard(shard) as directory:
                return [name for name in os.listdir(directory) if _OURS.fullmatch(name)]  # noqa: PTH208
        except OSError:
            return []

    def remove(self, names: Iterable[str]) -> int:
        """Under the exclusive lock: remove files that no row has; returns their bytes. What fails is left."""
        freed = 0
        for name in names:
            with suppress(OSError), self._shard(name.lstrip(".")[:2]) as shard:
                found = os.stat(name, dir_fd=shard, follow_symlinks=False)
                if self._grace:
                    os.utime(self.home / "lock")  # by the clock of the file system, which is not this machine's
                    if (self.home / "lock").stat().st_mtime < found.st_mtime + self._grace:
                        continue
                os.unlink(name, dir_fd=shard)
                freed += found.st_size
        return freed
