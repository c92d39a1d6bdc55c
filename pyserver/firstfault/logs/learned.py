"""Prefixes that no file describes, learned from the text itself.

Every launcher and logger puts something of its own before a line. Where tracebacks stand behind an unknown prefix,
their frames show it: the same text, numbers aside, before several of them. It is then cut from every line that begins
with it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from firstfault.patterns import gated

MARKS = ('File "', "Traceback (most recent call last)")
FRAME = re.compile(r'(?P<before>\S.{0,119}?) {2}File "[^"]+", line \d')
HEADER = gated(r"(?P<before>\S.{0,119}?)Traceback \(most recent call last\):\s*$", "Traceback (most recent")
NUMBER = re.compile(r"\d+")
# What changes from line to line of one writer: times, and the place of the logging call.
FLEETING = gated(r"\d\d:\d\d:\d\d(?:[.,]\d+)?|\.(?:py|cpp|cc|go):\d+")
SENTENCE = gated(r"(?:[A-Za-z]{2,} ){3}")
# Who quotes a traceback prints these before it; a text of which they begin most lines is a quotation as a whole.
QUOTES = frozenset("#>*/")
FRAMES_WANTED = 2


def learn(marked: Iterable[str], lines: Sequence[str]) -> "re.Pattern[str] | None":
    """A pattern for the prefixes before the frames of tracebacks; ``marked`` are the lines that hold a mark."""
    texts = list(marked)
    shapes = Counter(NUMBER.sub("0", found["before"]) for text in texts if (found := FRAME.match(text)))
    known = {shape for shape, count in shapes.items() if count >= FRAMES_WANTED}
    headers = {NUMBER.sub("0", found["before"]) for text in texts if (found := HEADER.match(text))}
    known |= {shape for shape in shapes if shape in headers}
    if _is_quoted(lines):
        return re.compile(r"> ?")
    kept = [shape for shape in sorted(known, key=len, reverse=True) if _is_prefix(shape, lines)]
    if not kept and (indentation := _indentation(texts)):
        return re.compile(indentation)
    return re.compile("|".join(map(_pattern, kept))) if kept else None


def _is_quoted(lines: Sequence[str]) -> bool:
    """A text of which nearly every line begins as quotations in letters do."""
    written = [line for line in lines if line.strip()]
    return len(written) > 1 and sum(line.startswith(">") for line in written) > 0.8 * len(written)


def _indentation(texts: list[str]) -> str | None:
    """What stands before all headers of a text that was pasted indented, and so before the frames below them."""
    heads = {text[: text.index("Traceback (")] for text in texts if text.lstrip().startswith("Traceback (")}
    if len(heads) != 1 or not (head := heads.pop()).isspace():
        return None
    frames = [text for text in texts if text.lstrip().startswith('File "')]
    return head if all(text.startswith(head + "  ") for text in frames) else None


def writer(prefix: str) -> str:
    """What of a learned prefix tells one writer from another."""
    return FLEETING.sub("", prefix).strip()


def _is_prefix(shape: str, lines: Sequence[str]) -> bool:
    if SENTENCE.search(shape):
        return False
    if shape[0] not in QUOTES:
        return True
    written = [line for line in lines if line.strip()]
    return 2 * sum(line.startswith(shape[0]) for line in written) > len(written)


def _pattern(shape: str) -> str:
    """The prefix itself; a line that is empty behind it may have lost its last spaces."""
    body = shape.rstrip()
    escaped = r"\d+".join(re.escape(part) for part in body.split("0"))
    spaces = len(shape) - len(body)
    return escaped + (f"(?: {{{spaces}}}|$)" if spaces else "")
