"""Text -> syntax tree, also while a line is still being typed.

Python's parser blames one line of a text that it cannot read. That line is blanked, or replaced by ``pass``, and the
text is parsed again, a few times: the tree of everything else is right, and its positions are those of the text.
"""

import ast
import re
import warnings
from typing import NamedTuple

_TRIES = 8
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_HEADER_LINE = re.compile(r" on line (\d+)")


class Parsed(NamedTuple):
    tree: ast.Module
    problem: SyntaxError | None  # what the parser said about the text as it stands


def parse(source: str) -> Parsed | None:
    """The tree of a text, or None where not even repair makes it readable."""
    first: SyntaxError | None = None
    text, mended = source, set[int]()
    for _ in range(_TRIES + 1):
        try:
            return Parsed(_tree(text), first)
        except SyntaxError as error:
            first = first or error
            repaired = None if _is_python_2(error) else _without_blamed_line(text, error, mended)
        except (ValueError, RecursionError, MemoryError):
            return None
        if repaired is None:
            return None
        text = repaired
    return None


def syntax_error(source: str) -> SyntaxError | None:
    """What Python's parser says about a text as it stands, without repair."""
    try:
        _tree(source)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError):  # what the parser raises for its own stack
        return SyntaxError("it is nested too deeply")
    except ValueError as error:
        return SyntaxError(str(error))
    return None


def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are another linter's business
        return ast.parse(text)


def _is_python_2(error: SyntaxError) -> bool:
    """``print "x"``: the whole file is another language, not a line that is being typed."""
    return (error.msg or "").startswith("Missing parentheses in call to")


def _without_blamed_line(text: str, error: SyntaxError, mended: set[int]) -> str | None:
    lines = [line for line in _LINE.findall(text) if line]
    number = _line_to_mend(lines, error, mended)
    if number is None:
        return None
    above = _line_to_mend(lines[: number - 1], error, mended) if _is_indentation(error) else None
    if above is not None and _reach(_mended(lines, above, error)) > _reach(_mended(lines, number, error)):
        number = above  # the parser blames the line below one that is indented to nowhere
    mended.add(number)
    return _mended(lines, number, error)


def _mended(lines: list[str], number: int, error: SyntaxError) -> str:
    line = lines[number - 1]
    indent = line[: len(line) - len(line.lstrip(" \t\f"))]
    ending = line[len(line.rstrip("\r\n")) :]
    # Blank, not empty: behind a line that ends at a lone "\r", an empty line's "\n" would join that end.
    new = (" " if _is_indentation(error) else indent + "pass") + ending
    return "".join([*lines[: number - 1], new, *lines[number:]])


def _reach(text: str) -> float:
    """How far the parser comes."""
    error = syntax_error(text)
    return float(error.lineno or 0) if error else float("inf")


def _line_to_mend(lines: list[str], error: SyntaxError, mended: set[int]) -> int | None:
    """The blamed line; where that is mended or empty already, the nearest one above that is not."""
    number = min(error.lineno or 1, len(lines))
    header = _HEADER_LINE.search(error.msg or "")
    if header and "expected an indented block" in error.msg:
        number = int(header[1])
    while number >= 1 and (number in mended or not lines[number - 1].strip()):
        number -= 1
    return number if number >= 1 else None


def _is_indentation(error: SyntaxError) -> bool:
    """An indentation that fits nowhere cannot carry a ``pass`` either."""
    return isinstance(error, IndentationError) and "expected an indented block" not in (error.msg or "")
