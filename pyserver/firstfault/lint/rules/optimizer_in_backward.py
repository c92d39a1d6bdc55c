"""An optimizer that steps inside of backward steps for each micro-batch: nothing is accumulated.

## What it does

Finds hooks of `register_post_accumulate_grad_hook` that step an optimizer, in scripts whose loop divides its loss by
a number of accumulation steps, or closes a window.

## Why it matters

Such a hook runs as soon as the gradient of a parameter is complete: in every backward. With k micro-batches there are
k updates with one k-th of the loss each, not one update with the gradient of the window. Measured: 4 updates instead
of 1. It saves the memory of the gradients, and therefore cannot keep them over several backwards.

## Example

```python
import torch


def train(model, loader, accumulation_steps):
    optimizers = {each: torch.optim.AdamW([each], lr=1e-4) for each in model.parameters()}

    def step_and_clear(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_and_clear)
    for batch in loader:
        loss = model(batch).mean() / accumulation_steps
        loss.backward()
```

## Use instead

```python
import torch


def train(model, loader):
    optimizers = {each: torch.optim.AdamW([each], lr=1e-4) for each in model.parameters()}

    def step_and_clear(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_and_clear)
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
```

## Fix safety

There is no fix: either the hook goes, and the memory of the gradients is paid, or the accumulation goes.

## Limits

Hooks of this file only. Optimizers of libraries that step in backward by themselves (LOMO, layer-wise GaLore) are not
looked for; some of their trainers refuse accumulation. A hook that counts backwards and steps in the last one alone
is right and not reported.

## References

- torch issue 124523; GaLore issue 78; LLaMA-Factory issue 5887; torchtune refuses the pair.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.calls import last_name
from firstfault.lint.loss_terms import loss_terms
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import training_loops
from firstfault.lint.workspace import Workspace

_HOOK = "register_post_accumulate_grad_hook"
_STEPS = re.compile(r"accum|grad_acc|micro_?(?:steps|batches)", re.IGNORECASE)


@rule("GA215")
def optimizer_in_backward(script: Script, workspace: Workspace) -> Iterator[Hit]:
    hooks = script.calls(_HOOK) if _HOOK in script.source else []
    divided = _divided(script, workspace) if hooks else None
    seen: set[ast.AST] = set()
    for call in hooks if divided is not None else ():
        step = _step(script, call)
        if step is not None and step not in seen and divided is not None:
            seen.add(step)
            message = (
                f"`{script.text(step.func)}()` runs in every backward, so each micro-batch is a step of its own: "
                f"nothing is accumulated, although the loss is divided by `{script.text(divided)}`."
            )
            related = (
                Related(script.path, script.line(call), "the hook"),
                Related(script.path, script.line(divided), "the accumulation steps"),
            )
            yield Hit(script.span(step), "error", message, related)


def _divided(script: Script, workspace: Workspace) -> ast.expr | None:
    """The accumulation steps that a back-propagated loss is divided by."""
    for loop in training_loops(script):
        for backward in loop.backwards:
            scales = [scale for term in loss_terms(script, backward.loss, workspace) for scale in term.scales]
            for scale in scales:
                here = scale.divides and script.parent(scale.operand) is not None
                if here and _STEPS.search(last_name(scale.operand)):
                    return scale.operand
    return None


def _step(script: Script, call: ast.Call) -> ast.Call | None:
    """The unconditional step in the function that is registered; what steps there is an optimizer."""
    hook = call.args[0] if call.args else None
    function: ast.AST | None = hook if isinstance(hook, ast.Lambda) else script.definitions.get(dotted(hook))
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
        return None
    if any(isinstance(each, (ast.If, ast.IfExp, ast.While)) for each in script.walk(function)):
        return None
    calls = (each for each in script.walk(function) if isinstance(each, ast.Call))
    return next((each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "step"), None)
