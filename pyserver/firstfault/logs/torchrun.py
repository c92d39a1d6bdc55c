"""torchrun's failure table: which ranks the agent saw fail, with exit codes, times and, under @record, tracebacks."""

import re
from collections.abc import Sequence
from typing import Any

from firstfault.logs.log import Exit, Line, Row
from firstfault.logs.tracebacks import raised_in
from firstfault.patterns import gated

ENTRY = gated(r"\s*\[(?P<index>\d{1,6})\]:\s*$", "]:")
FIELD = gated(
    r"\s{0,4}(?P<name>time|host|rank|exitcode|error_file|traceback) {0,10}: ?(?P<value>.*)$",
    *("time", "host", "rank", "exitcode", "error_file", "traceback"),
)
ROOT = gated(r"\s*Root Cause \(first observed failure\):", "Root Cause (first observed failure)")
FAILED = gated(r"\S.{0,300} FAILED\s*$", " FAILED")
AGENT_EXIT = gated(
    r"failed \(exitcode: (?P<code>-?\d{1,6})\)(?:.{0,300}?local_rank: (?P<local_rank>\d{1,5}))?"
    r"(?: \((?:pid|process ID): (?P<pid>\d{1,10})\))?",
    "failed (exitcode: ",
)
# torch 1.9 warns before it raises.
CHILD_FAILED = gated(
    r"Child process (?P<pid>\d{1,10}) \(local_rank (?P<local_rank>\d{1,5})\) FAILED \(exitcode (?P<code>-?\d{1,6})\)",
    "Child process ",
)
CLOSING = gated(
    r"(?:Sending process (?P<pid>\d{1,10}) closing signal|Unable to shutdown process (?P<hard>\d{1,10}) )",
    "Sending process ",
    "Unable to shutdown process ",
)
END = gated(r"\s*(?:={20,}|-{20,})\s*$", "====", "----")
RANK = re.compile(r"(?P<rank>\d{1,6})(?: \(local_rank: (?P<local_rank>\d{1,5})\))?")
EXITCODE = re.compile(r"(?P<code>-?\d{1,10})(?: {1,3}\(pid: (?P<pid>\d{1,10})\))?")


def rows_in(lines: Sequence[Line]) -> tuple[list[Row], set[int]]:
    """The rows of all tables in one stream, and the indexes of the lines that the tables take up."""
    rows: list[Row] = []
    taken: set[int] = set()
    table, root, at = -1, False, 0
    while at < len(lines):
        text = lines[at].text
        if FAILED.match(text) and _rule_follows(lines, at):
            table, root = table + 1, False
        elif ROOT.match(text):
            root = True
        elif _starts_row(lines, at):
            row, end = _row(lines, at, root, max(table, 0))
            if row is not None:
                rows.append(row)
                taken.update(line.order for line in lines[at:end])
                at = end
                continue
        at += 1
    return rows, taken


def exits_in(lines: Sequence[Line]) -> tuple[list[Exit], set[int]]:
    """The first failures that agents named outside of a table, and the pids that agents ended themselves."""
    exits, closed = list[Exit](), set[int]()
    for line in lines:
        if found := AGENT_EXIT.search(line.text) or CHILD_FAILED.search(line.text):
            exits.append(Exit(int(found["code"]), _number(found["local_rank"]), int(found["pid"] or 0), line))
        elif found := CLOSING.search(line.text):
            closed.add(int(found["pid"] or found["hard"]))
    return exits, closed


def _starts_row(lines: Sequence[Line], at: int) -> bool:
    """An entry's number above its fields; at the very start of a text the number may be cut off."""
    if at == 0 and FIELD.match(lines[0].text):
        return True
    return bool(ENTRY.match(lines[at].text)) and at + 1 < len(lines) and bool(FIELD.match(lines[at + 1].text))


def _rule_follows(lines: Sequence[Line], at: int) -> bool:
    return at + 1 < len(lines) and bool(END.match(lines[at + 1].text))


def _row(lines: Sequence[Line], start: int, root: bool, table: int) -> tuple[Row | None, int]:
    values: dict[str, str] = {}
    at, own = start, list[Line]()
    if ENTRY.match(lines[start].text):
        at, own = start + 1, [lines[start]]
    while at < len(lines):
        text = lines[at].text
        if END.match(text) or ENTRY.match(text) or ROOT.match(text):
            break
        found = FIELD.match(text)
        if found and found["name"] not in values and "traceback" not in values:
            values[found["name"]] = found["value"].strip()
        elif not _belongs(text, values):
            break
        own.append(lines[at])
        at += 1
    return _from_values(values, own, root, table), at


def _belongs(text: str, values: dict[str, str]) -> bool:
    """Only a real traceback goes on below its field; everything in it is indented."""
    return not text or (values.get("traceback", "").startswith("Traceback") and text.startswith("  "))


def _from_values(values: dict[str, str], lines: list[Line], root: bool, table: int) -> Row | None:
    rank, code = RANK.match(values.get("rank", "")), EXITCODE.match(values.get("exitcode", ""))
    if rank is None or code is None:
        return None
    text = values.get("traceback", "")
    recorded = values.get("error_file", "<N/A>") != "<N/A>"
    return Row(
        rank=int(rank["rank"]),
        local_rank=_number(rank["local_rank"]),
        host=values.get("host"),
        time=values.get("time"),
        exitcode=int(code["code"]),
        pid=_number(code["pid"]),
        error_file=recorded,
        signal_text=text if text.startswith("Signal ") else None,
        root=root,
        table=table,
        lines=tuple(lines),
        error=_error(lines) if text.startswith("Traceback") else None,
    )


def _error(lines: list[Line]) -> Any:
    """The traceback that the worker wrote to its error file; the table indents it by two."""
    start = next(at for at, line in enumerate(lines) if FIELD.match(line.text) and "traceback" in line.text)
    body = [line._replace(text=line.text[2:] if line.text.startswith("  ") else line.text) for line in lines[start:]]
    found = raised_in(body)
    return found[0].blocks[-1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text else None
