"""An overridden `compute_loss` or `training_step` does not take what transformers' Trainer calls it with.

## What it does

Finds classes that derive from `transformers.Trainer` and override `compute_loss` with neither a parameter
`num_items_in_batch` nor `**kwargs`, or `training_step` with no third parameter.

## Why it matters

Since 4.46 the Trainer calls `self.training_step(model, inputs, num_items_in_batch)`, and from there
`self.compute_loss(model, inputs, num_items_in_batch=...)`. The first training step raises `TypeError: compute_loss()
got an unexpected keyword argument 'num_items_in_batch'`. Measured: it runs before 4.46 and in 4.47.0 (where the
gradient is then wrong in another way), and raises in the other measured releases from 4.46.3 to 5.24.0.

## Example

```python
from transformers import Trainer


class LoggedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        self.last_loss = loss.detach()
        return (loss, outputs) if return_outputs else loss
```

## Use instead

```python
from transformers import Trainer


class LoggedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        kept = {"return_outputs": True, "num_items_in_batch": num_items_in_batch}
        loss, outputs = super().compute_loss(model, inputs, **kept)
        self.last_loss = loss.detach()
        return (loss, outputs) if return_outputs else loss
```

## Fix safety

The fix adds the parameter, and hands it on to every `super().compute_loss(...)` in the method. Where the loss comes
from there, that is all, and the fix is safe. Where the method computes a mean of its own, the fix is partial: the
script runs again, and what is left to do is what mean-in-compute-loss reports next. So it is for a `training_step`,
whose division, where it has one, the rule does not judge.

## Limits

The release of transformers is read off the environment of the interpreter, an environment in the project, lock files
and requirements. Where none of them tells, the finding is a warning, because older releases do not pass the argument.
Nothing is said where every possible release is older than 4.46. Classes that also override `training_step` call
`compute_loss` in their own way and are not reported; neither are classes whose base class is in a library.

## References

- transformers pull request 34198: the new argument, and the thread of those whose subclass broke.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import trainers
from firstfault.lint.hf_trainer import FIRST_ITEMS, Override, head_span, items_of, lineage, overrides
from firstfault.lint.items_fix import argument_edit, parameter_edit
from firstfault.lint.loss_override import is_super_call
from firstfault.lint.rule import Applicability, Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.versions import Release, release
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

_RUNS = "compute-loss-without-parameter"  # has a mark in the releases that do not raise


@rule("GA405")
def missing_items_parameter(script: Script, workspace: Workspace) -> Iterator[Hit]:
    loss = [
        each
        for each in overrides(script, "compute_loss", workspace)
        if items_of(each.method) is None and not _steps_by_itself(script, each, workspace)
    ]
    steps = [each for each in overrides(script, "training_step", workspace) if not _takes_three(each.method)]
    for override in (*loss, *steps):
        where = release("transformers", script, workspace)
        if where is not None and (_is_older(where) or trainers.of_case(_RUNS, where) is not None):
            continue
        severity: Severity = "error" if where is not None and where.low >= FIRST_ITEMS else "warning"
        related = (Related(where.file, where.line, f"transformers {where.text}"),) if where is not None else ()
        fix = _fix(script, override)
        yield Hit(
            head_span(script, override.method), severity, _message(override, where), related, (fix,) if fix else ()
        )


def _is_older(where: Release) -> bool:
    return where.high is not None and where.high < FIRST_ITEMS


def _steps_by_itself(script: Script, override: Override, workspace: Workspace) -> bool:
    family = lineage(script, override.owner, workspace)
    return any(
        isinstance(each, ast.FunctionDef) and each.name in ("training_step", "_inner_training_loop", "train_step")
        for _, owner in family
        for each in owner.body
    )


def _takes_three(method: ast.FunctionDef) -> bool:
    """It is called with the model, the inputs and the number of items by position."""
    return method.args.vararg is not None or len((*method.args.posonlyargs, *method.args.args)) >= 4


def _message(override: Override, where: Release | None) -> str:
    who = f"transformers {where.text}" if where is not None and where.is_exact else "transformers 4.46 and newer"
    return (
        f"`{override.owner.name}.{override.method.name}` takes no `num_items_in_batch`, but the Trainer of {who} "
        "passes it: the first training step raises TypeError."
    )


def _fix(script: Script, override: Override) -> Fix | None:
    parameter = parameter_edit(script, override.method)
    if parameter is None:
        return None
    if override.method.name == "training_step":
        return Fix("Add the parameter `num_items_in_batch`", "partial", (parameter,))
    calls = [each for each in script.walk(override.method) if is_super_call(each)]
    handed = [argument_edit(script, each, "num_items_in_batch=num_items_in_batch") for each in calls]  # type: ignore[arg-type]
    edits: tuple[Edit, ...] = (parameter, *(each for each in handed if each is not None))
    whole = bool(calls) and None not in handed and _returns_that(script, override)
    applicability: Applicability = "safe" if whole else "partial"
    return Fix("Add the parameter `num_items_in_batch`", applicability, edits)


def _returns_that(script: Script, override: Override) -> bool:
    """The method computes no loss of its own: it calls no model and no criterion."""
    made = [each for each in script.walk(override.method) if isinstance(each, ast.Call)]
    names = {each.func.id for each in made if isinstance(each.func, ast.Name)}
    return "model" not in names and not any("loss" in name.lower() or "criterion" in name.lower() for name in names)
