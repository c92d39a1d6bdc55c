"""By what a term of the loss is scaled on its way to backward, and whether gradients are scaled after it.

    loss = F.mse_loss(guess, target) * weight / accumulation_steps     one division by the window's size
    loss = F.mse_loss(guess, target) * len(batch)                      unknown: the text says no constant

Rules take only what is known from here: where a factor may be anything, ``Scaling.known`` is False.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint import placement
from firstfault.lint.averaging import divided_late, is_constant_factor, is_window_size
from firstfault.lint.bindings import bindings, number
from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import Scale, Term, home_of
from firstfault.lint.reductions import is_scalar
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, called_function, calls_in
from firstfault.lint.window import Window
from firstfault.text import Span

_WEIGHT = re.compile(r"weight|coef|lambda|alpha|beta|gamma|^lam|_w$|^w_|balance|temperature", re.IGNORECASE)
_RANKS = re.compile(r"world|num_processes|n_ranks|num_replicas|n_?gpus?$", re.IGNORECASE)
_SCALES_GRADIENTS = re.compile(r"scale_grad|multiply_grad|rescale|divide_grad|average_grad|normali[sz]e_grad", re.I)
_HOOKS = {
    "register_hook",
    "register_post_accumulate_grad_hook",
    "set_gradient_divide_factor",
    "set_reduce_scatter_divide_factor",
}
_RATE = re.compile(r"(?:^|_)lr(?:$|_)|learning_rate|base_rate", re.IGNORECASE)


class Scaling(NamedTuple):
    by_window: int  # divisions by the window's size, less multiplications by it
    division: Scale | None  # the first of these divisions
    known: bool  # every other factor is a constant weight
    by_one: Scale | None = None  # a division by ``x.numel()`` of a scalar, which is 1


def scaling(script: Script, term: Term, window: Window) -> Scaling:
    """The scales of a term, sorted into those by the window's size, constant weights, and unknown ones."""
    divisions: list[Scale] = []
    count, known, by_one = 0, True, None
    for scale, home in ((each, home_of(script, term, each.node)) for each in term.scales):
        for factor in factors(home, scale):
            if is_window_size(home, factor, window, script):
                count += 1 if scale.divides else -1
                divisions += [scale] if scale.divides else []
            elif _is_reciprocal(home, factor, scale, window):
                count += 1
                divisions.append(scale)
            elif _is_numel_of_scalar(home, factor):
                by_one = scale
            elif not _is_weight(home, factor):
                known = False
    return Scaling(count, divisions[0] if divisions else None, known, by_one)


def factors(home: Script, scale: Scale) -> list[ast.expr]:
    """The factors of ``loss * (steps * processes)``, also where the product has a name."""
    node = scale.operand
    places = bindings(home, dotted(node), node) if dotted(node) and home.parent(node) is not None else []
    if len(places) == 1 and places[0].kind == "assign" and isinstance(places[0].value, ast.BinOp):
        node = places[0].value
    found, todo = [], [node]
    while todo:
        each = todo.pop()
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult):
            todo += [each.right, each.left]
        else:
            found.append(each)
    return found if len(found) > 1 else [scale.operand]


def _is_reciprocal(home: Script, factor: ast.expr, scale: Scale, window: Window) -> bool:
    """``loss * 0.25`` in a window of 4; a setting that happens to be 0.25 by default is a weight."""
    value = number(home, factor) if not scale.divides else None
    return bool(
        value
        and value.origin != "default"
        and window.size
        and window.size > 1
        and abs(value.value * window.size - 1) < 1e-9
    )


def _is_numel_of_scalar(home: Script, operand: ast.expr) -> bool:
    """``total.numel()`` where ``total`` is a sum over everything: the number of its elements is 1."""
    if not isinstance(operand, ast.Call) or operand.args or not isinstance(operand.func, ast.Attribute):
        return False
    return operand.func.attr in ("numel", "nelement") and is_scalar(home, operand.func.value)


def _is_weight(home: Script, operand: ast.expr) -> bool:
    """A number, or a setting that is named like the weight of a loss; a setting of another name may be anything.

    The number of ranks is none: who multiplies by it means a sum.
    """
    if _RANKS.search(last_name(operand.func if isinstance(operand, ast.Call) else operand)):
        return False
    if number(home, operand) is not None:
        return True
    if isinstance(operand, ast.BinOp):
        return _is_weight(home, operand.left) and _is_weight(home, operand.right)
    word = home.text(operand) if isinstance(operand, ast.Subscript) else last_name(operand)
    return bool(_WEIGHT.search(word)) and is_constant_factor(home, operand)


def scales_gradients(script: Script, loop: TrainingLoop) -> bool:
    """Gradients are worked on between backward and the step, so what the loss lacks may be made up for there."""
    if divided_late(script, loop) is not None or script.calls(*_HOOKS):
        return True
    for node in (each for root in _around(script, loop) for each in script.walk(root)):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and _is_changed(script, node):
            return True
        if isinstance(node, ast.Call) and _SCALES_GRADIENTS.search(last_name(node.func)):
            helper = called_function(script, node)
            if helper is None or not _averages_ranks(script, helper):
                return True
    return False


def _averages_ranks(script: Script, function: ast.AST) -> bool:
    """It sums gradients over the ranks: what it divides by is their number."""
    return any(last_name(call.func) == "all_reduce" for call in calls_in(script, function))


def _around(script: Script, loop: TrainingLoop) -> list[ast.AST]:
    """The outermost loop around the window, and the functions of the file that it calls."""
    outer = placement.outermost_loop(script, loop.node) if isinstance(loop.node, LOOPS) else loop.node
    function = script.function(outer) or outer
    helpers = (called_function(script, call) for call in calls_in(script, function))
    return [function, *(each for each in helpers if each is not None and not _averages_ranks(script, each))]


def _is_changed(script: Script, grad: ast.Attribute) -> bool:
    """``p.grad.mul_(x)``, ``p.grad /= n``, ``p.grad = g``; clearing and reading it is no scaling."""
    above = script.parent(grad)
    if isinstance(grad.ctx, ast.Store):
        return not (isinstance(above, ast.Assign) and isinstance(above.value, ast.Constant))
    return isinstance(above, ast.Attribute) and above.attr in ("div_", "mul_", "copy_", "data")


def scales_rate(script: Script, window: Window) -> bool:
    """The learning rate is divided by the window's size: the sum of the gradients is meant."""
    return any(
        isinstance(node.op, ast.Div)
        and bool(_RATE.search(_words(script, node.left)))
        and is_window_size(script, node.right, window, script)
        for node in script.nodes(ast.BinOp)
    )


def _words(script: Script, node: ast.expr) -> str:
    return script.text(node) if isinstance(node, (ast.Subscript, ast.BinOp)) else last_name(node)


def true_span(script: Script, node: ast.expr) -> Span | None:
    """The place of an expression, also inside an f-string, whose parts Python places rightly only since 3.12."""
    wanted = ast.unparse(node)
    if _reads_as(script.text(node), wanted):
        return script.span(node)
    statement = script.span(script.statement(node))
    start, end = (script.table.offset(each) for each in statement)
    text = script.source[start:end]
    if text.count(wanted) != 1:
        return None
    at = start + text.index(wanted)
    return Span(script.table.position(at), script.table.position(at + len(wanted)))


def _reads_as(text: str, wanted: str) -> bool:
    try:
        return ast.unparse(ast.parse(f"({text})", mode="eval")) == wanted
    except (SyntaxError, ValueError):
        return False


def exclusive(script: Script, first: ast.AST, second: ast.AST) -> bool:
    """The two stand in different branches of one condition, so that they never run in the same round."""
    branches = dict(_branches(script, first))
    return any(branches.get(holder, side) != side for holder, side in _branches(script, second))


def _branches(script: Script, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(above, ast.If) and below is not above.test:
            yield above, below not in above.orelse
        below = above
