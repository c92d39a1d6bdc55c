"""A script after the fix of one rule, for tests that run it."""

from firstfault.lint import Workspace, lint
from firstfault.text import apply_edits


def mended(code: str, source: str) -> str:
    found = lint(source, "/project/train.py", Workspace("/project", {}))
    fixes = [fix for finding in found or [] if finding.code == code for fix in finding.fixes]
    assert fixes, "no fix is offered"
    return apply_edits(source, fixes[0].edits)
