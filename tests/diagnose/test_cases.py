"""Real torchrun output with one injected fault each: the answer must be that fault, on that rank, word for word."""

import sys
from pathlib import Path
from typing import Any

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import from_paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = Path(__file__).parent.parent / "cases"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((CASES / "expected.toml").read_text(encoding="utf-8"))


def report_of(name: str) -> Report:
    library = load()
    return diagnose(logs.read(from_paths([str(CASES / f"{name}.log")]), library.prefixes), library)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_injected_fault_is_named(name: str) -> None:
    report, expected = report_of(name), EXPECTED[name]
    if expected.get("verdict") == "no-failure":
        assert (report.verdict, report.initiating) == ("no-failure", None)
        return
    first = report.initiating
    assert first is not None
    assert (first.signature, first.rank) == (expected["signature"], expected["rank"]), first.reason
    assert report.verdict == expected.get("verdict", report.verdict)
    if "message" in expected:
        assert first.message.startswith(expected["message"])
    if "frame" in expected:
        assert first.frame is not None
        assert [Path(first.frame.file).name, first.frame.function] == expected["frame"]
    assert set(expected.get("reactive", [])) <= {each.signature for each in report.collateral}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_cited_line_stands_in_the_source(name: str) -> None:
    report = report_of(name)
    lines = (CASES / f"{name}.log").read_bytes().decode("utf-8").split("\n")
    cited = [*(report.initiating.evidence if report.initiating else ())]
    cited += [item for each in report.collateral for item in each.evidence]
    for item in cited:
        assert item.text in lines[item.line - 1]


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_not_established_names_the_missing_fact(name: str) -> None:
    report = report_of(name)
    if report.verdict == "symptom-only":
        assert report.missing
    if report.verdict == "established":
        assert report.cause and report.fix and not report.missing
