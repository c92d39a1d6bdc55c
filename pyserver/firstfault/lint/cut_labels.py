"""Rows whose labels are masked over the prompt and then cut to a length: a long prompt leaves no label at all."""

import ast
from typing import NamedTuple

from firstfault.lint.bindings import bindings
from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted, per_script

_LEAVES = (ast.Continue, ast.Raise, ast.Return, ast.Assert)


class Cut(NamedTuple):
    node: ast.Subscript  # ``([-100] * len(prompt) + answer)[:limit]``
    limit: ast.expr


@per_script
def cut_labels(script: Script) -> tuple[Cut, ...]:
    """Each such place, where the function does not leave rows without an answer out."""
    found = []
    for node in script.nodes(ast.BinOp):
        if not _is_masked_prompt(script, node):
            continue
        cut = _cut(script, node)
        if cut is not None and not _leaves_rows_out(script, cut.node):
            found.append(cut)
    return tuple(found)


def _is_masked_prompt(script: Script, node: ast.BinOp) -> bool:
    """``[-100] * len(prompt) + answer``: a list of one value, as long as something, before something else."""
    above = script.parent(node)
    before = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add) and above.left is node
    if not before or not isinstance(node.op, ast.Mult):
        return False
    return isinstance(node.left, ast.List) and len(node.left.elts) == 1 and _is_length(script, node.right)


def _is_length(script: Script, node: ast.expr) -> bool:
    places = bindings(script, dotted(node), node) if dotted(node) else []
    value = places[0].value if len(places) == 1 else node
    return isinstance(value, ast.Call) and last_name(value.func) == "len"


def _cut(script: Script, node: ast.expr) -> Cut | None:
    whole: ast.AST = node
    above = script.parent(whole)
    while isinstance(above, ast.BinOp):
        whole, above = above, script.parent(above)
    if isinstance(above, ast.Subscript) and above.value is whole:
        return _as_cut(above)
    if not isinstance(above, ast.Assign) or len(above.targets) != 1 or not dotted(above.targets[0]):
        return None
    name, function = dotted(above.targets[0]), script.function(node)
    for each in script.nodes(ast.Subscript):
        if dotted(each.value) == name and script.function(each) is function and script.line(each) > script.line(above):
            cut = _as_cut(each)
            if cut is not None:
                return cut
    return None


def _as_cut(node: ast.Subscript) -> Cut | None:
    """``[:limit]``; what is kept of the end, ``[-limit:]``, keeps the answer."""
    part = node.slice
    if not isinstance(part, ast.Slice) or part.lower is not None or part.step is not None:
        return None
    return None if part.upper is None or isinstance(part.upper, ast.UnaryOp) else Cut(node, part.upper)


def _leaves_rows_out(script: Script, node: ast.AST) -> bool:
    """The function skips or refuses some rows; which ones is not judged."""
    function = script.function(node)
    tests = [each for each in script.nodes(ast.If) if function is None or script.function(each) is function]
    return any(isinstance(part, _LEAVES) for each in tests for part in each.body) or any(
        script.function(each) is function for each in script.nodes(ast.Assert)
    )
