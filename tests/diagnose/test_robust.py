"""A diagnosis cannot fail: any part of a log, any order, any bytes give a report that keeps its promises."""

import random
from pathlib import Path

import pytest

from firstfault.diagnose import render
from firstfault.diagnose.report import to_json
from reading import report_of

CASES = sorted((Path(__file__).parent.parent / "cases").glob("*.log"))
ALPHABET = [
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in f',
    "ValueError: boom",
    "[rank1]: ",
    "[0]:",
    "  rank      : 3 (local_rank: 3)",
    "  exitcode  : -9 (pid: 7)",
    "Fatal Python error: ",
    "\x1b[31m",
    "\r",
    "\n",
    "terminate called after throwing",
    "Root Cause (first observed failure):",
    "\x00",
    "\ud800",
    "  | ",
    "+---- 1 ----",
    "During handling of the above exception, another exception occurred:",
    "🏖",
    " " * 300,
]


def check(text: str) -> None:
    report = report_of(text)
    source = text.encode("utf-8", "replace").decode("utf-8").split("\n")
    cited = [*(report.initiating.evidence if report.initiating else ())]
    cited += [item for each in report.collateral for item in each.evidence]
    for item in cited:
        assert item.text in source[item.line - 1]
    if report.verdict == "symptom-only":
        assert report.missing
    if report.verdict == "no-failure":
        assert report.initiating is None
    to_json(report)
    render.to_text(report, True)
    render.to_markdown(report)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_cut_of_a_log(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    step = max(len(lines) // 12, 1)
    for at in range(0, len(lines), step):
        check("".join(lines[:at]))
        check("".join(lines[at:]))


@pytest.mark.parametrize("seed", range(8))
def test_shuffled_and_random_text(seed: int) -> None:
    chance = random.Random(seed)
    lines = CASES[seed % len(CASES)].read_text(encoding="utf-8").splitlines(keepends=True)
    chance.shuffle(lines)
    check("".join(lines))
    check("".join(chance.choice(ALPHABET) + chance.choice(["\n", "", " "]) for _ in range(400)))
