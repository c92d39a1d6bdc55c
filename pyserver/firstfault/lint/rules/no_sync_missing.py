"""Every micro-batch of a window shares its gradients over the ranks, though only the last one has to.

## What it does

Hints at loops that accumulate gradients of a `DistributedDataParallel` model without `no_sync()` or another way to
keep the inner micro-batches from sharing.

## Why it matters

The values are right: sharing is linear, so the sum over the window is the same. But each backward waits for an
all-reduce of all gradients, `k` of them for each step instead of one, which costs time on slow links.

## Example

```python
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, criterion, optimizer, accumulation_steps):
    ddp = DistributedDataParallel(model)
    for i, (inputs, labels) in enumerate(loader):
        loss = criterion(ddp(inputs), labels) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import contextlib

from torch.nn.parallel import DistributedDataParallel


def train(model, loader, criterion, optimizer, accumulation_steps):
    ddp = DistributedDataParallel(model)
    for i, (inputs, labels) in enumerate(loader):
        with ddp.no_sync() if (i + 1) % accumulation_steps != 0 else contextlib.nullcontext():
            loss = criterion(ddp(inputs), labels) / accumulation_steps
            loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

There is no fix: forward and backward have to go into one block, together with what stands between them.

## Limits

Silent where the script or a module it imports says anything about sharing, or shares gradients by its own calls. With
`find_unused_parameters=True` sharing in the last micro-batch only may leave out parameters that it does not use.

## References

- PyTorch, DistributedDataParallel: `no_sync`; PyTorch issue 43201.
"""

from collections.abc import Iterator

from firstfault.lint.cadence import starts_anew
from firstfault.lint.gradient_sync import data_parallel, mentions_sync, shares_by_hand
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace


@rule("GA304")
def no_sync_missing(script: Script, workspace: Workspace) -> Iterator[Hit]:
    wrapped = data_parallel(script)
    if wrapped is None or shares_by_hand(script) or _speaks_of_sync(script, workspace):
        return
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop) or not _is_plain(loop, loop.window):
            continue
        shown = next((each for each in loop.backwards if each.receiver == "tensor"), loop.backwards[0])
        yield Hit(
            script.span(shown.node),
            "hint",
            _message(loop.window),
            (Related(script.path, script.line(wrapped), "the model that shares its gradients"),),
        )


def _speaks_of_sync(script: Script, workspace: Workspace) -> bool:
    return mentions_sync(script) or any(mentions_sync(each) for each in workspace.siblings(script))


def _is_plain(loop: TrainingLoop, window: Window) -> bool:
    """Backward is the script's own, not a framework's that shares as it likes."""
    plain = all(each.receiver in ("tensor", "scaler", "apex") for each in loop.backwards)
    return plain and window.kind not in ("accumulate-context", "framework")


def _message(window: Window) -> str:
    size = f"`{window.size_text}` micro-batches" if window.size_text else "micro-batches"
    return f"Each of the {size} of a window shares its gradients over the ranks; with `no_sync()` only the last would."
