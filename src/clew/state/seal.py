"""Checksums that know their place: a row that was damaged, or put in place of another, does not pass."""

from __future__ import annotations

from zlib import crc32


def seal_of(tenant: str, thread_id: str) -> int:
    """Where the checksums of a thread's rows begin: a row of one thread does not pass for another's."""
    return crc32(thread_id.encode("utf-8", "surrogatepass"), crc32(tenant.encode("utf-8", "surrogatepass") + b"\0"))


def row_crc(
    seal: int,
    id: str,  # noqa: A002 - the field's name
    kind: str,
    label: str | None,
    run: str | None,
    next_: bytes | None,
    created: int,
    metadata: bytes | None,
    manifest: bytes,
) -> int:
    """The checksum of a checkpoint: its thread, its id and all that was given with it.

    Step, parent and lane are not covered: the database gives the first and the last, and pruning mends the second.
    """
    told = f"{id}\0{kind}\0{label}\0{run}\0{created}\0".encode("utf-8", "surrogatepass")
    content = b"\0".join((told, next_ or b"", metadata or b"", manifest))
    return crc32(content, seal)


def record_crc(seal: int, place: str, task: str, idx: int, path: str, name: str, value: bytes) -> int:
    """The checksum of a record: its thread, its key, and what it holds."""
    told = f"{place}\0{task}\0{idx}\0{path}\0{name}\0".encode("utf-8", "surrogatepass")
    return crc32(value, crc32(told, seal))
