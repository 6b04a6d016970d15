"""How a changed text is shown: only the places that changed, with a little of what stands around them."""

from __future__ import annotations

import re
from typing import NamedTuple

from clew.state.diff_align import Block, gaps, matches
from clew.state.diff_short import clipped, columns, escaped, quoted, tail, text_size

_HUNKS = 3  # places shown
_HUNK_LINES = 6  # lines shown of each side of a place
_WORDS = 4000  # words of the changed part of a line that are aligned; a longer part is shown as replaced
_CONTEXT = 16  # columns of unchanged text beside a changed word
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(NamedTuple):
    sign: str  # "-" only in the old text, "+" only in the new one, " " in both
    text: str


def changed_text(old: str, new: str, width: int) -> list[str]:
    """The first line says what changed, or where; more lines, each marked `-`, `+` or a space, follow if needed.

    `"Tokyo" → "Osaka"`; `@@ line 12 @@ …we fly to [-Tokyo-]{+Osaka+} on…`; `(2.1 KB → 2.4 KB)` and the places below.
    """
    arrow = f"{quoted(old, width)} → {quoted(new, width)}"
    one_line = "\n" not in old and "\n" not in new
    if columns(arrow) <= width and (one_line or len(old) + len(new) < 80) and "…" not in arrow:
        return [arrow]
    if one_line:
        words = _changed_words(old, new, width)
        return [words or _replaced(old, new, width)]
    hunks = _Lines(old, new)
    if hunks.unrelated:
        return [_replaced(old, new, width)]
    return hunks.shown(width)


def _replaced(old: str, new: str, width: int) -> str:
    half = (width - 3) // 2
    left = quoted(old, half)
    return f"{left} → {quoted(new, width - 3 - columns(left))}"


class _Lines:
    """Two texts of several lines, aligned line by line."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old.split("\n"), new.split("\n")
        self.sizes = f"{text_size(old)} → {text_size(new)}"
        pairs = matches(self.old, self.new)
        whole = Block(0, len(self.old), 0, len(self.new))
        self.hunks = [block for block in gaps(pairs, whole) if _is_change(block)]
        self.unrelated = not any(self.old[i] for i, _ in pairs) and not self._is_one_line(self.hunks[0])

    def shown(self, width: int) -> list[str]:
        if len(self.hunks) == 1 and self._is_one_line(self.hunks[0]):
            return [self._words(self.hunks[0], width)]
        texts = [f"({self.sizes})"]
        for hunk in self.hunks[:_HUNKS]:
            texts += [self._words(hunk, width)] if self._is_one_line(hunk) else self._block(hunk, width)
        if len(self.hunks) > _HUNKS:
            rest = len(self.hunks) - _HUNKS
            texts.append(f"… {rest} more place{'s' if rest > 1 else ''}")
        return texts

    def _is_one_line(self, hunk: Block) -> bool:
        return hunk.old_stop - hunk.old == 1 == hunk.new_stop - hunk.new

    def _words(self, hunk: Block, width: int) -> str:
        place = f"@@ line {hunk.new + 1} @@ "
        old, new = self.old[hunk.old], self.new[hunk.new]
        room = width - len(place)
        return place + (_changed_words(old, new, room) or _replaced(old, new, room))

    def _block(self, hunk: Block, width: int) -> list[str]:
        texts = [f"@@ line {hunk.new + 1} @@"]
        if hunk.new > 0:
            texts.append("  " + _line(self.new[hunk.new - 1], width))
        for sign, lines, start, stop in (
            ("-", self.old, hunk.old, hunk.old_stop),
            ("+", self.new, hunk.new, hunk.new_stop),
        ):
            shown = min(stop, start + _HUNK_LINES)
            texts += [f"{sign} {_line(line, width)}" for line in lines[start:shown]]
            if shown < stop:
                texts.append(f"{sign} … {stop - shown} more line{'s' if stop - shown > 1 else ''}")
        if hunk.new_stop < len(self.new):
            texts.append("  " + _line(self.new[hunk.new_stop], width))
        return texts


def _line(text: str, width: int) -> str:
    return clipped(escaped(text[:width]) + ("…" if len(text) > width else ""), width - 2)


def _changed_words(old: str, new: str, width: int) -> str:
    """One line with the words that went as `[-…-]` and those that came as `{+…+}`; "" if hardly a word is the same."""
    pieces = _pieces(old, new)
    same = sum(len(piece.text) for piece in pieces if piece.sign == " ")
    if same * 4 < min(len(old), len(new)):
        return ""
    first = pieces[0].text if pieces[0].sign == " " else ""
    place = f"@@ char {len(first) + 1} @@ " if len(first) > width else ""
    room = width - len(place)
    limit = max(12, (room - 2 * _CONTEXT - 8) // 2)
    text = ""
    for index, piece in enumerate(pieces):
        shown = _shown_piece(piece, limit, first=index == 0, last=index == len(pieces) - 1)
        if columns(text) + columns(shown) > room:
            return place + clipped(text + shown, room)
        text += shown
    return place + text


def _shown_piece(piece: Piece, limit: int, *, first: bool, last: bool) -> str:
    if piece.sign != " ":
        opening, closing = ("[-", "-]") if piece.sign == "-" else ("{+", "+}")
        return opening + clipped(escaped(piece.text), limit) + closing
    if first:
        return tail(escaped(piece.text), _CONTEXT)
    if last:
        return clipped(escaped(piece.text), _CONTEXT)
    text = escaped(piece.text)
    return text if columns(text) <= 2 * _CONTEXT else clipped(text, _CONTEXT) + tail(text, _CONTEXT)[1:]


def _pieces(old: str, new: str) -> list[Piece]:
    """Both texts as runs of words that stayed, went and came. Nothing but the changed part is split into words."""
    start, old_stop, new_stop = _changed_stretch(old, new)
    old_words = _WORD.findall(old[start:old_stop])
    new_words = _WORD.findall(new[start:new_stop])
    pieces = [Piece(" ", old[:start])] if start else []
    if max(len(old_words), len(new_words)) > _WORDS:
        pieces += [Piece("-", old[start:old_stop]), Piece("+", new[start:new_stop])]
    else:
        pieces += _aligned_words(old_words, new_words)
    if old_stop < len(old):
        pieces.append(Piece(" ", old[old_stop:]))
    return pieces


def _changed_stretch(old: str, new: str) -> tuple[int, int, int]:
    """Where the texts begin to differ, and where each ends to: grown to whole words."""
    least = min(len(old), len(new))
    start = _common_beginning(old, new, least)
    while start > 0 and (_in_word(old, start) or _in_word(new, start)):
        start -= 1
    end = _common_beginning(old[::-1], new[::-1], least - start)
    while end > 0 and (_in_word(old, len(old) - end) or _in_word(new, len(new) - end)):
        end -= 1
    return start, len(old) - end, len(new) - end


def _in_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _common_beginning(old: str, new: str, limit: int) -> int:
    low, high = 0, limit
    while low < high:  # comparing slices is far cheaper than comparing characters one by one
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _aligned_words(old: list[str], new: list[str]) -> list[Piece]:
    pairs = matches(old, new)
    blocks = list(gaps(pairs, Block(0, len(old), 0, len(new))))
    pieces: list[Piece] = []
    gone = came = ""
    for index, block in enumerate(blocks):
        gone += "".join(old[block.old : block.old_stop])
        came += "".join(new[block.new : block.new_stop])
        word = old[pairs[index][0]] if index < len(pairs) else ""
        if word.isspace() and (gone or came) and _is_change(blocks[index + 1]):
            gone, came = gone + word, came + word  # a lone space between two changes would tear them apart
            continue
        _add(pieces, "-", gone)
        _add(pieces, "+", came)
        _add(pieces, " ", word)
        gone = came = ""
    return pieces


def _is_change(block: Block) -> bool:
    return block.old < block.old_stop or block.new < block.new_stop


def _add(pieces: list[Piece], sign: str, text: str) -> None:
    if pieces and pieces[-1].sign == sign == " ":
        pieces[-1] = Piece(" ", pieces[-1].text + text)
    elif text:
        pieces.append(Piece(sign, text))
