"""Patterns of signatures and prefixes: run on ``regex`` with a time limit where it is installed, else on ``re``.

The library's patterns use the common subset of both, so the answers are the same; only the last net, the limit of
CPU time for one search, is missing without ``regex``. On short texts bounded patterns cannot run away: there ``re``
serves always, which saves a small diagnosis the import of ``regex``.
"""

import re
from functools import lru_cache
from typing import Any

WINDOW = 8192
TIME_LIMIT = 0.2
SHORT = 1024


def search(pattern: str, text: str) -> Any:
    """The first match within the first 8 KiB of ``text``, or None; None as well when the time limit is over."""
    if len(text) <= SHORT:
        return standard(pattern).search(text)
    return _limited(compiled(pattern).search, text)


def fullmatch(pattern: str, text: str) -> Any:
    """A match of the whole of a short text, such as the name of a type."""
    return standard(pattern).fullmatch(text, 0, WINDOW)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Any:
    return _engine().compile(pattern)


@lru_cache(maxsize=4096)
def standard(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Gated:
    """A pattern that is tried, and at first compiled, only where the text holds one of its literals.

    Most of the reader's patterns meet no line of a given log. Compiling them all would be the longest part of a small
    diagnosis; looking for a literal is also the quicker test.
    """

    __slots__ = ("flags", "literals", "pattern")

    def __init__(self, pattern: str, literals: tuple[str, ...], flags: int = 0) -> None:
        self.pattern, self.literals, self.flags = pattern, literals, flags

    def match(self, text: str) -> "re.Match[str] | None":
        return _with_flags(self.pattern, self.flags).match(text) if self._may_match(text) else None

    def search(self, text: str) -> "re.Match[str] | None":
        return _with_flags(self.pattern, self.flags).search(text) if self._may_match(text) else None

    def sub(self, new: str, text: str) -> str:
        return _with_flags(self.pattern, self.flags).sub(new, text) if self._may_match(text) else text

    def _may_match(self, text: str) -> bool:
        return not self.literals or any(literal in text for literal in self.literals)


def gated(pattern: str, *literals: str, flags: int = 0) -> Gated:
    """Each text that the pattern matches must hold one of the literals; without literals it is only compiled late."""
    return Gated(pattern, literals, flags)


@lru_cache(maxsize=256)
def _with_flags(pattern: str, flags: int) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def prefix_match(pattern: str, text: str) -> Any:
    """A match at the start. Prefixes are tried on every line, so they run on the quicker ``re`` always."""
    return standard(pattern).match(text)


def _limited(method: Any, text: str) -> Any:
    if _engine() is re:
        return method(text, 0, WINDOW)
    try:
        return method(text, 0, WINDOW, timeout=TIME_LIMIT)
    except TimeoutError:
        return None


@lru_cache(maxsize=1)
def _engine() -> Any:
    try:
        import regex
    except ImportError:
        return re
    return regex
