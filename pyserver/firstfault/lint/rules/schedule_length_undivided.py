"""A learning-rate schedule is stepped once per update, but its length is the number of micro-batches.

## What it does

Finds loops that step the optimizer and the schedule once per window of N micro-batches, where the schedule was made for
as many steps as there are micro-batches.

## Why it matters

Training ends after the first N-th of the schedule: warm-up takes N times as long, and the learning rate hardly falls.
Nothing raises an error, and the curve of the learning rate looks right as far as it goes.

## Example

```python
from transformers import get_cosine_schedule_with_warmup


def train(model, loader, optimizer, accumulation_steps, epochs):
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, len(loader) * epochs)
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            (model(**batch).loss / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
```

## Use instead

```python
from transformers import get_cosine_schedule_with_warmup


def train(model, loader, optimizer, accumulation_steps, epochs):
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, len(loader) // accumulation_steps * epochs)
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            (model(**batch).loss / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
```

## Fix safety

The fix divides the number of batches by the window where the schedule is made, rounded down where the loop drops what
is left over, and up where it steps at the end of the data too. It is marked unsafe: the learning rate takes another
path than before, and a warm-up may have been chosen for the old one. It is not offered where the length is computed in
another statement, or where the window's name is not at hand there.

## Limits

Only lengths that are written in the file with `len` of a loader are judged. Whether they are rounded up or down is not:
the difference is at most one step per epoch. A schedule that went through `accelerator.prepare` is not reported,
because it steps more often than it is called.

## References

- Automodel pull request 2257, diffusers issues 2632 and 4387, accelerate issues 225 and 628.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.clearing import runs_with_every_backward
from firstfault.lint.epochs import may_be_flushed
from firstfault.lint.leftover import closes_at_the_end
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.schedules import Schedule, schedules
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_default import is_always_one, is_one_by_default
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit


@rule("GA208")
def schedule_length_undivided(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.kind not in ("modulo", "flag", "counter", "accumulate-context"):
            continue
        if is_always_one(script, window) or any(
            runs_with_every_backward(script, loop, each) for each in loop.of("schedule")
        ):
            continue
        for found in schedules(script, loop, window, workspace):
            if found.unit == "micro-batches" and found.made not in seen and _at_the_boundary(script, window, found):
                seen.add(found.made)
                yield _hit(script, loop, window, found)


def _at_the_boundary(script: Script, window: Window, found: Schedule) -> bool:
    """The schedule steps under the condition that the optimizer steps under."""
    if found.action.after_loop:
        return False
    if window.kind == "accumulate-context":
        return any("sync_gradients" in script.text(guard.test) and guard.positive for guard in found.action.guards)
    return any(guard.holder is window.boundary for guard in found.action.guards)


def _hit(script: Script, loop: TrainingLoop, window: Window, found: Schedule) -> Hit:
    size = f"`{window.size_text}`" if window.size_text else "the window"
    message = (
        f"The length of `{found.name}` counts micro-batches, but it is stepped once for {size} of them, "
        "so training ends early in the schedule."
    )
    related = Related(script.path, script.line(found.action.node), "the schedule is stepped here")
    fix = _fix(script, loop, window, found)
    severity = "hint" if is_one_by_default(script, window) else "warning"
    return Hit(script.span(found.length), severity, message, (related,), (fix,) if fix else ())  # type: ignore[arg-type]


def _fix(script: Script, loop: TrainingLoop, window: Window, found: Schedule) -> Fix | None:
    inside = [
        each for each in script.walk(found.length) if isinstance(each, ast.Call) and script.text(each.func) == "len"
    ]
    same = script.function(found.made) is script.function(loop.node)
    if len(inside) != 1 or not same or not window.size_text.replace(".", "").replace("_", "").isalnum():
        return None
    up = window.kind == "accumulate-context" or closes_at_the_end(script, window) or may_be_flushed(script, loop)
    batches = script.text(inside[0])
    text = f"-(-{batches} // {window.size_text})" if up else f"{batches} // {window.size_text}"
    if not up and inside[0] is not found.length and _binds_tighter(script, inside[0]):
        text = f"({text})"
    edit = Edit(script.span(inside[0]), text)
    return Fix("Count updates instead of micro-batches", "unsafe", (edit,))


def _binds_tighter(script: Script, node: ast.AST) -> bool:
    """On the right of a product the division needs brackets."""
    above = script.parent(node)
    return isinstance(above, ast.BinOp) and above.right is node
