"""The file of a notebook as a text: where each cell's source stands in it, and how one is replaced.

Nothing else of the file changes: not the indentation, the order of the keys, the outputs, or a number's digits. Lines
of a source that stay the same keep the very letters (escapes included) that they had.
"""

import json
import re
from collections.abc import Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Source(NamedTuple):
    """The value of a cell's ``source``: a string, or a list of strings that are joined."""

    start: int
    end: int
    lines: tuple[tuple[int, int, str], ...]  # offsets of each string, and what it says
    is_list: bool

    @property
    def text(self) -> str:
        return "".join(each for _, _, each in self.lines)


def sources(text: str) -> list[Source | None]:
    """The source of every cell, None for a cell without one. Raises ValueError where the text is no notebook."""
    found: list[Source | None] = []
    for key, at in _members(text, _blank(text, text.startswith("\ufeff"))):
        if key == "cells":
            found = [_source_of(text, each) for each in _items(text, at)]
    return found


def replaced(text: str, new: Mapping[int, str]) -> str:
    """The file's text after some cells, by index, have got another source."""
    known = sources(text)
    parts, at = [], 0
    for index in sorted(new):
        source = known[index]
        if source is None:
            raise ValueError(f"cell {index} has no source")
        parts += [text[at : source.start], _printed(text, source, new[index])]
        at = source.end
    return "".join([*parts, text[at:]])


def line_of(text: str, source: Source, line: int) -> int:
    """The line of the file where a line of a cell stands; where the whole source is one string, that line."""
    said, offset = 1, source.start
    for start, _, content in source.lines:
        offset = start
        said += len(re.findall(r"\r\n|\n|\r", content))
        if said > line or (said == line and not content.endswith(("\n", "\r"))):
            break
    return text.count("\n", 0, offset) + 1


def _printed(text: str, source: Source, new: str) -> str:
    plain = text[source.start : source.end].isascii() and not text.isascii()
    escaped = text.isascii() or (plain and "\\u" in text[source.start : source.end])
    as_they_were = {content: text[start:end] for start, end, content in source.lines}
    if not source.is_list:
        return json.dumps(new, ensure_ascii=escaped)
    lines = [each for each in re.split(r"(?<=\n)", new) if each]
    literals = [as_they_were.get(each) or json.dumps(each, ensure_ascii=escaped) for each in lines]
    before, between, after = _spacing(text, source)
    return f"[{before}{between.join(literals)}{after}]" if literals else "[]"


def _spacing(text: str, source: Source) -> tuple[str, str, str]:
    """What stands before, between and after the strings of a list."""
    if not source.lines:
        return "", ", ", ""
    before = text[source.start + 1 : source.lines[0][0]]
    after = text[source.lines[-1][1] : source.end - 1]
    if len(source.lines) > 1:
        return before, text[source.lines[0][1] : source.lines[1][0]], after
    return before, f",{before}" if before else ", ", after


def _source_of(text: str, at: int) -> Source | None:
    found = None
    for key, value in _members(text, at):
        if key == "source":
            found = _read(text, value)
    return found


def _read(text: str, at: int) -> Source:
    if text[at] == '"':
        content, end = scanstring(text, at + 1)
        return Source(at, end, ((at, end, content),), False)
    _, end = _DECODER.raw_decode(text, at)
    lines = []
    for each in _items(text, at):
        if text[each] != '"':
            raise ValueError("a source holds something else than text")
        content, stop = scanstring(text, each + 1)
        lines.append((each, stop, content))
    return Source(at, end, tuple(lines), True)


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The keys of an object with the offsets of their values."""
    if text[at : at + 1] != "{":
        raise ValueError("there should be an object")
    at = _blank(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = scanstring(text, at + 1)
        value = _blank(text, _blank(text, at) + 1)  # behind the colon
        yield key, value
        at = _after(text, value)


def _items(text: str, at: int) -> Iterator[int]:
    if text[at : at + 1] != "[":
        raise ValueError("there should be a list")
    at = _blank(text, at + 1)
    while text[at : at + 1] != "]":
        yield at
        at = _after(text, at)


def _after(text: str, at: int) -> int:
    """The next member or item, or the closing bracket."""
    _, at = _DECODER.raw_decode(text, at)
    at = _blank(text, at)
    return _blank(text, at + 1) if text[at] == "," else at


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
