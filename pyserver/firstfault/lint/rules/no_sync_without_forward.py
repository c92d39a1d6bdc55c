"""`no_sync()` stands around backward alone, where it saves nothing.

## What it does

Finds `with model.no_sync():` blocks that run backward on a loss which was computed before the block.

## Why it matters

`DistributedDataParallel` decides in forward whether the next backward shares gradients. A forward outside of the
block has prepared for sharing, so every micro-batch still waits for an all-reduce: the values are right, the time is
not saved. Measured with 4 micro-batches on two ranks: 4 all-reduces instead of 1.

## Example

```python
def backward(ddp, loss, last):
    if last:
        loss.backward()
    else:
        with ddp.no_sync():
            loss.backward()
```

## Use instead

```python
def forward_and_backward(ddp, criterion, inputs, labels, last):
    if last:
        criterion(ddp(inputs), labels).backward()
    else:
        with ddp.no_sync():
            criterion(ddp(inputs), labels).backward()
```

## Fix safety

There is no fix: the forward has to move into the block, and often stands in another function.

## Limits

Silent where the file names FSDP, whose `no_sync` acts in backward, and where anything that is called in the block may
be the forward. Whether the model is a `DistributedDataParallel` is not checked further.

## References

- PyTorch, DistributedDataParallel: `no_sync` ("the forward pass should be inside the context manager").
- LoongForge issue 163, SpecForge: the same block around backward only.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.bindings import bindings
from firstfault.lint.calls import Backward, backwards, last_name
from firstfault.lint.gradient_sync import Hold, holds
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace

_SHARDED = re.compile(r"\bFSDP\b|FullyShardedDataParallel|fully_shard|fsdp", re.IGNORECASE)
_OF_BACKWARD = {
    "backward",
    "scale",
    "manual_backward",
    "scale_loss",
    "item",
    "detach",
    "float",
    "print",
    "mean",
    "div_",
}


@rule("GA305")
def no_sync_without_forward(script: Script, workspace: Workspace) -> Iterator[Hit]:
    found = [each for each in holds(script) if each.body is not None]
    if not found or _SHARDED.search(script.source):
        return
    every = backwards(script)
    for hold in found:
        inside = set(script.walk(hold.body)) if hold.body is not None else set()
        held = [each for each in every if each.node in inside]
        computed = [_computed_before(script, hold, each) for each in held]
        if held and all(computed) and not _may_run_forward(script, hold):
            place, before = held[0].node, computed[0]
            line = Related(script.path, script.line(before or place), "here the loss comes from, outside of the block")
            yield Hit(script.span(hold.node), "warning", _message(script, hold, held[0]), (line,))


def _computed_before(script: Script, hold: Hold, backward: Backward) -> ast.AST | None:
    """What sets the loss: a parameter, or a call above the block."""
    root = next((each for each in script.walk(backward.loss) if isinstance(each, ast.Name)), None)
    if root is None or hold.body is None:
        return None
    for binding in reversed(bindings(script, root.id, root)):
        above = script.line(binding.node) < script.line(hold.body)
        comes_from = binding.kind == "parameter" or isinstance(binding.value, (ast.Call, ast.BinOp, ast.Subscript))
        if above and comes_from and binding.kind in ("parameter", "assign", "unpacked"):
            return binding.node
    return None


def _may_run_forward(script: Script, hold: Hold) -> bool:
    """Anything else that the block calls."""
    calls = [each for each in script.walk(hold.body) if isinstance(each, ast.Call)] if hold.body is not None else []
    contexts = {id(part) for item in (hold.body.items if hold.body else ()) for part in script.walk(item.context_expr)}
    return any(last_name(each.func) not in _OF_BACKWARD and id(each) not in contexts for each in calls)


def _message(script: Script, hold: Hold, backward: Backward) -> str:
    owner = f"`{hold.owner}.{last_name(hold.node.func)}`" if isinstance(hold.node, ast.Call) else "`no_sync`"
    loss = script.text(backward.loss) if len(script.text(backward.loss)) <= 40 else "the loss"
    return (
        f"{owner} is around backward only: the forward of `{loss}` ran outside and decided to share gradients, "
        "so every micro-batch still all-reduces."
    )
