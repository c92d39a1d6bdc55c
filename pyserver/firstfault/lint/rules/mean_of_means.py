"""A mean over a varying number of tokens is averaged again over the micro-batches of a window.

## What it does

Finds loops that accumulate gradients where the loss is a mean over the counted tokens of one micro-batch, this mean is
divided by the number of micro-batches (by the script, or by the framework that runs backward), and the workspace shows
that the number of counted tokens varies: labels are masked or padded with the value that the loss ignores, or the loss
selects the unpadded tokens.

## Why it matters

Each micro-batch then has the same weight, whatever it holds. With 10 counted tokens in one micro-batch and 90 in the
next, a token of the first pulls nine times as hard as one of the second. The gradient is not that of the large batch
that accumulation stands in for, and it changes with the number of steps. No error is raised, and the logged loss looks
plausible. Where every micro-batch holds the same number of counted tokens, both are equal.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (tokens, labels) in enumerate(loader):
        labels[tokens == 0] = -100
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss = loss / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    window_tokens = 0
    for step, (tokens, labels) in enumerate(loader):
        labels[tokens == 0] = -100
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        micro_tokens = (labels != -100).sum()
        window_tokens += micro_tokens
        (loss * micro_tokens).backward()
        if (step + 1) % accumulation_steps == 0:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.div_(window_tokens)
            window_tokens = 0
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix counts the tokens of each micro-batch, back-propagates the sum of the token losses, and divides the gradients
once by the tokens of the whole window, before clipping and before the step. A leftover window after the loop is treated
the same way. The effective gradient changes, so a learning rate that was tuned on the old one may need another look.
What is logged does not change: where the divided loss is read after backward, it is kept and only backward gets another
value. Under a gradient scaler the back-propagated value is divided by a constant number of positions to stay in range.
Under `torch.distributed` the count is summed over the ranks and the mean over ranks is undone. A micro-batch without
any counted token gives NaN after the fix as before it.

The fix is marked unsafe where micro-batches that are left over at the end of an epoch stay in the gradients while the
count starts again, and under accelerate, because its configuration may hand the gradients to DeepSpeed, where they
cannot be rescaled. It is not offered where the loss has several terms (each needs a denominator of its own), where the
labels that enter the loss cannot be named at the loop, where weights per class change the denominator, where gradients
cannot be rescaled before the step (DeepSpeed, mmengine, Lightning's automatic optimization), or where other code of the
loop relies on them as they are: a second backward, a clip for every micro-batch, work on `.grad` by hand, a round that
may be skipped.

## Limits

The rule is silent where nothing in the script or the modules it imports shows that the count varies: `ignore_index`
alone proves nothing, and neither do labels that are written in a function which none of these files names, or a
collator's padding where the texts are cut into blocks of one length. It does not look into data files, configurations,
or libraries. Means per sequence (preference losses), one label per example, and `transformers.Trainer`, which
normalises by itself, are not reported. A window of 1 is not reported; one that is 1 by default is reported one step
milder.

## References

- transformers issue 34242 and pull requests 34191, 34198: the same fault in a widely used trainer, and its cure.
- The accelerate guide to gradient accumulation with samples of variable size.
- Lightning issue 20350.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import Averaging, averaging
from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import Backward
from firstfault.lint.loss_terms import loss_terms
from firstfault.lint.rule import Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.token_counts import VaryingCount, varying_count
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_fix import window_fix
from firstfault.lint.workspace import Workspace

_SEVERITY: dict[str, Severity] = {"same-file": "error", "sibling": "warning", "advisory": "hint"}
_MILDER: dict[Severity, Severity] = {"error": "warning", "warning": "hint", "hint": "hint"}


@rule("GA101")
def mean_of_means(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop):
            continue
        seen: set[ast.AST] = set()
        for backward in loop.backwards:
            hit = _hit(script, loop, backward, workspace)
            if hit is not None and hit[0] not in seen:  # one division, several ways to run backward
                seen.add(hit[0])
                yield hit[1]


def _hit(script: Script, loop: TrainingLoop, backward: Backward, workspace: Workspace) -> tuple[ast.AST, Hit] | None:
    terms = loss_terms(script, backward.loss, workspace)
    for term in terms:
        average = averaging(script, loop, backward, term)
        count = varying_count(term, script, workspace) if average else None
        if term.one_of_several and count is None:
            return None  # perhaps it is this loss that is returned
        if average is not None and count is not None and loop.window is not None:
            place = _place(script, average, backward)
            message = _message(script, loop.window, average, count, backward)
            related = _related(script, loop.window, count)
            fix = window_fix(script, loop, terms, average)
            fixes = (fix,) if fix else ()
            return place, Hit(script.span(place), _severity(loop.window, count), message, related, fixes)
    return None


def _severity(window: Window, count: VaryingCount) -> Severity:
    severity = _SEVERITY[count.strength]
    unknown = (
        window.kind == "accumulate-context" and window.resolved is None and window.size_node is None
    )  # made elsewhere, perhaps with 1
    return _MILDER[severity] if window.default_one or unknown else severity


def _place(script: Script, average: Averaging, backward: Backward) -> ast.AST:
    """The division where it stands in this file; else the call that runs backward."""
    return average.node if script.parent(average.node) is not None else backward.node


def _message(script: Script, window: Window, average: Averaging, count: VaryingCount, backward: Backward) -> str:
    loss = _shown_loss(script, average, backward)
    size = _size(window) or "the number of micro-batches"
    if average.how == "rows":
        again = "is weighted by its rows"
    elif average.how == "late":
        again = "is not multiplied by their number before the gradients are divided by that of the window"
    elif average.how == "framework":
        again = f"{_DIVIDERS.get(backward.receiver, 'the framework')} divides it by {size}"
    else:
        again = f"is divided by {size}"
    weight = "" if average.how == "rows" else "every micro-batch weighs the same, so "
    unit = "pixel" if "pixels" in count.reason else "token"
    return (
        f"{loss} is {count.reason}, and {again}: {weight}a {unit} weighs more the fewer of them its micro-batch holds."
    )


_DIVIDERS = {"accelerator": "accelerate", "engine": "DeepSpeed", "mmengine": "mmengine", "lightning": "Lightning"}


def _size(window: Window) -> str:
    """The window's size as the user wrote it; a number stands as it is."""
    return window.size_text if window.size_text.isdigit() else f"`{window.size_text}`" if window.size_text else ""


def _shown_loss(script: Script, average: Averaging, backward: Backward) -> str:
    """The loss by the name that the user gave it, where it has one."""
    node = average.node
    if isinstance(node, ast.AugAssign):
        return f"`{script.text(node.target)}`" if script.parent(node) is not None else "The loss"
    if isinstance(node, ast.BinOp) and script.parent(node) is not None and len(script.text(node.left)) <= 40:
        return f"`{script.text(node.left)}`"
    named = node is backward.node and isinstance(backward.loss, (ast.Name, ast.Attribute))
    return f"`{script.text(backward.loss)}`" if named else "The loss"


def _related(script: Script, window: Window, count: VaryingCount) -> tuple[Related, ...]:
    evidence = Related(count.script.path, count.script.line(count.node), "this makes the number of counted tokens vary")
    size = f"the window of {_size(window)} micro-batches" if window.size_text else "the window of micro-batches"
    return (evidence, Related(script.path, window.span.start.line, size))
