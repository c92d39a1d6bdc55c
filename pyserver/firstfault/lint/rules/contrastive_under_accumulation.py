"""A contrastive loss sees the negatives of one micro-batch only, however many the window holds.

## What it does

Finds loops that accumulate gradients of a loss with in-batch negatives: a cross-entropy of a similarity matrix whose
labels are `torch.arange`, or a loss known to work that way (`NTXentLoss`, `MultipleNegativesRankingLoss`,
`ClipLoss`).

## Why it matters

With in-batch negatives each example is compared with the others of its batch. Four micro-batches of 8 give 7
negatives for each example, a batch of 32 gives 31: it is another, easier task, and accumulation cannot make up for
it. Measured on small data with equal micro-batches: the gradient is off by 40 to 65 % from the full batch's; with
cached representations (GradCache) by 1.5e-16.

## Example

```python
import torch
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (queries, passages) in enumerate(loader):
        scores = model(queries) @ model(passages).T
        labels = torch.arange(scores.size(0))
        loss = F.cross_entropy(scores, labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    for queries, passages in loader:
        scores = model(queries) @ model(passages).T
        labels = torch.arange(scores.size(0))
        optimizer.zero_grad()
        F.cross_entropy(scores, labels).backward()
        optimizer.step()
```

Where the batch does not fit, cache the representations (GradCache, `CachedMultipleNegativesRankingLoss`) or gather
them from the ranks.

## Fix safety

There is no local fix.

## Limits

A small number of negatives may be what is wanted; the rule says only that the window does not add any. Silent where
the loop joins representations (`torch.cat`), as caches and gathers do, and where labels or scores come from
elsewhere.

## References

- Gao et al., GradCache, arXiv 2101.06983; sentence-transformers issue 1822; open_clip issues 108 and 1211.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import last_binding
from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.objects import argument, instance
from firstfault.lint.rule import Hit, Related, Severity, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.token_counts import target_of
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

_KNOWN = {"NTXentLoss", "MultipleNegativesRankingLoss", "ClipLoss", "InfoNCE"}
_PRODUCTS = {"matmul", "mm", "einsum", "bmm", "cosine_similarity", "cos_sim", "pairwise_cos_sim"}
_VIEWS = {"to", "t", "transpose", "long", "cuda", "float", "div", "mul", "clone", "contiguous"}


@rule("CL601")
def contrastive_under_accumulation(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop) or _joins(script, loop):
            continue
        found = next((term for term in _terms(script, loop, workspace) if _is_contrastive(term, workspace)), None)
        if found is not None:
            place = found.node if script.parent(found.node) is not None else loop.backwards[0].node
            related = Related(script.path, loop.window.span.start.line, "the window of micro-batches")
            severity: Severity = "hint" if loop.window.default_one else "warning"
            yield Hit(script.span(place), severity, _message(loop.window), (related,))


def _terms(script: Script, loop: TrainingLoop, workspace: Workspace) -> Iterator[Term]:
    for backward in loop.backwards:
        yield from loss_terms(script, backward.loss, workspace)


def _joins(script: Script, loop: TrainingLoop) -> bool:
    """Representations of several micro-batches or ranks are put together."""
    names = {"cat", "concat", "all_gather", "gather", "GatherLayer"}
    in_loop = (each for each in script.walk(loop.node) if isinstance(each, ast.Call))
    return any(last_name(each.func) in names for each in in_loop) or "cache" in script.source.lower()


def _is_contrastive(term: Term, workspace: Workspace) -> bool:
    call = term.node
    if not isinstance(call, ast.Call):
        return False
    if term.kind != "cross-entropy":
        made = instance(term.script, call.func, workspace) if term.kind == "unknown" else None
        return made is not None and made.definition is None and made.name.rpartition(".")[2] in _KNOWN
    target = target_of(call)
    return (
        target is not None
        and bool(call.args)
        and _is_made_by(term.script, target, {"arange"})
        and (_is_product(term.script, call.args[0]) or _is_given_product(term, call.args[0], workspace))
    )


def _is_given_product(term: Term, scores: ast.expr, workspace: Workspace) -> bool:
    """The scores are handed to the function of the loss, perhaps as a model of the workspace returns them."""
    while isinstance(scores, ast.Attribute) and scores.attr in ("T", "mT"):
        scores = scores.value
    entry = term.entries[-1] if term.entries else None
    given = argument(entry.call, entry.function, dotted(scores)) if entry is not None and dotted(scores) else None
    if entry is None or given is None:
        return False
    if _is_product(entry.script, given):
        return True
    binding = last_binding(entry.script, dotted(given), given) if dotted(given) else None
    made = given if binding is None else binding.value
    model = instance(entry.script, made.func, workspace) if isinstance(made, ast.Call) else None
    if model is None or model.script is None or model.definition is None:
        return False
    forward = next((each for each in model.definition.body if getattr(each, "name", "") == "forward"), None)
    returned = [each.value for each in model.script.returns(forward) if each.value is not None] if forward else []
    return bool(returned) and all(_is_product(model.script, each) for each in returned)


def _is_made_by(script: Script, node: ast.expr, names: set[str], hops: int = 4) -> bool:
    if isinstance(node, ast.Call):
        if last_name(node.func) in names:
            return True
        inner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS else None
        return inner is not None and bool(hops) and _is_made_by(script, inner, names, hops - 1)
    binding = last_binding(script, dotted(node), node) if dotted(node) and hops else None
    value = binding.value if binding is not None and binding.kind == "assign" else None
    return value is not None and _is_made_by(script, value, names, hops - 1)


def _is_product(script: Script, node: ast.expr, hops: int = 5) -> bool:
    """``a @ b.T`` and what is made of it by a scale or a transposition."""
    if not hops:
        return False
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return True
        scales = isinstance(node.op, (ast.Mult, ast.Div))
        return scales and any(_is_product(script, each, hops - 1) for each in (node.left, node.right))
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return _is_product(script, node.value, hops - 1)
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS else None
        return last_name(node.func) in _PRODUCTS or (inner is not None and _is_product(script, inner, hops - 1))
    binding = last_binding(script, dotted(node), node) if dotted(node) else None
    value = binding.value if binding is not None and binding.kind == "assign" else None
    return value is not None and _is_product(script, value, hops - 1)


def _message(window: Window) -> str:
    size = f"`{window.size_text}` micro-batches" if window.size_text else "the micro-batches of the window"
    return (
        f"Each example is compared with its own micro-batch only: accumulating over {size} adds no negatives, so it "
        "does not stand in for a large batch."
    )
