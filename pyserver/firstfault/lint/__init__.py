"""The lint: a script's text in, findings out.

``lint(source, path, workspace)`` reads nothing but what the workspace hands it, and runs nothing.
"""

from firstfault.lint.rule import Finding, Fix, Hit, Related, Rule, all_rules
from firstfault.lint.script import Script, read_script
from firstfault.lint.suppress import unsuppressed
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit, Position, Span

__all__ = ["Finding", "Fix", "Hit", "Related", "Rule", "Workspace", "all_rules", "finding_to_json", "lint"]

_WORDS = ("backward", "update_params", "BatchNorm", "GroupNorm", "accumulat", "zero_grad")


def lint(source: str, path: str, workspace: Workspace) -> list[Finding] | None:
    """The findings of a script, sorted by place; None where it does not parse even after repair: unchanged."""
    if not any(word in source for word in _WORDS):
        return []
    script = read_script(source, path)
    if script is None:
        return None
    found = [finding for rule in all_rules() for finding in rule.findings(script, workspace)]
    kept = sorted(unsuppressed(script, found), key=lambda each: (each.span, each.code))
    return [_in_cells(script, finding) for finding in kept] if script.notebook else kept


def finding_to_json(finding: Finding) -> dict[str, object]:
    """A finding as ``check --format json`` prints it."""
    start, end = finding.span
    return {
        "code": finding.code,
        "name": finding.name,
        "file": finding.file,
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
        "severity": finding.severity,
        "cell": finding.cell,
        "state": finding.state,
        "message": finding.message,
        "url": finding.url,
        "related": [each._asdict() for each in finding.related],
        "fixes": [_fix_to_json(finding, fix) for fix in finding.fixes],
    }


def _fix_to_json(finding: Finding, fix: Fix) -> dict[str, object]:
    edits = [
        {
            "file": finding.file,
            "start": {"line": edit.span.start.line, "column": edit.span.start.column},
            "end": {"line": edit.span.end.line, "column": edit.span.end.column},
            "text": edit.text,
        }
        for edit in fix.edits
    ]
    return {"title": fix.title, "applicability": fix.applicability, "edits": edits}


def _in_cells(script: Script, finding: Finding) -> Finding:
    """A notebook's finding with its lines counted within its cell; a fix that touches another cell is left out."""
    assert script.notebook
    cell, start = script.notebook.position(finding.span.start)
    end_cell, end = script.notebook.position(finding.span.end)
    span = Span(start, end if end_cell == cell else Position(start.line, start.column + 1))
    fixes = tuple(fix for each in finding.fixes if (fix := _fix_in_cell(script, each, cell)))
    related = tuple(_related_in_cell(script, each) for each in finding.related)
    return finding._replace(span=span, cell=cell, fixes=fixes, related=related)


def _fix_in_cell(script: Script, fix: Fix, cell: int) -> Fix | None:
    assert script.notebook
    edits = []
    for edit in fix.edits:
        (first, start), (last, end) = (script.notebook.position(each) for each in edit.span)
        if first != cell or last != cell:
            return None
        edits.append(Edit(Span(start, end), edit.text))
    return fix._replace(edits=tuple(edits))


def _related_in_cell(script: Script, related: Related) -> Related:
    if related.file != script.path or script.notebook is None:
        return related
    cell, line = script.notebook.place(related.line)
    return related._replace(line=line, message=f"{related.message} (cell {cell})")
