"""A loss is divided by the tokens of all ranks, but the mean that follows over the ranks is not undone.

## What it does

Finds losses that are sums divided by a count which `all_reduce` has summed over the ranks, under a wrapper that
averages gradients (`DistributedDataParallel`, FSDP), where no number of ranks takes part.

## Why it matters

Each rank's sum over the global count is its share of the wanted mean; the shares must be added. The wrapper averages
them, so gradients are too small by the number of ranks: exactly x0.5000 on two ranks. Adam hides the factor, weight
decay, clipping and SGD do not.

## Example

```python
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer):
    ddp = DistributedDataParallel(model)
    for tokens, labels in loader:
        total = (labels != -100).sum()
        dist.all_reduce(total)
        logits = ddp(tokens).flatten(0, 1)
        loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Use instead

```python
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer):
    ddp = DistributedDataParallel(model)
    for tokens, labels in loader:
        total = (labels != -100).sum()
        dist.all_reduce(total)
        logits = ddp(tokens).flatten(0, 1)
        loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") * dist.get_world_size() / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix safety

The fix multiplies by `dist.get_world_size()` where the division stands. It is safe: the effective gradient becomes
the mean over all tokens. Gradients grow by the number of ranks, so a learning rate that was tuned on the small ones
may need another look; a loss that is logged from the same name grows too.

## Limits

Silent where any number of ranks takes part in the loop, where the `all_reduce` averages or runs in a group, and where
the script sets its own gradient divisor or communication hook.

## References

- PyTorch, DistributedDataParallel: gradients are averaged over the ranks.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import keyword
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.loss_terms import Scale, Term, loss_terms
from firstfault.lint.rank_means import Shared, averaging_wrapper, counts_ranks, summed_over_ranks
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, training_loops
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit, Position, Span


@rule("GA302")
def missing_world_factor(script: Script, workspace: Workspace) -> Iterator[Hit]:
    wrapper = averaging_wrapper(script) if "all_reduce" in script.source else None
    shared = summed_over_ranks(script) if wrapper is not None else []
    seen: set[ast.AST] = set()
    for loop in training_loops(script) if shared else ():
        if counts_ranks(script, script.scope(loop.node)) or _shares_gradients(script, loop.actions):
            continue
        for backward in loop.backwards:
            for scale, by in _divisions(script, backward, shared, workspace):
                if scale.node in seen or wrapper is None:
                    continue
                seen.add(scale.node)
                yield _hit(script, scale, by, wrapper)


def _shares_gradients(script: Script, actions: tuple[Action, ...]) -> bool:
    """Gradients that an ``all_reduce`` of the script shares."""
    reduced = [each.inner for each in actions if each.verb == "all_reduce"]
    return any(isinstance(part, ast.Attribute) and part.attr == "grad" for each in reduced for part in ast.walk(each))


def _divisions(
    script: Script, backward: Backward, shared: list[Shared], workspace: Workspace
) -> Iterator[tuple[Scale, Shared]]:
    if backward.receiver not in ("tensor", "scaler", "apex"):
        return
    for term in loss_terms(script, backward.loss, workspace):
        for scale in term.scales if _is_sum(term) else ():
            name = dotted(_bare(scale.operand))
            by = next((each for each in shared if each.name == name and _precedes(script, each, scale)), None)
            if scale.divides and by is not None and script.parent(scale.node) is not None:
                yield scale, by


def _is_sum(term: Term) -> bool:
    """The term is a sum: ``reduction="sum"``, ``losses.sum()``."""
    if term.kind == "sum":
        return True
    maker = term.maker or term.node
    reduction = keyword(maker, "reduction") if term.kind == "cross-entropy" and isinstance(maker, ast.Call) else None
    return isinstance(reduction, ast.Constant) and reduction.value == "sum"


def _bare(node: ast.expr) -> ast.expr:
    """``total`` of ``total.clamp(min=1)``, ``total.item()``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) in _KEEPS:
        node = node.func.value
    return node


_KEEPS = {"clamp", "clamp_min", "item", "float", "to"}


def _precedes(script: Script, shared: Shared, scale: Scale) -> bool:
    same = script.scope(shared.call) is script.scope(scale.node)
    return same and script.line(shared.call) < script.line(scale.node)


def _hit(script: Script, scale: Scale, by: Shared, wrapper: ast.Call) -> Hit:
    message = (
        f"The sum is divided by `{by.name}` of all ranks, and then the ranks' gradients are averaged: they are too "
        "small by the number of ranks."
    )
    related = (
        Related(script.path, script.line(by.call), "the count is summed over the ranks"),
        Related(script.path, script.line(wrapper), "this averages the gradients over the ranks"),
    )
    fix = _fix(script, scale, by)
    return Hit(script.span(scale.node), "error", message, related, (fix,) if fix else ())


def _fix(script: Script, scale: Scale, by: Shared) -> Fix | None:
    factor = f"{by.module}.get_world_size()"
    if scale.factor is not scale.operand or not by.module:
        return None
    if isinstance(scale.node, ast.AugAssign):
        end = script.span(scale.node.value).end
        edit = Edit(Span(end, end), f" / {factor}")
    elif isinstance(scale.node, ast.BinOp):
        start, end = script.span(scale.node.left).end, script.span(scale.node.right).start
        between = script.line_text(start.line)[start.column - 1 : end.column - 1]
        if start.line != end.line or between.count("/") != 1:
            return None
        at = Position(start.line, start.column + between.index("/"))
        edit = Edit(Span(at, at), f"* {factor} ")
    else:
        return None
    return Fix(f"Multiply by `{factor}`", "safe", (edit,))
