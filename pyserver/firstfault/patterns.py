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
