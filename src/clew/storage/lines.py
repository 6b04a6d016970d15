"""Lines of runs: who stands before a branch, and what a new run does about whoever has it.

The thread is locked. At most one run of a line is up (has a wake time); the others cost a claim nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import Busy
from clew.storage.ledger import Move, NewRun
from clew.storage.wanted import STRENGTH

if TYPE_CHECKING:
    from clew.storage.ledger_entries import Writer


class Standing(NamedTuple):
    """How a new run begins: when it is due, and what it is to do. `grace` is more than 0 if it is in line now."""

    delay: int | None
    at: int | None
    wanted: str | None
    grace: int = 0


def admit(writer: Writer, new: NewRun) -> Standing:
    """Let a queued run in, and do what it wants about those before it. `Busy` when it would rather not wait."""
    query = writer.query
    place = {"thread": writer.thread, "branch": new.branch}
    asked = {**place, "at": new.at, "delay": new.delay, "priority": new.priority}
    held, status, wanted, agent, others, before, later = query("line", **asked)[0]
    if new.if_busy == "reject" and (held or others):
        raise _busy(writer.thread_id, new.branch, held, status)
    if later:
        return Standing(None if new.at is not None else new.delay, new.at, None, new.grace)
    if new.if_busy == "interrupt":
        query("interrupt_line", **place)
        if held and status != "running":  # nobody drives it: it ends here
            writer.move(Move(held, "cancelled"), calls=bool(others))
            held, before = None, others
    elif new.if_busy == "rollback":
        query("cancel_line", **place)
        before = False
    mine = "inject" if new.if_busy == "inject" and held and agent == new.agent else None
    word = mine or (new.if_busy if new.if_busy in ("interrupt", "rollback") else None)
    if held and word and STRENGTH[word] > STRENGTH.get(wanted, 0):
        query("want_of_run", thread=writer.thread, id=held, wanted=word)
    grace = max(new.grace, 1)  # in line now, whatever the clocks of others say
    if held or before:
        return Standing(None, None, mine, grace)
    return Standing(new.grace, None, None, grace)


def refuse(writer: Writer, branch: str) -> None:
    """Let nobody begin while another run has the branch, or others stand in line for it."""
    asked = {"thread": writer.thread, "branch": branch, "at": None, "delay": 0, "priority": 0}
    held, status, _, _, others, *_ = writer.query("line", **asked)[0]
    if held or others:
        raise _busy(writer.thread_id, branch, held, status)


def _busy(thread_id: str, branch: str, held: str | None, status: str | None) -> Busy:
    return Busy(
        f"branch {branch!r} of thread {thread_id!r} belongs to run {held}, which is {status}"
        if held
        else f"other runs stand in line for branch {branch!r} of thread {thread_id!r}",
        owner=held,
        hint='if_busy="enqueue" stands in line; "interrupt", "rollback" and "inject" do not wait',
    )


def leave(writer: Writer, branch: str, group: str | None) -> None:
    """A run leaves its branch, or its line: whoever stands next is called."""
    writer.query("call_next", thread=writer.thread, branch=branch, but=0)
    if group is not None:
        writer.query("call_group", group=group)


def rewind(writer: Writer, branch: str, step: int | None, old_tip: str) -> None:
    """Point a branch at an earlier step, keeping its tip under an automatic name."""
    query: Any = writer.query
    tip = query("ref", thread=writer.thread, name=branch)[0][1]
    query("move_ref", thread=writer.thread, name=branch, step=step)
    if tip is not None and tip != step:
        query("create_ref", thread=writer.thread, name=old_tip, kind="auto", step=tip)
