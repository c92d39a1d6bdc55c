"""Lines of a source as a terminal shows them: with their numbers, and carets under what is meant."""

import os
import unicodedata
from collections.abc import Iterator, Mapping

from firstfault.lint.notebook import LINE_END
from firstfault.lint.notebook_file import sources
from firstfault.lint.source import Unreadable, read_source

WIDEST = 140  # characters of a source line; of a longer one the part around the carets is shown
_NARROWEST = 40
_TAIL = 10  # what is shown behind the carets


class Sources:
    """The lines of scripts, and of each cell of notebooks; empty where a file is gone or came from elsewhere."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._known: dict[str, list[list[str]]] = {}

    def line(self, path: str, cell: int | None, line: int) -> str | None:
        if path not in self._known:
            self._known[path] = _lines(self._texts.get(path), path)
        cells, index = self._known[path], cell or 0
        return cells[index][line - 1] if index < len(cells) and line <= len(cells[index]) else None


def excerpt(text: str, start: int, end: int, room: int = WIDEST) -> tuple[str, str, str]:
    """The line as it is shown, the blanks before the carets, and the carets; columns count from 1."""
    room = max(min(room, WIDEST), _NARROWEST)
    end = max(min(end, len(text) + 1), start + 1)
    first = _first_shown(text, start, end, room)
    shown = text[first : first + room]
    before, cut = ("…" if first else ""), ("…" if first + room < len(text) else "")
    margin = before + text[first : start - 1]
    meant = text[start - 1 : min(end - 1, first + room)]
    blanks = "".join("\t" if each == "\t" else " " * _width(each) for each in margin)
    return visible(before + shown + cut), blanks, "^" * max(sum(map(_width, meant)), 1)


def _first_shown(text: str, start: int, end: int, room: int) -> int:
    """Where a line that is too long begins: at its own beginning while the carets still fit, else as near to it."""
    if len(text) <= room or end - 1 <= room:
        return 0
    return max(min(end - 1 - room + _TAIL, start - 1 - room // 3), 0)


def visible(text: str) -> str:
    """Escapes in a script or in a file's name must not act on the terminal of the reader."""
    return "".join(each if each.isprintable() or each == "\t" else "\ufffd" for each in text)


def shown_path(path: str) -> str:
    """Short where it lies below the current folder."""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return visible(path)
    return visible(path if short.startswith("..") else short)


def _width(character: str) -> int:
    """The columns that a terminal gives to a character."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _lines(text: str | None, path: str) -> list[list[str]]:
    try:
        source = read_source(path) if text is None else text
        return list(_cells(source)) if path.endswith(".ipynb") else [LINE_END.split(source)]
    except (Unreadable, ValueError):
        return []


def _cells(source: str) -> Iterator[list[str]]:
    for each in sources(source):
        yield LINE_END.split(each.text) if each is not None else []
