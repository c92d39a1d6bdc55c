"""A loss that couples the examples of a batch is accumulated over micro-batches.

## What it does

Finds loops that accumulate gradients of a loss which is not a mean over examples: Dice and its relatives computed
over the whole batch (`segmentation_models_pytorch`, `monai` with `batch=True`), Barlow Twins and VICReg.

## Why it matters

Such a loss is a ratio or a correlation over all examples of the batch, so the mean over micro-batches is another loss
than the one over the full batch. Measured for batch Dice on small data with equal micro-batches: the gradient is off
by 11 to 16 %; Dice per example agrees to 1e-16.

## Example

```python
import segmentation_models_pytorch as smp


def train(model, loader, optimizer, accumulation_steps):
    criterion = smp.losses.DiceLoss(mode="multiclass")
    for step, (images, masks) in enumerate(loader):
        loss = criterion(model(images), masks) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
from monai.losses import DiceLoss


def train(model, loader, optimizer, accumulation_steps):
    criterion = DiceLoss(softmax=True, to_onehot_y=True)
    for step, (images, masks) in enumerate(loader):
        loss = criterion(model(images), masks) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

There is no fix: the form per example is another loss with other values, and Barlow Twins and VICReg have none.

## Limits

Known by the names of the libraries' classes. Whether the difference hurts a training is not said; with large
micro-batches it is small. Losses that the script writes itself are not judged.

## References

- torchtitan issue 4772 and Megatron-LM issue 3672: the same for auxiliary losses of experts.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import keyword
from firstfault.lint.cadence import starts_anew
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.objects import instance
from firstfault.lint.rule import Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

_ALWAYS = {
    "segmentation_models_pytorch": {"DiceLoss", "JaccardLoss", "TverskyLoss"},
    "lightly": {"BarlowTwinsLoss", "VICRegLoss"},
}
_WITH_BATCH = {"DiceLoss", "DiceCELoss", "DiceFocalLoss", "TverskyLoss", "GeneralizedDiceLoss"}


@rule("CL602")
def batch_coupled_loss(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop):
            continue
        terms = (term for backward in loop.backwards for term in loss_terms(script, backward.loss, workspace))
        for term in terms:
            name = _coupled(term, workspace)
            if name is None:
                continue
            place = term.node if script.parent(term.node) is not None else loop.backwards[0].node
            severity: Severity = "hint" if loop.window.default_one else "warning"
            related = Related(script.path, loop.window.span.start.line, "the window of micro-batches")
            yield Hit(script.span(place), severity, _message(name, loop.window), (related,))
            break


def _coupled(term: Term, workspace: Workspace) -> str | None:
    """The name of a loss that is known to couple the examples of a batch."""
    call = term.node
    made = instance(term.script, call.func, workspace) if isinstance(call, ast.Call) else None
    if made is None or made.definition is not None:
        return None
    library, _, rest = made.name.partition(".")
    name = rest.rpartition(".")[2]
    if name in _ALWAYS.get(library, set()):
        return name
    batch = keyword(made.call, "batch")
    joined = isinstance(batch, ast.Constant) and batch.value is True
    return name if library == "monai" and name in _WITH_BATCH and joined else None


def _message(name: str, window: Window) -> str:
    size = f"`{window.size_text}` micro-batches" if window.size_text else "the micro-batches of the window"
    return (
        f"`{name}` is computed over all examples of a batch together: its mean over {size} is not its value "
        "for the full batch."
    )
