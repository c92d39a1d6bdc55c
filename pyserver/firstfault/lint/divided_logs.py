"""Where a script reads a loss that it has divided by the window's size, and does not multiply it back.

loss = loss / steps
loss.backward()
print(loss.item())            shown: a share of the loss
math.exp(loss.item())         exponentiated: no perplexity
total += loss.item()          summed: right over one window, a share where it is divided by the micro-batches
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import Binding, last_binding
from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.micro_count import iterable
from firstfault.lint.scaling import scaling
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

How = Literal["shown", "exponentiated", "averaged"]
_SAME = {"item", "detach", "float", "double", "cpu", "numpy", "tolist", "clone", "data", "mean", "sum"}
_SHOWS = {
    "print",
    "info",
    "debug",
    "warning",
    "log",
    "add_scalar",
    "add_scalars",
    "set_postfix",
    "set_postfix_str",
    "set_description",
    "set_description_str",
    "log_metric",
    "log_metrics",
    "log_dict",
    "log_scalar",
    "report",
}
_METER = re.compile(r"loss|meter|metric|tracker|avg|average", re.IGNORECASE)


class Reading(NamedTuple):
    how: How
    node: ast.expr  # what is read: ``loss``, ``loss.item()``
    place: ast.AST  # what the finding is about: the reading, the exponential, the average
    term: Term


def readings(script: Script, loop: TrainingLoop, window: Window, workspace: Workspace) -> Iterator[Reading]:
    """Each place that takes the divided loss for the loss."""
    seen: set[ast.AST] = set()
    for backward in loop.backwards:
        name = dotted(backward.loss)
        binding = last_binding(script, name, backward.loss) if name else None
        term = _divided(script, backward.loss, window, workspace) if binding is not None else None
        if binding is None or term is None or binding.node in seen:
            continue
        seen.add(binding.node)
        for node in _reads(script, name, binding):
            found = _reading(script, loop, window, node, term)
            if found is not None:
                yield found


def _divided(script: Script, loss: ast.expr, window: Window, workspace: Workspace) -> Term | None:
    """A term of a loss whose every term is divided."""
    terms = loss_terms(script, loss, workspace)
    divided = [each for each in terms if scaling(script, each, window).by_window == 1]
    return divided[0] if divided and len(divided) == len(terms) else None


def _reads(script: Script, name: str, binding: Binding) -> Iterator[ast.expr]:
    """Readings of the name below its division, in the same function, before it is set again."""
    scope, line = script.scope(binding.node), script.line(binding.node)
    for node in script.walk(scope):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if dotted(node) != name or script.scope(node) is not scope:
            continue
        at = script.statement(node)
        if at is binding.node or script.line(at) < line:
            continue
        latest = last_binding(script, name, at)
        if latest is not None and latest.node is binding.node:
            yield _whole(script, node)


def _whole(script: Script, node: ast.expr) -> ast.expr:
    """``loss.detach().item()`` around ``loss``; ``float(loss)`` too."""
    while True:
        above = script.parent(node)
        method = isinstance(above, ast.Attribute) and above.attr in _SAME
        called = isinstance(above, ast.Call) and (above.func is node or dotted(above.func) == "float")
        if not isinstance(above, (ast.Attribute, ast.Call)) or not (method or called):
            return node
        node = above


def _reading(script: Script, loop: TrainingLoop, window: Window, node: ast.expr, term: Term) -> Reading | None:
    above = script.parent(node)
    if isinstance(above, ast.Call) and last_name(above.func) == "exp" and node in above.args:
        return None if _multiplied(script, above, window, node) else Reading("exponentiated", node, above, term)
    weighted = above if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult) else None
    added = script.parent(weighted) if weighted is not None else above
    if isinstance(added, ast.AugAssign) and isinstance(added.op, ast.Add) and added.value in (node, weighted):
        weight = (weighted.right if weighted.left is node else weighted.left) if weighted is not None else None
        place = _average(script, loop, window, added, weight)
        return Reading("averaged", node, place, term) if place is not None else None
    if isinstance(above, (ast.expr, ast.keyword)) and _is_shown(script, node, window):
        return Reading("shown", node, node, term)
    return None


def _multiplied(script: Script, root: ast.AST, window: Window, node: ast.expr) -> bool:
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Mult)
        and any(is_window_size(script, side, window, script) for side in (each.left, each.right))
        for each in script.walk(root)
    )


def _is_shown(script: Script, node: ast.expr, window: Window) -> bool:
    """The value as it is goes into a call that prints, logs or averages; nothing is computed with it on the way."""
    for above in script.ancestors(node):
        if isinstance(above, ast.Call):
            name = last_name(above.func)
            if name == "update" and isinstance(above.func, ast.Attribute):
                return bool(_METER.search(last_name(above.func.value))) and node in above.args[:1]
            if name not in ("format", "round", "dict", "str") or not isinstance(above.func, (ast.Attribute, ast.Name)):
                module = script.qualified(above.func).partition(".")[0]
                return name in _SHOWS and module not in ("math", "torch", "numpy")  # math.log is no logger
        elif not isinstance(above, (ast.JoinedStr, ast.FormattedValue, ast.Dict, ast.Tuple, ast.keyword)) and not (
            isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mod)
        ):
            return False
    return False


def _average(
    script: Script, loop: TrainingLoop, window: Window, added: ast.AugAssign, weight: ast.expr | None
) -> ast.AST | None:
    """``total / len(loader)`` of a sum of divided losses: the number of micro-batches, not of windows.

    With a weight (``loss.item() * len(rows)``) it is the sum of the weights: ``total / seen``, ``seen += len(rows)``.
    """
    if weight is not None and is_window_size(script, weight, window, script):
        return None
    name = dotted(added.target)
    if not name or window.kind not in ("modulo", "counter", "flag") or loop.node not in script.ancestors(added):
        return None
    scope = script.scope(added)
    uses = [
        each
        for each in script.walk(scope)
        if isinstance(each, (ast.Name, ast.Attribute)) and dotted(each) == name and isinstance(each.ctx, ast.Load)
    ]
    for use in uses:
        above = script.parent(use)
        if isinstance(above, ast.BinOp) and _scaled_by_window(script, above, window):
            return None
    for use in uses:
        above = script.parent(use)
        divides = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div) and above.left is use
        if not divides or not isinstance(above, ast.BinOp):
            continue
        whole = _sums(script, loop, above.right, weight) if weight else _counts_micro_batches(script, loop, above.right)
        if whole:
            return above
    return None


def _sums(script: Script, loop: TrainingLoop, divisor: ast.expr, weight: ast.expr) -> bool:
    """``seen`` where the loop adds the same weight to it for every micro-batch."""
    return bool(dotted(divisor)) and any(
        isinstance(each, ast.AugAssign)
        and isinstance(each.op, ast.Add)
        and dotted(each.target) == dotted(divisor)
        and ast.dump(each.value) == ast.dump(weight)
        for each in script.walk(loop.node)
    )


def _scaled_by_window(script: Script, node: ast.BinOp, window: Window) -> bool:
    """The sum is multiplied back, here or around."""
    around = [node, *(each for each in script.ancestors(node) if isinstance(each, ast.BinOp))]
    return any(
        is_window_size(script, side, window, script)
        for each in around
        for side in ast.walk(each.right)
        if isinstance(side, ast.expr) and not isinstance(side, ast.Constant)
    ) or any(is_window_size(script, each.left, window, script) for each in around if isinstance(each.op, ast.Mult))


def _counts_micro_batches(script: Script, loop: TrainingLoop, divisor: ast.expr) -> bool:
    """``len(loader)`` of what the loop goes through, or its index plus one."""
    node = loop.node
    if not isinstance(node, LOOPS):
        return False
    binding = last_binding(script, dotted(divisor), divisor) if dotted(divisor) else None
    if binding is not None and binding.kind == "assign" and binding.value is not None:
        divisor = binding.value
    source = iterable(script, node)
    if isinstance(divisor, ast.Call) and last_name(divisor.func) == "len" and divisor.args and source is not None:
        return ast.dump(divisor.args[0]) == ast.dump(source)
    plus_one = isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Add)
    index = node.target.elts[0] if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple) else None
    return plus_one and index is not None and dotted(divisor.left) == dotted(index)  # type: ignore[attr-defined]
