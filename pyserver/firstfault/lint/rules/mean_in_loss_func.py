"""A function given as `compute_loss_func` ignores the number of items, and nobody divides its mean by the steps.

## What it does

Finds functions that are handed to `transformers.Trainer(compute_loss_func=...)` and return a mean over the
micro-batch without looking at `num_items_in_batch`, and functions that do not take that argument at all.

## Why it matters

With a `compute_loss_func` the Trainer never divides by `gradient_accumulation_steps`, whatever the model: the
function is expected to divide a sum by the number of items in the whole window. A mean is added up as it is. Measured
with `gradient_accumulation_steps=4`: the gradient is four times that of the whole batch in every release from 4.46.3
to 5.24.0. A function without the argument raises TypeError at the first step.

## Example

```python
import torch.nn.functional as F
from transformers import Trainer, TrainingArguments


def token_loss(outputs, labels, num_items_in_batch=None):
    loss = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
    return loss


def main(model, data):
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    Trainer(model=model, args=args, train_dataset=data, compute_loss_func=token_loss).train()
```

## Use instead

```python
import torch.nn.functional as F
from transformers import Trainer, TrainingArguments


def token_loss(outputs, labels, num_items_in_batch=None):
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


def main(model, data):
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    Trainer(model=model, args=args, train_dataset=data, compute_loss_func=token_loss).train()
```

## Fix safety

Where the function computes one cross-entropy without weights, the fix makes it a sum divided by `num_items_in_batch`,
and keeps the mean for evaluation, where no number is given. The gradient becomes smaller by the number of steps, so a
learning rate that was tuned on the old one may need another look. The Trainer undoes the mean over the ranks by
itself. Of other losses the denominator is not known here, so there is no fix.

## Limits

Only functions of the workspace are read. The number of items counts the labels that are not -100 in `labels` of the
batch; a loss with another denominator (class weights, a mask of its own) needs that one over the window. Nothing is
reported where the accumulation is 1.

## References

- transformers pull request 34198: `compute_loss_func` and the number of items.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import keyword
from firstfault.lint.hf_trainer import ITEMS, accumulation, head_span, items_of, trainer_calls
from firstfault.lint.items_fix import parameter_edit, sum_fix
from firstfault.lint.loss_override import returned_mean
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace


@rule("GA402")
def mean_in_loss_func(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for call, _, _ in trainer_calls(script, workspace):
        given = keyword(call, "compute_loss_func")
        function = script.definitions.get(dotted(given)) if given is not None else None
        if not isinstance(function, ast.FunctionDef) or function in seen:
            continue
        seen.add(function)
        hit = _without_argument(script, function, call) or _mean(script, function, call, workspace)
        if hit is not None:
            yield hit


def _without_argument(script: Script, function: ast.FunctionDef, call: ast.Call) -> Hit | None:
    if items_of(function) is not None:
        return None
    edit = parameter_edit(script, function)
    fixes = (Fix(f"Add the parameter `{ITEMS}`", "partial", (edit,)),) if edit else ()
    message = (
        f"`{function.name}` takes no `{ITEMS}`, but the Trainer passes it: the first training step raises TypeError."
    )
    return Hit(head_span(script, function), "error", message, (_used(script, call),), fixes)


def _mean(script: Script, function: ast.FunctionDef, call: ast.Call, workspace: Workspace) -> Hit | None:
    steps = accumulation(script)
    found = returned_mean(script, function, workspace) if not steps.is_one else None
    if found is None:
        return None
    severity: Severity = "error" if steps.is_many else "warning"
    by = f"{steps.value.value:g}" if steps.value is not None and steps.is_many else "`gradient_accumulation_steps`"
    message = (
        f"`{function.name}` returns a mean and ignores `{ITEMS}`; with a `compute_loss_func` the Trainer does not "
        f"divide, so the gradient is {by} times too large."
    )
    related = [_used(script, call)]
    if steps.node is not None:
        related.append(Related(script.path, script.line(steps.node), "the accumulation steps"))
    items = items_of(function)
    fix = sum_fix(script, function, found, items, ranks=False) if found.kind == "cross-entropy" and items else None
    return Hit(script.span(found.place), severity, message, tuple(related), (fix,) if fix else ())


def _used(script: Script, call: ast.Call) -> Related:
    return Related(script.path, script.line(call), "the Trainer that is given the function")
