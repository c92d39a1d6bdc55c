"""Moves statements that run with every micro-batch to where they run once a window: in front of its step, or behind.

No edit is given where the move may change something else: a value that is read before the step, a branch that only
some micro-batches take, gradients that the script works on by hand.
"""

import ast
from typing import Literal

from firstfault.lint import placement
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop
from firstfault.text import Edit, Position, Span

Side = Literal["before", "after"]


def moved(
    script: Script, loop: TrainingLoop, actions: list[Action], side: Side, lead: tuple[str, ...] = ()
) -> tuple[Edit, ...] | None:
    """The edits that move the statements of some actions; ``lead`` are new lines in front of them."""
    statements = _statements(script, loop, actions)
    if not statements or loop.window is None or _may_disturb(script, loop):
        return None
    if loop.window.kind == "accumulate-context":
        return _under_sync_gradients(script, loop, statements) if not lead else None
    anchor = _anchor(script, loop, actions, side)
    if anchor is None or not placement.own_line(script, anchor) or _is_read(script, statements, anchor):
        return None
    if any(each.verb == "step" and each.after_loop for each in loop.actions) and loop.window.boundary is not None:
        return None  # the flush behind the loop would go without
    margin = placement.indent(script, anchor)
    lines = [margin + each for each in lead] + _lines(script, statements, margin)
    deleted = [_deleted(script, each) for each in statements]
    return (*deleted, _inserted(script, anchor, lines, side))


def _statements(script: Script, loop: TrainingLoop, actions: list[Action]) -> list[ast.stmt]:
    """The whole statements to move, an ``if`` around nothing else included; empty where they do not stand together."""
    if any(each.helper is not None for each in actions):
        return []
    found = [script.statement(each.node) for each in actions]
    boundary = loop.window.boundary if loop.window else None
    while True:
        holder = script.parent(found[0])
        pure = isinstance(holder, ast.If) and holder is not boundary and not holder.orelse
        if not pure or any(each not in found for each in holder.body):  # type: ignore[union-attr]
            break
        found = [holder]  # type: ignore[list-item]
    block = script.block(found[0])
    if any(each not in block or not placement.own_line(script, each) for each in found) or len(block) <= len(found):
        return []
    return sorted(found, key=script.line) if _is_plain(script, loop, found) else []


def _is_plain(script: Script, loop: TrainingLoop, statements: list[ast.stmt]) -> bool:
    """They run with every micro-batch: directly in the loop, or before the boundary whatever branch is taken."""
    if any('"""' in script.text(each) or "'''" in script.text(each) for each in statements):
        return False
    boundary = loop.window.boundary if loop.window else None
    if boundary is None:
        around = [each for each in script.ancestors(statements[0]) if isinstance(each, (ast.If, ast.Try, *LOOPS))]
        inside_with = loop.window is not None and loop.window.kind == "accumulate-context"
        return inside_with or bool(around and around[0] is loop.node)
    return all(placement.dominates(script, each, boundary) for each in statements) or all(
        placement.dominates(script, boundary, each) for each in statements
    )


def _may_disturb(script: Script, loop: TrainingLoop) -> bool:
    """The script works on gradients by hand, or leaves the round between the statement and its new place."""
    nodes = list(script.walk(loop.node))
    by_hand = any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in nodes)
    return by_hand or any(isinstance(each, (ast.Try, ast.Continue, ast.Break)) for each in nodes)


def _anchor(script: Script, loop: TrainingLoop, actions: list[Action], side: Side) -> ast.stmt | None:
    """The statement of the step; None where the block clips by itself, or the step stands in a helper."""
    window = loop.window
    assert window is not None
    blocks = [placement.boundary_block(script, loop)]
    if window.kind in ("inner-range", "chunks") and isinstance(loop.node, LOOPS):
        blocks = list(placement.blocks_after(script, loop.node))[:1]
    moving = {id(each.node) for each in actions}
    for block in blocks:
        marks = {id(each.node): each for each in loop.actions if id(each.node) not in moving and each.helper is None}
        held = [marks[id(each)] for statement in block for each in script.walk(statement) if id(each) in marks]
        if any(each.verb in {one.verb for one in actions} for each in held):
            return None
        steps = [script.statement(each.node) for each in held if each.verb == "step"]
        if len(steps) == 1 and steps[0] in block:
            return steps[0]
    return None


def _is_read(script: Script, statements: list[ast.stmt], anchor: ast.stmt) -> bool:
    """A name that a statement sets is read elsewhere than behind its new place."""
    names = {
        each.id
        for statement in statements
        for each in script.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    if not names:
        return False
    block = script.block(anchor)
    behind = {id(each) for statement in block[block.index(anchor) :] for each in script.walk(statement)}
    own = {id(each) for statement in statements for each in script.walk(statement)}
    return any(
        each.id in names and isinstance(each.ctx, ast.Load) and id(each) not in behind and id(each) not in own
        for each in script.walk(script.scope(anchor))
        if isinstance(each, ast.Name)
    )


def _under_sync_gradients(script: Script, loop: TrainingLoop, statements: list[ast.stmt]) -> tuple[Edit, ...] | None:
    """accelerate tells by itself which micro-batch closes the window."""
    call = loop.window.node if loop.window else None
    owner = dotted(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    first, last = statements[0], statements[-1]
    block = script.block(first)
    together = block.index(last) - block.index(first) == len(statements) - 1
    sets = any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) for each in script.walk(first))
    if not owner or not together or sets:
        return None
    margin = placement.indent(script, first)
    step = _step_of_indent(script, first, margin)
    start = Position(script.line(first), 1)
    end = Position(script.span(last).end.line, len(script.line_text(script.span(last).end.line)) + 1)
    lines = [f"{margin}if {owner}.sync_gradients:"]
    for number in range(start.line, end.line + 1):
        text = script.line_text(number)
        lines.append(step + text if text.strip() else text)
    return (Edit(Span(start, end), placement.newline(script).join(lines)),)


def _step_of_indent(script: Script, statement: ast.stmt, margin: str) -> str:
    holder = script.parent(statement)
    outer = placement.indent(script, holder) if isinstance(holder, ast.stmt) else ""
    return margin.removeprefix(outer) or "    "


def _first_line(script: Script, statement: ast.stmt) -> int:
    """The first of the comment lines right above a statement, at its indentation."""
    line, margin = script.line(statement), placement.indent(script, statement)
    while line > 1 and script.line_text(line - 1).startswith(margin + "#"):
        line -= 1
    return line


def _lines(script: Script, statements: list[ast.stmt], margin: str) -> list[str]:
    lines = []
    for each in statements:
        old = placement.indent(script, each)
        for number in range(_first_line(script, each), script.span(each).end.line + 1):
            lines.append((margin + script.line_text(number).removeprefix(old)).rstrip())
    return lines


def _deleted(script: Script, statement: ast.stmt) -> Edit:
    whole = placement.delete_lines(script, statement)
    return Edit(Span(Position(_first_line(script, statement), 1), whole.span.end), "")


def _inserted(script: Script, anchor: ast.stmt, lines: list[str], side: Side) -> Edit:
    newline = placement.newline(script)
    if side == "before":
        at = Position(script.line(anchor), 1)
        return Edit(Span(at, at), "".join(line + newline for line in lines))
    last = script.span(anchor).end.line
    at = Position(last, len(script.line_text(last)) + 1)
    return Edit(Span(at, at), "".join(newline + line for line in lines))
