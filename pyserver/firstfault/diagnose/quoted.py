"""Is a failure only quoted? Documentation shows errors that no run of the reader's had.

A block between fences, or one whose lines open with ">", is taken for such a quotation where the prose above it speaks
of what may happen, or stands under a heading like "Troubleshooting"; not where somebody tells what happened to them.
"""

import re

from firstfault.diagnose.failures import Failure
from firstfault.logs.log import Line, Log
from firstfault.logs.tracebacks import FENCES
from firstfault.patterns import gated

MAY_HAPPEN = gated(
    r"\bif (?:you|your|the|this|it|there|a|an)\b|\bin case\b|\bfor example\b|\be\.g\."
    r"|\byou(?:'ll| will| may| might| can| could| would)(?: also)? (?:see|get|encounter|run into|hit|face|find)\b"
    r"|\b(?:may|might|can|could|would) (?:see|fail|occur|happen|raise|appear|throw|report|print|end|be|get|run)\b"
    r"|\b(?:common|typical|known|possible|frequent) (?:error|problem|issue|failure|pitfall)s?\b"
    r"|\b(?:errors?|messages?|something) (?:like|such as|similar to)\b|\blooks? like\b",
    flags=re.IGNORECASE,
)
HAPPENED = gated(r"\bI\b|\b[Mm]y\b|\b[Ii]'ve\b")
# Headings under which a manual collects errors, and those of a report about one.
OF_A_MANUAL = gated(
    r"#{1,6} .{0,80}\b(?:troubleshooting|faq|frequently asked|(?:known|common) (?:errors|problems|issues))",
    flags=re.IGNORECASE,
)
OF_A_REPORT = gated(
    r"(?:#{1,6} |\*\*).{0,60}\b(?:bug|reproduc|steps|expected|actual|environment|system info|versions|logs?\b)",
    flags=re.IGNORECASE,
)
HEADING = gated(r"#{1,6} \S", "# ")
PARAGRAPH = 4
# How Markdown marks what somebody else said.
ANSWER = ">"


def in_documentation(failure: Failure, log: Log) -> bool:
    """Does everything that shows the failure stand in such a block?"""
    lines = [line for line in log.lines if line.file == failure.lines[0].file]
    fences = _fences(lines)
    prose = [line for at, line in enumerate(lines) if at not in fences]
    if any(HAPPENED.search(line.text) or OF_A_REPORT.match(line.text) for line in prose):
        return False
    places = {line.order: at for at, line in enumerate(lines)}
    starts = {fences.get(places.get(line.order, -1)) for line in failure.lines}
    return None not in starts and all(_may_happen_above(lines, start) for start in starts if start is not None)


def may_happen(line: Line) -> bool:
    """A sentence about what may happen, which tells of nothing that did."""
    return bool(MAY_HAPPEN.search(line.text)) and not HAPPENED.search(line.text)


def has_blocks(log: Log) -> bool:
    return any(line.text.startswith(FENCES) or line.raw.startswith(ANSWER) for line in log.lines)


def _fences(lines: list[Line]) -> dict[int, int]:
    """For each line in a block, and its fences, where the block starts. A block that nothing closes is none."""
    found: dict[int, int] = {}
    start: int | None = None
    for at, line in enumerate(lines):
        if start is None and line.raw.startswith(ANSWER):
            found[at] = found.get(at - 1, at) if at and lines[at - 1].raw.startswith(ANSWER) else at
            continue
        if not line.text.lstrip().startswith(FENCES):
            continue
        if start is not None:
            found.update(dict.fromkeys(range(start, at + 1), start))
        start = at if start is None else None
    return found


def _may_happen_above(lines: list[Line], start: int) -> bool:
    above = lines[:start]
    while above and not above[-1].text.strip():
        above.pop()
    for line in reversed(above[-PARAGRAPH:]):
        if not line.text.strip() or HEADING.match(line.text):
            break
        if may_happen(line):
            return True
    heading = next((line for line in reversed(above) if HEADING.match(line.text)), None)
    return heading is not None and bool(OF_A_MANUAL.match(heading.text))
