"""A report as words: for a terminal and as Markdown. The answer stands in the first three lines."""

from collections.abc import Iterator

from firstfault.diagnose.report import Evidence, Initiating, Report

BOLD, DIM, RED, YELLOW, GREEN, CYAN, RESET = (
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[31m",
    "\x1b[33m",
    "\x1b[32m",
    "\x1b[36m",
    "\x1b[0m",
)
EVIDENCE_WIDTH = 160
HEADLINE_WIDTH = 120
UNTOLD = "rank not told"


def to_text(report: Report, colour: bool) -> str:
    lines = [(style, _visible(text)) for style, text in _lines(report)]
    if not colour:
        return "".join(f"{text}\n" for _, text in lines)
    return "".join(f"{style}{text}{RESET if style else ''}\n" for style, text in lines)


def to_markdown(report: Report) -> str:
    parts: list[str] = []
    section = ""
    for style, text in ((style, _visible(text).strip()) for style, text in _lines(report)):
        if not parts:
            parts.append(f"# {_escaped(text)}\n")
        elif style == BOLD:
            section = text
            parts.append(f"\n## {text}\n")
        elif style == CYAN:  # deeper where it belongs to the item above
            parts.append(f"\n      {text}\n" if parts[-1].startswith("- ") else f"    {text}")
        elif section == "Evidence" and text and style != DIM:
            parts.append(f"    {text}")
        elif text:
            parts.append(_escaped(text) if text[0].isdigit() else f"- {_escaped(text)}")
    return "\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """``__init__`` and ``a * b`` are no emphasis, ``<module>`` is no tag."""
    return "".join(f"\\{each}" if each in "\\`*_<[]|" else each for each in text)


def headline(report: Report) -> str:
    """What failed first, in one line."""
    first = report.initiating
    if first is None:
        return "No failure in this text."
    what = first.title
    if first.exception and first.signature in ("user-exception", "dataset-key-error"):
        what = _shortened(f"{first.exception.rsplit('.', 1)[-1]}: {first.message}")
    unknown = " The cause is not in this text." if report.verdict == "symptom-only" else ""
    if is_suspected(report):
        return f"{what.rstrip('.')}. Rank {first.rank} is suspected.{unknown}"
    return f"{_who(first)}{what.rstrip('.')}.{unknown}"


def is_suspected(report: Report) -> bool:
    """The rank is named only because it is silent, not because it shows a failure."""
    return report.initiating is not None and report.initiating.rank in {each.rank for each in report.suspects}


def _who(first: Initiating) -> str:
    if first.rank == "all":
        return "All ranks failed alike: "
    if first.rank is None:
        return "First failure: "
    return f"Rank {first.rank} failed first: "


def _shortened(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= HEADLINE_WIDTH else line[: HEADLINE_WIDTH - 1] + "\u2026"


def where(report: Report, first: Initiating) -> str:
    """Rank, host and the user's own frame, as far as the text tells them."""
    if is_suspected(report):
        seen = f", seen by the others at {_frame(first)}" if first.frame else ""
        return f"rank {first.rank} (inferred){seen}"
    parts = []
    if first.rank == "all":
        parts.append("all ranks")
    elif first.rank is not None:
        basis = " (inferred)" if first.rank_basis == "inferred" else ""
        parts.append(f"rank {first.rank}{basis}")
    elif report.suspects:
        parts.append(f"suspected: {_ranks(tuple(each.rank for each in report.suspects))}")
    elif report.read.ranks:
        parts.append(UNTOLD)
    if first.host:
        parts.append(f"host {first.host}")
    if first.frame:
        parts.append(_frame(first))
    if parts[:1] == [UNTOLD] and len(parts) > 1:
        parts.pop(0)
    return ", ".join(parts) or "not told by the text"


def _frame(first: Initiating) -> str:
    assert first.frame is not None
    inside = f" in {first.frame.function}" if first.frame.function else ""
    return f"{first.frame.file}:{first.frame.line}{inside}"


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    first = report.initiating
    colour = {"established": RED, "symptom-only": YELLOW, "no-failure": GREEN}[report.verdict]
    yield colour + BOLD, headline(report)
    if first is None:
        yield "", report.cause if report.read.lines else "The text is empty."
        yield from _earlier(report)
        yield from _reading(report)
        return
    yield "", f"Where:  {where(report, first)}"
    yield "", f"Do:     {_next_action(report)}"
    yield from _reasons(report, first)
    yield from _evidence(first)
    yield from _fixes(report)
    yield from _open_questions(report)
    yield from _followers(report, first)
    yield from _earlier(report)
    yield "", ""
    yield DIM, f"More: firstfault explain {first.signature}"
    yield from _reading(report)


def _next_action(report: Report) -> str:
    if report.verdict == "established" and report.fix:
        return report.fix[0]
    if report.missing:
        return _find_out(report.missing[0].fact)
    return report.fix[0] if report.fix else "Read the evidence below."


def _find_out(fact: str) -> str:
    """``Which rank is silent.`` -> ``Find out which rank is silent.``"""
    first, _, rest = fact.partition(" ")
    joined = "" if first in ("Whether", "Which", "What", "Why", "Who", "How", "Where", "When") else ":"
    return f"Find out{joined} {first.lower() if first.istitle() else first} {rest}".rstrip()


def _reasons(report: Report, first: Initiating) -> Iterator[tuple[str, str]]:
    if report.cause:
        yield "", ""
        yield BOLD, "Cause" if report.verdict == "established" else "What the text shows"
        yield "", f"  {report.cause}"
    yield "", f"  First because: {first.reason}"
    for contradiction in report.contradictions:
        yield YELLOW, f"  Contradicted: {contradiction}"


def _evidence(first: Initiating) -> Iterator[tuple[str, str]]:
    if first.evidence:
        yield "", ""
        yield BOLD, "Evidence"
    for item in first.evidence:
        yield "", f"  {_cited(item)}"


def _cited(item: Evidence) -> str:
    text = item.text.strip()
    shown = text if len(text) <= EVIDENCE_WIDTH else text[: EVIDENCE_WIDTH - 1] + "\u2026"
    return f"{item.file}:{item.line}: {_visible(shown)}"


def _visible(text: str) -> str:
    """Escapes in a log or in a file's name must not act on the terminal of the reader."""
    return "".join(each if each.isprintable() or each in "\t\n" else "\ufffd" for each in text)


def _fixes(report: Report) -> Iterator[tuple[str, str]]:
    established = report.verdict == "established"
    fixes = report.fix[1:] if established else report.fix  # the first stands at the top
    if fixes:
        yield "", ""
        yield BOLD, "Otherwise" if established else "What usually helps"
        for number, fix in enumerate(fixes, start=1):
            yield "", f"  {number}. {fix}" if len(fixes) > 1 else f"  {fix}"
    if report.verify:
        yield "", ""
        yield BOLD, "Verify"
        for line in report.verify.splitlines():
            yield CYAN, f"  {line}"


def _open_questions(report: Report) -> Iterator[tuple[str, str]]:
    if report.missing:
        yield "", ""
        yield BOLD, "Not in this text"
        for each in report.missing:
            yield "", f"  {each.fact}"
            yield CYAN, f"  {each.how}"
    for suspect in report.suspects:
        yield "", f"  Suspect: rank {suspect.rank} ({suspect.because})"


def _followers(report: Report, first: Initiating) -> Iterator[tuple[str, str]]:
    """What is no first failure; the first one's own words again, from no other rank, are no news."""
    collateral = [each for each in report.collateral if each.ranks or each.signature != first.signature]
    if not collateral:
        return
    yield "", ""
    yield BOLD, "Not the first failure"
    for each in collateral:
        ranks = f" ({_ranks(each.ranks)})" if each.ranks else ""
        yield DIM, f"  {each.reason}{ranks}"


def _earlier(report: Report) -> Iterator[tuple[str, str]]:
    if report.earlier:
        yield "", ""
        yield BOLD, "Earlier attempts"
    for each in report.earlier:
        what = f"{each.exception.rsplit('.', 1)[-1]}: {each.message}" if each.exception else each.title
        who = "" if each.rank is None else "all ranks: " if each.rank == "all" else f"rank {each.rank}: "
        place = f" ({each.evidence[0].file}:{each.evidence[0].line})" if each.evidence else ""
        yield DIM, f"  Attempt {each.attempt}: {who}{_shortened(what or 'no failure in this text')}{place}"


def _reading(report: Report) -> Iterator[tuple[str, str]]:
    for problem in report.read.skipped:
        yield YELLOW, f"Skipped: {problem}"
    yield DIM, _read_line(report)


def _ranks(ranks: tuple[int, ...]) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(map(str, ranks))}"


def _read_line(report: Report) -> str:
    read = report.read
    files = "1 file" if read.files == 1 else f"{read.files} files"
    ranks = f", {_ranks(read.ranks)}" if read.ranks else ""
    lines = "1 line" if read.lines == 1 else f"{read.lines:,} lines"
    return f"Read {lines} of {files}{ranks} in {read.seconds:.2f} s."
