"""The condition of the step already holds for the first micro-batch, because the loop counts from zero.

## What it does

Finds loops that step the optimizer behind backward where `i % N == 0`, with `i` counted from zero. The first step then
holds one micro-batch instead of N. It also finds `i > 0 and i % N == 0`, where the first step holds N + 1.

## Why it matters

The loss is divided by N, so the first step of every epoch has a gradient of about 1/N of the wanted size and is made of
one micro-batch, and the windows after it are shifted: more micro-batches than needed are left over at the end. No error
is raised, and the loop steps as often as one expects.

## Example

```python
def train(model, loader, optimizer, criterion, accumulation_steps):
    for i, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets) / accumulation_steps
        loss.backward()
        if i % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
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

The fix counts from one in the condition alone; what else reads the index stays as it is. It is not offered where the
loop compares the same remainder in several places.

## Limits

The rule is silent where the count does not start at zero (`enumerate(loader, start=1)`, a counter that advances before
the test), where it goes on over the epochs, where the step stands in front of backward (it then takes what the rounds
before have collected), and where other parts of the condition must hold too. Whether micro-batches are left over at the
end is another question, and another rule.

## References

- DualTalk issue 9 is one report of it.
- Measured with torch 2.13 and a window of 4: the first step has 0.47 times the gradient of a whole window.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.off_by_one import OffByOne, off_by_one
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window_default import is_always_one, is_one_by_default
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit


@rule("GA203")
def off_by_one_step(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        found = off_by_one(script, loop)
        if found is None or is_always_one(script, found.window) or found.test in seen:
            continue
        seen.add(found.test)
        severity: Severity = "hint" if is_one_by_default(script, found.window) else "warning"
        fix = _fix(script, loop, found)
        related = Related(script.path, script.line(loop.node), f"`{found.counted.name}` is counted from 0 here")
        yield Hit(script.span(found.test), severity, _message(script, found), (related,), (fix,) if fix else ())


def _message(script: Script, found: OffByOne) -> str:
    name, size = found.counted.name, found.window.size_text
    if found.skips_first:
        return f"`{name}` is counted from 0, so the first step holds one micro-batch more than `{size}`."
    return (
        f"`{script.text(found.test)}` holds when `{name}` is 0, so the first step holds one micro-batch, not `{size}`."
    )


def _fix(script: Script, loop: TrainingLoop, found: OffByOne) -> Fix | None:
    size, counter = found.window.size_node, found.window.counter
    if size is None or counter is None or not isinstance(counter, ast.Name):
        return None
    same = [
        each
        for each in script.walk(loop.node)
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) and ast.dump(each.right) == ast.dump(size)
    ]
    if len(same) != 1:
        return None
    edits = [Edit(script.span(counter), f"({counter.id} + 1)")]
    whole = script.parent(found.test)
    if found.skips_first and isinstance(whole, ast.BoolOp):
        text = script.text(found.test).replace(script.text(counter), f"({counter.id} + 1)", 1)
        edits = [Edit(script.span(whole), text)]
    return Fix("Count micro-batches from one", "safe", tuple(edits))
