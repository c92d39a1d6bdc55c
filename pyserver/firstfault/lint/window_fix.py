"""The quick fix of mean-of-means: every counted token of a window gets the same weight.

Four small insertions, no restructuring: count the tokens of the micro-batch, back-propagate the sum of their losses,
add the count to that of the window, and divide the gradients once by it before they are clipped and stepped. None
wherever the text does not show that the result would be right.
"""

import ast
from typing import NamedTuple, TypeGuard

from firstfault.lint import placement
from firstfault.lint.averaging import Averaging
from firstfault.lint.bindings import last_binding
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.fix_safety import guards_leftover, is_hindered
from firstfault.lint.loss_terms import Term
from firstfault.lint.rescale import Names, Rescale, free_names, rescale
from firstfault.lint.rule import Applicability, Fix
from firstfault.lint.script import LOOPS, Loop, Script
from firstfault.lint.token_expression import count_expression
from firstfault.lint.training_loop import TrainingLoop, calls_of
from firstfault.text import Edit, Span

TITLE = "Weigh every token of the window the same"
_LOSS_KINDS = ("cross-entropy", "model-output")
_RECEIVERS = ("tensor", "scaler", "accelerator", "fabric")


class Plan(NamedTuple):
    """What the edits are made of; made only where all of it is certain."""

    script: Script
    loop: TrainingLoop
    node: Loop
    term: Term
    average: Averaging
    counting: str  # the expression that counts the tokens of a micro-batch
    computed: ast.stmt  # the statement that computes the loss
    backward: list[ast.stmt]  # the statements that run backward, all of the same loss
    rescale: Rescale
    names: Names


def window_fix(script: Script, loop: TrainingLoop, terms: tuple[Term, ...], average: Averaging) -> Fix | None:
    """The fix for a loop whose loss is one term, or None."""
    plan = _plan(script, loop, terms, average)
    if plan is None:
        return None
    loss, boundary = _loss_edits(plan), _boundary_edits(plan)
    if loss is None or boundary is None:
        return None
    start, applicability = _start_edits(plan)
    if loop.backwards[0].receiver == "accelerator":
        applicability = "unsafe"  # a configuration outside the text may switch on an engine that owns the gradients
    return Fix(TITLE, applicability, (*start, *loss, *boundary))


def _plan(script: Script, loop: TrainingLoop, terms: tuple[Term, ...], average: Averaging) -> Plan | None:
    node = loop.node
    if len(terms) != 1 or loop.in_helper or not isinstance(node, LOOPS) or average.how in ("rows", "late"):
        return None
    term, first = terms[0], loop.backwards[0]
    if term.kind not in _LOSS_KINDS or first.receiver not in _RECEIVERS or not _one_loss(loop.backwards):
        return None
    count = count_expression(term)
    method = rescale(script, loop)
    if count is None or method is None:
        return None
    call = term.entries[0].call if term.entries else term.node
    computed = script.statement(call)
    backward = list({id(each): each for each in (script.statement(found.node) for found in loop.backwards)}.values())
    statements = [computed, *backward]
    if not all(placement.own_line(script, each) for each in [*statements, node]):
        return None
    if not all(_precedes(script, computed, each) for each in backward):
        return None
    if is_hindered(script, loop, node, computed, backward):
        return None
    names = free_names(script)
    return Plan(script, loop, node, term, average, count, computed, backward, method, names)


def _one_loss(backwards: tuple[Backward, ...]) -> bool:
    """Several ways to run backward (with a scaler, without) of the same loss, each in a statement of its own."""
    same = len({ast.dump(each.loss) for each in backwards}) == 1
    return same and all(each.receiver in _RECEIVERS for each in backwards)


def _precedes(script: Script, computed: ast.stmt, backward: ast.stmt) -> bool:
    return computed is backward or placement.dominates(script, computed, backward)


def _count_lines(plan: Plan) -> list[str]:
    names = plan.names
    lines = [f"{names.micro} = {plan.counting}", f"{names.window} += {names.micro}"]
    if plan.rescale.reference:
        lines.insert(0, f"{names.reference} = {names.reference} or {_positions(plan.counting)}")
    return lines


def _positions(count: str) -> str:
    """``labels.numel()`` of ``(labels != -100).sum()``."""
    return count[1:].rpartition(" != ")[0] + ".numel()"


def _weight(plan: Plan) -> str:
    names = plan.names
    return f"{names.micro} / {names.reference}" if plan.rescale.reference else names.micro


def _loss_edits(plan: Plan) -> list[Edit] | None:
    """Count the tokens; give backward the sum of their losses instead of a share of their mean."""
    division = plan.average.node if plan.average.how == "divided" else None
    if division is None:
        return _undivided(plan)
    statement = plan.script.statement(division)
    if any(statement is each for each in plan.backward):
        return _divided_in_backward(plan, division)
    return _divided_before(plan, division, statement)


def _undivided(plan: Plan) -> list[Edit] | None:
    """The framework divides: the loss that backward is given gets its weight."""
    if any(plan.computed is each for each in plan.backward):
        return None
    counted = placement.insert_after(plan.script, plan.computed, _count_lines(plan))
    return [counted, *_weighted(plan, plan.loop.backwards[0].loss)]


def _weighted(plan: Plan, loss: ast.expr, name: str = "") -> list[Edit]:
    """Backward's loss replaced, wherever it stands in the statements that run backward."""
    script = plan.script
    edits, wanted = [], ast.dump(loss)
    for statement in plan.backward:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr) and ast.dump(node) == wanted and not _is_test(script, node):
                text = name or f"{script.text(node)} * {_weight(plan)}"
                parent = script.parent(node)
                if not name and isinstance(parent, ast.Attribute):
                    text = f"({text})"
                edits.append(Edit(script.span(node), text))
    return edits


def _is_test(script: Script, node: ast.AST) -> bool:
    parent = script.parent(node)
    return isinstance(parent, (ast.IfExp, ast.If)) and parent.test is node


def _divided_in_backward(plan: Plan, division: ast.AST) -> list[Edit] | None:
    """``(loss / N).backward()``."""
    script = plan.script
    if not isinstance(division, ast.BinOp) or len(plan.backward) != 1 or not plan.average.scale:
        return None
    if any(plan.computed is each for each in plan.backward):
        return None
    loss = division.right if division.left is plan.average.scale.factor else division.left
    counted = placement.insert_after(script, plan.computed, _count_lines(plan))
    return [counted, Edit(script.span(division), f"{script.text(loss)} * {_weight(plan)}")]


def _divided_before(plan: Plan, division: ast.AST, statement: ast.stmt) -> list[Edit] | None:
    """``loss = loss / N`` or ``loss = criterion(...) / N``, then ``loss.backward()``."""
    script, loss = plan.script, plan.loop.backwards[0].loss
    if not isinstance(loss, ast.Name) or not placement.own_line(script, statement):
        return None
    nearest = last_binding(script, loss.id, plan.loop.backwards[0].node)
    if nearest is None or nearest.node is not statement:
        return None
    if statement is not plan.computed and _takes_a_part(statement, division):
        return _part_divided(plan, division, statement, loss)
    read = placement.is_read_elsewhere(script, loss.id, plan.computed, statement, plan.backward)
    if statement is plan.computed:
        return _computed_and_divided(plan, division, statement, loss, read)
    place = placement.lifted(script, statement, plan.backward[0])
    if place is None or not _divides_itself(statement, division, loss.id) or not placement.own_line(script, place):
        return None
    counted = placement.insert_after(script, plan.computed, _count_lines(plan))
    if not read:
        return [counted, placement.delete_lines(script, place), *_weighted(plan, loss)]
    kept = placement.insert_before(script, place, [f"{plan.names.loss} = {loss.id} * {_weight(plan)}"])
    return [counted, kept, *_weighted(plan, loss, plan.names.loss)]


def _divides_itself(statement: ast.stmt, division: ast.AST, name: str) -> bool:
    """``loss = loss / N``, ``loss /= N``, ``loss = loss * (1 / N)``: the statement does nothing else."""
    if isinstance(statement, ast.AugAssign):
        return statement is division and isinstance(statement.target, ast.Name) and statement.target.id == name
    if not isinstance(statement, ast.Assign) or statement.value is not division or len(statement.targets) != 1:
        return False
    sides = (division.left, division.right) if isinstance(division, ast.BinOp) else ()
    return any(isinstance(each, ast.Name) and each.id == name for each in sides)


def _takes_a_part(statement: ast.stmt, division: ast.AST) -> TypeGuard[ast.Assign]:
    """``loss = outputs.loss / N``, ``loss = outputs[0] / N``."""
    plain = isinstance(statement, ast.Assign) and statement.value is division and len(statement.targets) == 1
    divides = isinstance(division, ast.BinOp) and isinstance(division.op, ast.Div)
    return plain and divides and isinstance(division.left, (ast.Attribute, ast.Subscript))  # type: ignore[attr-defined]


def _part_divided(plan: Plan, division: ast.AST, statement: ast.Assign, loss: ast.Name) -> list[Edit] | None:
    """The count stands behind the call of the model, the weight where the part is taken."""
    script = plan.script
    assert isinstance(division, ast.BinOp)
    if not all(placement.dominates(script, statement, each) for each in plan.backward):
        return None
    counted = placement.insert_after(script, plan.computed, _count_lines(plan))
    mean = script.text(division.left)
    if not placement.is_read_elsewhere(script, loss.id, statement, statement, plan.backward):
        return [counted, Edit(script.span(division), mean), *_weighted(plan, loss)]
    kept = placement.insert_after(script, statement, [f"{plan.names.loss} = {mean} * {_weight(plan)}"])
    return [counted, kept, *_weighted(plan, loss, plan.names.loss)]


def _computed_and_divided(
    plan: Plan, division: ast.AST, statement: ast.stmt, loss: ast.Name, read: bool
) -> list[Edit] | None:
    """``loss = criterion(scores, labels) / N``."""
    script = plan.script
    plain = isinstance(statement, ast.Assign) and statement.value is division and len(statement.targets) == 1
    if not plain or not isinstance(division, ast.BinOp) or not isinstance(division.op, ast.Div):
        return None
    if not isinstance(division.left, (ast.Call, ast.Attribute, ast.Subscript)):
        return None
    start, end = script.span(statement)
    mean = script.text(division.left)
    if not read:
        lines = [f"{loss.id} = {mean}", *_count_lines(plan)]
        return [Edit(Span(start, end), _joined(plan, lines)), *_weighted(plan, loss)]
    divisor = script.text(division.right)
    summed = f"{plan.names.loss} = {plan.names.mean} * {_weight(plan)}"
    lines = [f"{plan.names.mean} = {mean}", f"{loss.id} = {plan.names.mean} / {divisor}", *_count_lines(plan), summed]
    return [Edit(Span(start, end), _joined(plan, lines)), *_weighted(plan, loss, plan.names.loss)]


def _joined(plan: Plan, lines: list[str]) -> str:
    margin = placement.newline(plan.script) + placement.indent(plan.script, plan.computed)
    return margin.join(lines)


def _boundary_edits(plan: Plan) -> list[Edit] | None:
    """Before each step of the window, the leftover one behind the loop included: divide the gradients by the tokens."""
    script, loop = plan.script, plan.loop
    assert loop.window is not None
    if plan.rescale.guard:  # the framework's optimizer decides when it steps
        anchor = placement.step_anchor(script, _loop_block(plan), loop.actions)
        return [_rescaled(plan, anchor)] if anchor is not None and placement.own_line(script, anchor) else None
    edits: list[Edit] = []
    inside = [each for each in loop.optimizer_steps if not each.after_loop]
    if inside:
        block = placement.boundary_block(script, loop)
        anchor = placement.step_anchor(script, block, loop.actions)
        held = {id(node) for statement in block for node in ast.walk(statement)}
        if (
            anchor is None
            or any(id(each.node) not in held for each in inside)
            or not placement.own_line(script, anchor)
        ):
            return None
        edits.append(_rescaled(plan, anchor))
    for block in placement.blocks_after(script, plan.node):
        anchor = placement.step_anchor(script, block, tuple(each for each in loop.actions if each.after_loop))
        if anchor is not None and _steps_in(block, loop):
            if not placement.own_line(script, anchor):
                return None
            may_be_empty = bool(inside) and not guards_leftover(script, anchor, loop)
            if may_be_empty and plan.rescale.shared:
                return None  # a rank with nothing left over would not take part in the sum over ranks
            edits.append(_rescaled(plan, anchor, may_be_empty))
    return edits or None


def _steps_in(block: list[ast.stmt], loop: TrainingLoop) -> bool:
    nodes = {id(node) for statement in block for node in ast.walk(statement)}
    return any(id(each.node) in nodes for each in loop.optimizer_steps)


def _loop_block(plan: Plan) -> list[ast.stmt]:
    """The statements around backward: the body of ``with accelerator.accumulate(...)``, else that of the loop."""
    return plan.script.block(plan.backward[-1])


def _rescaled(plan: Plan, anchor: ast.stmt, may_be_empty: bool = False) -> Edit:
    step = placement.step_of_indent(plan.script, plan.node)
    lines = plan.rescale.lines(plan.names, step, reset=may_be_empty or _counts_across(plan))
    guard = plan.rescale.guard or (f"if {plan.names.window}:" if may_be_empty else "")
    if guard:
        lines = [guard, *(step + line for line in lines)]
    return placement.insert_before(plan.script, anchor, lines)


def _counts_across(plan: Plan) -> bool:
    """The count outlives one window: the loop goes through many, so it is reset where one ends."""
    return plan.loop.window is not None and plan.loop.window.kind != "inner-range"


def _start_edits(plan: Plan) -> tuple[list[Edit], Applicability]:
    """Where the counts begin: with the gradients that they belong to."""
    script, node = plan.script, plan.node
    outer = placement.outermost_loop(script, node)
    place, applicability = _start(plan, outer)
    lines = [f"{plan.names.window} = 0"]
    if plan.rescale.reference and place is outer:
        lines.append(f"{plan.names.reference} = None")
    edits = [placement.insert_before(script, place, lines)]
    if plan.rescale.reference and place is not outer:
        edits.insert(0, placement.insert_before(script, outer, [f"{plan.names.reference} = None"]))
    return edits, applicability


def _start(plan: Plan, outer: Loop) -> tuple[Loop, Applicability]:
    node, script = plan.node, plan.script
    if not _counts_across(plan):
        return node, "safe"
    flushed = any(each.after_loop for each in plan.loop.optimizer_steps) or _closes_at_the_end(plan)
    if flushed or _zeroed_before(script, node):
        return node, "safe"
    if outer is not node or _runs_once(script, node):
        return outer, "safe"
    return node, "unsafe"  # called once per epoch: what is left over stays in the gradients, but not in the count


def _runs_once(script: Script, node: Loop) -> bool:
    """The loop stands in no function, or in one that the file calls, but never in a loop."""
    function = script.function(node)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return function is None
    calls = calls_of(script, function)
    return bool(calls) and all(script.loop(each) is None for each in calls)


def _closes_at_the_end(plan: Plan) -> bool:
    """``... or last batch`` in the condition, or a framework that closes the window itself."""
    window = plan.loop.window
    if window is None or window.boundary is None:
        return bool(plan.rescale.guard)
    test = window.boundary.test
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)


def _zeroed_before(script: Script, node: Loop) -> bool:
    """The gradients are zeroed in front of the loop, in the same block."""
    block = script.block(node)
    for statement in block[: block.index(node)]:
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and last_name(call.func) == "zero_grad":
                return True
    return False
