"""The release of transformers that the project uses scales the gradient of an accumulating Trainer wrongly.

## What it does

Reads which release of transformers a script runs with, and reports Trainers with accumulation whose gradient is wrong
in that release: causal language models before 4.46 (a mean of means) and in 4.47.0 (times the steps, and a mean of
means as well), models whose forward takes no keywords in 4.46 and 4.47, and label smoothing from 4.46 to 5.14.

## Why it matters

All of it is silent. Measured with a tiny model and the real Trainer, `gradient_accumulation_steps=4`: the gradient of
a causal model is a mean of means in 4.45.2, four times too large in 4.47.0, right in 4.46.3 and since 4.48.3; with
`label_smoothing_factor` it is four times too large from 4.46.3 to 5.10.4 and right in 5.15.1. In 4.46.3 the logged
loss looks right although the gradient is not.

## Example

```python
# /// script
# dependencies = ["transformers==4.57.6"]
# ///
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(data):
    model = AutoModelForCausalLM.from_pretrained("my/writer")
    args = TrainingArguments("out", gradient_accumulation_steps=8, label_smoothing_factor=0.1)
    Trainer(model=model, args=args, train_dataset=data).train()
```

## Use instead

```python
# /// script
# dependencies = ["transformers==5.15.1"]
# ///
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(data):
    model = AutoModelForCausalLM.from_pretrained("my/writer")
    args = TrainingArguments("out", gradient_accumulation_steps=8, label_smoothing_factor=0.1)
    Trainer(model=model, args=args, train_dataset=data).train()
```

## Fix safety

There is no fix: the cure is another release, or a `compute_loss_func` of one's own that divides a sum by the number
of items. Whether a project can change its release only the project knows.

## Limits

Nothing is reported where no file tells the release, or where it tells so little that right releases are possible too.
Between two measured releases only what both of them say is believed. A mean of means is reported only where the
script or a module that it imports shows that labels are ignored, so that micro-batches count different numbers of
tokens. What goes wrong over several ranks (before 4.54 each rank divides by its own tokens unless
`average_tokens_across_devices` is set) is not reported.

## References

- transformers pull requests 34191, 34198, 35207, 35438, 35651; `LabelSmoother` since 5.15.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint import trainers
from firstfault.lint.bindings import keyword, number
from firstfault.lint.hf_trainer import is_causal
from firstfault.lint.ignored_labels import Ignored, proof_of_ignored
from firstfault.lint.rule import Hit, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.stock_loss import StockLoss, stock_losses
from firstfault.lint.versions import Release
from firstfault.lint.workspace import Workspace

_NEXT = (5, 0, 0)  # from here on the classes are the matter of head-ignores-items


class _Fault(NamedTuple):
    mark: str
    what: str
    cure: str


@rule("GA404")
def trainer_release(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for found in stock_losses(script, workspace):
        fault = _fault(script, found, found.where, workspace) if found.where is not None else None
        if fault is not None:
            message = f"{fault.what} {_effect(found, fault)} {fault.cure}"
            yield Hit(script.span(found.call.func), _severity(found, fault), message, found.related(script))


def _fault(script: Script, found: StockLoss, where: Release, workspace: Workspace) -> _Fault | None:
    smoothing = _smoothing(script)
    if smoothing and trainers.of_case("label-smoothing", where) == trainers.TIMES_STEPS:
        cure = "5.15 and newer divide it."
        return _Fault(trainers.TIMES_STEPS, f"Under transformers {where.text} the smoothed loss is not divided:", cure)
    if is_causal(found.model):
        mark = trainers.of_case("causal-lm", where)
        if mark == trainers.MEAN_OF_MEANS and not _counts_vary(script, workspace):
            return None
        return _wrong(mark, f"Under transformers {where.text}", "4.48 and newer divide by the tokens of the window.")
    if found.model.definition is not None and _takes_no_keywords(found.model.definition):
        mark = trainers.of_case("model-without-kwargs", where)
        if mark == trainers.TIMES_STEPS:
            return _wrong(mark, f"Under transformers {where.text}", "4.48 and newer divide it by the steps.")
    if found.head is not None and where.high is not None and where.high < _NEXT:
        mark = trainers.of_head(found.head, where)
        if mark == trainers.TIMES_STEPS:
            return _wrong(
                mark, f"`{found.head}` under transformers {where.text}:", "4.48 to 4.57 divide it by the steps."
            )
    return None


def _counts_vary(script: Script, workspace: Workspace) -> bool:
    """The script, or a module that it imports, writes labels that the loss leaves out."""
    ignored = Ignored(None, script, frozenset({"labels"}), by_name_only=False)
    return proof_of_ignored([script, *workspace.siblings(script)], ignored, workspace) is not None


def _wrong(mark: str | None, what: str, cure: str) -> _Fault | None:
    return _Fault(mark, what, cure) if mark in (trainers.TIMES_STEPS, trainers.MEAN_OF_MEANS) else None


def _effect(found: StockLoss, fault: _Fault) -> str:
    if fault.mark == trainers.MEAN_OF_MEANS:
        return (
            "this Trainer averages the mean losses of the micro-batches, whatever number of tokens each of them counts."
        )
    return f"the gradient of this Trainer is {found.times} times too large."


def _severity(found: StockLoss, fault: _Fault) -> Severity:
    return "error" if fault.mark == trainers.TIMES_STEPS and found.steps.is_many else "warning"


def _smoothing(script: Script) -> bool:
    for call in script.nodes(ast.Call):
        value = number(script, keyword(call, "label_smoothing_factor"))
        if value is not None and value.value > 0:
            return True
    return False


def _takes_no_keywords(owner: ast.ClassDef) -> bool:
    forward = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "forward"), None)
    return forward is not None and forward.args.kwarg is None
