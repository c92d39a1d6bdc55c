"""The lint: a script's text in, findings out.

``lint(source, path, workspace)`` reads nothing but what the workspace hands it, and runs nothing.
"""

from firstfault.lint.callers import trainer_size
from firstfault.lint.cells import in_cells
from firstfault.lint.config import Config
from firstfault.lint.facts import state, state_trainer_size
from firstfault.lint.rule import Finding, Fix, Hit, Related, Rule, all_rules
from firstfault.lint.script import Script, read_script
from firstfault.lint.suppress import unsuppressed
from firstfault.lint.workspace import Workspace

__all__ = ["Finding", "Fix", "Hit", "Related", "Rule", "Workspace", "all_rules", "finding_to_json", "lint"]

_WORDS = (
    "backward",
    "compute_loss",
    "Trainer(",
    "update_params",
    "training_step",
    "BatchNorm",
    "GroupNorm",
    "accumulat",
    "zero_grad",
    "firstfault:",
)


def lint(source: str, path: str, workspace: Workspace, config: Config = Config()) -> list[Finding] | None:  # noqa: B008
    """The findings of a script, sorted by place; None where it does not parse even after repair: unchanged."""
    if not concerns(source):
        return []
    script = read_script(source, path)
    return findings_of(script, workspace, config) if script is not None else None


def concerns(source: str) -> bool:
    """Whether a text can have findings at all: most files of a project train nothing."""
    return any(word in source for word in _WORDS)


def findings_of(script: Script, workspace: Workspace, config: Config) -> list[Finding]:
    """The findings of a script that has been read, those of its comments included."""
    state(script, config.facts)
    if any(name.endswith(".training_step") for name in script.definitions):
        state_trainer_size(script, trainer_size(script, workspace))
    rules = [rule for rule in all_rules() if config.allows(rule.code, rule.name)]
    found = (finding for rule in rules for finding in rule.findings(script, workspace))
    kept = sorted(unsuppressed(script, found, config), key=lambda each: (each.span, each.code))
    graded = [config.graded(each) for each in kept]
    return [in_cells(script, finding) for finding in graded] if script.notebook else graded


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
        "related": [_related_to_json(each) for each in finding.related],
        "fixes": [_fix_to_json(finding, fix) for fix in finding.fixes],
    }


def _related_to_json(related: Related) -> dict[str, object]:
    place = {"file": related.file, "line": related.line, "message": related.message}
    return place if related.cell is None else {**place, "cell": related.cell}


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
