"""Findings as words for a terminal: file by file, the line with carets, what a fix would do, where to read more."""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby

from firstfault.lint.notebook import LINE_END, Notebook
from firstfault.lint.rule import Finding
from firstfault.lint.source import Unreadable, read_source

_BOLD, _DIM, _RED, _YELLOW, _CYAN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
_RESET = "\x1b[0m"
_STYLE = {"error": _RED, "warning": _YELLOW, "hint": _CYAN}
_WIDEST = 160  # characters of a source line; nobody reads on


def to_text(findings: Iterable[Finding], colour: bool, files: int = 0) -> str:
    """The findings of all files and, last, how many there are, in how many of the ``files`` that were checked."""
    findings = list(findings)
    blocks: list[str] = []
    for path, group in groupby(findings, key=lambda each: each.file):
        lines = _source_lines(path)
        blocks += ["\n".join(_block(finding, lines, colour)) for finding in group]
    blocks.append(_summary(findings, files))
    return "\n\n".join(blocks) + "\n"


def _block(finding: Finding, lines: list[list[str]], colour: bool) -> Iterator[str]:
    place = f"{_shown_path(finding.file)}:{finding.span.start.line}:{finding.span.start.column}"
    cell = f" (cell {finding.cell})" if finding.cell is not None else ""
    name = f"{finding.code} {finding.name}" if finding.code != finding.name else finding.name
    severity = _painted(finding.severity, _STYLE[finding.severity], colour)
    yield f"{_painted(place + cell, _BOLD, colour)}: {severity} {name}"
    yield f"  {_visible(finding.message)}"
    yield from _source(finding, lines, colour)
    for related in finding.related:
        yield _painted(f"  {_shown_path(related.file)}:{related.line}: {related.message}", _DIM, colour)
    for fix in finding.fixes:
        note = "" if fix.applicability == "safe" else f" ({fix.applicability})"
        yield f"  Fix{note}: {fix.title}"
    if finding.url:
        yield _painted(f"  {finding.url}", _DIM, colour)


def _source(finding: Finding, lines: list[list[str]], colour: bool) -> Iterator[str]:
    """The line with carets under what is meant."""
    cell = finding.cell or 0
    start, end = finding.span
    if cell >= len(lines) or start.line > len(lines[cell]):
        return
    text = lines[cell][start.line - 1]
    if len(text) > _WIDEST:
        return
    last = end.column if end.line == start.line else len(text) + 1
    width = max(last - start.column, 1)
    margin = "".join(each if each == "\t" else " " for each in text[: start.column - 1])
    number = str(start.line)
    yield f"  {number} | {_visible(text)}"
    yield f"  {' ' * len(number)} | {margin}{_painted('^' * width, _STYLE[finding.severity], colour)}"


def _source_lines(path: str) -> list[list[str]]:
    """The lines of a script, or of each cell of a notebook; empty where the file is gone or came from elsewhere."""
    try:
        source = read_source(path)
    except Unreadable:
        return []
    if not path.endswith(".ipynb"):
        return [LINE_END.split(source)]
    notebook = Notebook.read(source)
    if notebook is None:
        return []
    lines = notebook.text.split("\n")
    found: list[list[str]] = [[] for _ in range(max(notebook.cells, default=-1) + 1)]
    for cell, first, stop in zip(
        notebook.cells, notebook.first_lines, [*notebook.first_lines[1:], len(lines) + 1], strict=True
    ):
        found[cell] = lines[first - 1 : stop - 1]
    return found


def _summary(findings: list[Finding], checked: int) -> str:
    if not findings:
        return f"No findings in {_files(checked)}." if checked else "No findings."
    counts = [(each, sum(finding.severity == each for finding in findings)) for each in _STYLE]
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts if count]
    files = len({each.file for each in findings})
    return f"{', '.join(parts)} in {f'{files} of ' if checked > files else ''}{_files(max(files, checked))}."


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _shown_path(path: str) -> str:
    """Short where it lies below the current folder."""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return _visible(path)
    return _visible(path if short.startswith("..") else short)


def _visible(text: str) -> str:
    """Escapes in a script or in a file's name must not act on the terminal of the reader."""
    return "".join(each if each.isprintable() or each == "\t" else "\ufffd" for each in text)


def _painted(text: str, style: str, colour: bool) -> str:
    return f"{style}{text}{_RESET}" if colour else text
