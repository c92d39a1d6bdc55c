"""A traceback that a paste, a ticket or a table's cell has put on one line: where its lines began.

Only a line that begins with the header or with a frame is taken apart; a sentence that mentions a frame stays whole.
"""

import re
from collections.abc import Iterator

from firstfault.patterns import gated

STARTS = gated(r'\s*(?:Traceback \(most recent call last\):\s+)?File "', 'File "')
FRAME = re.compile(r'\s*\bFile "[^"\n]{1,1000}", line \d{1,9}, in (?:<[^<>\n]{1,60}>(?:\(\))?|[^\s<>]{1,120})')
EXCEPTION = re.compile(
    r"\s(?=(?:[A-Za-z_]\w*\.){0,8}_?[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Group|Timeout|Died|Failed|Iteration)"
    r"(?:: |$))"
)


def parts_of(text: str) -> list[str]:
    """The lines that were joined; one, where the text is no such line."""
    if 'File "' not in text or not STARTS.match(text):
        return [text]
    frames = list(FRAME.finditer(text))
    if not frames or (
        len(frames) == 1 and not text[frames[0].end() :].strip() and not text[: frames[0].start()].strip()
    ):
        return [text]
    ends = [0, *(at for frame in frames for at in frame.span())]
    exception = EXCEPTION.search(text, frames[-1].end())
    ends += [exception.end()] if exception else []
    return [part for part in _between(text, ends) if part.strip()]


def _between(text: str, ends: list[int]) -> Iterator[str]:
    for start, end in zip(ends, [*ends[1:], len(text)], strict=True):
        yield text[start:end]
