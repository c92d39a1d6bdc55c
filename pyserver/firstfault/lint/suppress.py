"""Comments that silence findings: ``# firstfault: ignore[GA101]`` on the line, ``# firstfault: ignore-file``."""

import re
from collections.abc import Iterable, Iterator

from firstfault.lint.rule import Finding
from firstfault.lint.script import Script

_MARK = "firstfault:"
_COMMENT = re.compile(r"#\s*firstfault:\s*(ignore-file|ignore)\s*(?:\[([^\]]*)\])?")


def unsuppressed(script: Script, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings that no comment silences. A code or a name may stand in the brackets; no brackets mean all."""
    if _MARK not in script.source:
        yield from findings
        return
    on_lines, everywhere = _comments(script)
    for finding in findings:
        lines = range(finding.span.start.line, finding.span.end.line + 1)
        marks = [*everywhere, *(mark for line in lines for mark in on_lines.get(line, []))]
        if not any(not mark or {finding.code, finding.name} & mark for mark in marks):
            yield finding


def _comments(script: Script) -> tuple[dict[int, list[set[str]]], list[set[str]]]:
    on_lines: dict[int, list[set[str]]] = {}
    everywhere: list[set[str]] = []
    for line in range(1, len(script.table.starts) + 1):
        for match in _COMMENT.finditer(script.line_text(line)):
            codes = {each.strip() for each in (match[2] or "").split(",") if each.strip()}
            (everywhere if match[1] == "ignore-file" else on_lines.setdefault(line, [])).append(codes)
    return on_lines, everywhere
