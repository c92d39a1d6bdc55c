"""Findings as a SARIF 2.1.0 log: what code scanning services and SARIF viewers read."""

import os
import re
from collections import Counter
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from firstfault import __version__
from firstfault.lint.check import Checked
from firstfault.lint.config import SYNTAX_ERROR, UNUSED_IGNORE
from firstfault.lint.places import raw_line, raw_span
from firstfault.lint.rule import Finding, Fix, Rule, all_rules

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HOME = "https://github.com/firstfault/firstfault"
_LEVELS = {"error": "error", "warning": "warning", "hint": "note"}
_OTHERS = {SYNTAX_ERROR: "Python cannot read this file.", UNUSED_IGNORE: "A comment silences nothing."}
_ROOT = "%SRCROOT%"


def to_sarif(checked: Checked) -> dict[str, Any]:
    rules = [*(_rule(each) for each in all_rules()), *(_other(*each) for each in _OTHERS.items())]
    index = {each["id"]: number for number, each in enumerate(rules)}
    driver = {"name": "firstfault", "version": __version__, "informationUri": _HOME, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": _folder_uri(os.getcwd())}},
        "invocations": [_invocation(checked)],
        "results": _results(checked.findings, index),
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    short = rule.page.strip().split("\n\n")[0].replace("\n", " ")
    what = re.search(r"^## What it does\n+(.*?)(?=^## |\Z)", rule.page, re.DOTALL | re.MULTILINE)
    full = " ".join((what[1] if what else short).split())
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": full},
        "helpUri": rule.url,
        "help": {"text": full, "markdown": rule.page.strip()},
        "properties": {"tags": ["correctness", "pytorch"]},
    }


def _other(code: str, text: str) -> dict[str, Any]:
    return {"id": code, "name": code, "shortDescription": {"text": text}, "helpUri": _HOME}


def _invocation(checked: Checked) -> dict[str, Any]:
    """Files that could not be read are told here: a log without results must not look like a clean one."""
    notes = [
        {
            "level": "error",
            "message": {"text": each.message},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(each.path)}}],
        }
        for each in checked.problems
    ]
    return {"executionSuccessful": not notes, "toolExecutionNotifications": notes}


def _results(findings: list[Finding], index: dict[str, int]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        same = _fingerprint(finding)
        results.append(_result(finding, index, f"{same}:{seen[same]}"))
        seen[same] += 1
    return results


def _result(finding: Finding, index: dict[str, int], fingerprint: str) -> dict[str, Any]:
    result = {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [_location(finding)],
        "partialFingerprints": {"firstfault/v1": fingerprint},
    }
    if finding.related:
        result["relatedLocations"] = [_related(finding, number) for number in range(len(finding.related))]
    if finding.fixes and finding.cell is None:  # edits of a notebook's cell are none of its file
        result["fixes"] = [_fix(finding, each) for each in finding.fixes]
    return result


def _location(finding: Finding) -> dict[str, Any]:
    span = raw_span(finding)
    region = {"startLine": span.start.line, "endLine": span.end.line}
    if finding.cell is None:
        region |= {"startColumn": span.start.column, "endColumn": span.end.column}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(finding.file), "region": region}}
    if finding.cell is not None:
        line = f"cell {finding.cell + 1}, line {finding.span.start.line}"
        location["logicalLocations"] = [{"name": line, "kind": "member"}]
    return location


def _related(finding: Finding, number: int) -> dict[str, Any]:
    related = finding.related[number]
    place = {
        "artifactLocation": _artifact(related.file),
        "region": {"startLine": raw_line(related.file, related.cell, related.line)},
    }
    return {"id": number, "physicalLocation": place, "message": {"text": related.message}}


def _fix(finding: Finding, fix: Fix) -> dict[str, Any]:
    note = "" if fix.applicability == "safe" else f" ({fix.applicability})"
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.span.start.line,
                "startColumn": edit.span.start.column,
                "endLine": edit.span.end.line,
                "endColumn": edit.span.end.column,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    change = {"artifactLocation": _artifact(finding.file), "replacements": replacements}
    return {"description": {"text": fix.title + note}, "artifactChanges": [change]}


def _artifact(path: str) -> dict[str, str]:
    """Relative to the folder of the run where it lies there, as services expect it."""
    absolute = os.path.abspath(path)
    try:
        short = os.path.relpath(absolute)
    except ValueError:  # another drive
        short = ".."
    if short.startswith(".."):
        return {"uri": _folder_uri(absolute).rstrip("/")}
    return {"uri": quote(short.replace(os.sep, "/")), "uriBaseId": _ROOT}


def _folder_uri(path: str) -> str:
    path = path.replace(os.sep, "/").rstrip("/")
    return f"file://{'' if path.startswith('/') else '/'}{quote(path)}/"


def _fingerprint(finding: Finding) -> str:
    """The same while lines above come and go: what is found, where, in the words of the message."""
    name = os.path.basename(finding.file)
    words = "\n".join([finding.code, name, str(finding.cell), finding.message])
    return blake2b(words.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
