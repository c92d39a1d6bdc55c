"""Micro-batches that do not fill the last window of an epoch are never stepped, or enter the next epoch's first step.

## What it does

Finds loops that step the optimizer once for every N micro-batches, count them anew in each epoch, and have no step for
the micro-batches that are left over when the length of the data is no multiple of N.

## Why it matters

If the gradients are cleared where an epoch starts, the work of the last micro-batches is thrown away, in every epoch.
If they are not, it stays in the gradients and is added to the first step of the next epoch, which then holds more than
N micro-batches, each divided by N. With 10 micro-batches and N = 4, three epochs take 6 steps instead of 9, and two
micro-batches of each epoch end up in a step that they do not belong to. No error is raised.

## Example

```python
def train(model, loader, optimizer, criterion, accumulation_steps, epochs):
    for epoch in range(epochs):
        optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(loader):
            loss = criterion(model(inputs), targets)
            (loss / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
```

## Use instead

```python
def train(model, loader, optimizer, criterion, accumulation_steps, epochs):
    for epoch in range(epochs):
        optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(loader):
            window_size = min(accumulation_steps, len(loader) - i // accumulation_steps * accumulation_steps)
            loss = criterion(model(inputs), targets)
            (loss / window_size).backward()
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
```

## Fix safety

The fix steps at the last micro-batch of the epoch too, and divides there by the number of micro-batches that the short
window really holds. Each epoch then takes one step more, so it is marked unsafe where a scheduler steps with the
optimizer, because its length may count the steps; and where the script does not show that the data has a length. It is
not offered where the loop's index is not the plain number of the micro-batch, or where the condition is written in
several places of the loop.

## Limits

The rule is silent where the data is endless, where a counter goes on over the epochs without a `zero_grad` between them
(a window may then span two epochs), where anything behind the loop might take the last step, where the script looks at
the remainder, and where the loop runs once. It does not know the length of the data: where it is always a multiple of
N, nothing is left over. A window that is 1 by default is a hint, and so is one whose gradients are divided by what it
has collected. Where the first step of each epoch comes too early, that is reported instead (off-by-one-step).

## References

- Reports of dropped or leaking micro-batches: peft issue 36, burn issue 5695, Automodel issue 2257.
- Measured with torch 2.13: 10 micro-batches, a window of 4, three epochs: 6 steps instead of 9.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import divided_late
from firstfault.lint.calls import Receiver
from firstfault.lint.delegated import delegated_loops
from firstfault.lint.leftover import Leftover, leftover, leftover_of_window
from firstfault.lint.leftover_fix import leftover_fix
from firstfault.lint.off_by_one import off_by_one
from firstfault.lint.rule import Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_default import is_one_by_default
from firstfault.lint.workspace import Workspace

_OWN_WINDOWS: tuple[Receiver, ...] = ("engine", "mmengine", "lightning")


@rule("GA201")
def leftover_window(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        if loop.window is None or any(each.receiver in _OWN_WINDOWS for each in loop.backwards):
            continue
        found = leftover(script, loop, workspace)
        if found is not None and off_by_one(script, loop) is None and loop.window.node not in seen:
            seen.add(loop.window.node)
            yield _hit(script, loop, loop.window, found)
    for loop, window in delegated_loops(script):
        found = leftover_of_window(script, loop, window, workspace)
        if found is not None and window.node not in seen:
            seen.add(window.node)
            yield _hit(script, loop, window, found)


def _hit(script: Script, loop: TrainingLoop, window: Window, found: Leftover) -> Hit:
    mild = is_one_by_default(script, window) or _is_counted(script, loop, found)
    severity: Severity = "hint" if mild else "warning"
    fix = leftover_fix(script, loop, window, found)
    return Hit(window.span, severity, _message(script, window, found), _related(script, found), (fix,) if fix else ())


def _is_counted(script: Script, loop: TrainingLoop, found: Leftover) -> bool:
    """The gradients are divided by what the window has collected, so what leaks is weighted rightly."""
    return found.fate != "cleared" and divided_late(script, loop) is not None


def _message(script: Script, window: Window, found: Leftover) -> str:
    size = f"`{window.size_text}`" if window.size_text else "the window"
    left = f"The micro-batches that are left over when {size} does not divide the epoch"
    if found.fate == "cleared" and found.cleared_by is not None:
        return f"{left} are never stepped: `{_call(script, found.cleared_by)}` throws their gradients away."
    if found.fate == "leaks":
        return f"{left} are not stepped: their gradients stay and enter the first step of the next epoch."
    return f"{left} are not stepped here: their gradients are lost, or enter the first step of the next epoch."


def _call(script: Script, call: ast.Call) -> str:
    text = script.text(call.func)
    return f"{text}()" if len(text) <= 40 and "\n" not in text else "zero_grad()"


def _related(script: Script, found: Leftover) -> tuple[Related, ...]:
    if found.cleared_by is None:
        return ()
    return (Related(script.path, script.line(found.cleared_by), "the gradients are cleared here"),)
