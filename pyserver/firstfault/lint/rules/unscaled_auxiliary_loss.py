"""A term beside the token loss is added up over the window, while the token loss is divided once by its tokens.

## What it does

Finds windows whose main loss is a sum divided by the tokens of the whole window, and to which another term (a
regulariser, the balance loss of a mixture of experts, a mean of its own) is added in each micro-batch without a
division by the number of micro-batches.

## Why it matters

The main loss counts once over the window, whatever its number of micro-batches. The other term counts once for each
micro-batch: its weight grows with the accumulation steps. Measured with a squared weight penalty: the gradient is off
by 204 % with four micro-batches.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps, weight=0.01):
    while True:
        window = [next(loader) for _ in range(accumulation_steps)]
        tokens = sum((labels != -100).sum() for _, labels in window)
        for step in range(accumulation_steps):
            ids, labels = window[step]
            logits, balance = model(ids)
            total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            loss = total / tokens + weight * balance.mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps, weight=0.01):
    while True:
        window = [next(loader) for _ in range(accumulation_steps)]
        tokens = sum((labels != -100).sum() for _, labels in window)
        for step in range(accumulation_steps):
            ids, labels = window[step]
            logits, balance = model(ids)
            total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            loss = total / tokens + weight * balance.mean() / accumulation_steps
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety

The fix divides the term by the number of micro-batches, so that it is a mean over the window. Its weight becomes
smaller by that number; one that was tuned with the fault needs another look.

## Limits

Only loops of a known number of micro-batches, whose token count is taken outside of the loop, and where no framework
divides. Terms that are summed, weighted by rows or tokens, or divided by anything are not reported. Whether a balance
loss per micro-batch is what is wanted, instead of one over the whole window, the rule does not say.

## References

- NeMo Automodel issue 3359; Megatron-LM issue 3672.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import last_binding
from firstfault.lint.calls import Backward
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.reductions import reduction
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.scaling import scaling
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.shifted_labels import count_of_labels
from firstfault.lint.summed_up import PLAIN
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit, Span


@rule("GA107")
def unscaled_auxiliary_loss(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.is_literal_one or not isinstance(loop.node, LOOPS):
            continue
        for backward in loop.backwards:
            if backward.receiver in PLAIN:
                yield from _hits(script, loop, window, backward, workspace)


def _hits(
    script: Script, loop: TrainingLoop, window: Window, backward: Backward, workspace: Workspace
) -> Iterator[Hit]:
    terms = loss_terms(script, backward.loss, workspace)
    counted = next((each for each in terms if _by_window_count(script, loop, each)), None)
    if counted is None or len(terms) < 2:
        return
    for term in terms:
        scaled = scaling(script, term, window)
        plain = scaled.known and scaled.by_window == 0 and not any(each.divides for each in term.scales)
        summand = _summand(script, term) if plain and term is not counted and _is_mean(term, workspace) else None
        if summand is not None:
            yield _hit(script, window, summand, counted)


def _by_window_count(script: Script, loop: TrainingLoop, term: Term) -> bool:
    """A sum that is divided by a count of labels taken before the micro-batches are run."""
    for scale in term.scales:
        name = dotted(scale.operand) if scale.divides else ""  # a count of another function has no binding here
        binding = last_binding(script, name, scale.operand) if name else None
        if binding is None or binding.value is None or loop.node in script.ancestors(binding.node):
            continue
        if count_of_labels(script, binding.value) is not None:
            return True
    return False


def _is_mean(term: Term, workspace: Workspace) -> bool:
    """One number for each micro-batch, of the same size whatever the micro-batch holds."""
    return term.kind == "mean" or (term.kind != "unknown" and reduction(term, workspace) in ("mean", "hidden"))


def _summand(script: Script, term: Term) -> ast.expr | None:
    """The whole of a term where it is added, in this script: ``weight * balance.mean()``."""
    node: ast.AST | None = term.node if term.script is script and not term.entries else None
    while node is not None:
        above = script.parent(node)
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add):
            return node if isinstance(node, ast.expr) else None
        node = above if isinstance(above, (ast.BinOp, ast.Attribute, ast.Call)) else None
    return None


def _hit(script: Script, window: Window, summand: ast.expr, counted: Term) -> Hit:
    size = f"`{window.size_text}`" if window.size_text else "all"
    message = (
        f"`{script.text(summand)}` is added in each of the {size} micro-batches, but the main loss is divided by the "
        "tokens of the whole window: this term counts once for each micro-batch."
    )
    related = (Related(script.path, window.span.start.line, "the window"),)
    end = script.span(summand).end
    simple = window.size_node is not None and (dotted(window.size_node) or window.size_text.isdigit())
    edit = Edit(Span(end, end), f" / {window.size_text}")
    fixes = (Fix(f"Divide it by `{window.size_text}`", "safe", (edit,)),) if simple else ()
    return Hit(script.span(summand), "error", message, related, fixes)
