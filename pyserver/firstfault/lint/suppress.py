"""Comments that silence findings, and the hint about those that silence nothing.

``# firstfault: ignore[GA101]`` at the end of a line silences that line; on a line of its own the whole statement that
follows, a loop for instance; ``# firstfault: ignore-file[GA101]`` the file. ``# noqa: GA101`` and a bare ``# noqa``
count for their line, as they do for other linters.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstfault.lint.comments import Code, Mark, marks
from firstfault.lint.config import UNUSED_IGNORE, Config, is_known, near_rule
from firstfault.lint.rule import Finding, Fix
from firstfault.lint.script import Script, per_script
from firstfault.text import Edit, Span

_OWN = "firstfault:"


class _Reach(NamedTuple):
    """A mark with the lines that it speaks of."""

    mark: Mark
    first: int
    last: int


def unsuppressed(script: Script, findings: Iterable[Finding], config: Config) -> list[Finding]:
    """The findings that no comment silences, and hints about comments that silence nothing."""
    findings = list(findings)
    text = script.source.lower()
    if not (_OWN in text or (findings and "noqa" in text)):
        return findings
    reaches = [_reach(script, mark) for mark in marks(script)]
    used: set[tuple[int, str]] = set()
    kept = [each for each in findings if not _silenced(each, reaches, used)]
    if script.problem is None and config.allows(UNUSED_IGNORE, UNUSED_IGNORE):
        kept += _unused(script, reaches, used, config)
    return kept


def _reach(script: Script, mark: Mark) -> _Reach:
    if mark.kind == "ignore-file":
        return _Reach(mark, 1, len(script.table.starts))
    if mark.kind == "noqa" or not mark.alone:
        return _Reach(mark, mark.line, mark.line)
    statement = _statement_below(script, mark.line)
    return _Reach(mark, mark.line, (statement.end_lineno or mark.line) if statement else mark.line + 1)


def _statement_below(script: Script, line: int) -> ast.stmt | None:
    """The outermost statement that begins in the next line which is neither blank nor a comment."""
    below = line + 1
    while below < len(script.table.starts) and _is_idle(script.line_text(below)):
        below += 1
    return _statements(script).get(below)


@per_script
def _statements(script: Script) -> dict[int, ast.stmt]:
    """The outermost statement that begins in a line."""
    found: dict[int, ast.stmt] = {}
    for each in script.walk(script.tree):
        if isinstance(each, ast.stmt):
            found.setdefault(_first_line(each), each)
    return found


def _is_idle(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min(statement.lineno, *(each.lineno for each in decorators)) if decorators else statement.lineno


def _silenced(finding: Finding, reaches: Iterable[_Reach], used: set[tuple[int, str]]) -> bool:
    """Every mark that speaks of the finding counts as used, not the first one alone."""
    found = False
    for mark, first, last in reaches:
        inside = mark.kind == "ignore-file" or (finding.span.start.line <= last and first <= finding.span.end.line)
        names = {finding.code.lower(), finding.name}
        for code in mark.codes or (Code("", mark.start, mark.end),):
            if inside and (not mark.codes or code.text.lower() in names):
                used.add((code.start, code.text))
                found = True
    return found


def _unused(script: Script, reaches: Iterable[_Reach], used: set[tuple[int, str]], config: Config) -> Iterator[Finding]:
    for mark, _, _ in reaches:
        if not mark.codes and mark.kind != "noqa" and (mark.start, "") not in used and config.select is None:
            yield _hint(script, mark, (), f"Nothing is found here that this `{mark.kind}` could silence.")
        idle = tuple(
            code for code in mark.codes if (code.start, code.text) not in used and _is_ours(mark, code, config)
        )
        if idle:
            yield _hint(script, mark, idle, " ".join(_reason(code) for code in idle))


def _is_ours(mark: Mark, code: Code, config: Config) -> bool:
    """Codes of other linters stand in a ``noqa`` too; and a rule that is switched off may be switched on again."""
    name = code.text.lower()
    if not is_known(name):
        return mark.kind != "noqa"
    from firstfault.lint.rule import all_rules

    return any(config.allows(each.code, each.name) for each in all_rules() if name in (each.code.lower(), each.name))


def _reason(code: Code) -> str:
    if is_known(code.text.lower()):
        return f"{code.text} is not found here; there is nothing to ignore."
    return f"There is no rule {code.text}.{near_rule(code.text)}"


def _hint(script: Script, mark: Mark, idle: tuple[Code, ...], message: str) -> Finding:
    start, end = (idle[0].start, idle[-1].end) if idle else (mark.start, mark.end)
    span = Span(script.table.position(start), script.table.position(end))
    what = "this comment" if len(idle) == len(mark.codes) else ", ".join(code.text for code in idle)
    fix = Fix(f"Remove {what}", "safe", (_removal(script, mark, idle),))
    return Finding(UNUSED_IGNORE, UNUSED_IGNORE, script.path, span, "hint", message, "", fixes=(fix,))


def _removal(script: Script, mark: Mark, idle: tuple[Code, ...]) -> Edit:
    if len(idle) == len(mark.codes):
        start, end = _whole_mark(script, mark)
        return Edit(_span(script, start, end), "")
    kept = [code.text for code in mark.codes if code not in idle]
    return Edit(_span(script, mark.codes[0].start, mark.codes[-1].end), ", ".join(kept))


def _whole_mark(script: Script, mark: Mark) -> tuple[int, int]:
    """The mark with the blanks before it and the reason behind it; the whole line where nothing else is on it."""
    source, starts = script.source, script.table.starts
    line_start = starts[mark.line - 1]
    line_end = line_start + len(script.line_text(mark.line))
    other = source.find("#", mark.end, line_end)
    end = other if other >= 0 else line_end
    before = source[line_start : mark.start]
    if other >= 0:
        return mark.start, end
    if before.lstrip("\ufeff").strip():
        return line_start + len(before.rstrip()), end
    first = line_start + before.startswith("\ufeff")
    return first, starts[mark.line] if mark.line < len(starts) else end


def _span(script: Script, start: int, end: int) -> Span:
    return Span(script.table.position(start), script.table.position(end))
