"""The expression that counts the tokens which enter a loss, in words that are known at the training loop.

    F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=PAD)    ->  (labels != PAD).sum()

None wherever the labels cannot be named there for certain.
"""

import ast
import copy
import re

from firstfault.lint.bindings import bindings, keyword, last_binding, number
from firstfault.lint.loss_terms import Entry, Term
from firstfault.lint.objects import argument
from firstfault.lint.script import Script, dotted
from firstfault.lint.token_counts import ignored_value, target_of

_HOPS = 6
_RESHAPES = {"view", "reshape", "flatten", "contiguous", "squeeze"}
_PURE = _RESHAPES | {"to", "cuda", "long", "clone", "detach", "unsqueeze", "transpose", "permute", "t"}
_SHIFTS = re.compile(r"CausalLM|LMHeadModel|DoubleHeadsModel")
_STAYS = re.compile(
    r"Seq2SeqLM|TokenClassification|MaskedLM|(?:T5|Bart|Pegasus|Marian|Whisper)\w*ForConditionalGeneration"
)


def count_expression(term: Term) -> str | None:
    """``(labels != -100).sum()``, ready to stand behind the statement that computes the loss."""
    counted = _of_model(term) if term.kind == "model-output" else _of_cross_entropy(term)
    if counted is None:
        return None
    labels, ignored = counted
    return f"({labels} != {ignored}).sum()"


def _of_cross_entropy(term: Term) -> tuple[str, str] | None:
    call, maker = term.node, term.maker or term.node
    if not isinstance(call, ast.Call) or not isinstance(maker, ast.Call) or _has_class_weights(maker, bool(term.maker)):
        return None
    target = target_of(call)
    ignored = _ignored(term)
    if target is None or ignored is None:
        return None
    if not term.entries:
        shown = without_reshape(target)
        return (term.script.text(shown), ignored) if _is_pure(shown) else None
    mapped = _at_loop(term, without_reshape(target))
    return (ast.unparse(without_reshape(mapped)), ignored) if mapped is not None else None


def _of_model(term: Term) -> tuple[str, str] | None:
    """Labels of a library's model; one that predicts the next token drops the first label itself."""
    made_by = term.model.name if term.model else ""
    shifts, stays = bool(_SHIFTS.search(made_by)), bool(_STAYS.search(made_by))
    if shifts == stays or term.entries or not isinstance(term.node, ast.Call):
        return None
    labels = _labels(term.script, term.node)
    if labels is None:
        return None
    return (f"{labels}[..., 1:]" if shifts else labels), "-100"


def _labels(script: Script, call: ast.Call) -> str | None:
    given = keyword(call, "labels")
    if given is not None:
        return script.text(given) if _is_pure(given) else None
    spread = [each.value for each in call.keywords if each.arg is None]
    return f'{script.text(spread[0])}["labels"]' if len(spread) == 1 and dotted(spread[0]) else None


def _ignored(term: Term) -> str | None:
    """The ignored value as it can be written at the loop."""
    given = ignored_value(term)
    if given is None:
        return "-100"
    owner = term.maker_home or term.script
    value = number(owner, given)
    if owner is not term.script:
        return str(int(value.value)) if value is not None and value.origin != "default" else None
    if value is not None and (term.entries or isinstance(given, (ast.Constant, ast.UnaryOp))):
        return str(int(value.value))
    if term.entries or not dotted(given):
        return None
    maker = term.maker or given
    visible = term.script.function(maker) is term.script.function(term.node) or _is_global(term.script, given)
    if visible:
        return term.script.text(given)
    return str(int(value.value)) if value is not None and value.origin != "default" else None


def _is_global(script: Script, node: ast.expr) -> bool:
    root = dotted(node).partition(".")[0]
    found = last_binding(script, root, node)
    return root in script.imports or (found is not None and script.function(found.node) is None)


def _has_class_weights(maker: ast.Call, is_constructor: bool) -> bool:
    """With weights per class the denominator is the sum of weights, not the count."""
    positional = maker.args[:1] if is_constructor else maker.args[2:3]
    given = keyword(maker, "weight") or (positional[0] if positional else None)
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def _at_loop(term: Term, target: ast.expr) -> ast.expr | None:
    """The target in the words of the loop: parameters replaced by what the calls hand over."""
    found: ast.expr | None = target
    at: ast.AST = term.node
    for entry in reversed(term.entries):
        found = _in_parameters(entry.callee_script, found, at, entry, _HOPS) if found is not None else None
        found = _replaced(found, entry) if found is not None else None
        at = entry.call
    return found if found is not None and _is_pure(found) else None


def _in_parameters(script: Script, node: ast.expr, at: ast.AST, entry: Entry, hops: int) -> ast.expr | None:
    """An expression with local names replaced by what they are set to, until only parameters are left."""
    if not hops or not _is_pure(node):
        return None
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    if len(names) != 1:
        return None
    name = names.pop()
    binding = last_binding(script, name, at)
    if binding is None:
        return None
    if binding.kind == "parameter":
        return node
    before = [each for each in bindings(script, name, at) if script.line(each.node) < script.line(at)]
    straight = binding.kind == "assign" and script.parent(binding.node) is entry.function
    if not straight or binding.value is None or binding not in before:
        return None
    inner = _in_parameters(script, binding.value, binding.node, entry, hops - 1)
    return _substituted(node, name, inner) if inner is not None else None


def _replaced(node: ast.expr, entry: Entry) -> ast.expr | None:
    """The parameter replaced by the argument of the call."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    name = names.pop() if len(names) == 1 else ""
    given = argument(entry.call, entry.function, name) if name else None
    return _substituted(node, name, given) if given is not None and _is_pure(given) else None


class _Substitution(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.value) if node.id == self.name else node


def _substituted(node: ast.expr, name: str, value: ast.expr) -> ast.expr:
    replaced: ast.expr = _Substitution(name, value).visit(copy.deepcopy(node))
    return replaced


def without_reshape(node: ast.expr) -> ast.expr:
    """``labels`` of ``labels.view(-1)``: the count does not depend on the shape."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _RESHAPES:
        node = node.func.value
    return node


def _is_pure(node: ast.expr) -> bool:
    """Reading it a second time changes nothing and costs little: names, indexes, moves and reshapes."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            if not isinstance(each.func, ast.Attribute) or each.func.attr not in _PURE:
                return False
        elif not isinstance(each, _PURE_NODES):
            return False
    return True


_PURE_NODES = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.Constant,
    ast.UnaryOp,
    ast.USub,
    ast.keyword,
    ast.expr_context,
)
