"""An overridden `compute_loss` returns a mean, and transformers' Trainer does not divide it by the accumulation steps.

## What it does

Finds classes that derive from `transformers.Trainer` whose `compute_loss` returns a mean over the micro-batch (the
model's own loss without `num_items_in_batch`, `super().compute_loss` without it, a cross-entropy, a `.mean()`) and
looks at the accumulation window in no way.

## Why it matters

Since 4.46 the Trainer expects a loss that is already divided by the number of items in the whole window. It leaves
out its own division by `gradient_accumulation_steps` wherever the model's forward takes `**kwargs`: every causal
language model, and since 5.0 nearly every model. A mean is then added up as it is: the gradient and the logged loss
are as many times too large as there are accumulation steps, and clipping acts on nearly every step. Measured with the
Trainer of nine releases, `gradient_accumulation_steps=4`: the gradient is four times that of the whole batch in all
of them from 4.46.3 to 5.24.0. Over micro-batches that count different numbers of tokens it is a mean of means
besides.

## Example

```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class QuietTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs.loss
        return (loss, outputs) if return_outputs else loss


def main(data):
    model = AutoModelForCausalLM.from_pretrained("my-model")
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    QuietTrainer(model=model, args=args, train_dataset=data).train()
```

## Use instead

```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class QuietTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss


def main(data):
    model = AutoModelForCausalLM.from_pretrained("my-model")
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    QuietTrainer(model=model, args=args, train_dataset=data).train()
```

## Fix safety

Where the loss comes from `super().compute_loss`, from the model, or from one cross-entropy in the method itself, the
fix hands `num_items_in_batch` on or divides the sum by it, and undoes the mean over the ranks as the Trainer's own
`compute_loss` does. It keeps the mean in evaluation, where no number is given. The other fix sets
`model_accepts_loss_kwargs = False`, so that the Trainer divides by the steps (4.48 and newer). That repairs the
scale, and only the scale: over varying numbers of tokens a mean of means is left, so it is marked partial where the
loss is over tokens. Both make the gradient smaller by the number of steps; a learning rate that was tuned on the old
one may need another look.

## Limits

Nothing is reported where the accumulation is 1, where a flag of the Trainer or an overridden `training_step` settles
who divides, where the method reads `num_items_in_batch` or hands its `**kwargs` on, or where the model is known to
take no keywords. A model that neither the script nor one beside it shows is reported as a warning only if the text
speaks of language models. The release is read off the interpreter's environment, the project's environment, lock
files and requirements; where none of them tells, what holds in all releases since 4.46 is reported. Trainers of other
libraries (trl and others) are not looked at.

## References

- transformers issues 34263, 37110; trl issue 2615, pull request 5710; LLaMA-Factory issues 7743, 9409.
"""

from collections.abc import Iterator

from firstfault.lint.hf_trainer import (
    FIRST_ITEMS,
    ITEMS,
    Override,
    Use,
    concrete_head,
    is_causal,
    items_of,
    overrides,
    settles_scale,
    takes_items,
    use_of,
)
from firstfault.lint.items_fix import flag_fix, forwarding_fix, model_fix, sum_fix
from firstfault.lint.loss_override import ReturnedMean, is_per_token, returned_mean
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.versions import Release, release
from firstfault.lint.workspace import Workspace


@rule("GA401")
def mean_in_compute_loss(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for override in overrides(script, "compute_loss", workspace):
        if items_of(override.method) is not None and not settles_scale(script, override.owner, workspace):
            found = returned_mean(script, override.method, workspace)
            hit = _hit(script, override, found, workspace) if found else None
            if hit is not None:
                yield hit


def _hit(script: Script, override: Override, found: ReturnedMean, workspace: Workspace) -> Hit | None:
    where = release("transformers", script, workspace)
    if where is not None and where.high is not None and where.high < FIRST_ITEMS:
        return None
    use = use_of(script, override.owner, workspace)
    if use.steps.is_one or (use.script is not script and settles_scale(use.script, None, workspace)):
        return None
    model = use.model
    takes = takes_items(use.script, model, where)
    head = concrete_head(use.script, model) if model else None
    per_token = is_per_token(script, found, head or (model.name if model else None))
    severity = _severity(use, takes, per_token, where)
    if severity is None:
        return None
    fixes = tuple(_fixes(script, override, found, takes, per_token, where))
    return Hit(script.span(found.place), severity, _message(use, override, found, where), _related(use, where), fixes)


def _severity(use: Use, takes: bool | None, per_token: bool, where: Release | None) -> Severity | None:
    """Silent where the Trainer divides, and where neither the model nor the text tells that it does not."""
    since = where is not None and where.low >= FIRST_ITEMS
    if takes is None:
        return "warning" if per_token else None
    if not takes or (not since and not per_token):
        return None
    sure = since or (use.model is not None and is_causal(use.model))
    return "error" if use.steps.is_many and sure else "warning"


def _message(use: Use, override: Override, found: ReturnedMean, where: Release | None) -> str:
    steps = use.steps
    by = f"{steps.value.value:g}" if steps.value is not None and steps.is_many else "`gradient_accumulation_steps`"
    who = (
        f"the Trainer of transformers {where.text}"
        if where is not None and where.is_exact
        else "the Trainer since 4.46"
    )
    what = {
        "super": "the mean of `super().compute_loss`, which is not given `num_items_in_batch`",
        "model-output": "the model's mean loss, which is not given `num_items_in_batch`",
        "cross-entropy": "a mean cross-entropy that ignores `num_items_in_batch`",
        "mean": "a mean that ignores `num_items_in_batch`",
    }[found.kind]
    name = f"{override.owner.name}.compute_loss"
    return f"`{name}` returns {what}; {who} adds such losses up, so the gradient is {by} times too large."


def _related(use: Use, where: Release | None) -> tuple[Related, ...]:
    node, home = use.steps.node, use.script
    found = [Related(home.path, home.line(node), "the accumulation steps")] if node is not None else []
    return (*found, *((Related(where.file, where.line, f"transformers {where.text}"),) if where is not None else ()))


def _fixes(
    script: Script,
    override: Override,
    found: ReturnedMean,
    takes: bool | None,
    per_token: bool,
    where: Release | None,
) -> Iterator[Fix]:
    exact = None
    if found.kind == "super":
        exact = forwarding_fix(script, override, found)
    elif found.kind == "model-output" and takes:
        exact = model_fix(script, override, found)
    elif found.kind == "cross-entropy":
        exact = sum_fix(script, override.method, found, items_of(override.method) or ITEMS, ranks=True)
    if exact is not None:
        yield exact
    flag = flag_fix(script, override.owner, partial=per_token)
    if flag is not None and (where is None or where.low >= (4, 48, 0)):
        yield flag
