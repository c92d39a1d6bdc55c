"""What fixes would change, as a unified diff that ``git apply`` and ``patch`` take."""

import difflib
import os
from collections.abc import Iterator

_BOLD, _RED, _GREEN, _CYAN, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
_STYLES = (("---", _BOLD), ("+++", _BOLD), ("@@", _CYAN), ("-", _RED), ("+", _GREEN))


def unified(path: str, before: str, after: str, colour: bool) -> str:
    name = _shown(path)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(_painted(line, colour) for each in lines for line in _ended(each))


def _lines(text: str) -> list[str]:
    """As these tools count them: at ``\\n`` alone, so that another line end stays a part of its line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _ended(line: str) -> Iterator[str]:
    if line.endswith("\n"):
        yield line
    else:
        yield f"{line}\n"
        yield "\\ No newline at end of file\n"


def _painted(line: str, colour: bool) -> str:
    style = next((style for start, style in _STYLES if line.startswith(start)), "") if colour else ""
    return f"{style}{line[:-1]}{_RESET}\n" if style else line


def _shown(path: str) -> str:
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        short = path
    return (path if short.startswith("..") else short).replace(os.sep, "/").lstrip("/")
