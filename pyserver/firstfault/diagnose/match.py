"""Each event against the signatures: which failure a text is, with the values that it holds.

A signature's literals are the gate: only signatures one of whose literals is in the event's text are tried. Where
several match one event the narrower wins (``narrows``), then the more specific kind of pattern, then the longer match.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firstfault import patterns
from firstfault.library import Library, Match, Signature
from firstfault.logs.log import Block, Exit, Line, Log, Raised, Row, Tags
from firstfault.patterns import gated

# A native record may go on in the next lines: terminals wrap, and torch breaks some messages.
RECORD_LINES = 3
# An exception of which a text gives the message alone.
NAMELESS = "?"
# The capture that holds the rank of a ``Match`` which only one rank can print.
ONLY_RANK = "only_rank"
WRAPPED_WIDTH = 60
NO_TAGS = Tags()
SPOKEN = gated(
    r"(?:^|[\s|>\]\u3001-\uff1a])(?P<type>(?:[a-z_]\w*\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)): (?P<message>\S.*)",
    "Error: ",
    "Exception: ",
)
# An exception that somebody quotes: in quotation marks, in backticks, in brackets or behind the mark of an answer.
QUOTED_EXCEPTION = gated(
    r"(?:^\s*>[> ]{0,8}|[`\"'*(\[\u201c\u2018\u00ab\u3001-\uff1a]) ?"
    r"(?P<type>(?:[A-Za-z_]\w*\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)):(?: (?P<message>\S.*)|$)",
    "Error:",
    "Exception:",
)
# People name it in their sentences without the colon; what is not known counts then only if they tell that it happened.
MENTIONED = gated(
    r"(?:^|\s)(?P<type>(?:[A-Za-z_]\w*\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)) (?P<message>[A-Z]\S.*)",
    "Error ",
    "Exception ",
)
HAPPENS = gated(
    r"\b(?:stop(?:s|ped)|fail(?:s|ed)|crash(?:es|ed)|die[sd]|abort(?:s|ed)|killed|ends|ended)\b[^.]{0,60}"
    r"\b\w{1,60}(?:Error|Exception)\b|\bI (?:\w+ )?(?:get|got|see|saw|hit)\b",
    "Error",
    "Exception",
)
CODE = ("#", "//", "-- ", "echo ", "print(", "raise ", "grep ", "|", "except ", "case ")
# How many lines such a message may have, and how many of them are looked at: the last ones, which nothing got over.
MENTION_LINES, MENTIONS = 6, 64
HEADER = "Traceback (most recent call last):"
# A message of a commit, or a line of a changelog.
REPAIRS = ("Fix ", "Fixes ", "Fixed ", "- Fix", "fix: ", "Handle ", "Avoid ")
QUOTED = ("#", ">", "//", "-- ", "* ", "echo ", "print(", "raise ", "grep ", "|", *REPAIRS)


class Occurrence(NamedTuple):
    """One place where a known failure shows.

    ``at`` is the line that shows it, ``until`` the last line of a match that spans several; ``captures`` are the
    text's values.
    """

    signature: Signature
    captures: dict[str, str]
    at: Line
    until: Line | None = None
    raised: Raised | None = None
    block: Block | None = None
    row: Row | None = None
    exit: Exit | None = None


class Event(NamedTuple):
    """What a signature is matched on; of an exception its type and message, of a native record its text."""

    type: str | None
    message: str | None
    native: str | None
    frames: str
    exit: int | None

    @property
    def whole(self) -> str:
        return self.native if self.native is not None else f"{self.type}: {self.message}"


class Found(NamedTuple):
    signature: Signature
    captures: dict[str, str]
    kind: int
    length: int
    start: int
    end: int


def occurrences(log: Log, library: Library) -> list[Occurrence]:
    """All places where signatures match, in reading order. Exceptions that match none are left to the caller."""
    signatures = _possible(log, library)
    found = [*_in_blocks(log, signatures), *_in_lines(log, signatures), *_in_exits(log, library)]
    return sorted(found, key=lambda each: each.at.order)


def best(event: Event, signatures: Sequence[Signature], begins: int | None = None) -> Found | None:
    """The signature that says most about the event; of those only that match from its first characters on, if told."""
    hits = [hit for signature in signatures if (hit := _match(event, signature, begins))]
    outranked = {wider for hit in hits for wider in hit.signature.narrows}
    kept = [hit for hit in hits if hit.signature.id not in outranked] or hits
    return max(kept, key=lambda hit: (hit.kind, hit.length), default=None)


def spoken_of(at: int, log: Log, library: Library) -> Found | None:
    """The class of an exception that a line names somewhere, behind words of a logger that no prefix describes."""
    line = log.lines[at]
    named = SPOKEN.search(line.text)
    if named is None:
        return None
    message = "\n".join((named["message"], *below(at, log))).strip()
    known = library.signatures.holding(f"{line.text}\n{message}")
    signatures = [each for each in known if not is_decided_by_engine(each)]
    return best(Event(named["type"], message, None, "", None), signatures)


def below(at: int, log: Log) -> list[str]:
    """What the same writer printed in the next lines."""
    line = log.lines[at]
    return [each.text for each in log.lines[at + 1 : at + MENTION_LINES] if each.stream == line.stream]


def quoted_in(log: Log, library: Library) -> Iterator[tuple[Line, Found | None]]:
    """Lines that quote an exception, each with its class if it is known. Where nothing else failed they speak."""
    quoting = [(at, line, named) for at, line in enumerate(log.lines) if (named := _named_in(line.text))]
    for at, line, named in quoting[-MENTIONS:]:
        if line.text.lstrip().startswith(CODE):
            continue
        message = "\n".join((named["message"] or "", *below(at, log))).strip()
        known = library.signatures.holding(f"{named['type']}: {message}")
        signatures = [each for each in known if not is_decided_by_engine(each)]
        hit = best(Event(named["type"], message, None, "", None), signatures)
        if hit is not None or named.re.pattern != MENTIONED.pattern or HAPPENS.search(line.text):
            yield line, hit


def _named_in(text: str) -> "re.Match[str] | None":
    return QUOTED_EXCEPTION.search(text) or MENTIONED.search(text)


def block_event(block: Block) -> Event:
    frames = "\n".join(f"{frame.file}:{frame.function}" for frame in block.frames)
    return Event(block.type, block.message, None, frames, None)


def _match(event: Event, signature: Signature, begins: int | None) -> Found | None:
    hits = [hit for entry in signature.matches if (hit := _match_entry(event, entry, signature))]
    hits = [hit for hit in hits if begins is None or hit.start <= begins]
    return max(hits, key=lambda hit: (hit.kind, hit.length), default=None)


def _match_entry(event: Event, entry: Match, signature: Signature) -> Found | None:
    if entry.exit and event.exit not in entry.exit:
        return None
    if event.exit is not None and not entry.exit:
        return None
    if entry.literal and not any(literal in event.whole for literal in entry.literal):
        return None
    named = event.type != NAMELESS
    if entry.exception is not None and named and not (event.type and _is_type(entry.exception, event.type)):
        return None
    spans, captures = [], dict[str, str]()
    for pattern, text in (
        (entry.message, event.message),
        (entry.line, event.native),
        (entry.text, event.native if event.native is not None else event.message),
        (entry.frame, event.frames),
    ):
        if pattern is None:
            continue
        hit = patterns.search(pattern, text) if text else None
        if hit is None:
            return None
        spans.append(hit)
        captures.update({name: value.strip() for name, value in hit.groupdict().items() if value is not None})
    if entry.rank is not None:
        captures[ONLY_RANK] = str(entry.rank)
    kind = 2 * bool(entry.exception) + bool(entry.message) + bool(entry.line) + bool(entry.exit)
    length = sum(hit.end() - hit.start() for hit in spans)
    return Found(signature, captures, kind, length, spans[0].start() if spans else 0, spans[0].end() if spans else 0)


def _is_type(pattern: str, type_: str) -> bool:
    name = type_.split("(", 1)[0].replace("::", ".").rsplit(".", 1)[-1]
    return bool(patterns.fullmatch(pattern, name) or patterns.fullmatch(pattern, type_))


# ------------------------------------------------------------------------------------------ events of a log


def _possible(log: Log, library: Library) -> list[Signature]:
    """The signatures one of whose literals is in the text, also where a terminal has broken it in two."""
    texts = [line.text for line in log.lines]
    found = library.signatures.holding("\n".join((*texts, "".join(texts), " ".join(texts))))
    return [each for each in found if not is_decided_by_engine(each)]


def _in_blocks(log: Log, signatures: list[Signature]) -> Iterator[Occurrence]:
    for raised in log.raised:
        for block in raised.blocks:
            hit = _block_hit(block, signatures) if block.type else None
            if hit is None and raised.origin in ("fatal", "terminate"):
                hit = best(Event(None, None, "\n".join(line.text for line in block.lines), "", None), signatures)
            if hit:
                first, last = _line_of(block, hit.start), _line_of(block, hit.end)
                yield Occurrence(hit.signature, hit.captures, first, last, raised=raised, block=block)


def _block_hit(block: Block, signatures: list[Signature]) -> Found | None:
    """The match of an exception; where a terminal may have wrapped its message, also with the seams closed."""
    event = block_event(block)
    hit = best(event, signatures)
    if hit is not None or "\n" not in block.message or len(block.at.raw) < WRAPPED_WIDTH:
        return hit
    closed = (event._replace(message=block.message.replace("\n", seam)) for seam in (" ", ""))
    return next(filter(None, (best(each, signatures) for each in closed)), None)


def _line_of(block: Block, offset: int) -> Line:
    """The line of a message of several lines that holds this offset of the message."""
    below = block.message.count("\n", 0, offset)
    return block.spoken[below] if below < len(block.spoken) else block.at


def _in_lines(log: Log, known: list[Signature]) -> Iterator[Occurrence]:
    taken = {line.order for raised in log.raised for block in raised.blocks for line in block.lines}
    taken |= {line.order for row in log.rows for line in row.lines}
    free = [line for line in log.lines if line.text and (line.order not in taken or _introduces(line))]
    everything = "\n".join(line.text for line in free)
    native = _with_native_patterns(known, everything)
    signatures = [signature for signature, _ in native]
    literals = sorted({literal for _, own in native for literal in own})
    for at, line in enumerate(free):
        if not any(literal in line.text for literal in literals) and not _wrapped(free, at, literals):
            continue
        if line.text.lstrip().startswith(QUOTED):
            continue
        # A match that begins on a line below is that line's own.
        hits = [_native_hit(record, signatures, len(line.text)) for record in _records(free, at)]
        hit = max(filter(None, hits), key=lambda each: (each.kind, each.length), default=None)
        if hit:
            yield Occurrence(hit.signature, hit.captures, line)


def _introduces(line: Line) -> bool:
    """A logger's own words stand on the line with the header of the traceback."""
    return line.text.endswith(HEADER) and len(line.text) > len(HEADER)


def _native_hit(record: str, signatures: list[Signature], begins: int) -> Found | None:
    """The match of a native record, unless it stands between backticks: then somebody quotes it."""
    hit = best(Event(None, None, record, "", None), signatures, begins)
    if hit is None or (record[: hit.start].count("`") % 2 == 1 and "`" in record[hit.end :]):
        return None
    return hit


def _wrapped(free: list[Line], at: int, literals: list[str]) -> bool:
    """A literal may be broken by the terminal's edge: half of it in this line, half in the next."""
    if at + 1 >= len(free) or free[at + 1].number != free[at].number + 1 or len(free[at].raw) < WRAPPED_WIDTH:
        return False
    seam = free[at].text[-40:] + free[at + 1].text[:40]
    return any(literal in seam for literal in literals)


def _records(free: list[Line], at: int) -> list[str]:
    """The line with what belongs to it below; where a terminal may have wrapped it, also with the seams closed."""
    line = free[at]
    texts = [line.text]
    for after in free[at + 1 : at + RECORD_LINES]:
        bare = after.tags == NO_TAGS and after.order == line.order + len(texts)
        same = after.stream == line.stream and not after.tags.time and not after.tags.source
        if not (bare or same) or after.number != line.number + len(texts):
            break
        texts.append(after.text)
    if len(line.raw) < WRAPPED_WIDTH or len(texts) == 1:
        return ["\n".join(texts)]
    return [seam.join(texts) for seam in ("\n", "", " ")]


def _with_native_patterns(known: list[Signature], everything: str) -> list[tuple[Signature, list[str]]]:
    found = []
    for signature in known:
        literals = [literal for entry in signature.matches if entry.line or entry.text for literal in entry.literal]
        present = [literal for literal in literals if literal in everything]
        if present:
            found.append((signature, present))
    return found


def _in_exits(log: Log, library: Library) -> Iterator[Occurrence]:
    by_code = library.signatures.with_exit_codes()
    for row in log.rows:
        hit = best(Event(None, None, None, "", row.exitcode), by_code)
        if hit:
            at = next((line for line in row.lines if "exitcode" in line.text), row.lines[0])
            yield Occurrence(hit.signature, hit.captures, at, row=row)
    for exit_ in log.exits:
        hit = best(Event(None, None, None, "", exit_.code), by_code)
        if hit:
            yield Occurrence(hit.signature, hit.captures, exit_.at, exit=exit_)


ENGINE_DECIDES = frozenset(
    ("user-exception", "no-failure", "unknown-failure", "early-exit", "timeout-rank-busy", "timeout-uneven-data",
     "timeout-rank-branch", "node-lost", "loss-flat-frozen", "loss-divergence", "loss-zero", "resume-spike",
     "no-zero-grad", "accumulation-loss-scaling")
)  # fmt: skip


def is_decided_by_engine(signature: Signature) -> bool:
    return signature.id in ENGINE_DECIDES
