"""Words that all packages share: a position, a span, an edit, and how edits are applied.

Lines and columns count from 1, columns in characters (not bytes, not UTF-16 units). A line ends at
``\\n``, ``\\r\\n`` or a lone ``\\r``, as in the editor and in Python's own parser.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\n|\r")


class Position(NamedTuple):
    line: int
    column: int


class Span(NamedTuple):
    start: Position
    end: Position


class Edit(NamedTuple):
    """Replace what stands in ``span`` by ``text``; an empty span inserts."""

    span: Span
    text: str


class LineTable:
    """Offsets of the lines of one text, for turning positions into offsets and back."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def offset(self, position: Position) -> int:
        """The offset of a position; one past the last line is the end of the text.

        Raises ValueError where the position lies outside the text.
        """
        if position == (len(self.starts) + 1, 1):
            return self.length
        if not 1 <= position.line <= len(self.starts):
            raise ValueError(f"line {position.line} of a text of {len(self.starts)} lines")
        offset = self.starts[position.line - 1] + position.column - 1
        end = self.starts[position.line] if position.line < len(self.starts) else self.length
        if position.column < 1 or offset > end:
            raise ValueError(f"column {position.column} lies outside line {position.line}")
        return offset

    def position(self, offset: int) -> Position:
        line = bisect_right(self.starts, offset)
        return Position(line, offset - self.starts[line - 1] + 1)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits, each stated against the text as it was.

    Insertions at one place keep the order in which they were given. Raises ValueError where two edits overlap.
    """
    table = LineTable(text)
    placed = sorted(
        ((table.offset(edit.span.start), table.offset(edit.span.end), edit.text) for edit in edits),
        key=lambda edit: edit[:2],
    )
    parts, at = [], 0
    for start, end, new in placed:
        if start < at or end < start:
            raise ValueError(f"edits overlap at line {table.position(start).line}")
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])
