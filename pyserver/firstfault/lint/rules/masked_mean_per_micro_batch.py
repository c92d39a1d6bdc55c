"""A masked mean is taken for every micro-batch, and averaged again over the window.

## What it does

Finds loops that accumulate gradients of a loss that is summed over the tokens of a mask and divided by the sum of the
mask of the same micro-batch, `(loss * mask).sum() / mask.sum()`, and then averaged flatly over the micro-batches of
the window: by the script, by weights per row, or by the framework that runs backward.

## Why it matters

It is mean-of-means in another spelling: a token weighs more, the fewer of them its micro-batch holds. With 10 tokens
in one micro-batch and 90 in the next, a token of the first pulls nine times as hard. Measured with a masked squared
error on small data: the gradient of a window is off by 5 to 7 %; with token losses of varying length by 15 to 52 %.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, batch in enumerate(loader):
        logits = model(batch["input_ids"])
        token_loss = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
        loss_mask = batch["attention_mask"]
        loss = (token_loss * loss_mask).sum() / loss_mask.sum()
        (loss / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, batches, optimizer, accumulation_steps):
    for update in range(1000):
        window = [next(batches) for _ in range(accumulation_steps)]
        window_tokens = sum(batch["attention_mask"].sum() for batch in window)
        for batch in window:
            logits = model(batch["input_ids"])
            token_loss = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
            loss = (token_loss * batch["attention_mask"]).sum() / window_tokens
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety

There is no fix: the sum of the mask over the window must be known before the first backward, and only the script
knows where the next micro-batches come from. Draw the window first, as above, or collect sums and divide the
gradients once by the mask's sum before clipping and stepping. Over several ranks, sum the mask over the ranks and
multiply by their number.

## Limits

The rule needs a sign that the mask marks tokens whose number varies: it is compared with the padding or the ignored
label, or is called like one (`loss_mask`, `attention_mask`, `response_mask`). Masks that are drawn with a fixed
share, as in masked image modelling, are not reported. A mean per sequence, `(loss * mask).sum(-1) / mask.sum(-1)`, is
a choice of unit and not a fault. A loss of several terms is reported once.

## References

- Fast-LLM issue 426: losses averaged over the tokens of each micro-batch.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import Averaging, averaging
from firstfault.lint.bindings import bindings
from firstfault.lint.cadence import severity_by_window, starts_anew
from firstfault.lint.calls import Backward
from firstfault.lint.facts import stated
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.masked_means import MaskedMean, masked_mean, without
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace


@rule("GA106")
def masked_mean_per_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    if stated(script).variable_length is False:
        return
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop):
            continue
        for backward in loop.backwards:
            found = _fault(script, loop, loop.window, backward, workspace)
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield found[1]


def _fault(
    script: Script, loop: TrainingLoop, window: Window, backward: Backward, workspace: Workspace
) -> tuple[ast.AST, Hit] | None:
    for term in loss_terms(script, backward.loss, workspace):
        mean = masked_mean(term, script)
        if mean is None:
            continue
        average = _averaged(script, loop, backward, without(term, mean.scale))
        if average is None:
            continue
        place = _place(script, average, backward)
        severity = severity_by_window(window, "error" if mean.strength == "shown" else "warning")
        related = _related(script, term, mean, window)
        return place, Hit(script.span(place), severity, _message(mean, window), related)
    return None


def _averaged(script: Script, loop: TrainingLoop, backward: Backward, term: Term) -> ast.AST | None:
    """Where the mean is averaged over the window: a division, the framework, a factor with one share for each way."""
    flat: Averaging | None = averaging(script, loop, backward, term)
    if flat is not None:
        return flat.node if flat.how != "late" else None
    if loop.window is None or loop.window.kind != "chunks":
        return None
    shares = [each.node for each in term.scales if script.parent(each.node) and _is_share(script, each.factor)]
    return shares[-1] if shares else None


def _is_share(script: Script, factor: ast.expr) -> bool:
    """A name that is set to a share of the rows or to ``1 / N`` on every way."""
    places = bindings(script, dotted(factor), factor) if dotted(factor) else []
    return bool(places) and all(
        isinstance(each.value, ast.BinOp)
        and isinstance(each.value.op, ast.Div)
        and _counts_rows(script, each.value.left)
        for each in places
    )


def _counts_rows(script: Script, node: ast.expr) -> bool:
    text = script.text(node)
    return isinstance(node, ast.Constant) or text.startswith("len(") or text.endswith((".shape[0]", ".size(0)"))


def _place(script: Script, average: ast.AST, backward: Backward) -> ast.AST:
    return average if script.parent(average) is not None else backward.node


def _message(mean: MaskedMean, window: Window) -> str:
    size = f"`{window.size_text}` micro-batches" if window.size_text else "the micro-batches of the window"
    return (
        f"The loss is divided by `{mean.mask}.sum()` of its own micro-batch and then averaged over {size}: "
        "a token weighs more the fewer of them its micro-batch holds."
    )


def _related(script: Script, term: Term, mean: MaskedMean, window: Window) -> tuple[Related, ...]:
    home = script if script.parent(mean.scale.node) is not None else term.script
    return (
        Related(home.path, home.line(mean.scale.node), f"the mean over `{mean.mask}`"),
        Related(script.path, window.span.start.line, "the window of micro-batches"),
    )
