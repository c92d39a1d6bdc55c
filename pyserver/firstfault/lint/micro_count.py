"""How a loop counts its micro-batches: the number that the first one has, and whether each epoch counts anew."""

import ast
from typing import NamedTuple

from firstfault.lint.bindings import Binding, bindings, last_binding, number
from firstfault.lint.calls import last_name
from firstfault.lint.objects import argument
from firstfault.lint.script import FUNCTIONS, LOOPS, Loop, Script, dotted
from firstfault.lint.training_loop import calls_of
from firstfault.lint.window import Window

_HOPS = 3
_SHOWN = {"tqdm", "trange", "track", "list", "iter", "progress_bar"}  # what hands its argument on, item by item


class Count(NamedTuple):
    """What the window's condition counts, as it stands where the first micro-batch of a run of the loop meets it."""

    name: str
    first: int | None  # the value of the whole counting expression then; None where the text does not tell
    restarts: bool  # every run of the loop starts with that value again
    is_index: bool  # the loop counts by itself: enumerate, range
    offset: int  # what the condition adds to the name


def micro_count(script: Script, window: Window, loop: ast.AST) -> Count | None:
    """None where the condition counts nothing that the text of this loop shows."""
    if window.counter is None or not isinstance(loop, LOOPS) or window.kind not in ("modulo", "flag", "counter"):
        return None
    if script.loop(window.counter) is not loop:
        return None
    return _count(script, window.counter, loop, _HOPS)


def carried_count(
    script: Script, window: Window, function: ast.AST
) -> tuple[Loop | ast.FunctionDef | ast.AsyncFunctionDef, Count] | None:
    """The count that a loop hands to the function that it calls for every micro-batch: ``self.step(batch, i)``."""
    told = _offset(script, window.counter) if window.counter is not None else None
    if told is None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    name = dotted(told[0])
    if [each.kind for each in bindings(script, name, function)] != ["parameter"]:
        return None
    if _counts_batches_of_lightning(script, function, name):
        return function, Count(name, told[1], True, False, told[1])
    for call in calls_of(script, function):
        loop = script.loop(call)
        given = argument(call, function, name) if loop is not None else None
        found = _count(script, given, loop, _HOPS) if given is not None and loop is not None else None
        if found is not None and loop is not None:
            first = None if found.first is None else found.first + told[1]
            return loop, found._replace(first=first, offset=found.offset + told[1])
    return None


def _counts_batches_of_lightning(script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """``batch_idx`` of ``training_step(self, batch, batch_idx)``: the trainer counts anew in each epoch."""
    owner = script.class_of(function)
    module = owner is not None and any(script.qualified(each).endswith("LightningModule") for each in owner.bases)
    given = [each.arg for each in function.args.args]
    return module and function.name == "training_step" and len(given) > 2 and given[2] == name


def counting_test(script: Script, window: Window) -> ast.expr | None:
    """The comparison around ``i % N`` where it is written, perhaps in a flag: ``i % N == 0``, ``not i % N``."""
    modulo = script.parent(window.counter) if window.counter is not None else None
    if not isinstance(modulo, ast.BinOp) or not isinstance(modulo.op, ast.Mod):
        return None
    above = script.parent(modulo)
    return above if isinstance(above, (ast.Compare, ast.UnaryOp)) else modulo


def index_of(script: Script, loop: ast.AST) -> str | None:
    """The name that counts the rounds of a loop from zero: ``i`` of ``for i, batch in enumerate(loader)``."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or _index_start(script, loop) != 0:
        return None
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    return dotted(target) or None


def iterable(script: Script, loop: ast.AST) -> ast.expr | None:
    """What a loop goes through, without the counting and the progress bar around it."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return None
    return _inside(script, loop.iter, _HOPS)[0]


def _count(script: Script, node: ast.expr, loop: ast.AST, hops: int) -> Count | None:
    offset = _offset(script, node)
    if offset is None:
        return _composed(script, node, loop)
    counted, plus = offset
    name = dotted(counted)
    if _is_index(name, loop):
        start = _index_start(script, loop)
        first = None if start is None else start + plus
        return Count(name, first, True, True, plus)
    inside = [each for each in bindings(script, name, node) if _is_in(script, each.node, loop)]
    assigned = [each for each in inside if each.kind == "assign" and each.value is not None]
    if any(each.kind == "augmented" for each in inside):
        return _advanced(script, name, node, plus, inside)
    if len(assigned) == 1 and hops and assigned[0].value is not None:
        found = _count(script, assigned[0].value, loop, hops - 1)
        if found is None:
            return None
        return found._replace(first=None if found.first is None else found.first + plus, offset=found.offset + plus)
    return None


def _offset(script: Script, node: ast.expr) -> tuple[ast.expr, int] | None:
    """``i + 1`` is ``i`` and 1."""
    if dotted(node):
        return node, 0
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return None
    for name, other in ((node.left, node.right), (node.right, node.left)):
        if dotted(name) and isinstance(other, ast.Constant) and isinstance(other.value, int):
            if isinstance(node.op, ast.Add):
                return name, other.value
            return (name, -other.value) if name is node.left else None
    return None


def _composed(script: Script, node: ast.expr, loop: ast.AST) -> Count | None:
    """``epoch * len(loader) + i`` goes on over the epochs."""
    names = {dotted(each) for each in script.walk(node) if isinstance(each, (ast.Name, ast.Attribute))}
    index = next((each for each in names if _is_index(each, loop)), None)
    if index is None or not isinstance(node, ast.BinOp):
        return None
    around = [dotted(target) for each in script.ancestors(loop) for target in _targets(each)]
    others = names - {index, ""}
    goes_on = any("epoch" in each.lower() or "start" in each.lower() or each in around for each in others)
    return Count(index, None, False, False, 0) if goes_on else None


def _targets(node: ast.AST) -> list[ast.expr]:
    return [node.target] if isinstance(node, (ast.For, ast.AsyncFor)) else []


def _is_index(name: str, loop: ast.AST) -> bool:
    if not name or not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    return dotted(target) == name


def _index_start(script: Script, loop: ast.AST) -> int | None:
    return _inside(script, loop.iter, _HOPS)[1] if isinstance(loop, (ast.For, ast.AsyncFor)) else None


def _inside(script: Script, node: ast.expr, hops: int) -> tuple[ast.expr, int | None]:
    """The inner iterable and the number that its first item is counted with, if it is counted."""
    if isinstance(node, ast.Call) and last_name(node.func) == "enumerate" and node.args:
        given = node.args[1] if len(node.args) > 1 else _start_keyword(node)
        found = number(script, given) if given is not None else None
        start = 0 if given is None else int(found.value) if found and found.origin != "default" else None
        return _inside(script, node.args[0], hops)[0], start
    if isinstance(node, ast.Call) and last_name(node.func) in ("range", "trange") and node.args:
        first = number(script, node.args[0]) if len(node.args) > 1 else None
        start = 0 if len(node.args) == 1 else int(first.value) if first and len(node.args) == 2 else None
        return node, start
    if isinstance(node, ast.Call) and last_name(node.func) in _SHOWN and node.args:
        return _inside(script, node.args[0], hops)
    binding = last_binding(script, dotted(node), node) if dotted(node) and hops else None
    value = binding.value if binding and binding.kind == "assign" else None
    wraps = isinstance(value, ast.Call) and last_name(value.func) in (*_SHOWN, "enumerate", "range")
    return _inside(script, value, hops - 1) if wraps and value is not None else (node, None)


def _start_keyword(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == "start"), None)


def _advanced(script: Script, name: str, test: ast.expr, plus: int, inside: list[Binding]) -> Count | None:
    """``seen += 1``: it goes on over the epochs, unless it is set where each of them begins."""
    steps = [each for each in inside if each.kind == "augmented"]
    one = len(steps) == 1 and isinstance(steps[0].value, ast.Constant) and steps[0].value.value == 1
    if not one or not isinstance(steps[0].node, ast.AugAssign) or not isinstance(steps[0].node.op, ast.Add):
        return None
    loop = script.loop(test)
    outside = [each for each in bindings(script, name, test) if each not in inside]
    starts = [each for each in outside if each.kind == "assign" and _starts_a_run(script, each.node, loop)]
    value = number(script, starts[-1].value) if starts else None
    if not starts or value is None:
        return Count(name, None, False, False, plus) if outside or "." in name else None
    before = script.line(steps[0].node) < script.line(test)
    return Count(name, int(value.value) + plus + before, True, False, plus)


def _starts_a_run(script: Script, node: ast.AST, loop: ast.AST | None) -> bool:
    """The assignment runs each time before the loop does: it stands in front of it, in the same function or epoch."""
    if loop is None or script.line(node) >= script.line(loop) or script.function(node) is not script.function(loop):
        return False
    return script.loop(node) is script.loop(loop)


def _is_in(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    for above in script.ancestors(node):
        if above is loop:
            return True
        if isinstance(above, FUNCTIONS):
            return False
    return False
