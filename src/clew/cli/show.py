"""`clew show`: one checkpoint and its state, or one value of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.text import Text

import clew
from clew.cli.asked import show_request
from clew.cli.output import (
    age,
    checkpoint_json,
    clip,
    console,
    counted,
    decoration,
    is_terminal,
    names_at,
    print_json,
    size,
    table,
    write_bytes,
)
from clew.cli.place import complete_place, find_place, is_thread
from clew.cli.running import show_run
from clew.cli.settings import database_options, note, open_database, settings
from clew.cli.tree import escape, inline, tree
from clew.errors import BadInput, BadReference, NotFound

_INDEX = re.compile(r"\[(-?\d+)\]")
_OTHER = re.compile(r"R-[0-9]+\Z|run-[0-9a-f]+\Z")
_QUOTED = re.compile(r'\[("(?:[^"\\]|\\.)*")\]')


@click.command()
@click.argument("place", metavar="THREAD[@REF] | R-12 | RUN", shell_complete=complete_place)
@click.option("-k", "--key", metavar="PATH", help="Only this value: messages.3.content, or messages[3].content.")
@click.option("--full", is_flag=True, help="Cut nothing short.")
@database_options()
def show(place: str, key: str | None, full: bool) -> None:
    """Show a checkpoint and its state; or a request, or a run.

    Text, bytes and blobs that --key leads to are written as they are, when stdout is not a terminal.
    """
    with open_database() as db:
        if key is None and _show_other(db, place, full=full):
            return
        found = find_place(db, place)
        checkpoint = found.checkpoint
        branches, tags = (names_at(refs, checkpoint.step) for refs in (found.thread.branches, found.thread.tags))
        state = checkpoint.state()
        value = state if key is None else _value_at(state, key)
        if isinstance(value, clew.Blob) and key is not None and not settings().json and not is_terminal():
            value = value.read()
    if key is not None:
        _print_value(value, full=full)
    elif settings().json:
        found_json = checkpoint_json(checkpoint)
        found_json.update(thread=checkpoint.thread_id, branches=branches, tags=tags, state=clew.as_json(state))
        print_json(found_json)
    else:
        form = clew.as_json(state)
        _print_header(checkpoint, branches, tags, form, len(state))
        _print_form(form, full=full)
    for reason, hint in sorted({(f"{one.type_name}: {one.reason}", one.hint) for one in _opaque(value)}):
        note(f"note:  {clip(escape(reason), 300)}; it is shown by its size")
        note(f"hint:  {escape(hint)}")


def _show_other(db: clew.Database, text: str, *, full: bool) -> bool:
    """Whether it was a request or a run, which no thread is called like."""
    if not _OTHER.match(text):
        return False
    try:
        found = db.request(text) if text.startswith("R-") else db.run(text)
    except NotFound:
        return False
    if is_thread(db, text):
        other = "inbox" if isinstance(found, clew.Request) else "runs"
        raise BadReference(
            f"{text} is a thread's id as well", hint=f"write {text}@head for the thread, or: clew {other} {text}"
        )
    if isinstance(found, clew.Request):
        show_request(found, full=full)
    else:
        show_run(found)
    return True


def _print_header(checkpoint: clew.Checkpoint, branches: list[str], tags: list[str], form: Any, keys: int) -> None:
    out = console()
    title = Text().append(f"{checkpoint.thread_id}@{checkpoint.step}", "bold")
    if marks := decoration(branches, tags):
        title.append(" ").append_text(marks)
    out.print(title)
    rows: list[list[Text | str]] = [["id", checkpoint.id]]
    if checkpoint.label:
        rows.append(["label", checkpoint.label])
    if checkpoint.kind != "step":
        rows.append(["kind", checkpoint.kind])
    rows.append(["parent", "none" if checkpoint.parent is None else str(checkpoint.parent)])
    rows.append(["saved", f"{checkpoint.created_at:%Y-%m-%d %H:%M:%S} UTC, {age(checkpoint.created_at)}"])
    if checkpoint.run:
        rows.append(["run", checkpoint.run])
    if checkpoint.next:
        rows.append(["next", ", ".join(checkpoint.next)])
    for name, part in checkpoint.metadata.items():
        room, shown_form = max(out.width - 30, 40), clew.as_json(part)
        shown = inline(shown_form, room) or clip(escape(json.dumps(shown_form)), room)
        rows.append(["metadata", f"{escape(str(name))} = {shown}"])
    weight = len(json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    rows.append(["state", f"{counted(keys, 'key')}, {size(weight)} as JSON"])
    for line in table([[Text(str(row[0]), "dim"), row[1]] for row in rows]):
        out.print(line)
    out.print()


def _print_form(form: Any, *, full: bool) -> None:
    out = console()
    for line in tree(form, out.width, full=full):
        out.print(line)


def _print_value(value: Any, *, full: bool) -> None:
    if settings().json:
        print_json(clew.as_json(value))
    elif isinstance(value, str):
        write_bytes((_for_terminal(value) + "\n" if is_terminal() else value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes | bytearray) and not is_terminal():
        write_bytes(value)
    else:
        _print_form(clew.as_json(value), full=full)


def _for_terminal(text: str) -> str:
    return "\n".join(escape(line.replace("\t", "    ")) for line in text.split("\n"))


def _value_at(state: Mapping[str, Any], path: str) -> Any:
    """The value that a path leads to. Keys may contain dots: the longest key that fits is taken."""
    value: Any = state
    rest = path
    while rest:
        done = path[: len(path) - len(rest)].rstrip(".") or "the state"
        value, length = _step(value, rest, done)
        rest = rest[length:].removeprefix(".")
    return value


def _step(value: Any, rest: str, done: str) -> tuple[Any, int]:
    """What the first step of the rest leads to, and how much of the rest that step is."""
    for name, length in _names(rest):
        for key in _keys(name):
            if isinstance(value, Mapping) and key in value:
                return value[key], length
            if isinstance(value, list | tuple) and type(key) is int and -len(value) <= key < len(value):
                return value[key], length
            fields = _fields(value)
            if isinstance(key, str) and key in fields:
                return fields[key], length
    wanted, _ = min(_names(rest), key=lambda one: one[1], default=(rest, 0))
    raise NotFound(f"{done} has no {wanted!r}", hint=_what_is_there(value))


def _names(rest: str) -> Iterator[tuple[str | int, int]]:
    """How the path's next step can be read, the longest first, and the length of each."""
    if match := _INDEX.match(rest):
        yield int(match[1]), match.end()
    elif match := _QUOTED.match(rest):
        try:
            yield json.loads(match[1]), match.end()
        except ValueError:
            raise BadInput(f"{match[0]} in --key is not a quoted key") from None
    else:
        ends = [len(rest)] + [place for place in range(len(rest) - 1, 0, -1) if rest[place] in ".["]
        yield from ((rest[:end], end) for end in ends)


def _keys(name: str | int) -> Iterator[str | int]:
    yield name
    if isinstance(name, str) and re.fullmatch(r"-?\d{1,18}", name):
        yield int(name)


def _fields(value: Any) -> Mapping[str, Any]:
    """An object's fields, read without running anything of it."""
    if isinstance(value, Mapping | list | tuple | str | bytes | clew.Opaque | clew.Blob):
        return {}
    return getattr(value, "__dict__", {})


def _what_is_there(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"it has {counted(len(value), 'item')}, counted from 0"
    names = [str(name) for name in (value if isinstance(value, Mapping) else _fields(value))]
    if not names:
        return f"it is a {type(value).__name__}"
    return clip("it has " + ", ".join(map(escape, names)), 200)


def _opaque(value: Any) -> Iterator[clew.Opaque]:
    """The values in it that could not be built here."""
    work = [value]
    while work:
        part = work.pop()
        if isinstance(part, clew.Opaque):
            yield part
        elif isinstance(part, Mapping):
            work += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            work += part
        else:
            work += _fields(part).values()
