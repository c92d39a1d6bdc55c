"""A moving average of the weights is updated with every micro-batch, while the weights change once a window.

## What it does

Finds loops that accumulate gradients and update an exponential moving average of the model (`ema.update(model)`,
`ema_model.update_parameters(model)`, `ema.step(model.parameters())`) with every micro-batch.

## Why it matters

Between two steps the weights stand still, so `k` updates in a row pull the average to the same weights: a decay of
0.999 acts as 0.999 to the power of `k`. The average follows faster than intended and changes with the number of
accumulation steps. Measured with 4 micro-batches: the average's distance from where it should be is 1.97 times the
way it should have gone.

## Example

```python
def train(model, ema, loader, criterion, optimizer, accumulation_steps):
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
        ema.update(model)
```

## Use instead

```python
def train(model, ema, loader, criterion, optimizer, accumulation_steps):
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            ema.update(model)
            optimizer.zero_grad()
```

## Fix safety

The fix moves the update to right behind the step; under accelerate's `accumulate()` it puts it under `if
accelerator.sync_gradients:`. It is marked unsafe: the average becomes slower, and a decay that was tuned on the old
pace may have to change.

## Limits

Averages are known by their name (`ema`, `moving_average`, `averaged_model`) or by
`torch.optim.swa_utils.AveragedModel`; averages of losses and metrics are left alone. An update under a condition that
changes from one micro-batch to the next is not reported. Averages that count optimizer steps by themselves, and skip
the calls between, are not recognised.

## References

- F5-TTS issue 631, Lightning issue 11688: the same fault.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.boundary_move import moved
from firstfault.lint.cadence import cadence, severity_by_window, starts_anew
from firstfault.lint.calls import last_name, origin
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop, calls_in, training_loops
from firstfault.lint.window import guards
from firstfault.lint.workspace import Workspace

_UPDATES = {"update", "update_parameters", "step", "update_ema", "ema_update", "update_average", "step_ema"}
_AVERAGE = re.compile(r"(?:^|_)ema(?:$|_)|^ema|moving_?average|averaged?_model|model_average", re.IGNORECASE)
_OF_NUMBERS = re.compile(
    r"loss|(?:\b|_)acc(?:\b|_|uracy|s\b)|metric|norm|time|(?:^|_)meter|score|reward|grad|stats?\b|speed|codebook|cluster",
    re.I,
)


@rule("GA212")
def ema_per_micro_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        if loop.window is None or starts_anew(loop):
            continue
        for action in _updates(script, loop):
            if cadence(script, loop, action) != "micro-batch":
                continue
            edits = moved(script, loop, [action], "after")
            fix = Fix("Update the average once for the window, behind the step", "unsafe", edits) if edits else None
            yield Hit(
                script.span(action.node),
                severity_by_window(loop.window, "warning"),
                _message(script, action),
                (Related(script.path, loop.window.span.start.line, "the weights change only when this is full"),),
                (fix,) if fix else (),
            )


def _updates(script: Script, loop: TrainingLoop) -> Iterator[Action]:
    """The calls of the loop's own text that update an average of weights."""
    for call in calls_in(script, loop.node):
        if _is_update(script, call):
            # The engine's verbs know no averages; for the cadence a call is as good as any.
            yield Action("schedule", call, call, None, tuple(guards(script, call, loop.node)), False)


def _is_update(script: Script, call: ast.Call) -> bool:
    name = last_name(call.func)
    given = " ".join(script.text(each) for each in [*call.args, *(word.value for word in call.keywords)])
    if _OF_NUMBERS.search(given) or name not in _UPDATES:
        return False
    if name in ("update_ema", "ema_update", "step_ema"):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = dotted(call.func.value).rpartition(".")[2]
    named = bool(_AVERAGE.search(owner)) and not _OF_NUMBERS.search(owner)
    return named or (name == "update_parameters" and origin(script, call.func.value).endswith("AveragedModel"))


def _message(script: Script, action: Action) -> str:
    return (
        f"`{script.text(action.node.func)}` runs with every micro-batch, but the weights change once a window: "
        "the average takes in the same weights several times, and its decay acts faster."
    )
