"""Reading in one transaction: a `Snapshot` over named queries, the same for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from clew.errors import BadInput, Corrupt
from clew.model import Usage
from clew.storage.changes import Record
from clew.storage.ledger_rows import stamped
from clew.storage.port import STEP_BITS, Head, Lease, Listed, Piece, Ref, Row, Want
from clew.storage.rows import full_rows, listed_rows, thread_key

if TYPE_CHECKING:
    from clew.storage.relational import Relational, Run

STEPS = (1 << STEP_BITS) - 1
_LAST_STAMP = 1 << 62
_WALK = 10_000
"""Checkpoints read in one go when a history is walked: parents in a circle would never end."""
NO_BYTES = blake2b(b"", digest_size=32).hexdigest()
"""The one blob whose data is empty. Another row with empty data says that the blob is kept outside (blobs.py)."""


class RelationalSnapshot:
    """A `Snapshot` over a `Run` within one read transaction."""

    __slots__ = ("_run", "_storage")

    def __init__(self, storage: Relational, run: Run) -> None:
        self._storage = storage
        self._run = run

    def find_thread(self, thread_id: str) -> int | None:
        found = self._run("thread", thread_id=thread_id)
        return thread_key(found[0][0]) if found else None

    def head(self, thread_id: str, branch: str) -> Head | None:
        found = self._run("head", thread_id=thread_id, branch=branch)
        if not found:
            return None
        thread, name, kind, step, lane, epoch = found[0][:6]
        ref = Ref(name, kind, step, lane, self._storage._holder(found[0][6:14], Lease(thread_id, branch, epoch)), epoch)
        columns = found[0][14:]
        if step is not None and columns[1] is None:
            raise Corrupt(f"branch {branch!r} of thread {thread_id!r} points at step {step}, which is missing")
        return Head(thread_key(thread), ref, None if step is None else full_rows([columns])[0])

    def row(self, thread: int, step: int) -> Row | None:
        if not 0 < step <= STEPS:
            return None
        found = self._run("row", key=thread << STEP_BITS | step)
        return full_rows(found)[0] if found else None

    def rows_by_id(self, thread: int, prefix: str, limit: int) -> list[Row]:
        low = thread << STEP_BITS
        beyond = prefix + "\U0010ffff"
        return full_rows(self._run("rows_by_id", low=low, high=low | STEPS, prefix=prefix, beyond=beyond, limit=limit))

    def history(self, thread: int, step: int, limit: int) -> list[Row]:
        found: list[Row] = []
        at: int | None = step
        # A checkpoint that was placed again is newer than its children: only what has been seen tells a circle.
        seen: set[int] = set()
        while at is not None and len(found) < limit and 0 < at <= STEPS:
            most = min(limit - len(found), _WALK)
            rows = listed_rows(self._run("history", low=thread << STEP_BITS, step=at, limit=most))
            for row in rows:
                if row.step != at or row.step in seen:
                    raise Corrupt(f"the parents before checkpoint {step} lead to {at} and not back to a root")
                seen.add(row.step)
                at = row.parent
            found += rows
            if len(rows) < most:
                break  # a root; or a parent that has gone
        if at is not None and not 0 < at <= STEPS and found:
            raise Corrupt(f"checkpoint {found[-1].step} has the parent {at}, which no checkpoint can be")
        return found

    def rows(self, thread: int, after: int, limit: int, *, manifests: bool) -> list[Row]:
        low = thread << STEP_BITS
        values = {"low": low, "after": min(max(after, 0), STEPS), "high": low | STEPS, "limit": limit}
        if manifests:
            return full_rows(self._run("rows_with_manifests", **values))
        return listed_rows(self._run("rows", **values))

    def refs(self, thread: int) -> list[Ref]:
        holder = self._storage._holder
        found = self._run("refs", thread=thread)
        return [Ref(row[0], row[1], row[2], row[3], holder(row[5:], None), row[4]) for row in found]

    def payload(self, thread: int, wants: Sequence[Want], upto: int) -> list[Piece]:
        if not wants:
            return []
        within = {"low": thread << STEP_BITS, "upto": min(upto, STEPS), "lanes": sorted({want.lane for want in wants})}
        if self._storage.embedded:
            found = self._run("payload", **within)
            return [Piece(key, key & STEPS, lane, data) for key, lane, data in found] + self.chunks(thread, wants)
        # The server may be far away: one question for all.
        of, logs, starts, stops = map(list, zip(*wants, strict=True))
        rows = self._run("payload_and_chunks", **within, thread=thread, of=of, logs=logs, starts=starts, stops=stops)
        return list(map(Piece._make, rows))

    def chunks(self, thread: int, wants: Sequence[Want]) -> list[Piece]:
        """The folded runs that overlap a wanted stretch, each once."""
        found: dict[int, Piece] = {}
        for lane, log, start, stop in wants:
            rows = self._run("chunks", thread=thread, lane=lane, log=log, start=start, stop=stop)
            for key, of_lane, data in rows:
                found[key] = Piece(key, 0, of_lane, data)
        return list(found.values())

    def records(self, thread: int, places: Sequence[str]) -> list[Record]:
        return [Record._make(row) for row in self._run("records", thread=thread, places=list(places))]

    def held(self, thread: int) -> set[int]:
        return {step for (step,) in stamped(self._run)("held", thread=thread)}

    def blob(self, digest: str) -> bytes | None:
        data = self.blob_row(digest)
        if data == b"" and digest != NO_BYTES:
            hint = "name the folder it was saved with: clew.open(…, blobs=…), or --blobs on the command line"
            raise BadInput(f"the blob {digest[:12]}… is kept outside the database", hint=hint)
        return data

    def blob_row(self, digest: str) -> bytes | None:
        """What the row holds: nothing, if the blob is kept outside. `Corrupt` unless it has this digest."""
        found = self._run("blob", digest=digest)
        if not found:
            return None
        data = bytes(found[0][0])
        if data and len(digest) == len(NO_BYTES) and blake2b(data, digest_size=32).hexdigest() != digest:
            raise Corrupt(f"the blob {digest[:12]}… does not match its digest")
        return data

    def known_blobs(self, digests: Sequence[str]) -> set[str]:
        return {row[0] for row in self._run("known_blobs", digests=list(digests))}

    def outside_blobs(self) -> list[str]:
        return [row[0] for row in self._run("outside_blobs")]

    def blob_sizes(self, thread: int) -> list[tuple[str, int]]:
        return [(digest, size) for digest, size in self._run("blob_sizes", thread=thread)]

    def threads(self, *, order: str, after: tuple[Any, ...] | None, limit: int) -> list[Listed]:
        if order == "id":
            found = self._run("threads_id", after=after[0] if after else "", limit=limit)
        elif order in ("updated", "created"):
            stamp, last = after or (_LAST_STAMP, "")
            found = self._run(f"threads_{order}", stamp=stamp, after=last, limit=limit)
        else:
            raise ValueError(f"order is 'updated', 'created' or 'id', not {order!r}")
        return [Listed._make((*row[:8], bool(row[8]), row[9])) for row in found]

    def pieces(self, thread: int, *, folded: bool, after: int, limit: int) -> list[Piece]:
        low = thread << STEP_BITS
        if folded:
            found = self._run("chunk_page", thread=thread, after=after, limit=limit)
            return [Piece(key, 0, lane, data) for key, lane, data in found]
        found = self._run("payload_page", low=low, high=low | STEPS, after=after, limit=limit)
        return [Piece(key, key & STEPS, lane, data) for key, lane, data in found]

    def usage(self) -> Usage:
        threads, checkpoints, rows, payload, chunks, blobs, blob_bytes, items, item_bytes = self._run("usage")[0]
        runs, effects, requests, ledger_bytes = self._run("ledger_usage")[0]
        file_bytes, free_bytes = self._storage._space(self._run)
        return Usage(
            threads=threads,
            checkpoints=checkpoints,
            checkpoint_bytes=int(rows),
            payload_bytes=int(payload) + int(chunks),
            blobs=blobs,
            blob_bytes=int(blob_bytes),
            items=items,
            item_bytes=int(item_bytes),
            runs=runs,
            effects=effects,
            requests=requests,
            ledger_bytes=int(ledger_bytes),
            file_bytes=file_bytes,
            free_bytes=free_bytes,
        )
