"""A state as a tree that a person can read, made from its JSON form (`clew.as_json`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.text import Text

from clew.cli.output import clip, counted, pad, size

_FIRST, _LAST = 3, 12  # items of a long list that are shown
_TEXT_LINES = 8
_DEEPEST = 12
_WIDEST_NAME = 28
_BRACKETS = {"list": "[]", "tuple": "()", "set": "{}", "dict": "{}"}
_DICTS = ("dict", "OrderedDict", "defaultdict", "Counter", "mappingproxy")


def tree(form: Any, width: int, *, full: bool = False) -> Iterator[Text]:
    """The lines of a state, or of a part of it."""
    shown = _Tree(width, full=full)
    is_named = isinstance(_body(form), dict) or _is_pairs(form)
    if _parts(form) and (is_named or _reads_better_apart(form) or inline(form, width) is None):
        yield from shown.children(form, 0)
    else:
        yield from shown.lines("", form, 0, 0)


class _Tree:
    def __init__(self, width: int, *, full: bool) -> None:
        self._width = width
        self._full = full

    def children(self, form: Any, depth: int) -> Iterator[Text]:
        named = _parts(form)
        hidden = range(_FIRST, len(named) - _LAST) if isinstance(_body(form), list) and not self._full else range(0)
        column = min(max((cell_len(name) for name, _ in named), default=0), _WIDEST_NAME)
        for place, (name, part) in enumerate(named):
            if place not in hidden:
                yield from self.lines(name, part, column, depth)
            elif place == hidden.start:
                yield Text(f"{'  ' * depth}… {len(hidden)} more (--full shows them)", "dim")

    def lines(self, name: str, form: Any, column: int, depth: int) -> Iterator[Text]:
        line = Text("  " * depth).append(clip(name, self._width // 2), "cyan")
        rest = "  " if name else ""
        room = self._width - 2 * depth - max(column, cell_len(name)) - len(rest)
        whole = None if _reads_better_apart(form) else inline(form, room)
        if whole is None and not self._full and _is_numbers(form):
            whole = _first_numbers(form, room)
        if whole is None:
            line.append(" " * (column - cell_len(name)) + rest).append(_summary(form), "dim")
            yield line
            if depth >= _DEEPEST:
                yield Text("  " * (depth + 1) + "… (--key leads deeper)", "dim")
            elif isinstance(form, str):
                yield from self._text(form, depth + 1)
            else:
                yield from self.children(form, depth + 1)
        else:
            yield line.append(pad("", column - cell_len(name)) + rest + whole)

    def _text(self, text: str, depth: int) -> Iterator[Text]:
        room = max(self._width - 2 * depth - 2, 20)
        limit = len(text) if self._full else room * (_TEXT_LINES + 1)
        rows = [row for line in text[:limit].split("\n") for row in chop_words(escape(line), room)]
        cut = not self._full and (len(rows) > _TEXT_LINES or limit < len(text))
        for row in rows[:_TEXT_LINES] if cut else rows:
            yield Text("  " * depth).append("│ ", "dim").append(row)
        if cut:
            yield Text("  " * depth).append("│ … (--full shows the rest)", "dim")


def _reads_better_apart(form: Any) -> bool:
    """Text of several lines, and lists of containers: messages, for example."""
    if isinstance(form, str):
        return "\n" in form
    body = _body(form)
    return isinstance(body, list) and len(body) > 1 and not _is_pairs(form) and any(map(_parts, body))


def _is_numbers(form: Any) -> bool:
    body = _body(form)
    return isinstance(body, list) and all(type(part) in (int, float) for part in body)


def _first_numbers(form: Any, room: int) -> str:
    """The beginning of an embedding, for example: its numbers tell a person little."""
    numbers = [repr(number) for number in _body(form)[:room]]
    while len(text := f"[{', '.join(numbers)}, … {len(_body(form)) - len(numbers)} more]") > room and len(numbers) > 1:
        numbers.pop()
    return clip(text, room)


def chop_words(text: str, room: int) -> list[str]:
    """Lines of at most so many columns, broken at spaces where there are any."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and cell_len(line) + 1 + cell_len(word) <= room:
            line += " " + word
            continue
        if line:
            lines.append(line)
        *whole, line = chop_cells(word, room) or [""]
        lines += whole
    return [*lines, line]


def escape(text: str) -> str:
    """The text without anything that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def quote(text: str) -> str:
    return '"' + escape(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


class _TooLong(Exception):
    pass


def inline(form: Any, room: int) -> str | None:
    """The value on one line, whole, or None when it does not fit."""
    pieces, used = [], 0
    try:
        for piece in _pieces(form, room):
            used += cell_len(piece)
            if used > room:
                return None
            pieces.append(piece)
    except _TooLong:
        return None
    return "".join(pieces)


def _pieces(form: Any, room: int) -> Iterator[str]:
    """Each level of nesting yields a bracket first, so that a narrow line also bounds how deep this goes."""
    if isinstance(form, str):
        if len(form) > room:
            raise _TooLong
        yield quote(form)
    elif _type(form) and "text" in form:
        yield typed(form)
    elif isinstance(form, list | dict):
        kind = _type(form) or type(form).__name__
        brackets = _BRACKETS.get(kind, "")
        yield brackets[0] if brackets else f"{escape(kind)}("
        sign = "=" if _type(form) and "fields" in form else ": "
        for place, (name, part) in enumerate(_parts(form)):
            yield ", " if place else ""
            yield "" if isinstance(_body(form), list) and not _is_pairs(form) else name + sign
            yield from _pieces(part, room)
        yield ("," if kind == "tuple" and len(_parts(form)) == 1 else "") + (brackets[1] if brackets else ")")
    else:
        yield str(form) if form is None or isinstance(form, bool) else repr(form)


def typed(form: dict[str, Any]) -> str:
    """A value that JSON lacks, with its type's name."""
    kind, text = form["$type"], form["text"]
    return escape(text if text.startswith((kind, f"<{kind}")) else f"{kind} {text}")


def _type(form: Any) -> str:
    """The name of a type that JSON lacks; empty for JSON's own."""
    return str(form["$type"]) if isinstance(form, dict) and "$type" in form else ""


def _is_pairs(form: Any) -> bool:
    """A dict with keys that JSON lacks: its items are pairs."""
    return _type(form) in _DICTS and "items" in form


def _body(form: Any) -> Any:
    """What holds the parts: a list, or a dict of them."""
    if _type(form):
        return form["fields"] if "fields" in form else form.get("items")
    return form


def _parts(form: Any) -> list[tuple[str, Any]]:
    body = _body(form)
    if isinstance(body, dict):
        return [(_key(name), part) for name, part in body.items()]
    if not isinstance(body, list):
        return []
    if _is_pairs(form):
        return [(_name(pair[0]), pair[1]) for pair in body]
    return [(f"[{place}]", part) for place, part in enumerate(body)]


def _name(form: Any) -> str:
    return _key(form) if isinstance(form, str) else inline(form, _WIDEST_NAME) or _summary(form)


def _key(name: str) -> str:
    return name if name and name.isprintable() and not set(name) & set(' ."[]:=') else clip(quote(name), 60)


def _summary(form: Any) -> str:
    if isinstance(form, str):
        return f"text, {size(len(form.encode('utf-8', 'surrogatepass')))}"
    kind = _type(form)
    noun = "item"
    if kind and "fields" in form:
        noun = "field"
    elif isinstance(_body(form), dict) or _is_pairs(form):
        noun = "key"
    return f"{escape(kind)} {counted(len(_parts(form)), noun)}".strip()
