"""Where a finding stands in its file: for a notebook a line of the JSON, which is all that other tools can show."""

from functools import lru_cache

from firstfault.lint.notebook_file import Source, line_of, sources
from firstfault.lint.rule import Finding
from firstfault.lint.source import Unreadable, read_source
from firstfault.text import Position, Span


def raw_span(finding: Finding) -> Span:
    """The span in the file. In a notebook only its lines mean something."""
    if finding.cell is None:
        return finding.span
    first, last = (raw_line(finding.file, finding.cell, each.line) for each in finding.span)
    return Span(Position(first, 1), Position(max(first, last), 1))


def raw_line(path: str, cell: int | None, line: int) -> int:
    if cell is None:
        return line
    text, found = _notebook(path)
    source = found[cell] if cell < len(found) else None
    return line_of(text, source, line) if source is not None else 1


@lru_cache(maxsize=4)
def _notebook(path: str) -> tuple[str, list[Source | None]]:
    try:
        text = read_source(path)
        return text, sources(text)
    except (Unreadable, ValueError):  # it is gone by now, or came from standard input
        return "", []
