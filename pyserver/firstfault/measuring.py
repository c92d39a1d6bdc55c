"""A command measured, and its verdicts beside the findings of the lint: what command line and editor share.

``lint`` and ``prove`` know nothing of each other. Here they meet: each finding gets its verdict by its code.
"""

import ast
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import IO

from firstfault.lint import Finding, all_rules
from firstfault.lint.source import Unreadable, read_source
from firstfault.prove import runner
from firstfault.prove.measured import Measured, measured
from firstfault.prove.render import Judged
from firstfault.prove.verdict import Verdict, verdict_for, verdicts

MEASURABLE = ("GA", "BN", "CL")  # beginnings of the codes that a run can tell of; the others are about the text
_ORDER = ("proven", "refuted", "not measured")


def measure(
    command: Sequence[str],
    windows: int = 2,
    timeout: float = runner.TIMEOUT,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
    cancelled: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
    replaced: tuple[str, str] | None = None,
) -> tuple[Measured, list[Verdict]]:
    """Run a command under the probes, and judge what they saw. ``replaced``: a script, and the text it runs with."""
    answer = runner.run(command, windows, timeout, cwd, env, output, cancelled, say, replaced)
    if replaced and not any(each["kind"] == "replaced" for process in answer.processes for each in process.messages):
        why = f"The command did not run {os.path.basename(replaced[0])}, so the fix was not measured. {answer.ended}"
        return Measured(why, (), (), ()), []
    values = measured(answer.ended, answer.processes, answer.finished)
    return values, verdicts(values)


def scripts_of(command: Sequence[str], cwd: str = "") -> list[str]:
    """The scripts and modules that a command names, by their paths, as far as they are there."""
    modules = [name.replace(".", os.sep) + ".py" for flag, name in pairwise(command) if flag == "-m"]
    named = [os.path.join(cwd, each) for each in (*command, *modules) if each.endswith(".py")]
    return [each for each in named if os.path.isfile(each)]


def findings_of(command: Sequence[str]) -> list[Finding]:
    """What the lint says of the scripts that the command names."""
    from firstfault.lint.check import check_paths

    return [each for each in check_paths(scripts_of(command)).findings if each.code.startswith(MEASURABLE)]


def join(
    findings: Iterable[Finding],
    found: list[Verdict],
    measured: Measured,
    source_of: Callable[[str], str] = read_source,
) -> list[Judged]:
    """Each finding with its verdict, then the faults that were measured and that no finding names."""
    findings = list(findings)
    judged: list[Judged] = []
    settled: set[Verdict] = set()
    for finding in findings:
        verdict = _not_run(finding, measured, source_of) or verdict_for(finding.code, found)
        settled.add(verdict)
        place = (finding.file, finding.span.start.line)
        judged.append(Judged(finding.code, finding.name, verdict.state, verdict.message, *place, True))
    named = {each.code for each in judged if each.state == "proven"}
    for verdict in found:
        if verdict.state == "proven" and not verdict.quiet and verdict not in settled and verdict.code not in named:
            judged.append(Judged(verdict.code, _name(verdict.code), *verdict[1:5], False))
    return sorted(judged, key=lambda each: _ORDER.index(each.state))


def right(judged: Iterable[Judged], found: list[Verdict]) -> list[str]:
    """Names of faults that are refuted and that nobody asked about; codes that one number refutes are told once."""
    asked = {each.code for each in judged}
    refuted: dict[str, str] = {}
    for verdict in found:
        if verdict.state == "refuted" and verdict_for(verdict.code, found) == verdict:
            refuted.setdefault(verdict.message, verdict.code)
    return [f"{code} {_name(code)}" for code in refuted.values() if code not in asked]


def _not_run(finding: Finding, measured: Measured, source_of: Callable[[str], str]) -> Verdict | None:
    """A loop that did not run is neither proven nor refuted by one that did."""
    ran = {
        micro_batch.line
        for window in measured.windows
        for part in window.parts
        for micro_batch in part.micro_batches
        if os.path.realpath(micro_batch.file) == os.path.realpath(finding.file)
    }
    if not ran or finding.cell is not None:
        return None
    own = _backward_lines(finding, source_of)
    if not own or any(line in lines for line in ran for lines in own):
        return None
    shown = ", ".join(map(str, sorted(ran)[:3]))
    return Verdict(finding.code, "not measured", f"This loop did not run; the backward that ran is in line {shown}.")


def _backward_lines(finding: Finding, source_of: Callable[[str], str]) -> list[range]:
    """The calls of backward in the function, or in the statement of the module, that the finding stands in."""
    try:
        tree = ast.parse(source_of(finding.file))
    except (Unreadable, SyntaxError, ValueError):
        return []
    line = finding.span.start.line
    block = _block_at(tree.body, line)
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in (ast.walk(block) if block else ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    ]


def _block_at(body: list[ast.stmt], line: int) -> ast.stmt | None:
    for statement in body:
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            nested = _block_at(statement.body, line) if isinstance(statement, ast.ClassDef) else None
            return nested or statement
    return None


def _name(code: str) -> str:
    return next((rule.name for rule in all_rules() if rule.code == code), code)
