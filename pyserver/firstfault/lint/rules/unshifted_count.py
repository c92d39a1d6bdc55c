"""The labels are counted before the shift, the loss is summed after it: the denominator is too large.

## What it does

Finds losses of causal language models, which predict each label from the positions before it and so leave the first
label of a row out, that are divided by a count of all labels, `(labels != -100).sum()`, although the first one is
counted too.

## Why it matters

Each row adds one label to the count that is never part of the sum. The gradient is too small by the share of these
labels, and by a share of its own in each window: short rows lose more. It is hard to see, because one large batch and
accumulated small ones then agree to the last digit, and both are wrong. Measured with rows of some twenty tokens: 4.2
% off the mean over the tokens that are really predicted.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    while True:
        window = [next(loader) for _ in range(accumulation_steps)]
        for batch in window:
            batch["labels"] = batch["input_ids"].clone()
        tokens = sum((batch["labels"] != -100).sum() for batch in window)
        for batch in window:
            logits = model(batch["input_ids"])[:, :-1]
            total = F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")
            (total / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    while True:
        window = [next(loader) for _ in range(accumulation_steps)]
        for batch in window:
            batch["labels"] = batch["input_ids"].clone()
        tokens = sum((batch["labels"][..., 1:] != -100).sum() for batch in window)
        for batch in window:
            logits = model(batch["input_ids"])[:, :-1]
            total = F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")
            (total / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety

The fix counts `labels[..., 1:]`. The effective gradient becomes a little larger.

## Limits

Only where the text shows that the first label is counted: labels that are a copy of the ids, and nothing that masks
the beginning of a row (a prompt, `labels[:, 0]`). The shift must be seen as well: in the slice of the labels, or
because `num_items_in_batch` is handed to a causal model of transformers. What the Trainer of transformers counts by
itself before 5.10.1 is not reported.

## References

- transformers pull request 46204; VeOmni issue 1083; the accelerate guide to gradient accumulation.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.shifted_labels import count_of_labels, counts_first, denominators, is_shifted
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit, Span


@rule("GA108")
def unshifted_count(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for denominator in denominators(script, workspace):
        found = count_of_labels(script, denominator)
        if found is None or found[0] in seen or is_shifted(script, found[1]):
            continue
        seen.add(found[0])
        copied = counts_first([script, *workspace.siblings(script)])
        if copied is not None:
            yield _hit(script, *found, *copied)


def _hit(script: Script, comparison: ast.expr, labels: ast.expr, home: Script, copy: ast.AST) -> Hit:
    text = script.text(labels)
    message = (
        f"`{script.text(comparison)}` counts the first label of each row, which the loss leaves out when it shifts: "
        "the denominator is too large by the number of rows."
    )
    related = (Related(home.path, home.line(copy), "the labels begin with the first id"),)
    end = script.span(labels).end
    fix = Fix(f"Count `{text}[..., 1:]`", "safe", (Edit(Span(end, end), "[..., 1:]"),))
    return Hit(script.span(comparison), "warning", message, related, (fix,))
