"""``(loss * mask).sum() / mask.sum()``: which term of a loss is divided by the mask of its own micro-batch."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from firstfault.lint.bindings import bindings, number
from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import Scale, Term, home_of
from firstfault.lint.objects import argument
from firstfault.lint.script import Script, dotted

# What marks the tokens of a text that count, by how its mask is called.
_TOKENS = (
    r"attn|attention|padding|pad|loss|label|target|answer|resp\w*|completion|action|assistant|token|valid|eos|keep"
)
_MASK = re.compile(rf"(?:^|_)(?:{_TOKENS})s?(?:_masks?)?$|(?:{_TOKENS})s?_?masks?$|^masks?$", re.IGNORECASE)
_PLAIN = re.compile(r"^(?:masks?|keep|valid)$", re.IGNORECASE)
_TEXT = re.compile(
    r"input_ids|attention_mask|\battn|token_?logp|log_?probs?\b|tokenizer|pad_token|padding_idx|\bvocab|answer_mask"
)
_IMAGES = re.compile(r"patch_?embed|patchify|num_patches|mask_ratio")
_PADDING = re.compile(r"!=\s*-100|\.ne\(|ignore_index|pad_token_id|pad_idx|\bPAD\b|padding_idx")
_KEEPS = {"clamp", "clamp_min", "clip", "float", "item", "to", "long", "int", "double"}


@dataclass(frozen=True, slots=True)
class MaskedMean:
    scale: Scale  # the division by the sum of the mask
    mask: str  # as the script names it
    strength: Literal["shown", "named"]  # it is compared with the padding, or only called like a mask of tokens


def masked_mean(term: Term, script: Script) -> MaskedMean | None:
    """The division by a mask of the term's own micro-batch; None where there is none, or the mask may be constant."""
    if term.kind != "sum" or not isinstance(term.node, ast.Call) or not _is_full_sum(term.node):
        return None
    for scale in term.scales:
        home = home_of(script, term, scale.operand)
        mask = _summed(home, scale.operand) if scale.divides and home.parent(scale.operand) is not None else None
        if mask is None:
            continue
        strength = _strength(term, home, mask)
        if strength is not None:
            shown = home.text(mask)
            return MaskedMean(scale, f"(~{shown})" if _is_rest(home, scale.operand) else shown, strength)
    return None


def without(term: Term, scale: Scale) -> Term:
    """The term as a mean over its mask: the division by the mask is part of it."""
    return replace(term, scales=tuple(each for each in term.scales if each is not scale))


def _is_full_sum(call: ast.Call) -> bool:
    """Over everything: ``x.sum()``, ``torch.sum(x)``; not along a dimension."""
    of_torch = isinstance(call.func, ast.Attribute) and dotted(call.func.value) == "torch"
    return len(call.args) == (1 if of_torch else 0) and not call.keywords


def _summed(script: Script, node: ast.expr, hops: int = 4) -> ast.expr | None:
    """``mask`` of ``mask.sum()``, ``torch.sum(mask)``, ``mask.sum().clamp(min=1)``, ``max(mask.sum(), 1)``, a name."""
    if hops == 0:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # mask.sum() + 1e-8
        is_small = number(script, node.right)
        return _summed(script, node.left, hops - 1) if is_small or _is_epsilon(node.right) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _counts_all(node.left):
        return _summed(script, node.right, hops - 1)  # len(target) - ignored.sum(): the others are counted
    if isinstance(node, ast.Call):
        return _summed_by_call(script, node, hops)
    name = dotted(node)
    places = bindings(script, name, node) if isinstance(node, ast.Name) else []
    if len(places) != 1 or places[0].kind != "assign" or places[0].value is None or _is_reduced(script, name, node):
        return None
    return _summed(script, places[0].value, hops - 1)


def _summed_by_call(script: Script, call: ast.Call, hops: int) -> ast.expr | None:
    name = last_name(call.func)
    if name in ("sum", "count_nonzero") and _is_full_sum(call):
        of_torch = isinstance(call.func, ast.Attribute) and dotted(call.func.value) == "torch"
        return call.args[0] if of_torch else call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in _KEEPS and isinstance(call.func, ast.Attribute):
        if dotted(call.func.value) == "torch":
            return _summed(script, call.args[0], hops - 1) if call.args else None
        return _summed(script, call.func.value, hops - 1)
    if name in ("max", "maximum"):
        return next((found for each in call.args if (found := _summed(script, each, hops - 1))), None)
    return None


def _counts_all(node: ast.expr) -> bool:
    """``len(target)``, ``target.numel()``, ``target.size(0)``."""
    return isinstance(node, ast.Call) and last_name(node.func) in ("len", "numel", "nelement", "size")


def _is_rest(script: Script, node: ast.expr) -> bool:
    """What the mask leaves: ``total - ignored.sum()``, perhaps by a name."""
    places = bindings(script, dotted(node), node) if isinstance(node, ast.Name) else []
    value = places[0].value if places else node
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)


def _is_epsilon(node: ast.expr) -> bool:
    return bool(re.search(r"eps", last_name(node), re.IGNORECASE))


def _is_reduced(script: Script, name: str, at: ast.AST) -> bool:
    """The count is handed to a collective, so it is not the micro-batch's own any more."""
    scope = script.scope(at)
    return any(
        isinstance(each, ast.Call)
        and last_name(each.func) in ("all_reduce", "reduce", "gather", "all_gather", "broadcast")
        and any(dotted(given) == name for given in each.args)
        for each in script.walk(scope)
    )


def _strength(term: Term, home: Script, mask: ast.expr) -> Literal["shown", "named"] | None:
    """How the text shows that the mask marks tokens, whose number varies; None where it may be drawn or constant."""
    named = False
    for script, each in _seen_as(term, home, mask):
        text = script.text(each)
        if _PADDING.search(text) and isinstance(each, (ast.Compare, ast.Call, ast.BinOp, ast.UnaryOp)):
            return "shown"
        name = _name_of(each)
        if re.search(r"rand|bernoulli|mask_ratio|hidden", text):
            return None
        if _MASK.search(name):
            named = named or not _PLAIN.search(name) or _is_about_text(term, home)
    return "named" if named else None


def _is_about_text(term: Term, home: Script) -> bool:
    homes = {each.path: each for each in (home, term.script, *(entry.script for entry in term.entries))}.values()
    return any(_TEXT.search(each.source) for each in homes) and not any(_IMAGES.search(each.source) for each in homes)


def _seen_as(term: Term, home: Script, mask: ast.expr) -> Iterator[tuple[Script, ast.expr]]:
    """The mask where it is summed, what it was set to, and what the calls that lead there hand over for it."""
    todo: list[tuple[Script, ast.expr, int]] = [(home, mask, 4)]
    while todo:
        script, node, left = todo.pop(0)
        node = _bare(node)
        yield script, node
        if not left or not isinstance(node, ast.Name):
            continue
        for binding in bindings(script, node.id, node):
            if binding.kind == "parameter":
                given = [
                    (entry.script, argument(entry.call, entry.function, node.id), left - 1)
                    for entry in term.entries
                    if entry.callee_script is script and entry.function is script.function(binding.node)
                ]
                todo += [(where, what, depth) for where, what, depth in given if what is not None]
            elif binding.kind == "assign" and binding.value is not None:
                todo.append((script, binding.value, left - 1))


def _bare(node: ast.expr) -> ast.expr:
    """``mask`` of ``mask.float()``, ``mask.to(x)``, ``mask[:, 1:]``, ``roll["keep"][pick]``'s ``roll["keep"]``."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
            *_KEEPS, "view", "reshape", "contiguous", "bool", "flatten", "type_as", "cuda"
        ):  # fmt: skip
            node = node.func.value
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            node = node.value
        else:
            return node


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return last_name(node)
