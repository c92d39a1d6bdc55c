"""Inside `accelerator.accumulate`, gradients are cleared before the last backward of a window, or past the wrapper.

## What it does

Finds two calls inside `with accelerator.accumulate(model)`: `zero_grad` of the optimizer in front of backward, and
`model.zero_grad()` wherever it stands.

## Why it matters

The optimizer that `accelerator.prepare` returns ignores `zero_grad` on all micro-batches of a window but the last. On
that one it acts: called in front of backward, it clears what the others have collected, and only the last micro-batch
is stepped, divided by the whole window (measured: 0.49 times the gradient, cosine 0.56). The model's own `zero_grad`
is not wrapped at all and acts on every micro-batch.

## Example

```python
from accelerate import Accelerator


def train(model, loader, optimizer):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = model(inputs, labels=targets).loss
            accelerator.backward(loss)
            optimizer.step()
```

## Use instead

```python
from accelerate import Accelerator


def train(model, loader, optimizer):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = model(inputs, labels=targets).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix moves the call behind the step; a model's call becomes one of the optimizer, which it can only where the script
shows that the optimizer went through `accelerator.prepare`. It is not offered where the call stands in a helper.

## Limits

A call under a condition (`if accelerator.sync_gradients:`) is not reported, nor one in front of the `with`: there the
wrapper still ignores it within a window. A window that is always 1 is not reported; one that is 1 by default is
reported one step milder.

## References

- accelerate issues 616 and 1299; starVLA issue 395, DiffSynth issue 1404, alpaca_farm issue 57.
- Measured with accelerate 1.15 and torch 2.13.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.clearing import (
    cleared_object,
    delete_statement,
    is_model,
    is_prepared,
    optimizer_of_step,
    runs_with_every_backward,
)
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_default import is_always_one, is_one_by_default
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

TITLE = "Clear the gradients after the step"


@rule("GA205")
def zero_grad_in_accumulate(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.kind != "accumulate-context" or is_always_one(script, window):
            continue
        for action in loop.zero_grads:
            if action.node in seen or not _is_inside(script, window, action):
                continue
            if runs_with_every_backward(script, loop, action) and _clears_too_early(script, loop, action):
                seen.add(action.node)
                yield _hit(script, loop, window, action)


def _is_inside(script: Script, window: Window, action: Action) -> bool:
    block = script.statement(window.node)
    return block in script.ancestors(action.node)


def _clears_too_early(script: Script, loop: TrainingLoop, action: Action) -> bool:
    return is_model(script, action) or _before_backward(script, loop, action)


def _before_backward(script: Script, loop: TrainingLoop, action: Action) -> bool:
    return script.line(action.node) < min(script.line(each.node) for each in loop.backwards)


def _hit(script: Script, loop: TrainingLoop, window: Window, action: Action) -> Hit:
    severity: Severity = "warning" if is_one_by_default(script, window) else "error"
    related = Related(script.path, window.span.start.line, "the window is opened here")
    fix = _fix(script, loop, window, action)
    return Hit(script.span(action.node), severity, _message(script, action), (related,), (fix,) if fix else ())


def _message(script: Script, action: Action) -> str:
    cleared = f"`{cleared_object(script, action)}.zero_grad()`"
    if is_model(script, action):
        return (
            f"{cleared} is not held back by accelerate: it clears the gradients with every micro-batch of the window."
        )
    return (
        f"{cleared} acts on the last micro-batch of the window, and there it runs in front of backward: "
        "what the others have collected is gone before the step."
    )


def _fix(script: Script, loop: TrainingLoop, window: Window, action: Action) -> Fix | None:
    statement = script.statement(action.node)
    plain = (
        isinstance(statement, ast.Expr)
        and statement.value is action.node
        and isinstance(action.node.func, ast.Attribute)
    )
    steps = [each for each in loop.optimizer_steps if not each.after_loop and each.helper is None]
    if action.helper is not None or not plain or len(steps) != 1 or not _is_inside(script, window, steps[0]):
        return None
    optimizer = optimizer_of_step(script, steps[0])
    if is_model(script, action) and not is_prepared(script, optimizer, steps[0].node):
        return None
    if not is_model(script, action) and cleared_object(script, action) != optimizer:
        return None
    owner = action.node.func.value  # type: ignore[attr-defined]
    if not _before_backward(script, loop, action):
        return Fix(TITLE, "safe", (Edit(script.span(owner), optimizer),))
    stepping = script.statement(steps[0].node)
    deleted = delete_statement(script, statement)
    if (
        deleted is None
        or not placement.own_line(script, stepping)
        or script.block(stepping) is not script.block(statement)
    ):
        return None
    others = [each for each in loop.zero_grads if each.node is not action.node]
    text = f"{optimizer}{script.text(action.node).removeprefix(script.text(owner))}"
    placed = [] if others else [placement.insert_after(script, stepping, [text])]
    return Fix(TITLE, "safe", (deleted, *placed))
