"""SyncBatchNorm joins the ranks, not the micro-batches of a window.

## What it does

Hints at `SyncBatchNorm.convert_sync_batchnorm` in a script that accumulates gradients, where
batchnorm-under-accumulation points at the layers themselves.

## Why it matters

The conversion reduces the statistics over the ranks at one instant. Micro-batches come one after the other, so each
of them still has statistics of its own, and the accumulated gradient is not that of the full batch. The conversion
makes the difference smaller; it does not remove it.

## Example

```python
import torch
import torch.nn as nn


def train(loader, criterion, accumulation_steps):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
import torch.nn as nn


def train(loader, criterion, accumulation_steps):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.Flatten(), nn.LazyLinear(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

There is no fix here; batchnorm-under-accumulation offers those of the layers.

## Limits

Where the conversion is all that shows the layers, batchnorm-under-accumulation reports it, and this rule is silent.

## References

- PyTorch issue 46516 and its discussion.
"""

from collections.abc import Iterator

from firstfault.lint.norms import batch_norms
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.rules import batchnorm_under_accumulation
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace


@rule("BN504")
def sync_batchnorm_under_accumulation(script: Script, workspace: Workspace) -> Iterator[Hit]:
    if "convert_sync_batchnorm" not in script.source:
        return
    converted = [each for each in batch_norms(script) if each.kind == "conversion"]
    reported = list(batchnorm_under_accumulation.check(script, workspace)) if converted else []
    spans = [each.span for each in reported]
    for each in converted if reported else ():
        if script.span(each.node) in spans:
            continue
        message = (
            "SyncBatchNorm joins the ranks at one instant, not the micro-batches of a window: each micro-batch is "
            "still normalised by itself."
        )
        yield Hit(script.span(each.node), "hint", message, (Related(script.path, spans[0].start.line, "the layers"),))
