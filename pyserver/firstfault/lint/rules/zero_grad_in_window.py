"""The gradients are cleared with every micro-batch, but the optimizer steps once for many of them.

## What it does

Finds loops that step the optimizer at the end of a window and call `zero_grad` of the same optimizer (or of its model)
for every micro-batch. It also finds the reverse, a step for every micro-batch where the loss is divided by N and the
gradients are cleared once in N; and loops where only the micro-batch that fills the window reaches backward while the
losses of the others are computed and thrown away.

## Why it matters

What the other micro-batches of the window have added is gone before the step. Only the last one counts, still divided
by the number of them all: with a window of 4 the gradient has about half the size and points elsewhere (cosine 0.58),
and three quarters of the data are never learned from. The loss goes down, only slower.

## Example

```python
def train(model, loader, optimizer, criterion, accumulation_steps):
    for i, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
```

## Use instead

```python
def train(model, loader, optimizer, criterion, accumulation_steps):
    for i, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix moves the call behind the step, or in front of the loop that holds one window. It is marked unsafe where the
loss is not divided by the window, because the gradients of the micro-batches then add up. It is not offered where the
call stands in a helper, or where the step is not at the end of a plain condition.

## Limits

A call under a condition of its own is not reported, nor one of an optimizer that does not step at the window's end.
In a range of micro-batches the loss must be divided by their number: an inner loop may throw its gradients away on
purpose. A copy of the model that is made in the loop is another model.
Frameworks that clear by themselves (DeepSpeed, mmengine, Lightning) are left alone; `accelerator.accumulate` has a rule
of its own.

## References

- RAE issue 67, torchtitan issue 3575 and ultralytics issue 11217 report it.
- Measured with torch 2.13, window of 4: the step's gradient is that of the last micro-batch, divided by 4.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import bindings
from firstfault.lint.clearing import (
    cleared_object,
    clears_what_is_stepped,
    delete_statement,
    optimizer_of_step,
    runs_with_every_backward,
)
from firstfault.lint.epochs import cleared_between
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.window import Window, guards, window_of_guard
from firstfault.lint.window_default import is_always_one, is_one_by_default
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

TITLE = "Clear the gradients after the step"
_CLEAR_THEMSELVES = ("engine", "mmengine", "lightning")


@rule("GA204")
def zero_grad_in_window(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        yield from _stepped_too_often(script, loop, seen)
        if window is None:
            continue
        if window.kind in ("accumulate-context", "framework") or is_always_one(script, window):
            continue
        if any(each.receiver in _CLEAR_THEMSELVES for each in loop.backwards):
            continue
        if _backward_waits_too(script, loop, window):
            if loop.backwards[0].node not in seen and _is_lost(script, loop, window):
                seen.add(loop.backwards[0].node)
                yield _lost(script, loop, window)
            continue
        for action in loop.zero_grads:
            if action.node not in seen and _is_cleared_too_often(script, loop, action):
                seen.add(action.node)
                yield _hit(script, loop, window, action)


def _stepped_too_often(script: Script, loop: TrainingLoop, seen: set[ast.AST]) -> Iterator[Hit]:
    """Divided by N and cleared once in N micro-batches, but stepped with each of them."""
    clears = [each for each in loop.zero_grads if not each.after_loop]
    for step in loop.optimizer_steps:
        own = [each for each in clears if cleared_object(script, each) == optimizer_of_step(script, step)]
        windows = [_window_of_clearing(script, loop, each) for each in own]
        often = runs_with_every_backward(script, loop, step) and step.node not in seen
        if not own or not often or len(own) != len(clears) or None in windows or windows[0] is None:
            continue
        if any(is_window_size(script, each.by, windows[0], script) for each in loop.divisions):
            seen.add(step.node)
            related = Related(script.path, script.line(own[0].node), "the gradients are cleared here, once per window")
            message = (
                f"`{script.text(step.node)}` runs for every micro-batch, but the gradients are cleared once for "
                f"`{windows[0].size_text}` of them: each is stepped again with those that follow."
            )
            yield Hit(script.span(step.node), "error", message, (related,))


def _window_of_clearing(script: Script, loop: TrainingLoop, action: Action) -> Window | None:
    for guard in action.guards:
        found = window_of_guard(script, guard, loop.node)
        if found is not None and not is_always_one(script, found):
            return found
    return None


def _is_cleared_too_often(script: Script, loop: TrainingLoop, action: Action) -> bool:
    if not runs_with_every_backward(script, loop, action) or not clears_what_is_stepped(script, loop, action):
        return False
    if loop.window is not None and loop.window.kind in ("inner-range", "chunks"):
        # An attack on the input, a search: its gradients are thrown away on purpose, unless the loss is shared out.
        if not any(is_window_size(script, each.by, loop.window, script) for each in loop.divisions):
            return False
        if any(each.after_loop and _is_before_a_step(script, loop, each) for each in loop.zero_grads):
            return False
    return not any(runs_with_every_backward(script, loop, each) for each in loop.optimizer_steps)


def _is_before_a_step(script: Script, loop: TrainingLoop, clearing: Action) -> bool:
    line = script.line(clearing.node)
    return any(each.after_loop and script.line(each.node) > line for each in loop.optimizer_steps)


def _hit(script: Script, loop: TrainingLoop, window: Window, action: Action) -> Hit:
    related = Related(script.path, window.span.start.line, "the step waits for the end of the window")
    severity: Severity = "warning" if is_one_by_default(script, window) else "error"
    fix = _fix(script, loop, window, action)
    fixes = (fix,) if fix else ()
    return Hit(script.span(action.node), severity, _message(script, loop, window, action), (related,), fixes)


def _backward_waits_too(script: Script, loop: TrainingLoop, window: Window) -> bool:
    """Backward runs where the window is full: nothing has been collected that could be cleared."""
    return all(
        any(guard.holder is window.boundary for guard in guards(script, each.node, loop.node))
        for each in loop.backwards
    )


def _is_lost(script: Script, loop: TrainingLoop, window: Window) -> bool:
    """The loss is computed for every micro-batch, and nothing adds them up."""
    loss = loop.backwards[0].loss
    if window.kind != "counter" or window.boundary is None or not isinstance(loss, ast.Name):
        return False
    places = [each for each in bindings(script, loss.id, loss) if loop.node in script.ancestors(each.node)]
    early = [each for each in places if script.line(each.node) < script.line(window.boundary)]
    adds = any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Add)
        and loss.id in (dotted(each.left), dotted(each.right))
        for place in places
        if place.value is not None
        for each in script.walk(place.value)
    )
    return bool(early) and not adds and all(each.kind == "assign" for each in places)


def _lost(script: Script, loop: TrainingLoop, window: Window) -> Hit:
    loss = script.text(loop.backwards[0].loss)
    message = f"Only the micro-batch that fills the window reaches backward: `{loss}` of the others is thrown away."
    related = Related(script.path, window.span.start.line, "the others leave the round here")
    return Hit(script.span(loop.backwards[0].node), "warning", message, (related,))


def _message(script: Script, loop: TrainingLoop, window: Window, action: Action) -> str:
    cleared = f"`{cleared_object(script, action)}.zero_grad()`"
    size = f"`{window.size_text}` micro-batches" if window.size_text else "all micro-batches of the window"
    line = script.line(action.node)
    steps = [each for each in loop.optimizer_steps if script.line(each.node) > line and not each.after_loop]
    if steps and all(script.line(each.node) < line for each in loop.backwards):
        return f"{cleared} runs between backward and the step, so the step finds no gradients."
    return f"{cleared} runs for every micro-batch, so of {size} only the last one is left when the optimizer steps."


def _fix(script: Script, loop: TrainingLoop, window: Window, action: Action) -> Fix | None:
    statement = script.statement(action.node)
    if action.helper is not None or not isinstance(statement, ast.Expr) or statement.value is not action.node:
        return None
    deleted = delete_statement(script, statement)
    if deleted is None or len(loop.zero_grads) > 2:
        return None
    placed = _placed(script, loop, window, action)
    if placed is None:
        return None
    divided = any(is_window_size(script, each.by, window, script) for each in loop.divisions)
    return Fix(TITLE, "safe" if divided else "unsafe", (deleted, *placed))


def _placed(script: Script, loop: TrainingLoop, window: Window, action: Action) -> list[Edit] | None:
    """Where the call goes; nowhere if another one stands there already."""
    text = script.text(action.node)
    if window.kind in ("inner-range", "chunks"):
        if not isinstance(loop.node, LOOPS) or not placement.own_line(script, loop.node):
            return None
        return [] if cleared_between(script, loop) is not None else [placement.insert_before(script, loop.node, [text])]
    block = placement.boundary_block(script, loop)
    nodes = {id(each.node): each.verb for each in loop.actions}
    held = [(statement, {nodes[id(each)] for each in ast.walk(statement) if id(each) in nodes}) for statement in block]
    if any("zero_grad" in verbs for _, verbs in held):
        return []
    stepping = [statement for statement, verbs in held if verbs & {"step", "scaler_update"}]
    if not stepping or not placement.own_line(script, stepping[-1]):
        return None
    return [placement.insert_after(script, stepping[-1], [text])]
