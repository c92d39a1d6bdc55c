"""A micro-batch may hold no counted token at all: its mean loss is NaN, and so is the gradient of the window.

## What it does

Finds loops that accumulate gradients of a mean over counted tokens, where the labels are masked over the prompt and
then cut to a length, `([-100] * len(prompt) + answer)[:limit]`, and nothing leaves such rows out.

## Why it matters

A prompt that is as long as the limit leaves a row without a label. With one or two rows in a micro-batch it happens
that no token is counted: a mean over nothing is 0 / 0, NaN, which backward adds to the gradients of all other
micro-batches of the window. A sum that is divided by the tokens of the window gives 0 for that micro-batch. Measured:
`mean` gives NaN, the sum gives 0.

## Example

```python
import torch
import torch.nn.functional as F


def row(prompt, answer, limit):
    labels = ([-100] * len(prompt) + answer)[:limit]
    return torch.tensor((prompt + answer)[:limit]), torch.tensor(labels)


def train(model, pairs, optimizer, accumulation_steps):
    for step, pair in enumerate(pairs):
        ids, labels = row(*pair, 512)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        (loss / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
import torch.nn.functional as F


def row(prompt, answer, limit):
    if len(prompt) >= limit:
        return None
    labels = ([-100] * len(prompt) + answer)[:limit]
    return torch.tensor((prompt + answer)[:limit]), torch.tensor(labels)


def train(model, pairs, optimizer, accumulation_steps):
    for step, pair in enumerate(pairs):
        ids, labels = row(*pair, 512)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        (loss / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

There is no fix: whether such rows should be left out, or their prompts cut instead, is a choice about the data.

## Limits

A hint: whether the data holds such a row is not known here. Only this way to build labels is recognised, in the
script and the modules that it imports. Nothing is said where the function that builds a row skips or refuses any,
where the loop looks for NaN, or where the loss is a sum.

## References

- torch's documentation of cross_entropy: the mean over an empty set of targets.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import last_name
from firstfault.lint.cut_labels import Cut, cut_labels
from firstfault.lint.loss_terms import loss_terms
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.token_counts import varying_count
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace

_GUARDS = {"isnan", "isfinite", "isinf", "nan_to_num", "detect_anomaly"}


@rule("GA109")
def all_masked_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    homes = [home for home in (script, *workspace.siblings(script)) if cut_labels(home)]
    seen: set[ast.AST] = set()
    for loop in training_loops(script) if homes else ():
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop) or _looks_for_nan(script, loop):
            continue
        for backward in loop.backwards:
            for term in loss_terms(script, backward.loss, workspace):
                place = term.node if term.script is script else backward.node
                if place not in seen and varying_count(term, script, workspace) is not None:
                    seen.add(place)
                    yield _hit(script, place, homes[0], cut_labels(homes[0])[0])


def _hit(script: Script, place: ast.AST, home: Script, cut: Cut) -> Hit:
    limit = home.text(cut.limit)
    message = (
        f"Where the masked part of a row fills `{limit}`, no label is left: over a micro-batch of such rows this mean "
        "is NaN, and so is the gradient of its window."
    )
    related = (Related(home.path, home.line(cut.node), "the labels are cut here"),)
    return Hit(script.span(place), "hint", message, related)


def _looks_for_nan(script: Script, loop: TrainingLoop) -> bool:
    return any(last_name(each.func) in _GUARDS for each in script.walk(loop.node) if isinstance(each, ast.Call))
