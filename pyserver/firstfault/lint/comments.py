"""The comments of a script that speak to linters, found without reading every token of it.

A mark inside of a string is no comment: the syntax tree knows the strings, and only where one is written in several
parts, with comments between them, its tokens are read.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.script import Script, per_script
from firstfault.text import Position, Span

_MARK = re.compile(
    r"#[ \t]*(?:"
    r"firstfault:[ \t]*(?P<own>ignore-file|ignore)\b(?P<given>[ \t]*\[(?P<codes>[^\]\r\n]*)\])?"
    r"|(?P<noqa>noqa)(?![\w-])(?P<colon>[ \t]*:[ \t]*(?P<flake>[A-Z]+\d+(?:(?:[ \t]*,[ \t]*|[ \t]+)[A-Z]+\d+)*)?)?"
    r")",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s,]+(?:[ \t]+[^\s,]+)*")
_CODE = re.compile(r"[A-Za-z]+\d+")


class Code(NamedTuple):
    text: str
    start: int  # offsets of the text
    end: int


class Mark(NamedTuple):
    """One request to be silent. Without codes it is about every rule."""

    kind: str  # "ignore", "ignore-file", "noqa"
    start: int
    end: int
    codes: tuple[Code, ...]
    line: int
    alone: bool  # nothing but the comment stands on the line


def marks(script: Script) -> Iterator[Mark]:
    """Every mark of a script, in the order of the text."""
    for match in _MARK.finditer(script.source):
        if match["noqa"] and match["colon"] and not match["flake"]:
            continue  # a colon without a code after it: no linter knows what is meant
        if match["given"] and not (match["codes"] or "").strip():
            continue  # brackets without anything in them
        if not _is_comment(script, match.start()):
            continue
        kind = "noqa" if match["noqa"] else match["own"].lower()
        place = script.table.position(match.start())
        before = script.source[script.table.starts[place.line - 1] : match.start()].lstrip("\ufeff \t\f")
        alone = not before or before.startswith("#")
        yield Mark(kind, match.start(), match.end(), tuple(_codes(match)), place.line, alone)


def _codes(match: "re.Match[str]") -> Iterator[Code]:
    group, pattern = ("flake", _CODE) if match["noqa"] else ("codes", _WORD)
    if match[group]:
        for each in pattern.finditer(match[group]):
            yield Code(each[0], match.start(group) + each.start(), match.start(group) + each.end())


def _is_comment(script: Script, offset: int) -> bool:
    place = script.table.position(offset)
    for node in _strings_by_line(script).get(place.line, ()):
        span = script.span(node)
        if span.start <= place < span.end:
            return _is_between_parts(script, span, place)
    return True


@per_script
def _strings_by_line(script: Script) -> dict[int, list[ast.expr]]:
    found: dict[int, list[ast.expr]] = {}
    for node in script.nodes(ast.JoinedStr, ast.Constant):
        if isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), (str, bytes)):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found.setdefault(line, []).append(node)
    return found


def _is_between_parts(script: Script, span: Span, place: Position) -> bool:
    """``"one"  # a comment``, newline, ``"two"``: the tree takes both for one string."""
    text = script.source[script.table.offset(span.start) : script.table.offset(span.end)]
    blanks = " " * (span.start.column - 2) + "(" if span.start.column > 1 else ""
    row = place.line - span.start.line + 1
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(f"{blanks}{text}").readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        tokens = _tokens_until_error(f"{blanks}{text}")
    columns = (each.start[1] + 1 for each in tokens if each.type == tokenize.COMMENT and each.start[0] == row)
    return any(column <= place.column for column in columns)


def _tokens_until_error(text: str) -> list[tokenize.TokenInfo]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            found.append(token)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        pass  # the bracket in front never closes; what was read before that is right
    return found
