"""BatchNorm is trained on micro-batches of one or two examples.

## What it does

Hints at data loaders of one or two examples for each batch where the trained model has BatchNorm in training mode.

## Why it matters

The statistics of a channel come from so few values that they are mostly noise, and with one value for each channel
the layer raises a ValueError. Measured with 2 values a channel: the unbiased variance scatters by 138 % of what it
estimates, with 32 by 26 %. Accumulating gradients does not help, since each micro-batch is normalised by itself.

## Example

```python
import torch
import torch.nn as nn
from torch.utils.data import DataLoader


def train(data, criterion):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=2, shuffle=True)
    for images, labels in loader:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()
```

## Use instead

```python
import torch
import torch.nn as nn
from torch.utils.data import DataLoader


def train(data, criterion):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=2, shuffle=True)
    for images, labels in loader:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()
```

## Fix safety

There is no fix here; where the script accumulates, batchnorm-under-accumulation offers those of the layers.

## Limits

A hint: images have many values for each channel, and some recipes want the statistics of single images. Silent where
the layers are converted to SyncBatchNorm or frozen, where a loader that shuffles has a larger or unknown batch, where
examples are graphs (DGL, PyTorch Geometric: a graph has many rows), and where the layers stand in another file.

## References

- Wu and He, Group Normalization, arXiv 1803.08494: the error of BatchNorm at a batch of 2.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import Number, keyword, number
from firstfault.lint.calls import last_name
from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_frozen import frozen_parts, is_held
from firstfault.lint.norms_trained import builders
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace

_TINY = 2
_GRAPHS = ("dgl", "torch_geometric")


@rule("BN502")
def batchnorm_on_tiny_batch(script: Script, workspace: Workspace) -> Iterator[Hit]:
    sizes = _training_sizes(script) if "BatchNorm" in script.source and not _is_of_graphs(script) else []
    if not sizes or any(size is None or not 1 <= size.value <= _TINY for _, size in sizes):
        return
    layer = next((found for loop in training_loops(script) if (found := _layer(script, loop))), None)
    if layer is None:
        return
    loader, size = sizes[0]
    count = int(size.value) if size is not None else 0
    by_default = " by default" if size is not None and size.origin == "default" else ""
    message = (
        f"Batches have {count} example{'s' if count > 1 else ''}{by_default}, and `{layer.name}` takes its statistics "
        "from each of them alone."
    )
    yield Hit(script.span(loader), "hint", message, (Related(script.path, script.line(layer.node), "the BatchNorm"),))


def _is_of_graphs(script: Script) -> bool:
    """A graph is one example and many rows: BatchNorm takes its statistics over all of its nodes."""
    return any(each.partition(".")[0] in _GRAPHS for each in script.imports.values())


def _training_sizes(script: Script) -> list[tuple[ast.Call, Number | None]]:
    """The loaders that shuffle or draw by a sampler, each with its batch size; the only loader where there is one."""
    loaders = [each for each in script.nodes(ast.Call) if last_name(each.func) == "DataLoader"]
    training = [each for each in loaders if _shuffles(each)] or (loaders if len(loaders) == 1 else [])
    return [(each, number(script, _size(each))) for each in training]


def _shuffles(call: ast.Call) -> bool:
    shuffle = keyword(call, "shuffle")
    named = shuffle is not None and not (isinstance(shuffle, ast.Constant) and shuffle.value is False)
    return named or keyword(call, "sampler") is not None or keyword(call, "batch_sampler") is not None


def _size(call: ast.Call) -> ast.expr | None:
    if keyword(call, "batch_sampler") is not None or any(each.arg is None for each in call.keywords):
        return None
    return keyword(call, "batch_size") or (call.args[1] if len(call.args) > 1 else None)


def _layer(script: Script, loop: TrainingLoop) -> BatchNorm | None:
    found = batch_norms(script)
    if any(each.kind == "conversion" for each in found) or is_held(script, loop) or frozen_parts(script):
        return None
    model = builders(script, loop)
    built = (each for each in found if each.kind == "constructor")
    return next((each for each in built if model is None or model.hold(each.node)), None)
