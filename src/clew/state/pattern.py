"""Patterns of a schema, matched in time that grows with the text and never explodes.

The language is JavaScript's without what looks or refers back. A pattern becomes a small program whose alternatives are
followed side by side, so nothing is ever tried twice. What looks ahead is a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from clew.errors import BadInput

MAX_PROGRAM = 2000
MAX_WORK = 5_000_000
_MOST = 0x10FFFF
_DIGIT = ((0x30, 0x39),)
_WORD = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = ((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
          (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))  # fmt: skip
_LINE_END = ((10, 10), (13, 13), (0x2028, 0x2029))
_NAMED = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_ANCHORS = {"b": "word", "B": "inside", "A": "start", "Z": "end", "z": "end"}

Ranges = tuple[tuple[int, int], ...]


class _Step(NamedTuple):
    """One instruction: take a character of `ranges`, or go on at `to` (at all of them) if `anchor` holds here.

    The anchor "ahead" holds where `ahead` fits, "not ahead" where it does not.
    """

    ranges: Ranges | None = None
    to: tuple[int, ...] = ()
    anchor: str | None = None
    ahead: Pattern | None = None


_Program = list[_Step]


class Pattern:
    """A compiled pattern. `found_in` looks for it anywhere in a text, as JSON Schema does."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self._end = len(program)

    def fits(self, text: str) -> bool:
        """Whether a text is short enough to be searched in bounded time."""
        return self._work(len(text) + 1) <= MAX_WORK

    def _work(self, length: int) -> int:
        ahead = sum(step.ahead._work(length) for step in self._program if step.ahead is not None)
        return length * (len(self._program) + 1 + ahead)

    def found_in(self, text: str, start: int = 0, *, here_only: bool = False) -> bool:
        active: set[int] = {0}
        for place in range(start, len(text) + 1):
            here = self._follow(active if here_only else {0, *active}, text, place)
            if self._end in here:
                return True
            if not here:
                return False
            if place < len(text):
                code = ord(text[place])
                active = {at + 1 for at in here if _takes(self._program[at].ranges, code)}
        return False

    def _follow(self, starts: set[int], text: str, place: int) -> set[int]:
        """All instructions that can be reached from these without taking a character."""
        seen: set[int] = set()
        work = list(starts)
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            if at == self._end:
                continue
            step = self._program[at]
            if step.ranges is None and (step.anchor is None or _holds(step, text, place)):
                work += step.to
        return seen


def _takes(ranges: Ranges | None, code: int) -> bool:
    return ranges is not None and any(low <= code <= high for low, high in ranges)


def _holds(step: _Step, text: str, place: int) -> bool:
    anchor = step.anchor
    if step.ahead is not None:
        return step.ahead.found_in(text, place, here_only=True) == (anchor == "ahead")
    if anchor == "start":
        return place == 0
    if anchor == "end":
        return place == len(text)
    before = place > 0 and _takes(_WORD, ord(text[place - 1]))
    after = place < len(text) and _takes(_WORD, ord(text[place]))
    return (before != after) == (anchor == "word")


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Read a pattern; `BadInput` for what it does not know."""
    reader = _Reader(text)
    program = reader.alternatives()
    if reader.peek():
        raise reader.error("an unbalanced )")
    return Pattern(program)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def next(self, within: str) -> str:
        found = self.peek()
        if not found:
            raise self.error(f"an end within {within}")
        self._at += 1
        return found

    def error(self, what: str) -> BadInput:
        return BadInput(
            f"the pattern {self._text!r:.80} has {what} at {self._at}",
            hint="patterns have characters, classes, groups, | ^ $ * + ? and {m,n}",
        )

    def alternatives(self, depth: int = 0) -> _Program:
        if depth > 50:
            raise self.error("too many groups in each other")
        program = self._sequence(depth)
        while self.take("|"):
            other = self._sequence(depth)
            # either: first, then jump over the other one
            program = [_Step(to=(1, len(program) + 2)), *_moved(program, 1)]
            program.append(_Step(to=(len(program) + 1 + len(other),)))
            program = self._small(_joined(program, other))
        return program

    def _sequence(self, depth: int) -> _Program:
        program: _Program = []
        while self.peek() not in ("", "|", ")"):
            program = self._small(_joined(program, self._repeated(self._atom(depth))))
        return program

    def _small(self, program: _Program) -> _Program:
        if len(program) > MAX_PROGRAM:
            raise self.error("too many parts and repetitions")
        return program

    def _atom(self, depth: int) -> _Program:
        one = self.next("a pattern")
        if one == "(":
            return self._group(depth)
        if one in "^$":
            return [_Step(to=(1,), anchor="start" if one == "^" else "end")]
        if one == "[":
            return [_Step(self._class())]
        if one == ".":
            return [_Step(_without(_LINE_END))]
        if one == "\\":
            anchor = _ANCHORS.get(self.peek())
            if anchor is not None:
                self._at += 1
                return [_Step(to=(1,), anchor=anchor)]
            return [_Step(self._escape())]
        if one in "*+?":
            raise self.error("nothing to repeat")
        return [_Step(((ord(one), ord(one)),))]

    def _group(self, depth: int) -> _Program:
        ahead = None
        if self.take("?") and not self.take(":"):
            ahead = "ahead" if self.take("=") else "not ahead" if self.take("!") else None
            named = ahead is None and (self.take("P<") or self.take("<")) and self.peek() not in ("=", "!")
            if ahead is None and not named:
                raise self.error("a group that looks or refers back")
            while named and self.next("a group's name") != ">":
                pass
        inner = self.alternatives(depth + 1)
        if not self.take(")"):
            raise self.error("an open group")
        return inner if ahead is None else [_Step(to=(1,), anchor=ahead, ahead=Pattern(inner))]

    def _escape(self) -> Ranges:
        one = self.next("an escape")
        if one.lower() in _NAMED:
            ranges = _NAMED[one.lower()]
            return ranges if one.islower() else _without(ranges)
        if one in _CONTROL and not (one == "0" and self.peek().isdigit()):
            code = _CONTROL[one]
        elif one in "xu":
            code = self._hexadecimal(2 if one == "x" else 4)
        elif one.isalnum():
            raise self.error(f"an escape \\{one} that is not known")
        else:
            code = ord(one)
        return ((code, code),)

    def _hexadecimal(self, length: int) -> int:
        if length == 4 and self.take("{"):
            digits = ""
            while (one := self.next("an escape")) != "}":
                digits += one
        else:
            digits = "".join(self.next("an escape") for _ in range(length))
        if not 0 < len(digits) < 7 or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > _MOST:
            raise self.error(f"{digits!r:.10}, which is no hexadecimal number of a character,")
        return int(digits, 16)

    def _class(self) -> Ranges:
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self._member()
            if self.peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or low[0][0] > high[0][1]:
                    raise self.error("a range that is out of order")
                low = ((low[0][0], high[0][1]),)
            ranges += low
        return _without(ranges) if negated else tuple(ranges)

    def _member(self) -> Ranges:
        one = self.next("a class")
        if one != "\\":
            return ((ord(one), ord(one)),)
        return ((8, 8),) if self.take("b") else self._escape()

    def _repeated(self, atom: _Program) -> _Program:
        bounds = self._bounds()
        if bounds is None:
            return atom
        least, most = bounds
        self.take("?")  # lazy or not: the same texts
        if self.peek() and self.peek() in "*+?":
            raise self.error("a repetition of a repetition")
        if max(least, most or 0) * max(len(atom), 1) > MAX_PROGRAM:
            raise self.error("too many parts and repetitions")
        program: _Program = []
        for _ in range(least):
            program = _joined(program, atom)
        if most is None:
            loop = [_Step(to=(1, len(atom) + 2)), *_moved(atom, 1)]
            return _joined(program, [*loop, _Step(to=(0,))])
        for _ in range(most - least):
            program = _joined(program, [_Step(to=(1, len(atom) + 1)), *_moved(atom, 1)])
        return program

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        if self.peek() != "{":
            return None
        self._at += 1
        text = ""
        while (one := self.next("a repetition")) != "}":
            text += one
        least, comma, most = text.partition(",")
        numbers = [part for part in (least, most) if part]
        if not least or len(text) > 12 or not all(part.isascii() and part.isdigit() for part in numbers):
            raise self.error(f"a repetition {{{text:.12}}} that is not {{m}}, {{m,}} or {{m,n}}")
        low = int(least)
        high = low if not comma else int(most) if most else None
        if high is not None and high < low:
            raise self.error("a repetition that is out of order")
        return low, high


def _moved(program: _Program, by: int) -> _Program:
    return [step._replace(to=tuple(to + by for to in step.to)) for step in program]


def _joined(first: _Program, second: _Program) -> _Program:
    return [*first, *_moved(second, len(first))]


def _without(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Every character that is in none of these."""
    left: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            left.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _MOST:
        left.append((start, _MOST))
    return tuple(left)
