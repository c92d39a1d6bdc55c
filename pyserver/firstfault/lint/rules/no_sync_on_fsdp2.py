"""`no_sync()` is asked of a model that `fully_shard` has sharded, which does not know it.

## What it does

Hints at `no_sync` on a model that `fully_shard` (FSDP2) was applied to.

## Why it matters

FSDP2 has `set_requires_gradient_sync` in the place of `no_sync`. A direct call raises an AttributeError; behind a
test with `hasattr`, or a helper that falls back to doing nothing, every micro-batch reduces its gradients: the values
are right, the time is not saved.

## Example

```python
from torch.distributed.fsdp import fully_shard


def train(model, loader, criterion):
    fully_shard(model)
    for inputs, labels in loader:
        with model.no_sync():
            criterion(model(inputs), labels).backward()
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def train(model, loader, criterion, accumulation_steps):
    fully_shard(model)
    for step, (inputs, labels) in enumerate(loader):
        model.set_requires_gradient_sync((step + 1) % accumulation_steps == 0)
        criterion(model(inputs), labels).backward()
```

## Fix safety

There is no fix: the flag must be set again for the micro-batch that steps. Without sharing, unsharded gradients stay
in memory for the whole window.

## Limits

Only a model that is sharded and trained under the same name in one file is seen.

## References

- PyTorch documentation, torch.distributed.fsdp.fully_shard; cosmos issue 161; accelerate issue 3762.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.gradient_sync import holds
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace


@rule("GA306")
def no_sync_on_fsdp2(script: Script, workspace: Workspace) -> Iterator[Hit]:
    found = holds(script) if "fully_shard" in script.source else ()
    if not found:
        return
    sharded = {dotted(call.args[0]): call for call in script.nodes(ast.Call) if _shards(script, call) and call.args}
    for hold in found:
        call = sharded.get(hold.owner)
        if call is None or hold.body is None:
            continue
        message = (
            f"`{hold.owner}` is sharded by `fully_shard` and has no `no_sync`: `set_requires_gradient_sync` is what "
            "keeps its micro-batches from reducing."
        )
        yield Hit(script.span(hold.node), "hint", message, (Related(script.path, script.line(call), "sharded here"),))


def _shards(script: Script, call: ast.Call) -> bool:
    name = script.qualified(call.func)
    return name.startswith("torch.distributed") and name.endswith(".fully_shard")
