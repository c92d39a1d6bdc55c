"""Where new statements may stand: what dominates what, where a window's step begins, what a name is read for."""

import ast
from collections.abc import Iterator

from firstfault.lint.script import FUNCTIONS, LOOPS, Loop, Script
from firstfault.lint.training_loop import Action, TrainingLoop
from firstfault.text import Edit, Position, Span


def dominates(script: Script, first: ast.stmt, second: ast.stmt) -> bool:
    """Whenever the second statement runs, the first has run before it: no branch lies around the first alone."""
    if script.span(first).start >= script.span(second).start:
        return False
    around_second = set(script.ancestors(second))
    below: ast.AST = first
    for above in script.ancestors(first):
        if above in around_second:
            return _same_branch(script, above, below, second)
        if not isinstance(above, (ast.With, ast.AsyncWith)):
            return False
        below = above
    return True


def _same_branch(script: Script, above: ast.AST, first: ast.AST, second: ast.AST) -> bool:
    """Both stand in one list of statements of their common holder."""
    below = second
    for each in script.ancestors(second):
        if each is above:
            break
        below = each
    if not isinstance(first, ast.stmt) or not isinstance(below, ast.stmt):
        return False
    return below in script.block(first)


def lifted(script: Script, statement: ast.stmt, second: ast.stmt) -> ast.stmt | None:
    """The statement, or the ``if`` that holds nothing else, so that what is put before it dominates the second."""
    while True:
        above = script.parent(statement)
        if above is second or above in set(script.ancestors(second)):
            return statement
        if isinstance(above, (ast.With, ast.AsyncWith)):
            return statement
        if not isinstance(above, ast.If) or above.orelse or len(above.body) != 1:
            return None
        statement = above


def step_anchor(script: Script, statements: list[ast.stmt], actions: tuple[Action, ...]) -> ast.stmt | None:
    """The first statement of a block that clips or steps: before it the gradients must be right."""
    marks: dict[int, str] = {id(each.node): each.verb for each in actions if each.verb in ("clip", "step")}
    holding = [each for each in statements if _verbs(each, marks)]
    if not holding:
        return None
    first = holding[0]
    if len(holding) > 1 or "step" not in _verbs(first, marks):
        return first
    inner = _only_block(first, marks)
    return step_anchor(script, inner, actions) if inner else first


def _only_block(statement: ast.stmt, marks: dict[int, str]) -> list[ast.stmt]:
    """The body of an ``if`` without other branch, or of a ``with``, that holds all of the marks."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return statement.body
    if isinstance(statement, ast.If) and not any(_verbs(each, marks) for each in statement.orelse):
        return statement.body
    return []


def _verbs(statement: ast.stmt, marks: dict[int, str]) -> set[str]:
    return {marks[id(each)] for each in ast.walk(statement) if id(each) in marks}


def boundary_block(script: Script, loop: TrainingLoop) -> list[ast.stmt]:
    """The statements of the loop that run once per window."""
    window = loop.window
    if window is None or window.boundary is None:
        return []
    if not window.inverted:
        return window.boundary.body
    if window.boundary.orelse:
        return window.boundary.orelse
    block = script.block(window.boundary)
    return block[block.index(window.boundary) + 1 :]


def blocks_after(script: Script, loop: Loop) -> Iterator[list[ast.stmt]]:
    """The statements behind a loop, level by level, up to the loop or function around it."""
    below: ast.AST = loop
    for above in script.ancestors(loop):
        if isinstance(below, ast.stmt):
            block = script.block(below)
            yield block[block.index(below) + 1 :]
        if isinstance(above, (*LOOPS, *FUNCTIONS)):
            return
        below = above


def outermost_loop(script: Script, loop: Loop) -> Loop:
    found = loop
    for above in script.ancestors(loop):
        if isinstance(above, FUNCTIONS):
            break
        if isinstance(above, LOOPS):
            found = above
    return found


def own_line(script: Script, statement: ast.stmt) -> bool:
    """Nothing but the indentation stands before the statement on its line, nothing but a comment behind it."""
    start, end = script.span(statement)
    before = script.line_text(start.line)[: start.column - 1]
    after = script.line_text(end.line)[end.column - 1 :].strip()
    return not before.strip() and (not after or after.startswith("#"))


def indent(script: Script, statement: ast.stmt) -> str:
    start = script.span(statement).start
    return script.line_text(start.line)[: start.column - 1]


def step_of_indent(script: Script, loop: Loop) -> str:
    return indent(script, loop.body[0]).removeprefix(indent(script, loop)) or "    "


def insert_before(script: Script, statement: ast.stmt, lines: list[str]) -> Edit:
    """New lines in front of a statement, at its indentation; decorators and comments above it stay above."""
    at = Position(script.span(statement).start.line, 1)
    margin = indent(script, statement)
    text = "".join(f"{margin}{line}{newline(script)}" for line in lines)
    return Edit(Span(at, at), text)


def insert_at_top(script: Script, loop: Loop, lines: list[str]) -> Edit:
    """New lines at the beginning of a loop's body, in front of the comment that belongs to its first statement."""
    line = script.span(loop.body[0]).start.line
    while line > 1 and (not (text := script.line_text(line - 1).strip()) or text.startswith("#")):
        line -= 1
    margin = indent(script, loop.body[0])
    at = Position(line, 1)
    return Edit(Span(at, at), "".join(f"{margin}{each}{newline(script)}" for each in lines))


def insert_after(script: Script, statement: ast.stmt, lines: list[str]) -> Edit:
    line = script.span(statement).end.line
    margin = indent(script, statement)
    text = "".join(f"{newline(script)}{margin}{each}" for each in lines)
    at = Position(line, len(script.line_text(line)) + 1)
    return Edit(Span(at, at), text)


def delete_lines(script: Script, statement: ast.stmt) -> Edit:
    """The whole lines of a statement, with their line end."""
    start, end = script.span(statement)
    last = len(script.table.starts)
    stop = Position(end.line + 1, 1) if end.line < last else Position(end.line, len(script.line_text(end.line)) + 1)
    return Edit(Span(Position(start.line, 1), stop), "")


def newline(script: Script) -> str:
    return "\r\n" if "\r\n" in script.source else "\n"


def is_read_elsewhere(script: Script, name: str, computed: ast.stmt, divided: ast.stmt, apart: list[ast.stmt]) -> bool:
    """The divided value is read: below the division, or above the computation (then it is that of the last round)."""
    skipped = {id(each) for statement in apart for each in ast.walk(statement)}
    start, end = script.span(computed).start, script.span(divided).end
    return any(
        each.id == name and isinstance(each.ctx, (ast.Load, ast.Del)) and id(each) not in skipped
        for each in script.walk(script.scope(divided))
        if isinstance(each, ast.Name) and not start <= script.span(each).start < end
    )
