"""Gradients are clipped while they are still multiplied by the gradient scaler's factor.

## What it does

Finds training loops that run backward through a gradient scaler (`scaler.scale(loss).backward()`,
`scaler.step(optimizer)`) and clip the gradients before `scaler.unscale_(optimizer)`, or without any `unscale_`.

## Why it matters

The scaler multiplies the loss by a large factor, 65536 at the start, and `scaler.step` divides the gradients by it. A
clip in between sees gradients that are that much too large: a threshold of 1 acts as 1 / 65536, and changes whenever
the scaler changes its factor. Measured at the initial factor: the update is 1.4e-5 times what it should be. Adam
hides part of that, and no error is raised.

## Example

```python
import torch


def train(model, loader, criterion, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for inputs, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(inputs), labels)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
```

## Use instead

```python
import torch


def train(model, loader, criterion, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for inputs, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
```

## Fix safety

The fix inserts `scaler.unscale_(optimizer)` right before the clip, or moves the one that stands behind it. It is
safe: `scaler.step` knows that the gradients were unscaled and does not divide again. A disabled scaler ignores the
call.

It is not offered where the clip runs with every micro-batch of a window, since `unscale_` may run only once before
each `scaler.step` (clip-per-micro-batch offers the whole edit there), nor where the scaler steps several
optimizers, or under a condition of its own: it may be missing.

## Limits

Silent where `unscale_` is called somewhere that the loop does not show, where the scaler is made with
`enabled=False`, and for wrappers that scale, clip and step in one call.

## References

- PyTorch, Automatic Mixed Precision examples: working with unscaled gradients.
- Lightning issue 9599, pytorch/examples issue 1196: the same fault.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.cadence import cadence
from firstfault.lint.calls import last_name
from firstfault.lint.gradient_scaler import Scaler, runs_always, scaler_of, unscales
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.rules.clip_per_micro_batch import only_measures
from firstfault.lint.script import Script
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace


@rule("GA210")
def clip_before_unscale(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        scaler = scaler_of(script, loop)
        for clip in loop.of("clip") if scaler is not None else ():
            late = _unscaled_behind(script, loop, clip)
            if clip.inner in seen or only_measures(script, clip.inner) or not (late or not unscales(script)):
                continue
            if scaler is None or not _is_of_this_way(loop, scaler, clip):
                continue
            seen.add(clip.inner)
            fix = _fix(script, loop, scaler, clip, late)
            yield Hit(
                script.span(clip.inner),
                "error",
                _message(clip, scaler, late),
                (Related(script.path, script.line(scaler.steps[0].inner), "here the scaler divides them"),),
                (fix,) if fix else (),
            )


def _unscaled_behind(script: Script, loop: TrainingLoop, clip: Action) -> Action | None:
    """The ``unscale_`` that follows the clip in the same block, with none in front of it."""
    block = script.block(script.statement(clip.node))
    unscaled = [each for each in loop.of("unscale") if each.helper is None]
    if len(unscaled) != 1 or clip.helper is not None or len(loop.of("unscale")) != 1:
        return None
    statement = script.statement(unscaled[0].node)
    behind = statement in block and script.line(statement) > script.line(clip.node)
    return unscaled[0] if behind else None


def _is_of_this_way(loop: TrainingLoop, scaler: Scaler, clip: Action) -> bool:
    """The scaler steps under the conditions of the clip: not the branch that trains without it."""
    taken = {(id(each.holder), each.positive) for each in clip.guards}
    steps = [{(id(each.holder), each.positive) for each in step.guards} for step in scaler.steps]
    against = [any((holder, not positive) in taken for holder, positive in step) for step in steps]
    plain = [each for each in loop.optimizer_steps if each not in scaler.steps]
    beside = any({(id(each.holder), each.positive) for each in step.guards} <= taken for step in plain)
    others = [each for each in loop.backwards if each.receiver != "scaler"]
    return not all(against) and not beside and not (others and not clip.guards)


def _message(clip: Action, scaler: Scaler, late: Action | None) -> str:
    name = last_name(clip.inner.func)
    when = f"before `{scaler.name}.unscale_`" if late else f"without `{scaler.name}.unscale_`"
    return f"`{name}` runs {when}: it compares its threshold with gradients that `{scaler.name}` has multiplied."


def _fix(script: Script, loop: TrainingLoop, scaler: Scaler, clip: Action, late: Action | None) -> Fix | None:
    statement = script.statement(clip.node)
    once = loop.window is None or cadence(script, loop, clip) == "window"
    if not once or not scaler.optimizer or clip.helper is not None or not placement.own_line(script, statement):
        return None
    if late is not None:
        moved = script.statement(late.node)
        if not placement.own_line(script, moved):
            return None
        line = script.text(moved)
        edits = (placement.insert_before(script, statement, [line]), placement.delete_lines(script, moved))
        return Fix("Unscale the gradients before they are clipped", "safe", edits)
    if not runs_always(scaler, {(id(each.holder), each.positive) for each in clip.guards}):
        return None
    line = f"{scaler.name}.unscale_({scaler.optimizer})"
    return Fix(
        "Unscale the gradients before they are clipped", "safe", (placement.insert_before(script, statement, [line]),)
    )
