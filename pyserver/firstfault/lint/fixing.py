"""Repairs a text: the fixes of its findings are applied one by one, each against the text as it then is.

A fix is kept only where the finding goes and nothing else comes: the text still parses, and it has fewer findings than
before. What is left over is told as it is; a second run changes nothing.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from firstfault.lint import notebook_file as files
from firstfault.lint.notebook import Notebook
from firstfault.lint.parse import syntax_error
from firstfault.lint.rule import Applicability, Finding, Fix
from firstfault.text import Edit, apply_edits

Lint = Callable[[str], "list[Finding] | None"]
SAFE: frozenset[Applicability] = frozenset(("safe",))
EVERY: frozenset[Applicability] = frozenset(("safe", "unsafe", "partial"))
_ORDER: tuple[Applicability, ...] = ("safe", "unsafe", "partial")
_MOST = 200  # fixes of one text; more is a circle that nobody foresaw


class Fixed(NamedTuple):
    text: str
    fixed: tuple[Finding, ...]  # what was repaired, in the order of the repairs
    left: tuple[Finding, ...]


def fixed(source: str, path: str, lint: Lint, allowed: frozenset[Applicability], cell: int | None = None) -> Fixed:
    """The text after all fixes that are allowed, of one cell alone where one is named."""
    done: list[Finding] = []
    found = lint(source) or []
    while len(done) < _MOST:
        step = next(_repairs(source, path, lint, found, allowed, cell), None)
        if step is None:
            break
        finding, source, found = step
        done.append(finding)
    return Fixed(source, tuple(done), tuple(found))


def applied(source: str, fix: Fix, cell: int | None) -> str | None:
    """The text after one fix, with the line ends that it has; None where the edits do not fit it."""
    try:
        if cell is None:
            return apply_edits(source, _with_line_ends(fix.edits, source))
        old = files.sources(source)[cell]
        text = old.text if old else ""
        return files.replaced(source, {cell: apply_edits(text, _with_line_ends(fix.edits, text))})
    except (ValueError, IndexError):
        return None


def _repairs(
    source: str, path: str, lint: Lint, found: list[Finding], allowed: frozenset[Applicability], cell: int | None
) -> Iterator[tuple[Finding, str, list[Finding]]]:
    """Each repair that holds: the finding, the text after it, and what is found there."""
    for finding, fix in _candidates(found, allowed):
        text = applied(source, fix, finding.cell) if cell in (None, finding.cell) else None
        if text is None or text == source or (_is_broken(text, path) and not _is_broken(source, path)):
            continue
        left = lint(text)
        if left is not None and len(left) < len(found) and _count(left, finding) < _count(found, finding):
            yield finding, text, left


def _candidates(found: list[Finding], allowed: frozenset[Applicability]) -> Iterator[tuple[Finding, Fix]]:
    for finding in found:
        for applicability in _ORDER:
            yield from ((finding, fix) for fix in finding.fixes if fix.applicability == applicability in allowed)


def _count(found: list[Finding], finding: Finding) -> int:
    return sum(each.code == finding.code for each in found)


def _is_broken(text: str, path: str) -> bool:
    notebook = Notebook.read(text) if path.endswith(".ipynb") else None
    return syntax_error(notebook.text if notebook else text.removeprefix("\ufeff")) is not None


def _with_line_ends(edits: tuple[Edit, ...], source: str) -> list[Edit]:
    """Rules write ``\\n``; a text with other line ends keeps them."""
    ends = re.findall(r"\r\n|\n|\r", source[: 1 << 16])
    end = max(("\n", "\r\n", "\r"), key=ends.count)
    return [Edit(edit.span, re.sub(r"\r\n|\n|\r", end, edit.text)) for edit in edits]
