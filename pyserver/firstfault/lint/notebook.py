"""A notebook's code cells as one text, and the way back from its lines to cell and line."""

import json
import re
from bisect import bisect_right
from typing import NamedTuple

from firstfault.text import Position

_MAGIC = re.compile(r"^(\s*)(?:%{1,2}[A-Za-z]|[!?]|\w[\w, ]*=\s*(?:%[A-Za-z]|!))")
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun)\b")
LINE_END = re.compile(r"\r\n|\n|\r")


class Notebook(NamedTuple):
    text: str
    first_lines: tuple[int, ...]  # of each code cell within ``text``
    cells: tuple[int, ...]  # the index of each code cell among all cells

    @classmethod
    def read(cls, source: str) -> "Notebook | None":
        """The code of a notebook, or None where the text is not one."""
        try:
            cells = json.loads(source.removeprefix("\ufeff"))["cells"]
            codes = [(i, _code(cell)) for i, cell in enumerate(cells) if cell.get("cell_type") == "code"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        first_lines, lines = [], list[str]()
        for _, code in codes:
            first_lines.append(len(lines) + 1)
            lines += code
        return cls("\n".join(lines), tuple(first_lines), tuple(i for i, _ in codes))

    def place(self, line: int) -> tuple[int, int]:
        """The cell's index among all cells, and the line within it."""
        at = max(bisect_right(self.first_lines, line) - 1, 0)
        return self.cells[at], line - self.first_lines[at] + 1

    def position(self, position: Position) -> tuple[int, Position]:
        cell, line = self.place(position.line)
        return cell, Position(line, position.column)


def _code(cell: dict[str, object]) -> list[str]:
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    lines = LINE_END.split(text)
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not _PYTHON_CELL.match(first):
        return [""] * len(lines)  # another language
    return _without_magic(lines)


def _without_magic(lines: list[str]) -> list[str]:
    """Each magic or shell command becomes ``pass``, the lines that it goes on over become empty."""
    found, goes_on = [], False
    for line in lines:
        magic = None if goes_on else _MAGIC.match(line)
        found.append("" if goes_on else f"{magic[1]}pass" if magic else line)
        goes_on = (goes_on or magic is not None) and line.rstrip().endswith("\\")
    return found
