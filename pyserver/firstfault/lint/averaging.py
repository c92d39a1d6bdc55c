"""Whether a term of the loss is averaged flatly over the micro-batches of a window, and where."""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from firstfault.lint import placement
from firstfault.lint.bindings import last_binding, number
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.loss_terms import Scale, Term, home_of
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, called_function
from firstfault.lint.window import Window

How = Literal["divided", "framework", "rows", "late"]
_ACCUMULATION = re.compile(r"accum|grad_acc|micro_?(?:steps|batches)|update_freq|subdivisions|iter_size|n_micro", re.I)
_COUNT = re.compile(r"tok|count|words|symbols|frames|^n_|num_items|numel|total|denom|mask|len", re.IGNORECASE)
_COUNTERS = {"sum", "numel", "count_nonzero", "item", "size", "len", "nelement", "all_reduce", "gather", "max"}


class Averaging(NamedTuple):
    how: How
    node: ast.AST  # the division, or the backward call of the framework that divides
    scale: Scale | None


def averaging(script: Script, loop: TrainingLoop, backward: Backward, term: Term) -> Averaging | None:
    """The flat average of a term over the window; None where there is none, or where a factor may be a token count."""
    window = loop.window
    if window is None:
        return None
    found: Averaging | None = None
    for scale in term.scales:
        home = home_of(script, term, scale.node)
        if scale.divides and is_window_size(home, scale.operand, window, script):
            found = Averaging("divided", scale.node, scale)
        elif window.kind == "chunks" and (_is_share_of_rows(home, scale) or _is_chunk_length(scale, window)):
            found = Averaging("rows", scale.node, scale)
        elif not is_constant_factor(home, scale.operand):
            return None
    if found is None and _framework_divides(backward, window):
        return Averaging("framework", backward.node, None)
    if found is None and divided_late(script, loop) is not None:
        return Averaging("late", backward.node, None)
    return found


def divided_late(script: Script, loop: TrainingLoop) -> ast.expr | None:
    """The window's token count that gradients are divided by before the step: right for sums, wrong for means."""
    counts = {each.id for each in _counted_up(script, loop)}
    blocks = [placement.boundary_block(script, loop)]
    if isinstance(loop.node, LOOPS):
        blocks += placement.blocks_after(script, loop.node)
    for node in (part for block in blocks for statement in block for part in script.walk(statement)):
        if not isinstance(node, ast.Call) or not _works_on_gradients(script, node):
            continue
        for argument in node.args:
            divisor = (
                argument.right if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Div) else argument
            )
            if isinstance(divisor, ast.Name) and divisor.id in counts:
                return divisor
    return None


def _counted_up(script: Script, loop: TrainingLoop) -> Iterator[ast.Name]:
    """``tokens += (labels != -100).sum()``: names that a loop adds counts to."""
    for node in script.walk(loop.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
            value = _value(script, node.value)
            if any(isinstance(each, ast.Call) and last_name(each.func) in _COUNTERS for each in ast.walk(value)):
                yield node.target


def _works_on_gradients(script: Script, call: ast.Call) -> bool:
    """``p.grad.div_(tokens)``, or a function that is named for it or does it."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("div_", "mul_"):
        return last_name(call.func.value) == "grad"
    helper = called_function(script, call)
    if helper is not None:
        return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in script.walk(helper))
    return bool(re.search(r"scale_grad|multiply_grad|rescale", last_name(call.func)))


def is_window_size(home: Script, divisor: ast.expr, window: Window, script: Script) -> bool:
    """The divisor is the window's size: the same words, the same name, the same number, or named like one."""
    divisor = _without_cast(divisor)
    if window.size_node is not None:
        size = _without_cast(window.size_node)
        if ast.dump(divisor) == ast.dump(size) or _same_name(divisor, size):
            return True
        if _same_number(home, divisor, window):
            return True
        if _alias(home, divisor, size) or _alias(script, size, divisor):
            return True
    if window.kind == "chunks" and isinstance(divisor, ast.Call) and last_name(divisor.func) == "len":
        return True
    return bool(_ACCUMULATION.search(_last_word(divisor)))


def _without_cast(node: ast.expr) -> ast.expr:
    """N of ``float(N)``, ``int(N)``, ``max(1, N)``."""
    while isinstance(node, ast.Call) and last_name(node.func) in ("float", "int", "max"):
        given = [each for each in node.args if not isinstance(each, ast.Constant)]
        if len(given) != 1:
            break
        node = given[0]
    return node


def _same_name(one: ast.expr, other: ast.expr) -> bool:
    """``args.accum`` and ``self.args.accum``, ``cfg["accum"]`` and ``cfg.accum``."""
    return bool(_last_word(one)) and _last_word(one) == _last_word(other)


def _last_word(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Call) and last_name(node.func) in ("get", "getattr"):
        words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return words[0] if words else ""
    return last_name(node)


def _same_number(home: Script, divisor: ast.expr, window: Window) -> bool:
    value = number(home, divisor)
    return value is not None and window.resolved is not None and value.value == window.resolved.value


def _alias(script: Script, name: ast.expr, other: ast.expr) -> bool:
    """``steps = args.accum`` above: the one is the other."""
    binding = last_binding(script, dotted(name), name) if dotted(name) and script.parent(name) is not None else None
    return binding is not None and binding.value is not None and _same_name(_without_cast(binding.value), other)


def _is_share_of_rows(script: Script, scale: Scale) -> bool:
    """``loss * len(chunk) / len(batch)``: weighted by rows, whatever they hold."""
    share = _value(script, scale.operand)
    text = script.text(share)
    rows = re.search(r"len\(|\.size\(0\)|\.shape\[0\]", text)
    return bool(rows) and isinstance(share, (ast.BinOp, ast.Call, ast.Subscript))


def _is_chunk_length(scale: Scale, window: Window) -> bool:
    """``loss * chunk / batch_size`` in ``for j in range(0, rows, chunk)``."""
    call = window.node
    stepped = isinstance(call, ast.Call) and len(call.args) == 3
    return stepped and not scale.divides and _same_name(scale.operand, call.args[2])  # type: ignore[attr-defined]


def _value(script: Script, node: ast.expr) -> ast.expr:
    binding = last_binding(script, dotted(node), node) if dotted(node) else None
    return binding.value if binding is not None and binding.value is not None else node


def is_constant_factor(script: Script, node: ast.expr) -> bool:
    """A weight that is the same for every micro-batch: a number, a setting. What may count tokens is not."""
    if number(script, node) is not None:
        return True
    if isinstance(node, ast.BinOp):
        return is_constant_factor(script, node.left) and is_constant_factor(script, node.right)
    if isinstance(node, ast.Call) and last_name(node.func) in ("float", "int", "get", "get_world_size"):
        return True
    word = _last_word(node)
    if not word or _COUNT.search(word):
        return False
    binding = last_binding(script, dotted(node), node) if dotted(node) else None
    if binding is None:
        return isinstance(node, (ast.Attribute, ast.Subscript)) or dotted(node) in script.imports
    if binding.kind == "parameter":
        return True
    return binding.value is not None and not any(
        last_name(each.func) in _COUNTERS for each in ast.walk(binding.value) if isinstance(each, ast.Call)
    )


def _framework_divides(backward: Backward, window: Window) -> bool:
    """accelerate, DeepSpeed's engine, mmengine's wrapper, Lightning divide; Fabric, manual optimization do not."""
    if backward.receiver == "accelerator":
        return window.kind == "accumulate-context"
    return backward.receiver in ("engine", "mmengine", "lightning") and window.kind == "framework"
