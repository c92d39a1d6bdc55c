"""A model class of transformers drops the number of items, and the Trainer leaves its own division out.

## What it does

Finds Trainers of transformers 5 that train, with accumulation, a model class which takes `num_items_in_batch` and
does not use it: `BertForSequenceClassification`, `RobertaForMaskedLM`, `BartForConditionalGeneration` and many
others.

## Why it matters

The Trainer divides by `gradient_accumulation_steps` only where the model's forward takes no keywords. Since 5.0
nearly every forward takes them, but many classes compute a plain mean all the same. Nobody divides then: gradient and
logged loss are as many times too large as there are accumulation steps. That is measured, class by class, by training
a tiny model with the real Trainer and comparing its gradient with that of the whole window; the table of classes and
releases comes with Firstfault (`signatures/trainers.toml`).

## Example

```python
from transformers import BertForSequenceClassification, Trainer, TrainingArguments


def main(data):
    model = BertForSequenceClassification.from_pretrained("google-bert/bert-base-uncased", num_labels=3)
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
```

## Use instead

```python
from transformers import BertForSequenceClassification, Trainer, TrainingArguments


def main(data):
    model = BertForSequenceClassification.from_pretrained("google-bert/bert-base-uncased", num_labels=3)
    args = TrainingArguments("out", gradient_accumulation_steps=8)
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.model_accepts_loss_kwargs = False
    trainer.train()
```

## Fix safety

The fix sets `model_accepts_loss_kwargs = False` on the Trainer, which then divides by the steps; the table shows that
this works in the measured releases since 4.48. The gradient becomes smaller by the number of steps: a learning rate
that was tuned on the old one may need another look. Where the loss is a mean over tokens the fix is partial: over
micro-batches that count different numbers of labels a mean of means is left, and only a `compute_loss_func` that
divides a sum by `num_items_in_batch` is exact.

## Limits

The release is read off the interpreter's environment, the project's environment, lock files and requirements. Between
two measured releases only what both of them say is believed; where the release is not known, or not bounded above,
what the newest measured release does is reported as a hint. Classes behind `AutoModelFor...` are known where the name
of the checkpoint is written in the script and begins with the kind of model; they are reported one step milder.
Nothing is reported where a flag, an override of `compute_loss` or a `compute_loss_func` has a say in the loss.

## References

- transformers issue 47688; pull requests 47690, 47836, 48207.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint import trainers
from firstfault.lint.items_fix import below
from firstfault.lint.rule import Applicability, Fix, Hit, Severity, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.stock_loss import StockLoss, stock_losses
from firstfault.lint.workspace import Workspace

_SINCE = (5, 0, 0)
_PER_TOKEN = re.compile(r"MaskedLM|TokenClassification|CausalLM|LMHead|ConditionalGeneration|Seq2Seq|Segmentation")


@rule("GA403")
def head_ignores_items(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for found in stock_losses(script, workspace):
        severity = _severity(found) if found.head is not None else None
        if severity is not None:
            fix = _fix(script, found)
            fixes = (fix,) if fix else ()
            yield Hit(script.span(found.call.func), severity, _message(found), found.related(script), fixes)


def _severity(found: StockLoss) -> Severity | None:
    """Sure of the release, the class and the steps: an error. A release that is not known leaves a hint."""
    head, where = found.head or "", found.where
    if where is None or where.high is None:
        mark = trainers.of_head(head, trainers.newest())
        return "hint" if mark == trainers.TIMES_STEPS else None
    if where.low < _SINCE or trainers.of_head(head, where) != trainers.TIMES_STEPS:
        return None
    sure = found.named and found.steps.is_many and where.high <= trainers.newest().low
    return "error" if sure else "warning"


def _message(found: StockLoss) -> str:
    newest = trainers.newest().text
    known = found.where is not None and found.where.high is not None
    who = f"transformers {found.where.text}" if known and found.where else f"transformers 5 (measured with {newest})"
    return (
        f"`{found.head}` takes `num_items_in_batch` and does not use it, and the Trainer of {who} then divides by "
        f"nothing: the gradient is {found.times} times too large."
    )


def _fix(script: Script, found: StockLoss) -> Fix | None:
    statement = script.parent(found.call)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not dotted(statement.targets[0]):
        return None
    applicability: Applicability = "partial" if _PER_TOKEN.search(found.head or "") else "safe"
    edit = below(script, statement, [f"{dotted(statement.targets[0])}.model_accepts_loss_kwargs = False"])
    return Fix("Let the Trainer divide the loss by the accumulation steps", applicability, (edit,))
