"""A GroupNorm whose groups do not divide its channels.

## What it does

Finds `GroupNorm(groups, channels)` where both numbers are written in the script and the first does not divide the
second.

## Why it matters

The constructor raises a ValueError. It is found here before the model is built, since GroupNorm is the usual cure for
BatchNorm under accumulation, and 32 groups do not fit every width: 48 channels take 24, 100 take 25.

## Example

```python
import torch.nn as nn

norm = nn.GroupNorm(32, 48)
```

## Use instead

```python
import torch.nn as nn

norm = nn.GroupNorm(24, 48)
```

## Fix safety

The fix writes the largest divisor of the channels that is not larger than the groups were. It is safe, since the
script cannot run as it is. It is not offered where the number of groups has a name, or where only one group would be
left.

## Limits

Numbers that come from options or arguments are not judged.

## References

- PyTorch documentation, torch.nn.GroupNorm.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import keyword, number
from firstfault.lint.rule import Fix, Hit, rule
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit


@rule("BN505")
def group_norm_groups(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for call in script.nodes(ast.Call) if "GroupNorm" in script.source else ():
        if script.qualified(call.func) not in ("torch.nn.GroupNorm", "torch.nn.modules.normalization.GroupNorm"):
            continue
        given = _argument(call, 0, "num_groups"), _argument(call, 1, "num_channels")
        groups, channels = (_whole(script, each) for each in given)
        if groups is None or channels is None or groups < 1 or channels % groups == 0:
            continue
        fix = _fix(script, given[0], groups, channels)
        message = f"{groups} groups do not divide {channels} channels: the constructor raises a ValueError."
        yield Hit(script.span(call), "error", message, (), (fix,) if fix else ())


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    return call.args[position] if len(call.args) > position else keyword(call, name)


def _whole(script: Script, node: ast.expr | None) -> int | None:
    found = number(script, node)
    whole = found is not None and found.origin != "default" and float(found.value).is_integer()
    return int(found.value) if whole and found is not None else None


def _fix(script: Script, node: ast.expr | None, groups: int, channels: int) -> Fix | None:
    fitting = max((each for each in range(1, min(groups, channels) + 1) if channels % each == 0), default=1)
    if not isinstance(node, ast.Constant) or fitting == 1:
        return None
    return Fix(f"Use {fitting} groups", "safe", (Edit(script.span(node), str(fitting)),))
