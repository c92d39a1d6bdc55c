"""Where a script keeps the ranks from sharing gradients: ``no_sync()``, ``no_backward_sync``, flags of the wrapper."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.bindings import keyword, last_binding
from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.window import guards

Condition = tuple[ast.expr, bool]  # a test, and whether it holds
_FLAGS = {"require_backward_grad_sync"}
_WORDS = re.compile(
    r"no_sync|no_backward_sync|require_backward_grad_sync|set_requires_gradient_sync|delay_allreduce"
    r"|disable_allreduce|set_is_last_backward|set_gradient_accumulation_boundary|accumulate\("
)


class Hold(NamedTuple):
    """A place that turns the sharing off for a backward, and when."""

    node: ast.AST  # the call of no_sync, or the assignment of the flag
    owner: str  # the model or the framework that it is called on
    off: tuple[Condition, ...]  # all of them must hold for the gradients to stay local
    body: ast.With | ast.AsyncWith | None  # what runs with the sharing off; None for a flag


@per_script
def holds(script: Script) -> tuple[Hold, ...]:
    if not mentions_sync(script):
        return ()
    return (*_contexts(script), *_flags(script))


def mentions_sync(script: Script) -> bool:
    """The text says something about when gradients are shared, perhaps in a way that is not understood here."""
    return bool(_WORDS.search(script.source))


def shares_by_hand(script: Script) -> bool:
    """``dist.all_reduce(p.grad)``: the gradients are shared by the script's own calls."""
    return any(_shares(script, call) for call in script.nodes(ast.Call))


def _shares(script: Script, call: ast.Call) -> bool:
    name = last_name(call.func)
    if name in ("all_reduce", "reduce", "broadcast", "all_reduce_coalesced"):
        return any("grad" in script.text(each) or "flat" in script.text(each) for each in call.args)
    return bool(re.search(r"(?:reduce|average|sync|multiply)\w*_grad|grad\w*_(?:reduce|sync|average)", name))


@per_script
def data_parallel(script: Script) -> ast.Call | None:
    """The call that wraps a model into torch's ``DistributedDataParallel``."""
    if "DistributedDataParallel" not in script.source:
        return None
    for call in script.nodes(ast.Call):
        name = script.qualified(call.func)
        if name.rpartition(".")[2] == "DistributedDataParallel" and name.startswith("torch."):
            return call
    return None


def _contexts(script: Script) -> Iterator[Hold]:
    statements: list[ast.With | ast.AsyncWith] = [*script.nodes(ast.With), *script.nodes(ast.AsyncWith)]
    for statement in statements:
        loop = script.loop(statement) or script.function(statement) or script.tree
        around = tuple((each.test, each.positive) for each in guards(script, statement, loop))
        for item in statement.items:
            found = _held(script, item.context_expr)
            if found is not None:
                yield Hold(found[0], _owner(found[0]), (*found[1], *around), statement)


def _held(script: Script, node: ast.expr, hops: int = 3) -> tuple[ast.expr, tuple[Condition, ...]] | None:
    """The call of ``no_sync`` that an expression of a ``with`` may be, and when it is."""
    if isinstance(node, ast.IfExp):
        for branch, taken in ((node.body, True), (node.orelse, False)):
            found = _held(script, branch, hops)
            if found is not None:
                return found[0], (*found[1], (node.test, taken))
        return None
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "no_sync":
            return node, ()
        if name == "no_backward_sync":
            enabled = keyword(node, "enabled") or (node.args[1] if len(node.args) > 1 else None)
            return node, ((enabled, True),) if enabled is not None else ()
        return _held(script, node.func, hops - 1) if isinstance(node.func, (ast.Name, ast.IfExp)) and hops else None
    if isinstance(node, ast.Attribute) and node.attr == "no_sync":
        return node, ()
    binding = last_binding(script, node.id, node) if isinstance(node, ast.Name) and hops else None
    value = binding.value if binding is not None and binding.kind == "assign" else None
    return _held(script, value, hops - 1) if value is not None else None


def _owner(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return dotted(function.value) if isinstance(function, ast.Attribute) else ""


def _flags(script: Script) -> Iterator[Hold]:
    """``model.require_backward_grad_sync = last``, ``model.set_requires_gradient_sync(last)``."""
    for assign in script.nodes(ast.Assign):
        target = assign.targets[0]
        if isinstance(target, ast.Attribute) and target.attr in _FLAGS and not isinstance(assign.value, ast.Constant):
            yield Hold(assign, dotted(target.value), ((assign.value, False),), None)
    for call in script.nodes(ast.Call):
        sets = isinstance(call.func, ast.Attribute) and call.func.attr == "set_requires_gradient_sync"
        if sets and call.args and not isinstance(call.args[0], ast.Constant):
            yield Hold(call, _owner(call), ((call.args[0], False),), None)
