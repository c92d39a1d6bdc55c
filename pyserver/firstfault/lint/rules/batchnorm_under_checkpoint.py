"""BatchNorm inside of a checkpointed part updates its running statistics twice.

## What it does

Finds `torch.utils.checkpoint.checkpoint` over a part of the model that the same file builds with BatchNorm.

## Why it matters

Checkpointing runs the forward again in backward, and each run in training mode updates the running mean and variance:
a momentum of 0.1 acts as 0.19, so evaluation uses noisier statistics. The gradients are right. Measured: two updates
for each batch, with and without reentrant checkpoints.

## Example

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())

    def forward(self, images):
        return checkpoint(self.body, images, use_reentrant=False)
```

## Use instead

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3), nn.GroupNorm(32, 64), nn.ReLU())

    def forward(self, images):
        return checkpoint(self.body, images, use_reentrant=False)
```

A momentum of `1 - (1 - m) ** 0.5` makes two updates weigh what one did: 0.0513 for 0.1.

## Fix safety

There is no fix: which of the cures fits depends on how the model is trained and loaded.

## Limits

Only parts that the class itself builds in this file are seen, not those of libraries or of other modules. A model
that keeps BatchNorm in eval mode is reported too where the text does not show it.

## References

- PyTorch issues 96136 and 62471.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import bindings
from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_frozen import is_frozen
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace

_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


@rule("BN503")
def batchnorm_under_checkpoint(script: Script, workspace: Workspace) -> Iterator[Hit]:
    if "checkpoint" not in script.source:
        return
    built = [each for each in batch_norms(script) if each.kind == "constructor"]
    if not built or is_frozen(script):
        return
    for call in script.nodes(ast.Call):
        if script.qualified(call.func) not in _CHECKPOINTS or not call.args:
            continue
        parts = list(_parts(script, call.args[0]))
        norm = next((each for each in built if any(_holds(script, part, each) for part in parts)), None)
        if norm is not None:
            message = (
                f"`{script.text(call.args[0])}` has BatchNorm and runs twice under `checkpoint`: each batch updates "
                "the running statistics two times."
            )
            related = Related(script.path, script.line(norm.node), "its BatchNorm")
            yield Hit(script.span(call), "warning", message, (related,))


def _parts(script: Script, function: ast.expr, hops: int = 2) -> Iterator[ast.AST]:
    """What a checkpointed name was set to, the class that makes it, the method that it is."""
    name = dotted(function)
    owner = script.class_of(function)
    method = script.definitions.get(f"{owner.name}.{name[5:]}") if owner and name.startswith("self.") else None
    if method is not None and hops:
        for each in script.walk(method):
            if isinstance(each, ast.Call) and dotted(each.func).startswith("self."):
                yield from _parts(script, each.func, hops - 1)
    for binding in bindings(script, name, function) if name else ():
        if binding.kind != "assign" or binding.value is None:
            continue
        yield binding.value
        for each in script.walk(binding.value):
            made = script.definitions.get(dotted(each.func)) if isinstance(each, ast.Call) else None
            if isinstance(made, ast.ClassDef):
                yield made


def _holds(script: Script, part: ast.AST, norm: BatchNorm) -> bool:
    return part is norm.node or part in script.ancestors(norm.node)
