"""What a loss function that is handed to transformers' Trainer gives back: a mean that knows nothing of the window?"""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from firstfault.lint.averaging import is_constant_factor
from firstfault.lint.bindings import keyword
from firstfault.lint.calls import last_name
from firstfault.lint.hf_trainer import ITEMS
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.reductions import reduction
from firstfault.lint.script import Script
from firstfault.lint.token_counts import is_mean
from firstfault.lint.workspace import Workspace

Kind = Literal["super", "model-output", "cross-entropy", "mean"]
_WINDOW = re.compile(r"accum|num_items|n_items|items_in_batch|num_tokens|global_", re.IGNORECASE)
_PER_EXAMPLE = re.compile(r"SequenceClassification|MultipleChoice|QuestionAnswering|Image|Audio|NextSentence|Vision")
_CAUSAL = re.compile(r"CausalLM|LMHeadModel|Seq2SeqLM|ConditionalGeneration|MaskedLM|TokenClassification")


class ReturnedMean(NamedTuple):
    kind: Kind
    node: ast.expr  # the call that computes it, in this script
    term: Term
    place: ast.Return
    alone: bool  # nothing else is added to it


def returned_mean(script: Script, function: ast.FunctionDef, workspace: Workspace) -> ReturnedMean | None:
    """The first mean that a function returns; None where it looks at the window, or the text does not tell."""
    if looks_at_window(script, function):
        return None
    for place in script.nodes(ast.Return):
        loss = _loss(place.value) if place.value is not None and script.function(place) is function else None
        if loss is None:
            continue
        terms = loss_terms(script, loss, workspace)
        if any(not is_constant_factor(script, each.operand) for term in terms for each in term.scales):
            return None
        for term in terms:
            kind = _kind(term, workspace)
            if kind is not None and not term.one_of_several and not _is_told(term, script, workspace):
                return ReturnedMean(kind, _here(term), term, place, len(terms) == 1)
    return None


def looks_at_window(script: Script, function: ast.FunctionDef) -> bool:
    """It reads the number of items, hands its keywords on, or speaks of accumulation."""
    rest = function.args.kwarg.arg if function.args.kwarg else ""
    for node in _body(script, function):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        word = node.arg or "" if isinstance(node, ast.keyword) else ""
        if (rest and name == rest) or any(_WINDOW.search(each) for each in (name, word, text[:60])):
            return True
    return False


def is_per_token(script: Script, found: ReturnedMean, head: str | None) -> bool:
    """The mean is over tokens, as far as the text tells: by the model's class, by the shift of the labels."""
    if head is not None:
        return not _PER_EXAMPLE.search(head) and bool(_CAUSAL.search(head))
    if found.kind == "super" or found.kind == "model-output":
        return bool(_CAUSAL.search(script.source)) and not _PER_EXAMPLE.search(script.source)
    return any(_is_shift(each) for each in script.walk(script.function(found.place) or script.tree))


def _is_shift(node: ast.AST) -> bool:
    """``logits[..., :-1, :]``."""
    minus_one = isinstance(node, ast.Slice) and node.lower is None and isinstance(node.upper, ast.UnaryOp)
    return minus_one and isinstance(node.upper.operand, ast.Constant) and node.upper.operand.value == 1  # type: ignore[attr-defined]


def _body(script: Script, function: ast.FunctionDef) -> Iterator[ast.AST]:
    for statement in function.body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not docstring:
            yield from script.walk(statement)


def _loss(value: ast.expr) -> ast.expr | None:
    """The loss of ``(loss, outputs) if return_outputs else loss``."""
    while isinstance(value, (ast.IfExp, ast.Tuple)):
        if isinstance(value, ast.Tuple) and not value.elts:
            return None
        value = value.body if isinstance(value, ast.IfExp) else value.elts[0]
    return None if isinstance(value, ast.Constant) else value


def _kind(term: Term, workspace: Workspace) -> Kind | None:
    if is_super_call(term.node):
        return "super"
    if term.kind == "model-output":
        return "model-output"
    if term.kind == "cross-entropy" and isinstance(term.node, ast.Call):
        return "cross-entropy" if is_mean(term.maker or term.node) else None
    if term.kind == "mean" or reduction(term, workspace) == "mean":
        return "mean"
    return None


def is_super_call(node: ast.AST) -> bool:
    """``super().compute_loss(...)``."""
    call = node if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    owner = call.func.value if call and isinstance(call.func, ast.Attribute) else None
    return call is not None and last_name(call.func) == "compute_loss" and isinstance(owner, ast.Call) and (
        last_name(owner.func) == "super"
    )  # fmt: skip


def _is_told(term: Term, script: Script, workspace: Workspace) -> bool:
    """The number of items goes along, in this call or in one on the way."""
    calls = [*(entry.call for entry in term.entries), term.node]
    if any(isinstance(each, ast.Call) and keyword(each, ITEMS) is not None for each in calls):
        return True
    functions = [entry.function for entry in term.entries if isinstance(entry.function, ast.FunctionDef)]
    homes = [entry.callee_script for entry in term.entries if isinstance(entry.function, ast.FunctionDef)]
    return any(looks_at_window(home, each) for home, each in zip(homes, functions, strict=True))


def _here(term: Term) -> ast.expr:
    """The call in the function itself."""
    return term.entries[0].call if term.entries else term.node
