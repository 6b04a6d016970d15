"""A request as people see it: a line of the inbox, or all that a reviewer has to know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

import clew
from clew.cli.diff import change_lines
from clew.cli.output import age, clip, console, is_terminal, print_json, table, until
from clew.cli.settings import settings
from clew.cli.tree import chop_words, escape, tree

WIDE = 110
"""Columns from which on a table fits."""
STATUS_STYLES = {"open": "bold yellow", "answered": "green", "expired": "red", "withdrawn": "dim"}


def short(value: Any) -> str:
    """A question or a value on one line: the first line of a text, else JSON."""
    if isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()] or [""]
        return escape(lines[0].strip()) + (" …" if len(lines) > 1 else "")
    return escape(json.dumps(clew.as_json(value), ensure_ascii=False))


def headline(question: Any) -> str:
    """A question on one line: what it says itself, if it is a dict that has a `question`, as those about effects do."""
    if isinstance(question, dict) and isinstance(question.get("question"), str):
        return short(question["question"])
    return short(question)


def list_lines(requests: list[clew.Request], *, with_status: bool) -> Iterator[Text]:
    """A line for each, the question last; two where the terminal is narrow."""
    out = console()
    if is_terminal() and out.width < WIDE:
        yield from _narrow(requests, out.width, with_status=with_status)
        return
    heads = ["request", *(["status"] if with_status else []), "thread", "for", "asked", "expires", "question"]
    empty = {name for name in ("for", "expires") if not any(_cell(request, name) for request in requests)}
    shown = [name for name in heads if name not in empty]
    rows: list[list[Text | str]] = [[Text(name, "dim") for name in shown]]
    rows += [[_cell(request, name) for name in shown] for request in requests]
    for line in table(rows):
        if is_terminal():
            line.truncate(out.width, overflow="ellipsis")
        yield line


def _narrow(requests: list[clew.Request], width: int, *, with_status: bool) -> Iterator[Text]:
    column = max((len(request.id) for request in requests), default=0) + 2
    for request in requests:
        line = Text(request.id.ljust(column), "bold")
        if with_status:
            line.append(f"{request.status}  ", STATUS_STYLES[request.status])
        line.append(str(_cell(request, "question")))
        line.truncate(width, overflow="ellipsis")
        yield line
        told = [place_of(request), f"for {request.assignee}" if request.assignee else "", age(request.created_at)]
        told.append(f"expires {until(request.expires_at)}" if request.expires_at else "")
        below = Text(" " * column + "  ".join(filter(None, told)), "dim")
        below.truncate(width, overflow="ellipsis")
        yield below


def _cell(request: clew.Request, name: str) -> Text | str:
    if name == "request":
        return Text(request.id, "bold")
    if name == "status":
        return Text(request.status, STATUS_STYLES[request.status])
    if name == "thread":
        return clip(place_of(request), 24 if is_terminal() else None)
    if name == "for":
        return clip(request.assignee or "", 16 if is_terminal() else None)
    if name == "asked":
        return Text(age(request.created_at), "dim")
    if name == "expires":
        return "" if request.expires_at is None else until(request.expires_at)
    return headline(request.question) + (
        f"  ({request.answers} of {request.approvals})" if request.approvals > 1 else ""
    )


def place_of(request: clew.Request) -> str:
    """THREAD@STEP, as other commands take it."""
    return request.thread_id if request.step is None else f"{request.thread_id}@{request.step}"


def show_request(request: clew.Request, *, full: bool) -> None:
    """All of it: what is asked, of whom, what may be answered, the state it was asked in and what that step changed."""
    state, changes, audit = request.state(), request.changes(), request.audit()
    if settings().json:
        told = request.as_json()
        told["audit"] = [_answer_json(answer) for answer in audit]
        told["state"] = clew.as_json(state)
        told["changes"] = changes.as_json()
        print_json(told)
        return
    out = console()
    out.print(Text(request.id, "bold").append("  ").append(request.status, STATUS_STYLES[request.status]))
    _print_question(out, request.question, full=full)
    out.print()
    for line in table([[Text(name, "dim"), value] for name, value in _facts(request)]):
        out.print(line)
    for answer in audit:
        out.print(_answer_line(answer))
    if changes:
        out.print()
        out.print(Text(f"what step {request.step} changed", "dim"))
        for line in change_lines(changes, out.width if is_terminal() else None):
            out.print(line)
    if state:
        out.print()
        out.print(Text(f"the state at {place_of(request)}", "dim"))
        for line in tree(clew.as_json(state), out.width, full=full):
            out.print(line)


def _print_question(out: Console, question: Any, *, full: bool) -> None:
    if isinstance(question, str):
        for row in [row for line in question.splitlines() for row in chop_words(escape(line), out.width)]:
            out.print(Text(row, "bold"))
    else:
        for line in tree(clew.as_json(question), out.width, full=full):
            out.print(line)


def _facts(request: clew.Request) -> Iterator[tuple[str, Text | str]]:
    branch = "" if request.branch == "main" else f" (branch {request.branch})"
    yield "thread", place_of(request) + branch
    if request.run:
        yield "run", request.run
    yield "asked", f"{request.created_at:%Y-%m-%d %H:%M:%S} UTC, {age(request.created_at)}"
    if request.assignee:
        yield "for", request.assignee
    if request.expires_at and request.status == "open":
        then = f"; then it is {short(request.default)}" if request.default is not None else ""
        yield "expires", f"{request.expires_at:%Y-%m-%d %H:%M:%S} UTC, {until(request.expires_at)}{then}"
    if request.approvals > 1:
        yield "approvals", f"{request.answers} of {request.approvals}"
    if request.status == "open":
        first, *rest = request.explain()
        yield "answer", first
        yield from (("", escape(line)) for line in rest)
    if request.decided_at:
        decided = "no" if request.rejected else short(request.value)
        yield "decided", f"{decided}, {age(request.decided_at)}"


def _answer_line(answer: clew.Answer) -> Text:
    line = Text().append("answered  " if not answer.rejected else "rejected  ", "dim").append(f"by {answer.by}")
    if not answer.rejected:
        line.append(f": {short(answer.value)}")
    if answer.reason:
        line.append(f" ({short(answer.reason)})")
    return line.append(f"  {age(answer.at)}", "dim")


def _answer_json(answer: clew.Answer) -> dict[str, Any]:
    return {
        "by": answer.by,
        "value": clew.as_json(answer.value),
        "rejected": answer.rejected,
        "reason": answer.reason,
        "at": answer.at.isoformat(),
    }
