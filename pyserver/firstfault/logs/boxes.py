"""The frames of a traceback that Rich drew as a box: a path and a line each, with code below them."""

from collections.abc import Iterable

from firstfault.logs.log import FrameLine, Line
from firstfault.patterns import gated

RICH_FRAME = gated(
    r"\u2502 (?P<file>(?:[A-Za-z]:)?[^\s:\u2502\u2771][^:\u2502]{0,399}):(?P<line>\d{1,9})"
    r" in (?P<function>[^\s\u2502]{1,200})",
    "\u2502 ",
)
# Of a notebook's cell, and of what was typed at a prompt, Rich knows no file.
RICH_CELL = gated(r"\u2502 in (?P<function><module>|\w{1,120}):(?P<line>\d{1,9}) *\u2502$", "\u2502 in ")
NO_FILE = "(cell or prompt)"
# A path that the box is too narrow for goes on in the next line.
BEGUN = gated(r"\u2502 (?P<part>(?:~|/|[A-Za-z]:[\\/])[^\u2502]{1,300}?) *\u2502$", "\u2502 ")
MORE = gated(r"\u2502 (?P<part>[^\s\u2502\u2771][^\u2502]{0,300}?) *\u2502$", "\u2502 ")
# A piece of a box: a frame or the beginning of its path, or the arrow at the line that was running.
PIECE = gated(
    r" *\u2502 (?:\u2771 {0,6}\d{1,6} \u2502|[^\u2502\u2771]{1,300}\.py:\d{1,9} in \S{1,200} *\u2502$"
    r"|(?:~|/|[A-Za-z]:[\\/])[^\u2502]{1,300} \u2502$)",
    "\u2502 ",
)
EDGE = "\u2502"
RICH_END = "\u2570"


def frames_in(lines: Iterable[Line]) -> list[FrameLine]:
    """The frames of the lines of one box."""
    frames: list[FrameLine] = []
    path = ""
    for line in lines:
        more = MORE.search(line.text) if path else None
        text = f"\u2502 {path}{more['part']} \u2502" if more else line.text
        if found := RICH_FRAME.search(text):
            frames.append(FrameLine(found["file"], int(found["line"]), found["function"], line))
            path = ""
        elif cell := RICH_CELL.search(text):
            frames.append(FrameLine(NO_FILE, int(cell["line"]), cell["function"], line))
        else:
            begun = BEGUN.search(text)
            path = begun["part"] if begun else ""
    return frames
