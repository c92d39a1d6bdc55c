"""A learning-rate schedule that counts updates is stepped with every micro-batch.

## What it does

Finds loops that step the optimizer once per window and the schedule with every micro-batch, where the schedule's length
is the number of batches divided by the window: the number of updates.

## Why it matters

The schedule runs through its length after the first N-th of the training: warm-up is over too early, and from then on
the learning rate is that of the end, often zero. With a window of 4 and 16 micro-batches the learning rate is 0.0144
where it should be 0.0469.

## Example

```python
from transformers import get_linear_schedule_with_warmup


def train(model, loader, optimizer, accumulation_steps, epochs):
    updates = len(loader) // accumulation_steps * epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, 100, updates)
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            loss = model(**batch).loss / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()
```

## Use instead

```python
from transformers import get_linear_schedule_with_warmup


def train(model, loader, optimizer, accumulation_steps, epochs):
    updates = len(loader) // accumulation_steps * epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, 100, updates)
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            loss = model(**batch).loss / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
```

## Fix safety

The fix moves the call behind the step of the optimizer. It is not offered where the call or the step stands in a
helper, or where the step is not at the end of a plain condition.

## Limits

Only schedules whose length is written in the file are judged: one that counts micro-batches is right where it is
stepped with each of them, and a fixed number tells nothing. Calls with arguments are functions of what they are given.
A schedule that went through `accelerator.prepare` follows its optimizer and is not reported.

## References

- Lightning issue 1476, accelerate issue 963, burn issue 5695, SpecForge issue 364, Swin-Transformer issue 185.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.clearing import delete_statement, runs_with_every_backward
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.schedules import Schedule, schedules
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window_default import is_always_one
from firstfault.lint.workspace import Workspace


@rule("GA207")
def schedule_per_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.kind == "framework" or is_always_one(script, window):
            continue
        waits = window.kind == "accumulate-context"  # there the optimizer itself waits
        if not waits and any(runs_with_every_backward(script, loop, each) for each in loop.optimizer_steps):
            continue
        for found in schedules(script, loop, window, workspace):
            often = runs_with_every_backward(script, loop, found.action)
            if often and found.unit == "updates" and found.action.node not in seen:
                seen.add(found.action.node)
                fix = _fix(script, loop, found)
                yield Hit(
                    script.span(found.action.node),
                    "warning",
                    _message(found),
                    _related(script, found),
                    (fix,) if fix else (),
                )


def _message(found: Schedule) -> str:
    return f"`{found.name}.step()` runs for every micro-batch, but the length of the schedule counts updates."


def _related(script: Script, found: Schedule) -> tuple[Related, ...]:
    return (Related(script.path, script.line(found.made), "the length of the schedule is given here"),)


def _fix(script: Script, loop: TrainingLoop, found: Schedule) -> Fix | None:
    statement = script.statement(found.action.node)
    if found.action.helper is not None or not isinstance(statement, ast.Expr) or loop.window is None:
        return None
    nodes = {id(each.node): each.verb for each in loop.actions if each.helper is None}
    held = [
        (each, {nodes[id(node)] for node in ast.walk(each) if id(node) in nodes})
        for each in placement.boundary_block(script, loop)
    ]
    stepping = [each for each, verbs in held if verbs & {"step", "scaler_update"}]
    deleted = delete_statement(script, statement)
    if loop.window.inverted or not stepping or deleted is None or not placement.own_line(script, stepping[-1]):
        return None
    moved = placement.insert_after(script, stepping[-1], [script.text(statement)])
    return Fix("Step the schedule with the optimizer", "safe", (deleted, moved))
