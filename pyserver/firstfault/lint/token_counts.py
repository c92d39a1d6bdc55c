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
from firstfault.lint.facts import stated
from firstfault.lint.ignored_labels import Ignored, Proof, names_in, proof_of_ignored
from firstfault.lint.loss_terms import Term
from firstfault.lint.objects import argument
from firstfault.lint.reductions import reduction
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
    """The proof for one term of a loss that ``script`` back-propagates, or None where nothing shows it.

    What the user states about the project stands before what the text shows, and where it shows nothing.
    """
    varies = stated(script).variable_length
    if varies is False:
        return None
    return _shown_count(term, script, workspace) or (_stated_count(term) if varies else None)


def _stated_count(term: Term) -> VaryingCount | None:
    """A mean over tokens, whose number varies as the user says; one label per example is no matter of length."""
    if not isinstance(term.node, ast.Call):
        return None
    if term.kind == "cross-entropy":
        target = target_of(term.node)
        counts = target is not None and is_mean(term.maker or term.node) and not _is_per_example(term)
        if not counts or not (_is_sequence(term, target) or ignored_value(term) is not None):  # type: ignore[arg-type]
            return None
    elif term.kind != "model-output" or _normalised(term) or _PER_EXAMPLE.search(term.model.name if term.model else ""):
        return None
    return VaryingCount(
        "same-file", term.script, term.node, "a mean over tokens, whose number varies as the settings say"
    )


def _shown_count(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    if term.kind == "cross-entropy":
        return _of_cross_entropy(term, script, workspace)
    if term.kind == "model-output":
        return _of_model(term, script, workspace)
    if term.kind == "mean" and isinstance(term.node, ast.Call) and _is_full_mean(term.node):
        return _of_selection(term, script, [term.node])
    if term.kind == "unknown" and isinstance(term.node, ast.Call) and reduction(term, workspace) == "mean":
        return _of_selection(term, script, term.node.args)
    return None


def _of_cross_entropy(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    assert isinstance(term.node, ast.Call)
    target = target_of(term.node)
    if target is None or not is_mean(term.maker or term.node) or _is_per_example(term):
        return None
    selected = _of_selection(term, script, [target])
    if selected is not None:
        return selected
    value, owner = ignored_value(term), term.maker_home or term.script
    if _is_segmentation(owner, value):
        line, home = (value, owner) if value is not None else (term.node, term.script)
        return VaryingCount("advisory", home, line, "a mean over the labelled pixels of each micro-batch")
    by_name_only = value is None and not _is_sequence(term, target)
    ignored = Ignored(value, owner, _label_names(term, target), by_name_only)
    proof = proof_of_ignored(_scripts(term, script, workspace), ignored, workspace)
    return _shown(proof, script) if proof else None


def target_of(call: ast.Call) -> ast.expr | None:
    """The labels that a cross-entropy is given."""
    return keyword(call, "target") or (call.args[1] if len(call.args) > 1 else None)


def _label_names(term: Term, target: ast.expr) -> frozenset[str]:
    """What the labels are called where the loss is computed, and in the calls that lead there."""
    names = set[str]()
    for part in _sources(term.script, target, 2):
        names |= names_in(part) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)) else set()
    for entry in reversed(term.entries):
        for name in tuple(names):
            given = argument(entry.call, entry.function, name)
            names |= names_in(given) if given is not None else set()
    return frozenset(names - {"self", "F", "torch", "nn"})


_SEQUENCE = {"view", "reshape", "flatten", "transpose", "permute", "mT", "swapaxes", "rearrange"}


def _is_sequence(term: Term, target: ast.expr) -> bool:
    """Labels that are reshaped or cut along a sequence: there is more than one per example."""
    parts = (part for root in (target, term.node) for part in _sources(term.script, root, 2))
    for part in parts:
        if isinstance(part, ast.Call) and last_name(part.func) in _SEQUENCE:
            return True
        indexes = part.slice.elts if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple) else ()
        if any(isinstance(each, ast.Slice) and (each.lower or each.upper) for each in indexes):
            return True
    return False


def _of_model(term: Term, script: Script, workspace: Workspace) -> VaryingCount | None:
    made_by = term.model.name if term.model else ""
    known = made_by.startswith(("transformers.", "unsloth.")) or "from_pretrained" in made_by
    if _PER_EXAMPLE.search(made_by) or not (known or _mentions_transformers(script)) or _normalised(term):
        return None
    ignored = Ignored(None, script, frozenset(), by_name_only=False)
    proof = proof_of_ignored(_scripts(term, script, workspace), ignored, workspace)
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


def _normalised(term: Term) -> bool:
    """The model is told the tokens of the window and divides by them."""
    return isinstance(term.node, ast.Call) and any("num_items" in (each.arg or "") for each in term.node.keywords)


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
    """Where labels may be written: the script, then what it imports, then the files of the loss and its criterion with
    their imports; where the script makes no data itself, then who imports it.
    """
    found = {each.path: each for each in (script, *workspace.siblings(script))}
    callers = [] if _makes_data(script) else workspace.importers(script)
    for home in (term.script, term.maker_home, *callers):
        if home is not None and home is not script:
            for each in (home, *workspace.siblings(home)):
                found.setdefault(each.path, each)
    return list(found.values())


def _makes_data(script: Script) -> bool:
    """A data set, a collate function or a loader over what the script reads: its labels need no caller."""
    if any(name.endswith("__getitem__") or "collat" in name.lower() for name in script.definitions):
        return True
    given = [each.args[:1] for each in script.calls("DataLoader")]
    held = [last_binding(script, dotted(each[0]), each[0]) for each in given if each and dotted(each[0])]
    return len(given) != sum(each is not None and each.kind == "parameter" for each in held)


def _is_segmentation(script: Script, ignored: ast.expr | None) -> bool:
    value = number(script, ignored)
    return value is not None and value.value == _SEGMENTATION


def _mentions_transformers(script: Script) -> bool:
    return any(each.partition(".")[0] in ("transformers", "peft", "unsloth") for each in script.imports.values())


def _is_per_example(term: Term) -> bool:
    """``logits[:, -1]``, ``hidden[:, 0]``, ``starts[:, 0]``: one position of each sequence enters the loss."""
    call = term.node
    assert isinstance(call, ast.Call)
    target = target_of(call)
    if target is not None and len(_indexes(target)) == 2 and _takes_one_position(term.script, target):
        return True  # of three dimensions the last one may still be the sequence
    scores = _sources(term.script, call.args[0], _HOPS) if call.args else ()
    return any(_takes_one_position(term.script, each) for each in scores)


def _takes_one_position(script: Script, part: ast.AST) -> bool:
    indexes = _indexes(part)
    return len(indexes) >= 2 and isinstance(indexes[0], ast.Slice) and number(script, indexes[1]) is not None


def _indexes(part: ast.AST) -> list[ast.expr]:
    return part.slice.elts if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple) else []


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
        if name == "pack_padded_sequence" and _is_taken_apart(script, node):
            return "a mean over the real, unpadded tokens of each micro-batch"
        if name == "masked_select" and node.args:
            mask = node.args[-1]
            return (
                f"a mean over the tokens that `{script.text(mask)}` selects" if _is_padding_mask(script, mask) else ""
            )
    if isinstance(node, ast.Subscript) and _is_padding_mask(script, node.slice):
        return f"a mean over the tokens that `{script.text(node.slice)}` selects"
    return ""


def _is_taken_apart(script: Script, call: ast.Call) -> bool:
    """The packed values themselves are used, not handed to a recurrent layer."""
    above = script.parent(call)
    if isinstance(above, ast.Attribute):
        return above.attr == "data"
    return isinstance(above, ast.Subscript) or (
        isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple)
    )


_TEXT = (
    r"(?:input|source|src|target|tgt|label|token|text|seq|sequence|answer|response|completion|loss|mel|frame|phone)s?"
)
_PADDING = re.compile(
    r"pad|ignore|attention_mask|attn_mask|length|-100|valid|\bmask\b.*==|==.*\bmask\b"
    rf"|{_TEXT}_masks?\b|\b{_TEXT}_ids\b[^=<>]*(?:\.ne\(|!=)",
    re.IGNORECASE,
)


_BOOLEANS = ("ne", "eq", "bool", "logical_not", "view", "reshape", "unsqueeze", "expand_as")


def _is_padding_mask(script: Script, node: ast.expr, hops: int = 2) -> bool:
    """A boolean expression about padding or ignored labels; a name counts by what it is bound to."""
    if isinstance(node, ast.Name):
        binding = last_binding(script, node.id, node)
        known = binding is not None and binding.value is not None and binding.kind == "assign"
        return bool(hops and known and _is_padding_mask(script, binding.value, hops - 1))  # type: ignore[union-attr, arg-type]
    boolean = isinstance(node, (ast.Compare, ast.BinOp, ast.UnaryOp)) or (
        isinstance(node, ast.Call) and last_name(node.func) in _BOOLEANS
    )
    return boolean and bool(_PADDING.search(script.text(node)))


_REDUCTIONS = {"sum", "mean", "max", "amax", "min", "logsumexp", "pool", "any", "all", "argmax"}


def _per_token(script: Script, root: ast.expr) -> Iterator[ast.AST]:
    """The parts of an expression outside of reductions along a dimension: inside there is one value per example."""
    todo: list[ast.AST] = [root]
    while todo:
        node = todo.pop(0)
        yield node
        inner = isinstance(node, ast.Call) and last_name(node.func) in _REDUCTIONS and (node.args or node.keywords)
        if not inner or node is root:
            todo += script.below(node)


_RANDOM = re.compile(r"\b(?:torch\.rand|bernoulli|rand_like)\b")


def _is_random_mask(script: Script, node: ast.expr, hops: int = 2) -> bool:
    """A boolean mask drawn at random, here or in the function that returns it."""
    if not isinstance(node, ast.Name):
        return isinstance(node, (ast.Compare, ast.BinOp)) and bool(_RANDOM.search(script.text(node)))
    binding = last_binding(script, node.id, node) if hops else None
    value = binding.value if binding else None
    if binding is not None and binding.kind == "unpacked" and isinstance(value, ast.Call):
        made_by = called_function(script, value)
        returned = [each.value for each in script.returns(made_by)]
        parts = [each.elts[binding.item or 0] for each in returned if isinstance(each, ast.Tuple)]
        return any(_is_random_mask(script, each, hops - 1) for each in parts)
    return value is not None and _is_random_mask(script, value, hops - 1)


def _sources(script: Script, root: ast.expr, hops: int) -> Iterator[ast.AST]:
    """The parts of an expression, and of what its names were last set to, the nearest first."""
    todo: list[tuple[ast.expr, ast.AST, int]] = [(root, root, hops)]
    seen: set[ast.AST] = set()
    while todo:
        expression, at, left = todo.pop(0)
        for part in _per_token(script, expression):
            yield part
            if left and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                binding = last_binding(script, part.id, at)
                if binding and binding.value is not None and binding.node not in seen and binding.kind != "parameter":
                    seen.add(binding.node)
                    todo.append((binding.value, binding.node, left - 1))
