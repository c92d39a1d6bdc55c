"""Runs every rule's document (``tests/lint/<name>.md``) and the examples of its page."""

import ast
from pathlib import Path

import pytest
from document import Case, example, read_document

from firstfault.lint import Finding, Rule, Workspace, all_rules, lint
from firstfault.text import apply_edits

HERE = Path(__file__).parent
ROOT = "/project"
SECTIONS = ["What it does", "Why it matters", "Example", "Use instead", "Fix safety", "Limits", "References"]


def cases() -> list[object]:
    found = []
    for rule in all_rules():
        path = HERE / f"{rule.name}.md"
        for number, case in enumerate(read_document(path) if path.exists() else []):
            found.append(pytest.param(rule, case, id=f"{rule.code}-{number}-{case.heading}"))
    return found


def findings(rule: Rule, source: str, files: dict[str, str]) -> list[Finding]:
    workspace = Workspace(ROOT, {f"{ROOT}/{name}": text for name, text in {**files, "train.py": source}.items()})
    found = lint(source, f"{ROOT}/train.py", workspace)
    assert found is not None, "does not parse"
    return [each for each in found if each.code == rule.code]


@pytest.mark.parametrize(("rule", "case"), cases())
def test_document(rule: Rule, case: Case) -> None:
    found = findings(rule, case.source, case.files)
    assert [(each.span.start.line, each.severity) for each in found] == case.expected, [each.message for each in found]
    for number, text in case.fixed.items():
        fix = found[0].fixes[number - 1]
        after = apply_edits(case.source, fix.edits)
        assert after == text
        ast.parse(after)
        if fix.applicability != "partial":
            assert not findings(rule, after, case.files), "the fixed script is still found faulty"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_has_a_document_with_findings_and_silence(rule: Rule) -> None:
    document = read_document(HERE / f"{rule.name}.md")
    assert any(case.expected for case in document)
    assert any(not case.expected for case in document)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_page_has_its_sections_and_its_examples_run(rule: Rule) -> None:
    headings = [line.removeprefix("## ") for line in rule.page.splitlines() if line.startswith("## ")]
    assert headings == SECTIONS
    wrong, right = example(rule.page, "Example"), example(rule.page, "Use instead")
    assert wrong and findings(rule, wrong, {}), "the page's example is not found"
    assert right and not findings(rule, right, {}), "the page's cure is found faulty"
