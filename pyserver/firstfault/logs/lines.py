"""From decoded text to lines on streams: frames of progress bars split, escapes stripped, prefixes peeled.

Every line keeps the piece of the source that it came from, so that it can be cited word for word.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstfault import patterns
from firstfault.library import Prefix
from firstfault.logs import learned, records
from firstfault.logs.log import Line, Stream, Tags
from firstfault.patterns import gated

# Longer lines are cut into pieces of this size: no log line of interest is longer, and patterns stay quick.
LONGEST = 16384
# A quotation may stand below a few lines of one's own.
OPENING = 5
ESCAPES = gated(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00\x07\x08\u2028]")
# What can be glued behind a progress bar or another rank's text, because one of the two wrote no line end.
GLUED = re.compile(
    r"\[default\d+\]:|\[rank\d+\]:|(?<![A-Za-z,(:] )Traceback \(most recent call last\):|Fatal Python error: "
    r"|\[[EWF](?:\d{3,4} [\d:.]+)? [\w.]+\.cpp:\d+\]|(?:WARNING|ERROR):torch\.|"
    r"[EW]\d{4} [\d:.]{15} +\d+ (?:site-packages/)?torch/|terminate called "
)
# A frame with something behind it on the same line.
FRAME_AND_MORE = gated(r'File "[^"\n]{1,1000}", line \d{1,9}, in \S+ +\S|\): +File "', 'File "')
# Markdown's mark around a line that somebody wanted to be seen; a banner has more stars.
BOLD = gated(r"(?P<indent> *)\*\*(?P<text>[^*\s](?:[^*]|\*(?!\*)){0,2000})\*\*$", "**")
# Ray joins equal lines of several workers and says behind them how many there were.
REPEATED = gated(r" ?(?:\x1b\[\d+m)?\[repeated \d{1,6}x across cluster\].*$", "x across cluster]")
_TAG_NAMES = frozenset(Tags._fields)
_NUMBERS = frozenset(("rank", "local_rank", "pid", "device"))
_NO_TAGS = Tags()


class Piece(NamedTuple):
    """A physical line, or a part of one that stands for itself."""

    number: int
    raw: str


def frames(number: int, line: str) -> Iterator[Piece]:
    """The pieces of one physical line: each frame after a carriage return stands for itself."""
    if "\r" not in line and len(line) <= LONGEST:
        yield Piece(number, line)
        return
    for frame in line.rstrip("\r").split("\r"):
        for start in range(0, max(len(frame), 1), LONGEST):
            yield Piece(number, frame[start : start + LONGEST])


class Cleaner:
    """Turns pieces into lines and gives each its stream. One cleaner serves one file after the other."""

    def __init__(self, prefixes: Iterable[Prefix]) -> None:
        self._prefixes = list(prefixes)
        self._by_start: dict[str, list[Prefix]] = {}
        self.streams: list[Stream] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._ranks_of_local: dict[tuple[object, ...], set[int]] = {}
        self._learned: re.Pattern[str] | None = None
        self._order = 0

    def lines(self, file: int, pieces: Iterable[Piece], place: Tags, attempt: int | None) -> Iterator[Line]:
        """``place`` and ``attempt`` say what the file's own path tells: its host, its local rank, its attempt."""
        own = list(pieces)
        self._learn([piece.raw for piece in own])
        for piece in own:
            record = records.record_of(piece.raw)
            if record is None:
                yield from self._split(file, piece, place, attempt)
                continue
            for part in record.text.splitlines() or [""]:
                tags, text = self.peel(_without_escapes(part))
                tags = tags._replace(recorded=record.time) if record.time else tags
                yield self._line(file, piece.number, piece.raw, text, tags, place, attempt)

    def _learn(self, raws: list[str]) -> None:
        """Each file may have a prefix of its own."""
        self._learned = None
        marked = [raw for raw in raws if any(mark in raw for mark in learned.MARKS)]
        if marked or any(raw.startswith(">") for raw in raws[:OPENING]):
            self._learned = learned.learn((self.peel(_without_escapes(raw))[1] for raw in marked), raws)

    def _split(self, file: int, piece: Piece, place: Tags, attempt: int | None) -> Iterator[Line]:
        raw = piece.raw
        while True:
            clean = _without_escapes(raw)
            tags, text = self.peel(clean)
            glued = GLUED.search(text, 1)
            if glued is None:
                yield from self._lines(file, piece.number, raw, text, tags, place, attempt)
                return
            mark = glued[0]
            at = raw.find(mark, len(raw) - len(text) if raw is clean else 1)
            if at <= 0:
                yield self._line(file, piece.number, raw, text, tags, place, attempt)
                return
            yield self._line(file, piece.number, raw[:at], text[: glued.start()], tags, place, attempt)
            raw = raw[at:]

    def _lines(
        self, file: int, number: int, raw: str, text: str, tags: Tags, place: Tags, attempt: int | None
    ) -> Iterator[Line]:
        """The line, or those of a traceback that it joins; each is cited by its own part of the source."""
        parts = _joined_parts(text) if 'File "' in text and FRAME_AND_MORE.search(text) else [text]
        for part in parts:
            own = raw if len(parts) == 1 or part not in raw else part
            yield self._line(file, number, own, part.strip() if len(parts) > 1 else part, tags, place, attempt)

    def peel(self, text: str) -> tuple[Tags, str]:
        """Strip prefixes until none matches; of two that tell the same thing the outer one holds."""
        known: dict[str, object] = {}
        for _ in range(6):
            match = self._prefix(text)
            if match is None:
                match = self._learned.match(text) if self._learned else None
                if match is None:
                    break
                if writer := learned.writer(match[0]):
                    known.setdefault("label", writer)
            for name, value in match.groupdict().items():
                if value is not None and name in _TAG_NAMES:
                    known.setdefault(name, int(value) if name in _NUMBERS else value)
            text = text[match.end() :]
            if "<std" in match[0]:
                # mpirun tags each write, also the second half of a line.
                text = text.replace(match[0], "")
        text = text.rstrip()
        if "x across cluster]" in text:
            text = REPEATED.sub("", text)
        if text.endswith("**") and (bold := BOLD.match(text)):
            text = bold["indent"] + bold["text"]
        return (Tags(**known) if known else _NO_TAGS), text  # type: ignore[arg-type]

    def _prefix(self, text: str) -> re.Match[str] | None:
        if not text:
            return None
        for prefix in self._may_start_with(text[0]):
            if prefix.literal and prefix.literal not in text:
                continue
            match: re.Match[str] | None = patterns.prefix_match(prefix.pattern, text)
            if match is not None and match.end() > 0:
                return match
        return None

    def _may_start_with(self, character: str) -> list[Prefix]:
        found = self._by_start.get(character)
        if found is None:
            is_told = character.isascii()
            found = [each for each in self._prefixes if not (is_told and each.starts) or character in each.starts]
            self._by_start[character] = found
        return found

    def _line(self, file: int, number: int, raw: str, text: str, tags: Tags, place: Tags, attempt: int | None) -> Line:
        tags = _merged(tags, place)
        line = Line(self._order, file, number, raw, text, tags, self._stream(file, tags, attempt))
        self._order += 1
        return line

    def _stream(self, file: int, tags: Tags, attempt: int | None) -> int:
        """The writer's number. A local rank alone joins the stream of its global rank where only one rank has it."""
        rank = tags.rank
        if tags.local_rank is not None:
            ranks = self._ranks_of_local.setdefault((file, attempt, tags.host, tags.local_rank), set())
            if rank is not None:
                ranks.add(rank)
            elif len(ranks) == 1:
                rank = next(iter(ranks))
        agent = rank is None and tags.pid is not None and tags.source is not None and "torch" in tags.source
        told = (None, None) if rank is not None else (tags.pid, tags.label)
        key = (file, attempt, tags.host, rank, tags.local_rank, told, agent)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.streams)
            self.streams.append(Stream(file, rank, tags.local_rank, tags.host, attempt))
        return number


def _joined_parts(text: str) -> list[str]:
    from firstfault.logs.unwrapped import parts_of  # Late, because few texts hold such a line.

    return parts_of(text)


def _without_escapes(raw: str) -> str:
    return ESCAPES.sub("", raw) if "\x1b" in raw or "\x00" in raw or "\x07" in raw else raw


def _merged(tags: Tags, place: Tags) -> Tags:
    if place is _NO_TAGS or place == _NO_TAGS:
        return tags
    given = {name: value for name, value in place._asdict().items() if getattr(tags, name) is None}
    return tags._replace(**given)
