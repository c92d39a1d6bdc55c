"""The patterns of a ``.gitignore``: which paths they leave out, as git itself decides.

Held against ``git check-ignore`` by a test that invents patterns. The same patterns serve the setting ``exclude``.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LARGEST = 1_000_000  # bytes; nobody writes more patterns by hand
_POSIX = {"alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s"}
_POSIX |= {"blank": r" \t", "xdigit": "0-9A-Fa-f", "punct": r"!-/:-@\[-`{-~"}


class Pattern(NamedTuple):
    regex: "re.Pattern[str]"
    keeps: bool  # it begins with "!"
    folders_only: bool


class Patterns(NamedTuple):
    """The patterns of one file, about the paths below one folder."""

    folder: str
    patterns: tuple[Pattern, ...]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Whether a path is left out; None where no pattern speaks of it. Of several, the last one decides."""
        relative = _bytewise(os.path.relpath(path, self.folder).replace(os.sep, "/"))
        for pattern in reversed(self.patterns):
            if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(relative):
                return not pattern.keeps
        return None


def read_patterns(path: str, folder: str) -> Patterns | None:
    """The patterns of a file, about the paths below ``folder``; None where it has none, or cannot be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return None
    return patterns_of(text.removeprefix("\ufeff").split("\n"), folder)


def patterns_of(lines: Iterable[str], folder: str) -> Patterns | None:
    found = tuple(pattern for line in lines if (pattern := _pattern(line)) is not None)
    return Patterns(folder, found) if found else None


def above(folder: str) -> tuple[Patterns, ...]:
    """What the repository says outside of a folder that lies in it: from its root down to the folder's parent."""
    folders = list(_up_to_repository(os.path.abspath(folder)))
    if not folders:
        return ()
    root = folders[-1]
    own = read_patterns(os.path.join(root, ".git", "info", "exclude"), root)
    found = (read_patterns(os.path.join(each, ".gitignore"), each) for each in reversed(folders[1:]))
    return tuple(each for each in (own, *found) if each is not None)


def is_left_out(path: str, is_folder: bool, chain: Iterable[Patterns]) -> bool:
    """The innermost file that speaks of a path decides; ``chain`` goes from the outermost to the innermost."""
    verdicts = (each.verdict(path, is_folder) for each in reversed(tuple(chain)))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _up_to_repository(folder: str) -> Iterator[str]:
    """The folder and those above it, up to the one that holds ``.git``; nothing where none does."""
    found = []
    while True:
        found.append(folder)
        if os.path.exists(os.path.join(folder, ".git")):
            yield from found
            return
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _bytewise(text: str) -> str:
    """Git's ``?`` is one byte of UTF-8: each byte becomes a character."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _pattern(line: str) -> Pattern | None:
    text = _without_trailing_blanks(_bytewise(line.removesuffix("\r")))
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    if not text or (text.startswith("#") and not keeps):
        return None
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anywhere = "" if "/" in text else "(?:.*/)?"
    try:
        return Pattern(re.compile(anywhere + _translated(text.removeprefix("/")), re.DOTALL), keeps, folders_only)
    except (re.error, ValueError):
        return None  # a bracket that never closes, a range that goes backwards: git matches nothing with it


def _without_trailing_blanks(line: str) -> str:
    end = len(line)
    while end and line[end - 1] == " " and not _is_escaped(line, end - 1):
        end -= 1
    return line[:end]


def _is_escaped(line: str, at: int) -> bool:
    before = line[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _translated(text: str) -> str:
    """The pattern as a regular expression about the whole path. Raises ValueError for what git never matches."""
    parts, at = [], 0
    while at < len(text):
        part, at = _part(text, at)
        parts.append(part)
    return "".join(parts)


def _part(text: str, at: int) -> tuple[str, int]:
    first = text[at]
    if first == "*":
        return _stars(text, at)
    if first == "?":
        return "[^/]", at + 1
    if first == "[":
        return _bracket(text, at)
    if first == "\\":
        if at + 1 == len(text):
            raise ValueError("nothing is escaped")
        return re.escape(text[at + 1]), at + 2
    return re.escape(first), at + 1


def _stars(text: str, at: int) -> tuple[str, int]:
    """Two stars or more between slashes span folders; any other stars stay within one name.

    Git compares what stands in front of the first wildcard by itself, so stars behind it count as the beginning.
    """
    end = at
    while end < len(text) and text[end] == "*":
        end += 1
    opens = text[at - 1 : at] == "/" or ("/" in text and not any(each in "*?[\\" for each in text[:at]))
    if end - at > 1 and opens and text[end : end + 1] == "/":
        return "(?:.*/)?", end + 1
    if end - at > 1 and opens and end == len(text):
        return ".+" if text[at - 1 : at] == "/" else ".*", end
    return "[^/]*", end


def _bracket(text: str, at: int) -> tuple[str, int]:
    inside, end = [], at + 1
    negated = text[end : end + 1] in ("!", "^")
    end += negated
    start = end
    while end < len(text) and (text[end] != "]" or end == start):
        part, end = _member(text, end)
        inside.append(part)
    if end >= len(text):
        raise ValueError("a bracket that never closes")
    return f"(?!/)[{'^' if negated else ''}{''.join(inside)}]", end + 1


def _member(text: str, at: int) -> tuple[str, int]:
    named = re.match(r"\[:(\w+):\]", text[at:])
    if named:
        if named[1] not in _POSIX:
            raise ValueError("an unknown class")
        return _POSIX[named[1]], at + named.end()
    low, at = _character(text, at)
    if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("]", ""):
        high, at = _character(text, at + 1)
        # A range that goes backwards holds nothing but its first character.
        return (f"{re.escape(low)}-{re.escape(high)}" if low <= high else re.escape(low)), at
    return re.escape(low), at


def _character(text: str, at: int) -> tuple[str, int]:
    at += text[at] == "\\"
    if at >= len(text):
        raise ValueError("nothing is escaped")
    return text[at], at + 1
