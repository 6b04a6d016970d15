"""The rows as tables: for a terminal, and for the pages in bench/."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from bench.rows import Row

PAGE_TITLES = {
    "results": "What a step costs",
    "runtime": "What the runtime costs",
    "capacity": "What one machine gets done",
}
TITLES = {
    "space": "Bytes",
    "saves": "The time of a save",
    "growth": "Growth",
    "latest": "Reading the latest state, cold",
    "history": "Reading the history",
    "prune": "Pruning beside writers",
    "peers": "LangGraph's savers on the same states",
    "langgraph": "LangGraph's graphs on our saver and on its own",
    "runtime": "The runtime beside LangGraph and DBOS",
    "capacity": "Bursts of runs, and one by one",
}
NOTES = {
    "space": """\
*Stored* is the database file after it was closed, on PostgreSQL all tables and indexes as they lie there, without a
vacuum; both beyond what a database weighs in which one empty state was saved. *Payload* is the encoded text of the
messages alone, once: keys, roles, ids and class names count as overhead. The text is random printable ASCII, of which
no compressor can save a quarter (first row). The names of fields around it do compress, and where that makes a chunk a
quarter smaller, it is kept compressed with the text in it (LangChain's messages). The rows about prose have no target:
they show what compression does.""",
    "saves": """\
One message of 1 KB more, in a list of about 100. The bare transaction writes two rows of the same sizes, encoded
beforehand, with the same settings; the bare insert is prepared and has no row-level security. Strict rows flatter us
while something else keeps the disk busy, because then both mostly wait for it: compare the bare time with the
disk's.""",
    "peers": """\
A step of theirs is `put_writes` and `put`, as LangGraph's loop calls them; one of ours is `update` (told) or `save`
(shadow). The target of each row is the peer's figure.""",
    "langgraph": """\
A chat: `MessagesState`, one node, each turn asks 512 bytes and is answered 512, every call with `durability="sync"`.
*Relaxed* and *strict* are the same setting for all: `synchronous` NORMAL and FULL, `synchronous_commit` off and on.
*The saver's own part* is the time inside its methods; the rest of a turn is LangGraph's work, the same for all.
They wait for each other in threads of their own, so these times overlap and may add up to more than the turn.
*Whoever goes on with the thread* has written or read its latest checkpoint before, as a process does that serves a
conversation: ours keeps what it wrote, and reads only the row that tells whether it is still the latest.""",
    "runtime": """\
The same nodes on Clew's runtime, in LangGraph's graphs, and in a workflow of DBOS; they do next to nothing, so what is
left is the libraries' own. Times are of a round, from the start of a run on a new thread to its end, by the number of
rounds. *In memory* ours keeps every checkpoint in a database in memory; LangGraph without a checkpointer keeps nothing.
On SQLite, LangGraph runs with `durability="sync"`, and both files have been written to until SQLite overwrites their
logs; *relaxed* and *strict* are `synchronous` NORMAL and FULL for both. DBOS has a rollback journal, unless its file is
put into WAL mode beforehand; there both wait three times for the disk, which hides what else differs. A turn of the
conversation asks half a kilobyte, and is answered as much by a recorded call; what grows with it is looking whether a
node has changed the messages that it was lent, some 40 ns for each. Strict rows are doubtful while something else keeps
the disk busy: with a disk to itself, ours waits half as often.""",
    "capacity": """\
Runs of three nodes that do nothing: four checkpoints, each durable, on a thread of their own. A burst is submitted by
one process and driven by worker processes on the same machine, which has the database on it too: with a few cores, all
of these compete. The figure is of the whole burst, from its first submit to the end of its last run. Then runs come one
by one: from the submit to the end, by the database's clock; on SQLite a worker in another process looks at the log
forty times a second, so half of a fortieth is waiting.""",
}
INTRODUCTION = """\
Measured on {date} by `{command}`, in {minutes:.0f} minutes. This page is written by that command.

Contenders take turns in one run, in alternating order, with the garbage collector off for all of them. A ratio is
1 + the median of the paired differences / the median of the other; shown is the median over repetitions on fresh
databases, and beside it their range. A question mark says that repetitions fall on both sides of the target.
Times are p50 / p99 / mean."""
_MARKS = {True: "yes", False: "**no**", None: "-"}


def number(row: Row) -> str:
    if row.figure is None:
        return "-"
    digits = 0 if row.figure >= 100 or row.unit == "" else 2
    if 0 < row.figure < 0.01:
        digits = 1 - floor(log10(row.figure))  # two that say something: 0.00 says nothing
    return f"{row.figure:,.{digits}f} {row.unit}".strip()


def target(row: Row) -> str:
    if row.target_text:
        return row.target_text
    return "-" if row.target is None else f"≤ {row.target:g} {row.unit}".strip()


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | figure | target | met | times, and what stands behind it |", "|---|--:|---|---|---|"]
    for row in rows:
        told = row.problem or row.detail
        lines.append(f"| {row.what} | {number(row)} | {target(row)} | {_MARKS[row.met]}{'?' * row.unsure} | {told} |")
    return "\n".join(lines)


def losses(rows: Sequence[Row]) -> str:
    """Where a target is missed, a peer wins, or nothing could be measured."""
    lost = [row for row in rows if row.met is False]
    if not lost:
        return "Every target is met, and no peer is ahead in any row."
    lines = []
    for row in lost:
        told = row.problem or f"{number(row)}, {'the peer' if row.peer else 'target'} {target(row)}"
        told += ", not in every repetition" * row.unsure
        lines.append(f"- {row.what}: {told}")
    return "\n".join(lines)


def results(page: str, rows: Sequence[Row], machine: dict[str, str], command: str, date: str, seconds: float) -> str:
    """The whole page."""
    parts = [
        f"# {PAGE_TITLES[page]}",
        INTRODUCTION.format(date=date, command=command, minutes=seconds / 60),
        "## The machine",
        "\n".join(f"- {name}: {value}" for name, value in machine.items()),
        "## Where we lose",
        losses(rows),
    ]
    for bench in dict.fromkeys(row.bench for row in rows):
        parts.append(f"## {TITLES[bench]}")
        if bench in NOTES:
            parts.append(NOTES[bench])
        parts.append(table([row for row in rows if row.bench == bench]))
    return "\n\n".join(parts) + "\n"
