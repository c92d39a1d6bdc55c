"""Whether a loss is shown to be a mean over a number of tokens that varies from one micro-batch to the next.

Shown means: the text of the workspace says so. Everything else is "not shown", and rules stay silent.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from firstfault.lint.bindings import keyword, last_binding, number
from firstfault.lint.calls import last_name
from firstfault.lint.ignored_labels import Proof, proof_of_ignored
from firstfault.lint.loss_terms import Term
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import called_function
from firstfault.lint.workspace import Workspace

Strength = Literal["same-file", "sibling", "advisory"]
_HOPS = 5
_SEGMENTATION = 255
_RANDOM_REASON = "a mean over the tokens that were masked at random"
# One label per example, however the labels of other tokens are padded.
_PER_EXAMPLE = re.compile(r"SequenceClassification|MultipleChoice|QuestionAnswering|Image|Audio|NextSentence|Vision")


@dataclass(frozen=True, slots=True)
class VaryingCount:
    """Why the number of counted tokens varies."""

    strength: Strength
    script: Script
    node: ast.AST  # the line that shows it
    reason: str  # one clause, to stand after the loss in a message


def varying_count(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    """The proof for one term of a loss that ``script`` back-propagates, or None where nothing shows it."""
    if term.kind == "cross-entropy":
        return _of_cross_entropy(term, script, workspace)
    if term.kind == "model-output":
        return _of_model(term, script, workspace)
    if term.kind == "mean" and isinstance(term.node, ast.Call) and _is_full_mean(term.node):
        return _of_selection(term, script, [term.node])
    return None


def _of_cross_entropy(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    assert isinstance(term.node, ast.Call)
    if not is_mean(term.maker or term.node) or _is_per_example(term):
        return None
    selected = _of_selection(term, script, list(term.node.args))
    if selected is not None:
        return selected
    ignored = ignored_value(term)
    if _is_segmentation(term.script, ignored):
        line = ignored if ignored is not None else term.node
        return VaryingCount("advisory", term.script, line, "a mean over the labelled pixels of each micro-batch")
    proof = proof_of_ignored(_scripts(term, script, workspace), ignored, term.script, workspace)
    return _shown(proof, script) if proof else None


def _of_model(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    made_by = term.model.name if term.model else ""
    known = made_by.startswith(("transformers.", "unsloth.")) or "from_pretrained" in made_by
    if _PER_EXAMPLE.search(made_by) or not (known or _mentions_transformers(script)):
        return None
    proof = proof_of_ignored(_scripts(term, script, workspace), None, script, workspace)
    if proof is None:
        return None
    shown = _shown(proof, script)
    if shown.strength == "same-file" and not known:
        return VaryingCount("sibling", shown.script, shown.node, shown.reason)
    return shown


def _shown(proof: Proof, script: Script) -> VaryingCount:
    if proof.manner == "random":
        return VaryingCount("advisory", proof.script, proof.node, _RANDOM_REASON)
    if proof.manner == "collator":
        reason = "a mean over the labels that are not -100, which the collator pads them with"
    else:
        reason = f"a mean over the labels that are not {proof.shown}"
    return VaryingCount("same-file" if proof.script is script else "sibling", proof.script, proof.node, reason)


def is_mean(maker: ast.Call) -> bool:
    """The reduction is the mean: stated, or the default. A variable one is not shown to be."""
    if any(each.arg in ("size_average", "reduce") for each in maker.keywords):
        return False
    reduction = keyword(maker, "reduction")
    return reduction is None or (isinstance(reduction, ast.Constant) and reduction.value == "mean")


def ignored_value(term: Term) -> ast.expr | None:
    """The ``ignore_index`` of a cross-entropy; None for its default, -100."""
    call = term.maker or term.node
    if not isinstance(call, ast.Call):
        return None
    position = 2 if term.maker else 4
    given = call.args[position : position + 1]
    return keyword(call, "ignore_index") or (given[0] if given else None)


def _scripts(term: Term, script: Script, workspace: Workspace) -> list[Script]:
    """Where labels may be written: the script, then what it imports, then the file of the loss and its imports."""
    found = {each.path: each for each in (script, *workspace.siblings(script))}
    if term.script is not script:
        for each in (term.script, *workspace.siblings(term.script)):
            found.setdefault(each.path, each)
    return list(found.values())


def _is_segmentation(script: Script, ignored: ast.expr | None) -> bool:
    value = number(script, ignored)
    return value is not None and value.value == _SEGMENTATION


def _mentions_transformers(script: Script) -> bool:
    return any(each.partition(".")[0] in ("transformers", "peft", "unsloth") for each in script.imports.values())


def _is_per_example(term: Term) -> bool:
    """``logits[:, -1]``, ``hidden[:, 0]``: one position of each sequence enters the loss."""
    call = term.node
    assert isinstance(call, ast.Call)
    for part in _sources(term.script, call.args[0], _HOPS) if call.args else ():
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple) and len(part.slice.elts) >= 2:
            second = number(term.script, part.slice.elts[1])
            if second is not None and isinstance(part.slice.elts[0], ast.Slice):
                return True
    return False


def _is_full_mean(call: ast.Call) -> bool:
    given = call.args if isinstance(call.func, ast.Attribute) and dotted(call.func.value) != "torch" else call.args[1:]
    return not given and not call.keywords


def _of_selection(term: Term, script: Script, roots: list[ast.expr]) -> VaryingCount | None:
    """The loss is computed on selected positions only: packed by length, or indexed by a mask of the padding."""
    for root in roots:
        for part in _sources(term.script, root, _HOPS):
            reason = _selects(term.script, part)
            if reason:
                strength: Strength = "same-file" if term.script is script else "sibling"
                return VaryingCount(strength, term.script, part, reason)
            if isinstance(part, ast.Subscript) and _is_random_mask(term.script, part.slice):
                return VaryingCount("advisory", term.script, part, _RANDOM_REASON)
    return None


def _selects(script: Script, node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "pack_padded_sequence":
            return "a mean over the real, unpadded tokens of each micro-batch"
        if name == "masked_select" and node.args:
            mask = node.args[-1]
            return (
                f"a mean over the tokens that `{script.text(mask)}` selects" if _is_padding_mask(script, mask) else ""
            )
    if isinstance(node, ast.Subscript) and _is_padding_mask(script, node.slice):
        return f"a mean over the tokens that `{script.text(node.slice)}` selects"
    return ""


_PADDING = re.compile(r"pad|ignore|attention_mask|attn_mask|length|-100|valid|\bmask\b.*==|==.*\bmask\b", re.IGNORECASE)


def _is_padding_mask(script: Script, node: ast.expr, hops: int = 2) -> bool:
    """A boolean expression about padding or ignored labels; a name counts by what it is bound to."""
    if isinstance(node, ast.Name):
        binding = last_binding(script, node.id, node)
        known = binding is not None and binding.value is not None and binding.kind == "assign"
        return bool(hops and known and _is_padding_mask(script, binding.value, hops - 1))  # type: ignore[union-attr, arg-type]
    boolean = isinstance(node, (ast.Compare, ast.BinOp, ast.UnaryOp)) or (
        isinstance(node, ast.Call) and last_name(node.func) in ("ne", "eq", "bool", "logical_not", "view", "reshape")
    )
    return boolean and bool(_PADDING.search(script.text(node)))


_RANDOM = re.compile(r"\b(?:torch\.rand|bernoulli|rand_like)\b")


def _is_random_mask(script: Script, node: ast.expr, hops: int = 2) -> bool:
    """A boolean mask drawn at random, here or in the function that returns it."""
    if not isinstance(node, ast.Name):
        return isinstance(node, (ast.Compare, ast.BinOp)) and bool(_RANDOM.search(script.text(node)))
    binding = last_binding(script, node.id, node) if hops else None
    value = binding.value if binding else None
    if binding is not None and binding.kind == "unpacked" and isinstance(value, ast.Call):
        made_by = called_function(script, value)
        returned = [each.value for each in script.nodes(ast.Return) if script.function(each) is made_by]
        parts = [each.elts[binding.item or 0] for each in returned if isinstance(each, ast.Tuple)]
        return any(_is_random_mask(script, each, hops - 1) for each in parts)
    return value is not None and _is_random_mask(script, value, hops - 1)


def _sources(script: Script, root: ast.expr, hops: int) -> Iterator[ast.AST]:
    """The parts of an expression, and of what its names were last set to, the nearest first."""
    todo: list[tuple[ast.expr, ast.AST, int]] = [(root, root, hops)]
    seen: set[ast.AST] = set()
    while todo:
        expression, at, left = todo.pop(0)
        for part in ast.walk(expression):
            yield part
            if left and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                binding = last_binding(script, part.id, at)
                if binding and binding.value is not None and binding.node not in seen and binding.kind != "parameter":
                    seen.add(binding.node)
                    todo.append((binding.value, binding.node, left - 1))
