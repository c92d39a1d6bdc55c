"""The characters that a text must begin with for a pattern to match at its start; asked when the library is compiled.

Most prefixes can be ruled out by the first character of a line, before their pattern is tried, or even compiled.
"""

import sys
from collections.abc import Iterable
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

ASCII = frozenset(map(chr, range(128)))
_CATEGORIES = {
    "CATEGORY_DIGIT": frozenset(filter(str.isdigit, ASCII)),
    "CATEGORY_SPACE": frozenset(filter(str.isspace, ASCII)),
    "CATEGORY_WORD": frozenset(each for each in ASCII if each.isalnum() or each == "_"),
}


def first_characters(pattern: str) -> str:
    """The ASCII characters that a match can begin with, sorted; "" where it can begin with any, or match nothing."""
    parts: Any = parser.parse(pattern)
    found, empty = _of_sequence(parts)
    return "" if empty or found == ASCII else "".join(sorted(found))


def _of_sequence(parts: Iterable[tuple[Any, Any]]) -> tuple[frozenset[str], bool]:
    """The first characters of parts in a row, and whether all of them can match nothing."""
    found: frozenset[str] = frozenset()
    for kind, value in parts:
        first, empty = _of_part(str(kind), value)
        found |= first
        if not empty:
            return found, False
    return found, True


def _of_part(kind: str, value: Any) -> tuple[frozenset[str], bool]:
    if kind == "LITERAL":
        return frozenset(chr(value)) & ASCII, False
    if kind == "IN":
        return _of_class(value), False
    if kind == "SUBPATTERN":
        return _of_sequence(value[-1])
    if kind == "BRANCH":
        branches = [_of_sequence(each) for each in value[1]]
        return frozenset().union(*(first for first, _ in branches)), any(empty for _, empty in branches)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        first, empty = _of_sequence(value[2])
        return first, empty or value[0] == 0
    if kind in ("ASSERT", "ASSERT_NOT", "AT"):
        return frozenset(), True  # it looks, and takes nothing
    return ASCII, False


def _of_class(parts: list[tuple[Any, Any]]) -> frozenset[str]:
    """``[...]``, ``\\d``."""
    found: frozenset[str] = frozenset()
    negated = False
    for kind, value in ((str(kind), value) for kind, value in parts):
        if kind == "NEGATE":
            negated = True
        elif kind == "LITERAL":
            found |= frozenset(chr(value)) & ASCII
        elif kind == "RANGE":
            found |= frozenset(each for each in ASCII if value[0] <= ord(each) <= value[1])
        else:
            name = str(value)
            of_category = _CATEGORIES.get(name.replace("NOT_", ""), ASCII)
            found |= ASCII - of_category if "NOT_" in name else of_category
    return ASCII - found if negated else found
