"""Findings as words for a terminal: the line with carets, what it rests on, what a fix would do."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from firstfault.lint.check import Checked, Repair
from firstfault.lint.excerpt import WIDEST, Sources, excerpt, shown_path, visible
from firstfault.lint.rule import Finding, Related

_BOLD, _DIM, _RED, _YELLOW, _CYAN, _GREEN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[32m"
_RESET = "\x1b[0m"
_STYLE = {"error": _RED, "warning": _YELLOW, "hint": _CYAN}
_WIDE = 120


def to_text(checked: Checked, colour: bool, width: int | None = None) -> str:
    """The findings, and last how many there are. Messages are wrapped where the terminal's width is given."""
    sources = Sources(checked.texts)
    blocks = ["\n".join(_block(each, sources, colour, width)) for each in checked.findings]
    blocks.append("\n".join(_summary(checked, colour)))
    return "\n\n".join(blocks) + "\n"


def _block(finding: Finding, sources: Sources, colour: bool, width: int | None) -> Iterator[str]:
    severity = _painted(finding.severity, _BOLD + _STYLE[finding.severity], colour)
    name = _painted(finding.code, _BOLD, colour) + (f" {finding.name}" if finding.code != finding.name else "")
    yield f"{_painted(_place(finding), _BOLD, colour)}: {severity} {name}"
    yield from _wrapped(visible(finding.message), width)
    gutter = max(len(str(each)) for each in (finding.span.start.line, *(each.line for each in finding.related)))
    room = WIDEST if width is None else width - gutter - len("   | ") - 2
    yield from _source(finding, sources, colour, gutter, room)
    before = _home(finding, finding.file, finding.cell)
    for related in finding.related:
        home = _home(finding, related.file, related.cell)
        if home != before:
            yield f"  {_painted(home, _DIM, colour)}"
        before = home
        yield from _related(related, sources, colour, gutter, room)
    for fix in finding.fixes:
        is_safe = fix.applicability == "safe"
        word = "fix:" if is_safe else f"{fix.applicability} fix:"
        yield f"  {_painted(word, _GREEN if is_safe else _YELLOW, colour)} {fix.title}"


def _place(finding: Finding) -> str:
    """People count cells from 1, as the editor does."""
    cell = f" cell {finding.cell + 1}," if finding.cell is not None else ""
    line, column = finding.span.start
    return f"{shown_path(finding.file)}:{cell} line {line}" if cell else f"{shown_path(finding.file)}:{line}:{column}"


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [f"  {text}"]
    room = max(min(width, _WIDE), 40) - 2
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return [f"  {line}" for line in lines]


def _source(finding: Finding, sources: Sources, colour: bool, gutter: int, room: int) -> Iterator[str]:
    """The line with carets under what is meant."""
    start, end = finding.span
    text = sources.line(finding.file, finding.cell, start.line)
    if text is None:
        return
    shown, blanks, carets = excerpt(text, start.column, end.column if end.line == start.line else len(text) + 1, room)
    yield _numbered(str(start.line), shown, colour, gutter)
    yield _numbered("", f"{blanks}{_painted(carets, _BOLD + _STYLE[finding.severity], colour)}", colour, gutter)


def _related(related: Related, sources: Sources, colour: bool, gutter: int, room: int) -> Iterator[str]:
    """What a finding rests on: the line, and below it what it is there."""
    text = sources.line(related.file, related.cell, related.line)
    if text is not None:
        shown, blanks, _ = excerpt(text, len(text) - len(text.lstrip()) + 1, 0, room)
        yield _numbered(str(related.line), shown, colour, gutter)
    else:
        blanks = ""
    yield _numbered("", _painted(f"{blanks}- {visible(related.message)}", _DIM, colour), colour, gutter)


def _home(finding: Finding, file: str, cell: int | None) -> str:
    """The file or the cell that a line stands in, where it need be said."""
    where = "" if file == finding.file else f"{shown_path(file)}:"
    return f"{where} cell {cell + 1}:".lstrip() if cell is not None else where or f"{shown_path(file)}:"


def _numbered(number: str, text: str, colour: bool, gutter: int) -> str:
    return f"  {_painted(f'{number:>{gutter}} |', _DIM, colour)} {text}".rstrip()


def _summary(checked: Checked, colour: bool) -> Iterator[str]:
    repaired = [each for repair in checked.repairs for each in repair.fixed.fixed]
    if repaired:
        yield _painted(f"Fixed {_counted_codes(repaired)} in {_files(len(checked.repairs))}.", _GREEN, colour)
    if not checked.findings:
        yield "Nothing is left." if repaired else f"No findings in {_files(checked.files)}."
        return
    yield _painted(f"{_counts(checked.findings)} in {_of(checked)}.", _BOLD, colour)
    yield from _hints(checked.findings, checked.repairs, colour)


def _counts(findings: Iterable[Finding]) -> str:
    counts = Counter[str](each.severity for each in findings)
    return ", ".join(f"{counts[each]} {each}{'s' if counts[each] > 1 else ''}" for each in _STYLE if counts[each])


def _of(checked: Checked) -> str:
    files = len({each.file for each in checked.findings})
    return f"{f'{files} of ' if checked.files > files else ''}{_files(max(files, checked.files))}"


def _hints(findings: Sequence[Finding], repairs: Sequence[Repair], colour: bool) -> Iterator[str]:
    """What can be done next, each said once."""
    safe = sum(any(fix.applicability == "safe" for fix in each.fixes) for each in findings)
    other = sum(bool(each.fixes) for each in findings) - safe
    if not repairs and safe:
        them = "it" if safe == 1 else "them"
        yield f"{_having(safe, 'a safe fix')}: --fix applies {them}, --diff shows what would change."
    if other:
        them = "it" if other == 1 else "them"
        yield f"{_having(other, 'an unsafe or partial fix')}: --unsafe-fixes adds {them} to --fix and --diff."
    codes = sorted({each.code for each in findings if each.url})
    if codes:
        more = f" (or {', '.join(codes[1:])})" if codes[1:] else ""
        yield _painted(f"Why it matters: firstfault explain {codes[0]}{more}", _DIM, colour)


def _having(count: int, what: str) -> str:
    return f"{count} {'has' if count == 1 else 'have'} {what}"


def _counted_codes(findings: Iterable[Finding]) -> str:
    counts = Counter(each.code for each in findings)
    return ", ".join(f"{code}{f' {count} times' if count > 1 else ''}" for code, count in sorted(counts.items()))


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _painted(text: str, style: str, colour: bool) -> str:
    return f"{style}{text}{_RESET}" if colour else text
