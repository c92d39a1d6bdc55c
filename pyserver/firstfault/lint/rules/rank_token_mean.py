"""Each rank averages over its own tokens, and the ranks' gradients are averaged again.

## What it does

Finds training loops of a `DistributedDataParallel` or FSDP model whose loss is a mean over a number of tokens that
varies from batch to batch, where nothing shares the number over the ranks. Where such a loop also accumulates over
micro-batches, mean-of-means reports it, and its fix counts over ranks too.

## Why it matters

It is the mean of means over space instead of time: the wrapper gives every rank's mean the same weight, so a token
weighs more on the rank that holds fewer of them. Measured on two ranks with 120 and 40 tokens: the gradient is off by
62 %. The single-process run of the same script is right, so results change with the number of ranks.

## Example

```python
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer):
    ddp = DistributedDataParallel(model)
    for tokens, labels in loader:
        labels[tokens == 0] = -100
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(tokens).flatten(0, 1), labels.flatten())
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
        labels[tokens == 0] = -100
        optimizer.zero_grad()
        total = (labels != -100).sum()
        dist.all_reduce(total)
        loss = F.cross_entropy(ddp(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        (loss * dist.get_world_size() / total).backward()
        optimizer.step()
```

## Fix safety

There is no fix: the loss has to become a sum, and what is logged with it.

## Limits

Silent under frameworks that may normalise by themselves, where the number of ranks or an `all_reduce` takes part in
the loop, and where nothing in the workspace shows that the number of counted tokens varies. Samplers that give all
ranks the same number of tokens are not recognised. Means over labelled pixels, or over tokens that are masked at
random, are not reported.

## References

- transformers issue 34242; speculators issue 942; prime-rl issue 2358.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import is_constant_factor
from firstfault.lint.calls import Backward
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.rank_means import averaging_wrapper, counts_ranks, is_trained, summed_over_ranks
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import LOOPS, Script
from firstfault.lint.token_counts import VaryingCount, varying_count
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace


@rule("GA301")
def rank_token_mean(script: Script, workspace: Workspace) -> Iterator[Hit]:
    wrapper = averaging_wrapper(script)
    if wrapper is None:
        return
    for loop in training_loops(script):
        if _is_windowed(loop) or not _is_a_loop(loop) or counts_ranks(script, loop.node):
            continue
        if not is_trained(script, wrapper, loop):
            continue
        if summed_over_ranks(script) and any(each.verb == "all_reduce" for each in loop.actions):
            continue
        for backward in loop.backwards[:1]:
            count = _count(script, backward, workspace)
            if count is not None:
                yield _hit(script, backward, count, wrapper)


def _is_a_loop(loop: TrainingLoop) -> bool:
    return isinstance(loop.node, LOOPS) and bool(loop.optimizer_steps)


def _is_windowed(loop: TrainingLoop) -> bool:
    return loop.window is not None and not loop.window.is_literal_one


def _count(script: Script, backward: Backward, workspace: Workspace) -> VaryingCount | None:
    if backward.receiver not in ("tensor", "scaler", "apex"):
        return None
    for term in loss_terms(script, backward.loss, workspace):
        count = varying_count(term, script, workspace)
        shown = count is not None and count.strength != "advisory"  # labelled pixels, tokens masked at random
        if shown and _is_unscaled(script, term):
            return count
    return None


def _is_unscaled(script: Script, term: Term) -> bool:
    """Nothing but constant weights between the mean and backward."""
    homes = (script, *(each.callee_script for each in term.entries), term.script)
    for scale in term.scales:
        home = next((each for each in homes if each.parent(scale.node) is not None), term.script)
        if not is_constant_factor(home, scale.operand):
            return False
    return True


def _hit(script: Script, backward: Backward, count: VaryingCount, wrapper: ast.Call) -> Hit:
    loss = script.text(backward.loss)
    shown = f"`{loss}`" if len(loss) <= 40 else "The loss"
    message = (
        f"{shown} is {count.reason}, taken on each rank alone: the ranks' gradients are averaged, so a token weighs "
        "more on the rank that holds fewer of them."
    )
    related = (
        Related(count.script.path, count.script.line(count.node), "this makes the number of counted tokens vary"),
        Related(script.path, script.line(wrapper), "this averages the gradients over the ranks"),
    )
    return Hit(script.span(backward.node), "warning", message, related)
