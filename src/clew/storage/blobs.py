"""Blobs in a folder beside the database: `<folder>/<tenant>/<first two of the digest>/<digest>`.

The row in `blob` stays, with empty data: it says which threads use the blob. Around any backend's storage.

1. File before row. A commit whose row says "outside" follows its file: written under another name, synced, renamed, its
   directory synced (relaxed: not synced). A kill in between leaves a file without a row, and nothing that refers to it.
2. Row before file. A file is removed only once no row has its digest, as a snapshot shows that was begun under (3).
3. From before the file is written, or found to be there, until the commit has returned, the tenant's `lock` is held
   shared. Whoever removes files holds it exclusively. So nobody removes what a commit is about to refer to. The lock
   dies with its process. Who cannot get it to remove files leaves them to the next prune.
4. A server may finish a commit whose client is gone, and with it the lock. There a file stays for an hour after its
   last use, which every commit that brings it marks by its time.
5. What (1) to (4) leave behind, also under the other name, the end of the next prune removes.
6. Bytes are compared with their digest before they are returned, and before a file is taken for written. A file that
   is missing is looked for again under (3): it is damage only if its row is still there, and else was pruned meanwhile.
7. `lock` holds a random name which the database holds too, so that two databases never remove each other's files.
8. Digests are 64 hex digits, tenants percent-encoded; no symbolic link below the folder is followed. So a digest leads
   to no other place, and whether a tenant has it is for the tenant's own row to say.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from clew.errors import BadInput, Corrupt, StorageError
from clew.model import Usage
from clew.storage.blob_folder import Folder
from clew.storage.port import Commit, Committed
from clew.storage.relational import Relational
from clew.storage.snapshots import NO_BYTES, RelationalSnapshot

GRACE = 3600.0
_NAME = "folder"
"""Where the database holds the folder's name: in `blob`, as a digest that no bytes have."""


def folder_of(blobs: object) -> Path:
    """The folder that `clew.open(…, blobs=…)` names."""
    place = os.fspath(blobs) if isinstance(blobs, str | os.PathLike) else blobs
    if not isinstance(place, str) or not place or "\0" in place or place != place.encode(errors="replace").decode():
        raise BadInput(f"blobs={blobs!r:.80} names no folder", hint='for example blobs="agent-blobs"')
    if "://" in place:
        url = urlsplit(place)
        if url.scheme != "file":
            raise BadInput(f"blobs cannot be kept in {url.scheme}:// yet", hint='name a folder: blobs="agent-blobs"')
        place = unquote(url.path)
        if url.netloc not in ("", "localhost") or not place.startswith("/") or "\0" in place:
            raise BadInput(f"{blobs!r:.80} names no folder of this machine", hint='write "file:///absolute/path"')
    folder = Path(place).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is not a folder", hint="name another one for the blobs")
    return folder


class OutsideBlobs:
    """A `Storage` that keeps blobs in a folder, and all else in the rows of another."""

    def __init__(self, rows: Relational, root: Path, tenant: str) -> None:
        self._rows: Any = rows  # with the methods that each backend has of its own
        grace = 0.0 if rows.embedded else GRACE
        self.folder = Folder(root, tenant, strict=rows.durability == "strict", grace=grace)
        self._named: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        with self._rows.snapshot() as rows:
            yield _Snapshot(rows, self)

    def commit(self, commit: Commit) -> Committed:
        if not commit.blobs:
            return self._written(commit)
        with self.keeping(commit.blobs) as blobs:
            return self._written(commit._replace(blobs=blobs))

    @contextmanager
    def keeping(self, blobs: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
        """Write the files; yields what the rows hold instead. The block writes these."""
        if not blobs:
            yield blobs
            return
        with self.folder.locked(self._name(make=True)) as got:
            if not got:
                raise StorageError(f"{self.folder.home}: others keep it locked", retryable=True, hint="try again")
            for digest, data in blobs:
                if data:
                    self.folder.put(digest, data)
            yield [(digest, b"") for digest, _ in blobs]

    def _written(self, commit: Commit) -> Committed:
        done: Committed = self._rows.commit(commit)
        return done

    def _name(self, *, make: bool = False) -> bytes | None:
        """The folder's name for this database, if it has one."""
        if self._named is None:
            with self._rows.snapshot() as rows:
                self._named = rows.blob_row(_NAME)
        if self._named is None and make:
            with self._rows._writing(None) as run:
                run("create_blob", digest=_NAME, data=secrets.token_hex(16).encode())
            return self._name()
        return self._named

    def delete_thread(self, thread_id: str) -> bool:
        outside = self._outside(thread_id)
        deleted: bool = self._rows.delete_thread(thread_id)
        self._collect(outside)
        return deleted

    def forget_blobs(self, thread_id: str, live: set[str], last: int, *, thread: int | None = None) -> int:
        outside = self._outside(thread_id) - live
        freed: int = self._rows.forget_blobs(thread_id, live, last, thread=thread)
        return freed + self._collect(outside)

    def shrink(self, limit: int) -> int:
        freed: int = self._rows.shrink(limit)
        if not freed:  # the end of a prune
            for number in range(256):
                shard = f"{number:02x}"
                if names := self.folder.names(shard):
                    self._collect(names)
        return freed

    def _outside(self, thread_id: str) -> set[str]:
        """The digests of the thread's blobs that may have files."""
        with self._rows.snapshot() as rows:
            thread = rows.find_thread(thread_id)
            return set() if thread is None else {digest for digest, size in rows.blob_sizes(thread) if not size}

    def _collect(self, names: Iterable[str]) -> int:
        """Remove those of the files that no row has; returns their bytes."""
        names = sorted(names)
        own = self._name() if names else None
        if own is None:
            return 0
        with self.folder.locked(own, exclusive=True) as got:
            if not got:
                return 0
            with self._rows.snapshot() as rows:
                used = rows.known_blobs(names)
            return self.folder.remove(name for name in names if name not in used)

    def read_again(self, digest: str) -> bytes:
        """A file was missing: tell whether it was pruned while it was read, or is lost."""
        lost = Corrupt(
            f"{self.folder.path(digest)} is missing",
            hint="open the database with the folder it was saved with, or restore the file from a copy",
        )
        if not (self.folder.home / "lock").exists():
            raise lost
        with self.folder.locked(None):
            with self._rows.snapshot() as now:
                row = now.blob_row(digest)
            data: bytes | None = row or self.folder.read(digest)
        if row is None:
            raise StorageError(
                f"the blob {digest[:12]}… was pruned while it was read", retryable=True, hint="read again"
            )
        if data is None:
            raise lost
        return data


class _Snapshot:
    def __init__(self, rows: RelationalSnapshot, storage: OutsideBlobs) -> None:
        self._rows = rows
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def blob(self, digest: str) -> bytes | None:
        data = self._rows.blob_row(digest)
        if data or data is None or digest == NO_BYTES:
            return data
        found = self._storage.folder.read(digest)
        return self._storage.read_again(digest) if found is None else found

    def blob_sizes(self, thread: int) -> list[tuple[str, int]]:
        size = self._storage.folder.size
        return [(digest, inside or size(digest)) for digest, inside in self._rows.blob_sizes(thread)]

    def usage(self) -> Usage:
        usage = self._rows.usage()
        outside = sum(map(self._storage.folder.size, self._rows.outside_blobs()))
        return replace(usage, blob_bytes=usage.blob_bytes + outside)
