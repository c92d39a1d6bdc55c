"""The counter that the step waits for advances only when the optimizer steps, or never: the window does not close.

## What it does

Finds loops where the condition of the step counts something that only moves inside that condition (a count of optimizer
steps), or a local variable that the loop never moves at all.

## Why it matters

`global_step % N == 0` with a `global_step` that counts optimizer steps holds once, at 0, and never again: the first
micro-batch is stepped, the counter becomes 1, and from then on gradients pile up without a step. Training goes on and
prints a loss, and the weights stay where they are.

## Example

```python
def train(model, loader, optimizer, criterion, accumulation_steps):
    global_step = 0
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets) / accumulation_steps
        loss.backward()
        if global_step % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
```

## Use instead

```python
def train(model, loader, optimizer, criterion, accumulation_steps):
    global_step = 0
    for batch_index, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets) / accumulation_steps
        loss.backward()
        if (batch_index + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
```

## Fix safety

The fix counts the micro-batches instead, where the loop has an index for them. It is not offered where it has none.

## Limits

The rule is silent where the counter may be moved by code that is not in the file (a base class, another object) and
where the condition has other parts that may hold. In a LightningModule with manual optimization `global_step` is known
to count optimizer steps.

## References

- The Fabric example `build_your_own_trainer` of Lightning, and the nanoGPT example of dlrover, carried it.
- Lightning documents `global_step` as the number of optimizer steps taken.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.bindings import Binding, bindings
from firstfault.lint.clearing import runs_with_every_backward
from firstfault.lint.leftover import closes_at_the_end
from firstfault.lint.micro_count import counting_test, index_of
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import FUNCTIONS, LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_default import is_always_one
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit


@rule("GA214")
def window_never_closes(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.kind not in ("modulo", "flag") or is_always_one(script, window):
            continue
        test = counting_test(script, window)
        if test is None or test in seen or closes_at_the_end(script, window):
            continue
        if any(runs_with_every_backward(script, loop, each) for each in loop.optimizer_steps):
            continue
        found = _stuck(script, loop, window)
        if found is not None:
            seen.add(test)
            fix = _fix(script, loop, window)
            yield Hit(script.span(test), "error", found[0], found[1], (fix,) if fix else ())


def _stuck(script: Script, loop: TrainingLoop, window: Window) -> tuple[str, tuple[Related, ...]] | None:
    name = _counted(script, window)
    if not name:
        return None
    places = bindings(script, name, window.counter) if window.counter is not None else []
    moving = [each for each in places if each.kind != "parameter" and not _is_start(script, each, loop)]
    if moving:
        if _is_shared(script, name) or not all(
            _is_step_of_one(script, each, window) and _only_at_the_boundary(script, loop, window, each)
            for each in moving
        ):
            return None
        if "." in name and not _is_own(script, name, window):
            return None
        related = Related(script.path, script.line(moving[0].node), f"`{name}` moves here alone")
        return f"`{name}` moves only when the optimizer steps, so the window of micro-batches does not close again.", (
            related,
        )
    if _counts_steps_of_lightning(script, name, window):
        return f"`{name}` counts optimizer steps, so the window of micro-batches does not close again.", ()
    if "." in name or not places or any(each.kind == "parameter" for each in places) or _is_shared(script, name):
        return None
    if not isinstance(loop.node, LOOPS):
        return None
    related = Related(script.path, script.line(places[0].node), f"`{name}` is set here")
    return f"`{name}` never moves in this loop, so the window never closes, or with every micro-batch.", (related,)


def _counted(script: Script, window: Window) -> str:
    """The one name that the condition counts."""
    if window.counter is None:
        return ""
    whole = [
        each
        for each in script.walk(window.counter)
        if isinstance(each, (ast.Name, ast.Attribute)) and not isinstance(script.parent(each), ast.Attribute)
    ]
    return dotted(whole[0]) if len(whole) == 1 else ""


_STARTS = re.compile(r"^__init__$|load|restore|resume|reset|setup")


def _is_start(script: Script, place: Binding, loop: TrainingLoop) -> bool:
    """Set to a number outside the loop, or to what a checkpoint says: where counting starts."""
    if place.kind != "assign" or loop.node in script.ancestors(place.node):
        return False
    function = getattr(script.function(place.node), "name", "")
    return isinstance(place.value, ast.Constant) or bool(_STARTS.search(function))


def _is_step_of_one(script: Script, place: Binding, window: Window) -> bool:
    """``+= 1``; ``+= int(full)`` of the flag that the step waits for."""
    if place.kind != "augmented" or not isinstance(getattr(place.node, "op", None), ast.Add):
        return False
    return (isinstance(place.value, ast.Constant) and place.value.value == 1) or _is_flag(place.value, window)


def _is_flag(value: ast.expr | None, window: Window) -> bool:
    if isinstance(value, ast.Call) and dotted(value.func) == "int" and len(value.args) == 1:
        value = value.args[0]
    flag = window.boundary.test if window.boundary is not None else None
    return isinstance(value, ast.Name) and isinstance(flag, ast.Name) and value.id == flag.id


def _only_at_the_boundary(script: Script, loop: TrainingLoop, window: Window, place: Binding) -> bool:
    """The counter moves in the statements that run once per window, in a body that asks for the same flag too."""
    if loop.node not in script.ancestors(place.node):
        return False
    if _is_flag(place.value, window):
        return True
    block = placement.boundary_block(script, loop)
    if any(place.node in set(script.walk(statement)) for statement in block):
        return True
    above = script.parent(place.node)
    same = isinstance(above, ast.If) and window.boundary is not None
    return same and ast.dump(above.test) == ast.dump(window.boundary.test) and place.node in above.body  # type: ignore[union-attr]


def _is_own(script: Script, name: str, window: Window) -> bool:
    """``self.global_step`` of a class without a base that could move it."""
    owner = script.class_of(window.counter) if window.counter is not None else None
    return name.startswith("self.") and name.count(".") == 1 and owner is not None and not owner.bases


def _is_shared(script: Script, name: str) -> bool:
    outer = any(name in each.names for each in script.nodes(ast.Global))
    return outer or any(name in each.names for each in script.nodes(ast.Nonlocal))


def _counts_steps_of_lightning(script: Script, name: str, window: Window) -> bool:
    if name not in ("self.global_step", "self.trainer.global_step", "trainer.global_step") or window.counter is None:
        return False
    owner = script.class_of(window.counter)
    module = owner is not None and any(script.qualified(each).endswith("LightningModule") for each in owner.bases)
    return module and any(
        isinstance(each, ast.Attribute) and each.attr == "automatic_optimization"
        for each in script.walk(owner)  # type: ignore[arg-type]
    )


def _fix(script: Script, loop: TrainingLoop, window: Window) -> Fix | None:
    index = _index(script, loop, window)
    if index is None or window.counter is None or window.inverted:
        return None
    return Fix("Count the micro-batches", "safe", (Edit(script.span(window.counter), f"({index} + 1)"),))


def _index(script: Script, loop: TrainingLoop, window: Window) -> str | None:
    if isinstance(loop.node, LOOPS):
        return index_of(script, loop.node)
    if not isinstance(loop.node, FUNCTIONS) or getattr(loop.node, "name", "") != "training_step":
        return None
    names = [each.arg for each in loop.node.args.args]
    return names[2] if len(names) > 2 else None
