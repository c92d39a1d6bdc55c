"""What lies between two runs of a loop: whether it runs again, and whether gradients are cleared or stepped there."""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.bindings import last_binding
from firstfault.lint.calls import last_name, verb
from firstfault.lint.micro_count import iterable
from firstfault.lint.script import FUNCTIONS, LOOPS, Function, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, called_function, callee, calls_in, calls_of
from firstfault.lint.workspace import Workspace

_HOPS = 3
_ENDLESS = re.compile(r"cycle|infinit|endless|forever|repeat(?!ed)|islice|unlimited", re.IGNORECASE)
_FLUSHES = re.compile(
    r"flush|left_?over|remain|optimi[sz]er_step|apply_|_step$|^step_|final|finish|update", re.IGNORECASE
)
_HOLDS_GRADIENTS = re.compile(r"optim|^opt$|scaler|engine", re.IGNORECASE)


def runs_again(script: Script, loop: ast.AST) -> bool | None:
    """A loop around the loop, or around a call of its function; None where nothing in the file calls that."""
    return _again(script, loop, _HOPS)


def _again(script: Script, node: ast.AST, hops: int) -> bool | None:
    if script.loop(node) is not None:
        return True
    function = script.function(node)
    if function is None:
        return False
    calls = list(_calls_of(script, function))
    if not calls or not hops:
        return None
    answers = [_again(script, call, hops - 1) for call in calls]
    return True if True in answers else None if None in answers else False


def _calls_of(script: Script, function: Function) -> Iterator[ast.Call]:
    """The calls of a function of the file; of a method also those on other objects, if its name is no common one."""
    name = getattr(function, "name", "")
    method = isinstance(script.parent(function), ast.ClassDef)
    own = set(calls_of(script, function))
    for call in script.calls(name):
        told = bool(call.args or call.keywords) or not _is_common(name)
        if call in own or (method and told):
            yield call


def _is_common(name: str) -> bool:
    return name in ("train", "eval", "step", "run", "update")


def cleared_between(script: Script, loop: TrainingLoop) -> ast.Call | None:
    """A call that clears the gradients between two runs of the loop: before it, or behind it."""
    for action in loop.zero_grads:
        if action.after_loop:
            return action.node
    return _cleared_before(script, loop.node, script.function(loop.node), _HOPS)


def _cleared_before(script: Script, node: ast.AST, own: Function | None, hops: int) -> ast.Call | None:
    for statement in _before(script, node):
        for call in calls_in(script, statement):
            if verb(script, call) == "zero_grad":
                return call
            helper = called_function(script, call)
            if (
                helper is not None
                and helper is not own
                and any(verb(script, each) == "zero_grad" for each in calls_in(script, helper))
            ):
                return call
    function = script.function(node)
    if function is None or not hops or script.loop(node) is not None:
        return None
    found = (_cleared_before(script, call, own, hops - 1) for call in _calls_of(script, function))
    return next((each for each in found if each is not None), None)


def _before(script: Script, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run before a node, up to the loop or the function around it."""
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(below, ast.stmt):
            block = script.block(below)
            yield from block[: block.index(below)] if below in block else []
        if isinstance(above, (*LOOPS, *FUNCTIONS)):
            return
        below = above


def may_be_flushed(script: Script, loop: TrainingLoop) -> bool:
    """Behind the loop, or where its function is called, something steps the optimizer or might."""
    if any(each.after_loop for each in loop.optimizer_steps):
        return True
    return _flushed_after(script, loop.node, _HOPS)


def _flushed_after(script: Script, node: ast.AST, hops: int) -> bool:
    own = set(script.walk(node)) if isinstance(node, LOOPS) else {node}
    outer = script.loop(node)
    for statement in [*_after(script, node), *([outer] if outer is not None else [])]:
        for call in calls_in(script, statement):
            if call not in own and _may_step(script, call):
                return True
    function = script.function(node)
    if function is None or not hops or outer is not None:
        return False
    return any(_flushed_after(script, call, hops - 1) for call in _calls_of(script, function))


def _after(script: Script, node: ast.AST) -> Iterator[ast.stmt]:
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(below, ast.stmt):
            block = script.block(below)
            yield from block[block.index(below) + 1 :] if below in block else []
        if isinstance(above, (*LOOPS, *FUNCTIONS)):
            return
        below = above


def _may_step(script: Script, call: ast.Call) -> bool:
    if verb(script, call) is not None:
        return verb(script, call) == "step"
    helper = called_function(script, call)
    if helper is not None:
        return False  # a helper of the file that steps is an action of the loop
    given = [last_name(each) for each in (*call.args, *(word.value for word in call.keywords))]
    takes = any(_HOLDS_GRADIENTS.search(each) for each in given)
    name = last_name(call.func)
    return bool(_FLUSHES.search(name)) and (takes or "flush" in name.lower()) and not _is_average(call)


def _is_average(call: ast.Call) -> bool:
    """``ema.update(model)``, ``schedule.step(...)``: no step of the optimizer."""
    name = dotted(call.func).lower()
    return any(word in name for word in ("ema", "swa", "sched", "meter", "metric", "bar", "log", "queue", "teacher"))


def is_endless(script: Script, loop: ast.AST, workspace: Workspace) -> bool:
    """The loop goes through something that never ends, or draws from what it is given as long as it likes."""
    if isinstance(loop, ast.While):
        return True
    source = iterable(script, loop)
    return source is not None and _is_endless(script, source, workspace, _HOPS)


def _is_endless(script: Script, node: ast.expr, workspace: Workspace, hops: int) -> bool:
    if _ENDLESS.search(script.text(node)):
        return True
    if isinstance(node, ast.Call):
        found = workspace.definition(callee(script, node), script)
        return found is not None and _goes_on_for_ever(found[0], found[1])
    binding = last_binding(script, dotted(node), node) if dotted(node) and hops else None
    if binding is None or binding.value is None or binding.kind != "assign":
        return False
    return _is_endless(script, binding.value, workspace, hops - 1)


def _goes_on_for_ever(script: Script, definition: ast.AST) -> bool:
    """A generator, or a class whose ``__iter__`` is one, with a ``while True`` in it."""
    yields = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in script.walk(definition))
    return yields and any(
        isinstance(each, ast.While) and isinstance(each.test, ast.Constant) and bool(each.test.value)
        for each in script.walk(definition)
    )
