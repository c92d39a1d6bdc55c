"""Whether a term of the loss is a mean or a sum over what a micro-batch holds.

    F.mse_loss(guess, target)                        mean
    nn.CrossEntropyLoss(reduction="sum")(x, y)       sum
    criterion(x, y)                                  what all criteria that the name may hold have in common
    model(**batch).loss                              hidden: a mean by custom, which the text does not show

    criterion(x, y)                                  named: the name says criterion, and nothing shows what it is

None where the text does not tell.
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal

from firstfault.lint.bindings import Binding, bindings, keyword
from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import Term
from firstfault.lint.objects import argument
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace

Reduction = Literal["mean", "sum", "hidden", "named"]
_FUNCTIONS = {
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
}
_HOPS = 5
_CRITERION = re.compile(r"criterion|loss_?(?:fn|func|function)$", re.IGNORECASE)


def reduction(term: Term, workspace: Workspace) -> Reduction | None:
    """The reduction of the call that a term was followed to."""
    if term.kind == "model-output":
        normalised = isinstance(term.node, ast.Call) and keyword(term.node, "num_items_in_batch") is not None
        return None if normalised else "hidden"
    node = term.node
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    if not isinstance(node, ast.Call):
        return None
    if term.maker is not None:
        return _stated(term.maker)
    whole = _whole(term.script, node)
    if whole is not None:
        return whole
    makers = list(_criteria(term.script, node, workspace))
    found = {_stated(each) for each in makers}
    if not makers and _is_opaque(term.script, node, workspace):
        return "named"
    return found.pop() if len(found) == 1 else None


def _is_opaque(script: Script, call: ast.Call, workspace: Workspace) -> bool:
    """``criterion(scores, kinds)``, and nothing in the workspace shows what it is."""
    name = dotted(call.func)
    if not _CRITERION.search(last_name(call.func)) or workspace.definition(name, script) is not None:
        return False
    owner = script.class_of(call)
    method = f"{owner.name}.{name[5:]}" if owner and name.startswith("self.") else ""
    return method not in script.definitions


def is_scalar(script: Script, node: ast.expr) -> bool:
    """The value has no dimension left: ``x.sum()``, ``x.mean()``, or a name for it."""
    binding_places = bindings(script, dotted(node), node) if dotted(node) else []
    if len(binding_places) == 1 and binding_places[0].kind == "assign" and binding_places[0].value is not None:
        node = binding_places[0].value
    return isinstance(node, ast.Call) and _whole(script, node) is not None


def _whole(script: Script, call: ast.Call) -> Reduction | None:
    """``x.mean()`` and ``torch.sum(x)`` over everything; over one dimension it is no reduction to a number."""
    if last_name(call.func) not in ("mean", "sum"):
        return None
    kind: Reduction = "mean" if last_name(call.func) == "mean" else "sum"
    of_torch = script.qualified(call.func) in ("torch.mean", "torch.sum")
    given = len(call.args) - (1 if of_torch else 0) + len(call.keywords)
    return kind if given == 0 and (of_torch or isinstance(call.func, ast.Attribute)) else None


def _stated(maker: ast.Call) -> Reduction | None:
    """What the call of a loss function, or of a criterion's constructor, says of its reduction."""
    if keyword(maker, "reduce") is not None:
        return None
    old = keyword(maker, "size_average")
    if old is not None:
        return _old_style(old)
    given = keyword(maker, "reduction")
    if given is None:
        return "mean"
    word = given.value if isinstance(given, ast.Constant) else None
    return "mean" if word in ("mean", "batchmean") else "sum" if word == "sum" else None


def _old_style(size_average: ast.expr) -> Reduction | None:
    if not isinstance(size_average, ast.Constant):
        return None
    return "mean" if size_average.value in (True, None) else "sum"


def _criteria(script: Script, call: ast.Call, workspace: Workspace) -> Iterator[ast.Call]:
    """The constructors of all criteria that a call may run; the call itself where it is a function of torch."""
    module, _, name = script.qualified(call.func).rpartition(".")
    if module == "torch.nn.functional" and name in _FUNCTIONS:
        yield call
    else:
        yield from _makers(script, call.func, workspace, _HOPS)


def _makers(script: Script, node: ast.expr, workspace: Workspace, hops: int) -> Iterator[ast.Call]:
    if hops <= 0:
        return
    if isinstance(node, ast.Call):
        yield from _made(script, node, workspace, hops)
    elif isinstance(node, ast.IfExp):
        yield from _makers(script, node.body, workspace, hops - 1)
        yield from _makers(script, node.orelse, workspace, hops - 1)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
        for each in node.value.values:
            yield from _makers(script, each, workspace, hops - 1)
    elif dotted(node):
        for binding in bindings(script, dotted(node), node):
            yield from _bound(script, binding, workspace, hops - 1)


def _made(script: Script, call: ast.Call, workspace: Workspace, hops: int) -> Iterator[ast.Call]:
    name = script.qualified(call.func)
    if name.startswith("torch.nn.") and name.endswith("Loss"):
        yield call
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda"):
        yield from _makers(script, call.func.value, workspace, hops - 1)
    else:
        defined = workspace.definition(dotted(call.func), script) if dotted(call.func) else None
        if defined and isinstance(defined[1], (ast.FunctionDef, ast.AsyncFunctionDef)):
            home, function = defined
            for each in home.nodes(ast.Return):
                if each.value is not None and home.function(each) is function:
                    yield from _makers(home, each.value, workspace, hops - 1)


def _bound(script: Script, binding: Binding, workspace: Workspace, hops: int) -> Iterator[ast.Call]:
    if binding.kind == "assign" and binding.value is not None:
        yield from _makers(script, binding.value, workspace, hops)
    function = script.function(binding.node) if binding.kind == "parameter" else None
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        owner = script.parent(function)
        names = (function.name, owner.name if isinstance(owner, ast.ClassDef) else "")
        for call in script.nodes(ast.Call):
            given = argument(call, function, binding.name) if last_name(call.func) in names else None
            if given is not None:
                yield from _makers(script, given, workspace, hops)
