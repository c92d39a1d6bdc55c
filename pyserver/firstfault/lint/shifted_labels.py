"""Counts of labels beside a loss that leaves the first label of each row out: a causal model shifts them."""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.bindings import bindings, keyword, number
from firstfault.lint.calls import last_name
from firstfault.lint.hf_trainer import ITEMS, is_causal
from firstfault.lint.loss_terms import CROSS_ENTROPIES
from firstfault.lint.objects import instance
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace

_IDS = re.compile(r"(?:^|_)ids$|tokens$|^x$")
_LABELS = re.compile(r"label|target|gold", re.IGNORECASE)
_COPIES = ("clone", "copy", "masked_fill", "detach", "where", "deepcopy", "list")
_HOPS = 4
Count = tuple[ast.expr, ast.expr]  # the comparison, and the labels that it looks at


def denominators(script: Script, workspace: Workspace) -> Iterator[ast.expr]:
    """What the losses of a script that shift their labels are divided by."""
    if ITEMS not in script.source and not ("sum" in script.source and "ross" in script.source):
        return
    for call in script.nodes(ast.Call):
        given = keyword(call, ITEMS)
        model = instance(script, call.func, workspace) if given is not None else None
        if given is not None and model is not None and model.definition is None and is_causal(model):
            yield given
    for node in script.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div) and _is_shifted_sum(script, node.left):
            yield node.right


def count_of_labels(script: Script, node: ast.expr, hops: int = _HOPS) -> Count | None:
    """The comparison that a number is counted from: ``(labels != -100).sum()``, in one step or over names."""
    for each in ast.walk(node):
        found = _comparison(script, each)
        if found is not None:
            return found
    if not hops:
        return None
    for each in ast.walk(node):
        name = dotted(each) if isinstance(each, (ast.Name, ast.Attribute)) else ""
        for binding in bindings(script, name, each) if name else ():
            counts = binding.value is not None and binding.kind in ("assign", "augmented")
            found = count_of_labels(script, binding.value, hops - 1) if counts and binding.value is not node else None  # type: ignore[arg-type]
            if found is not None:
                return found
    return None


def is_shifted(script: Script, labels: ast.expr) -> bool:
    """Nothing of the first position is left in it: ``labels[:, 1:]``, in place or where the name is set."""
    if _drops_first(labels):
        return True
    places = bindings(script, dotted(labels), labels) if dotted(labels) else []
    return any(each.value is not None and _drops_first(each.value) for each in places)


def counts_first(scripts: list[Script]) -> tuple[Script, ast.AST] | None:
    """Where labels are a copy of the ids, first position included; None where anything masks a beginning."""
    if any(_masks_a_beginning(script) for script in scripts):
        return None
    for script in scripts:
        for node in script.nodes(ast.Assign):
            if any(_LABELS.search(_name(each)) for each in node.targets) and _is_copy_of_ids(node.value):
                return script, node
        for call in script.nodes(ast.Call):
            causal = last_name(call.func) == "DataCollatorForLanguageModeling" and keyword(call, "mlm")
            if isinstance(causal, ast.Constant) and causal.value is False:
                return script, call
    return None


def _comparison(script: Script, node: ast.AST) -> Count | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.NotEq):
        value = number(script, node.comparators[0])
        return (node, node.left) if value is not None and value.value < 0 and _is_labels(node.left) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "ne" and node.args:
        value = number(script, node.args[0])
        known = value is not None and value.value < 0 and _is_labels(node.func.value)
        return (node, node.func.value) if known else None
    return None


def _is_labels(node: ast.expr) -> bool:
    return bool(_LABELS.search(_name(node)))


def _name(node: ast.expr) -> str:
    """``labels`` of ``batch["labels"]``, of ``labels[:, 1:]``, of ``batch.labels``."""
    if isinstance(node, ast.Subscript):
        return (
            node.slice.value
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
            else _name(node.value)
        )
    return last_name(node)


def _drops_first(node: ast.expr) -> bool:
    slices = (each for each in ast.walk(node) if isinstance(each, ast.Slice))
    return any(isinstance(each.lower, ast.Constant) and each.lower.value == 1 for each in slices)


def _is_shifted_sum(script: Script, node: ast.expr, hops: int = _HOPS) -> bool:
    """A cross-entropy over ``labels[..., 1:]`` that is summed."""
    if isinstance(node, ast.Call) and script.qualified(node.func) in CROSS_ENTROPIES:
        given = keyword(node, "reduction")
        target = keyword(node, "target") or (node.args[1] if len(node.args) > 1 else None)
        summed = isinstance(given, ast.Constant) and given.value == "sum"
        return summed and target is not None and any(is_shifted(script, each) for each in _parts(target))
    places = bindings(script, dotted(node), node) if dotted(node) and hops else []
    return any(each.value is not None and _is_shifted_sum(script, each.value, hops - 1) for each in places)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """``labels`` of ``labels.reshape(-1)``."""
    yield target
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
        yield from _parts(target.func.value)


def _is_copy_of_ids(node: ast.expr) -> bool:
    if _drops_first(node):
        return False
    while isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        if last_name(node.func) not in _COPIES or inner is None:
            return False
        node = inner
    return bool(_IDS.search(_name(node)))


def _masks_a_beginning(script: Script) -> bool:
    """``labels[:, 0] = -100``, ``labels[:n] = -100``, ``[-100] * len(prompt) + answer``."""
    written = (each for assign in script.nodes(ast.Assign) for each in assign.targets)
    if any(isinstance(each, ast.Subscript) and _is_beginning(each) for each in written):
        return True
    return any(
        isinstance(side, ast.List) and len(side.elts) == 1 and isinstance(node.op, ast.Mult)
        for node in script.nodes(ast.BinOp)
        for side in (node.left, node.right)
    )


def _is_beginning(target: ast.Subscript) -> bool:
    """A place by its position, not by what stands there: ``labels[labels == pad]`` is none."""
    if not _LABELS.search(_name(target)) or isinstance(target.slice, ast.Constant):
        return False
    return not any(isinstance(each, (ast.Compare, ast.Call)) for each in ast.walk(target.slice))
