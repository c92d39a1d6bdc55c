"""Patterns of signatures and prefixes: run on ``regex`` with a time limit where it is installed, else on ``re``.

The library's patterns use the common subset of both, so the answers are the same; only the last net, the limit of
CPU time for one search, is missing without ``regex``.
"""

import re
from functools import lru_cache
from typing import Any

WINDOW = 8192
TIME_LIMIT = 0.2


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Any:
    return _engine().compile(pattern)


def search(pattern: str, text: str) -> Any:
    """The first match within the first 8 KiB of ``text``, or None; None as well when the time limit is over."""
    return _run(compiled(pattern).search, text)


def fullmatch(pattern: str, text: str) -> Any:
    return _run(compiled(pattern).fullmatch, text)


def prefix_match(pattern: str, text: str) -> Any:
    """A match at the start. Prefixes are tried on every line, so they run on the quicker ``re`` always."""
    return _prefix_compiled(pattern).match(text)


def _run(method: Any, text: str) -> Any:
    if _engine() is re:
        return method(text, 0, WINDOW)
    try:
        return method(text, 0, WINDOW, timeout=TIME_LIMIT)
    except TimeoutError:
        return None


@lru_cache(maxsize=256)
def _prefix_compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1)
def _engine() -> Any:
    try:
        import regex
    except ImportError:
        return re
    return regex
