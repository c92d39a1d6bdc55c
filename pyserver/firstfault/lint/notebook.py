"""A notebook's code cells as one text, and the way back from its lines to cell and line."""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from firstfault.text import Position

_MAGIC = re.compile(r"^(\s*)(?:%{1,2}[A-Za-z]|[!?]|\w[\w, ]*=\s*(?:%[A-Za-z]|!)|[\w.]+\?{1,2}\s*$)")
# What a shell's command looks like where nothing marks it, and a magic behind a blank: at the line's start alone.
_COMMAND = re.compile(
    r"^()(?:%{1,2} +[A-Za-z]\w*(?: |$)|(?:pip3?|conda) +(?:un)?install |(?:ls|cd|cat|cp|mv|rm|mkdir) +[./~-])"
)
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun)\b")
LINE_END = re.compile(r"\r\n|\n|\r")


class Notebook(NamedTuple):
    text: str
    first_lines: tuple[int, ...]  # of each code cell within ``text``
    cells: tuple[int, ...]  # the index of each code cell among all cells
    magics: dict[int, int]  # lines of ``text`` that stand for another text, with the length of that

    @classmethod
    def read(cls, source: str) -> "Notebook | None":
        """The code of a notebook, or None where the text is not one."""
        try:
            cells = json.loads(source.removeprefix("\ufeff"))["cells"]
            codes = [(i, source_of(cell)) for i, cell in enumerate(cells) if cell.get("cell_type") == "code"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return cls.of(codes)

    @classmethod
    def of(cls, codes: Sequence[tuple[int, str]]) -> "Notebook":
        """From the code cells' texts, each with its index among all cells."""
        first_lines, lines, magics = [], list[str](), dict[int, int]()
        for _, code in codes:
            first_lines.append(len(lines) + 1)
            raw = LINE_END.split(code)
            for plain, masked in zip(raw, _masked(raw), strict=True):
                lines.append(masked)
                if plain != masked:
                    magics[len(lines)] = len(plain)
        return cls("\n".join(lines), tuple(first_lines), tuple(i for i, _ in codes), magics)

    def place(self, line: int) -> tuple[int, int]:
        """The cell's index among all cells, and the line within it."""
        at = max(bisect_right(self.first_lines, line) - 1, 0)
        return self.cells[at], line - self.first_lines[at] + 1

    def position(self, position: Position) -> tuple[int, Position]:
        cell, line = self.place(position.line)
        return cell, Position(line, position.column)


def source_of(cell: dict[str, object]) -> str:
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def masked(text: str) -> str:
    """The text of one cell as Python reads it, line for line."""
    return "\n".join(_masked(LINE_END.split(text)))


def _masked(lines: list[str]) -> list[str]:
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not _PYTHON_CELL.match(first):
        return [""] * len(lines)  # another language
    return _without_magic(lines)


def _without_magic(lines: list[str]) -> list[str]:
    """Each magic or shell command becomes ``pass``, the lines that it goes on over become empty."""
    found, goes_on = list[str](), False
    for line in lines:
        magic = None if goes_on else _MAGIC.match(line) or _COMMAND.match(line)
        margin = magic[1] if magic and any(found) else ""  # Jupyter forgives a cell that begins indented
        found.append("" if goes_on else f"{margin}pass" if magic else line)
        goes_on = (goes_on or magic is not None) and line.rstrip().endswith("\\")
    return found
