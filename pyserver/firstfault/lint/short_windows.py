"""Where a script steps the optimizer for a window that is not full: at the end of the data, or behind the loop.

if (i + 1) % steps == 0 or i + 1 == len(loader):      the condition closes at the end of the data too
if seen % steps: optimizer.step()                     a step behind the loop takes what is left
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.bindings import bindings, last_binding
from firstfault.lint.calls import last_name, verb
from firstfault.lint.fix_safety import guards_leftover
from firstfault.lint.objects import argument
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, called_function, calls_in
from firstfault.lint.window import Guard, Window, window_of_guard

_LAST = re.compile(r"(?:^|_)(?:last|final)(?:$|_)|n_batches|num_batches|steps_per_epoch|iters_per_epoch", re.IGNORECASE)
_HOPS = 3


def short_close(script: Script, loop: TrainingLoop, window: Window) -> ast.AST | None:
    """The condition that closes at the end of the data too, or the statement behind the loop that steps."""
    tests = [window.boundary.test] if window.boundary is not None else []
    for test in (*tests, window.node):
        found = closing_condition(script, test)
        if found is not None:
            return found
    return _flush(script, loop)


def closing_condition(script: Script, test: ast.expr, hops: int = _HOPS) -> ast.expr | None:
    """``full or last``, ``not full and not last``, in the test itself or in a flag that it names."""
    for node in script.walk(test):
        if isinstance(node, ast.BoolOp):
            parts = node.values
            full = any(_has_modulo(each) or _names_full(script, each) for each in parts)
            if full and any(_is_last(script, each) for each in parts):
                return node
        name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) and hops else ""
        places = bindings(script, name, node) if name else []
        if len(places) == 1 and isinstance(places[0].value, (ast.BoolOp, ast.UnaryOp)) and places[0].kind == "assign":
            found = closing_condition(script, places[0].value, hops - 1)
            if found is not None:
                return found
    return None


def _has_modulo(node: ast.expr) -> bool:
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in ast.walk(node))


def _names_full(script: Script, node: ast.expr) -> bool:
    """A name for ``i % N == 0``."""
    value = _value(script, node)
    return value is not None and _has_modulo(value)


def _is_last(script: Script, node: ast.expr) -> bool:
    """``i + 1 == len(loader)``, ``i == last``, or a name for it."""
    if isinstance(node, ast.UnaryOp):
        return _is_last(script, node.operand)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.GtE, ast.Lt)):
        return not _has_modulo(node) and any(_is_length(script, each) for each in (node.left, node.comparators[0]))
    value = _value(script, node)
    return isinstance(value, ast.Compare) and _is_last(script, value)


def _is_length(script: Script, node: ast.expr) -> bool:
    """``len(loader)``, ``len(loader) - 1``, a name for it."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and last_name(each.func) == "len":
            return True
        if isinstance(each, (ast.Name, ast.Attribute)):
            value = _value(script, each)
            if _LAST.search(last_name(each)) or (value is not None and "len(" in ast.unparse(value)):
                return True
    return False


def _value(script: Script, node: ast.expr) -> ast.expr | None:
    binding = last_binding(script, dotted(node), node) if dotted(node) and script.parent(node) is not None else None
    return binding.value if binding is not None and binding.kind == "assign" else None


def _flush(script: Script, loop: TrainingLoop) -> ast.AST | None:
    """A step behind the loop, besides those within it, that takes what is left."""
    if not isinstance(loop.node, LOOPS) or not any(not each.after_loop for each in loop.optimizer_steps):
        return None
    own = {_stepped(each.inner) for each in loop.optimizer_steps if not each.after_loop}
    outer = placement.outermost_loop(script, loop.node)
    near, far = placement.blocks_after(script, loop.node), placement.blocks_after(script, outer)
    blocks = [(block, False) for block in near] + ([(block, True) for block in far] if outer is not loop.node else [])
    for block, must_count in blocks:
        for statement in block:
            if isinstance(statement, (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if _steps(script, statement, own) and _takes_the_rest(script, statement, loop, must_count):
                return statement
    return None


def _stepped(call: ast.Call) -> str:
    """The optimizer that a call steps, by name."""
    given = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
    return dotted(given)


def _steps(script: Script, statement: ast.stmt, own: set[str]) -> bool:
    for call in calls_in(script, statement):
        helper = called_function(script, call)
        inner = calls_in(script, helper) if helper is not None else iter([call])
        if any(verb(script, each) == "step" and _stepped(each) in own for each in inner):
            return True
    return False


def _takes_the_rest(script: Script, statement: ast.stmt, loop: TrainingLoop, must_count: bool) -> bool:
    """Its condition is about the remainder; right behind the loop it may also have none."""
    if not isinstance(statement, ast.If):
        return not must_count
    return guards_leftover(script, statement.body[0], loop)


def windows_by_parameter(script: Script, loop: TrainingLoop) -> Iterator[tuple[Window, ast.expr]]:
    """The window of a function that is told to step: ``optimize(batch, update_now)``, and the caller's condition.

    The caller may pass the condition, a name for it, or a flag that a condition turns off.
    """
    for step in loop.optimizer_steps:
        for guard in step.guards:
            function = script.function(step.inner)
            name = dotted(guard.test)
            if not guard.positive or not name or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for call in script.nodes(ast.Call):
                given = argument(call, function, name) if called_function(script, call) is function else None
                found = _caller_window(script, call, given) if given is not None else None
                if found is not None:
                    yield found


def _caller_window(script: Script, call: ast.Call, given: ast.expr) -> tuple[Window, ast.expr] | None:
    around = script.loop(call) or script.function(call) or script.tree
    for test, positive in _tests(script, given):
        holder = ast.If(test=test, body=[], orelse=[])
        window = window_of_guard(script, Guard(test, holder, positive), around)
        if window is not None:
            return window, test
    return None


def _tests(script: Script, given: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    if not dotted(given):
        yield given, True
        return
    for binding in bindings(script, dotted(given), given):
        value, above = binding.value, script.parent(binding.node)
        if isinstance(value, (ast.BoolOp, ast.Compare, ast.UnaryOp)):
            yield value, True
        elif isinstance(value, ast.Constant) and isinstance(value.value, bool) and isinstance(above, ast.If):
            yield above.test, value.value
