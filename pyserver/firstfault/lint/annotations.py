"""Findings as commands of GitHub's workflows, which show them beside the lines of a pull request."""

import os
from collections.abc import Iterable

from firstfault.lint.places import raw_span
from firstfault.lint.rule import Finding

_LEVELS = {"error": "error", "warning": "warning", "hint": "notice"}


def to_annotations(findings: Iterable[Finding]) -> str:
    return "".join(f"{_command(each)}\n" for each in findings)


def _command(finding: Finding) -> str:
    span = raw_span(finding)
    title = finding.code if finding.code == finding.name else f"{finding.code} {finding.name}"
    properties = {"title": title, "file": _path(finding.file), "line": span.start.line, "endLine": span.end.line}
    if finding.cell is None:  # columns only make sense within one line, where they are those of the file
        columns = {"col": span.start.column, "endColumn": span.end.column}
        properties |= columns if span.start.line == span.end.line else {}
    joined = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    cell = f"Cell {finding.cell + 1}, line {finding.span.start.line}: " if finding.cell is not None else ""
    link = f" {finding.url}" if finding.url else ""
    return f"::{_LEVELS[finding.severity]} {joined}::{_data(cell + finding.message + link)}"


def _path(path: str) -> str:
    """GitHub looks for the file below the checkout, where the workflow runs."""
    try:
        short = os.path.relpath(path, os.environ.get("GITHUB_WORKSPACE") or None)
    except ValueError:
        return path
    return path if short.startswith("..") else short.replace(os.sep, "/")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
