"""A cross-entropy with class weights is averaged for every micro-batch, and again over the window.

## What it does

Finds loops that accumulate gradients of a `cross_entropy` (or `nll_loss`) with class weights and the reduction
"mean", and average it flatly over the micro-batches of the window: by the script, or by the framework that runs
backward.

## Why it matters

With class weights, "mean" divides by the sum of the weights of the labels that are there, not by their number. Two
micro-batches of the same size have different denominators, so an example weighs more beside examples of light
classes. Measured on small data with micro-batches of equal size: the gradient of a window is off by 19 to 20 %.
Dividing by the number of examples instead is no cure: with the plain count the error was 216 %.

## Example

```python
import torch
import torch.nn as nn


def train(model, loader, optimizer, accumulation_steps):
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 5.0]))
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
import torch.nn as nn


def train(model, batches, optimizer, accumulation_steps):
    weight = torch.tensor([0.2, 1.0, 5.0])
    criterion = nn.CrossEntropyLoss(weight=weight, reduction="sum")
    for update in range(1000):
        window = [next(batches) for _ in range(accumulation_steps)]
        total = sum(weight[labels].sum() for _, labels in window)
        for inputs, labels in window:
            (criterion(model(inputs), labels) / total).backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety

There is no fix: the sum of the weights of the whole window must be known before the first backward, and only the
script knows where the next micro-batches come from.

## Limits

The rule needs to see the weights: a tensor that the script makes. Weights that may be None, or that come in as an
argument, are not reported; neither are equal ones. `pos_weight` and `weight` of the binary losses multiply and do not
change the denominator. Where the counted labels vary too, mean-of-means reports it.

## References

- PyTorch issues 72047 and 61309: what "mean" divides by under class weights.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import averaging
from firstfault.lint.bindings import bindings, keyword
from firstfault.lint.cadence import severity_by_window, starts_anew
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.rule import Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.token_counts import is_mean, varying_count
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

_MAKES_TENSORS = {"tensor", "FloatTensor", "Tensor", "as_tensor", "from_numpy", "DoubleTensor", "HalfTensor"}
_MOVES = {"to", "cuda", "float", "double", "half", "type_as", "cpu"}


@rule("GA105")
def weighted_mean_of_means(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        if loop.window is None or loop.window.is_literal_one or starts_anew(loop):
            continue
        for backward in loop.backwards:
            found = _fault(script, loop, loop.window, backward, workspace)
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield found[1]


def _fault(
    script: Script, loop: TrainingLoop, window: Window, backward: Backward, workspace: Workspace
) -> tuple[ast.AST, Hit] | None:
    for term in loss_terms(script, backward.loss, workspace):
        weight = _weight(term)
        average = averaging(script, loop, backward, term) if weight is not None else None
        if weight is None or average is None or average.how == "late" or varying_count(term, script, workspace):
            continue
        place = average.node if script.parent(average.node) is not None else backward.node
        home, text = _home(script, term, weight)
        related = (
            Related(home.path, home.line(weight), "the class weights"),
            Related(script.path, window.span.start.line, "the window of micro-batches"),
        )
        return place, Hit(script.span(place), severity_by_window(window, "error"), _message(text, window), related)
    return None


def _weight(term: Term) -> ast.expr | None:
    """The class weights of a mean, where the text makes them a tensor of different numbers."""
    maker = term.maker or term.node
    if term.kind != "cross-entropy" or not isinstance(maker, ast.Call) or not is_mean(maker):
        return None
    position = 0 if term.maker else 2
    given = keyword(maker, "weight") or (maker.args[position] if len(maker.args) > position else None)
    return given if given is not None and any(_is_tensor(each, given) for each in _homes(term)) else None


def _homes(term: Term) -> list[Script]:
    return [term.script, *(each.script for each in term.entries), *(each.callee_script for each in term.entries)]


def _home(script: Script, term: Term, node: ast.AST) -> tuple[Script, str]:
    home = next((each for each in (script, *_homes(term)) if each.parent(node) is not None), script)
    return home, home.text(node)


def _is_tensor(script: Script, node: ast.expr, hops: int = 3) -> bool:
    if script.parent(node) is None:
        return False
    if isinstance(node, ast.Call) and last_name(node.func) in _MAKES_TENSORS:
        return bool(node.args) and not _is_uniform(node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        return _is_tensor(script, node.func.value, hops)
    places = bindings(script, dotted(node), node) if dotted(node) and hops else []
    values = [each.value for each in places if each.kind == "assign" and dotted(each.value) != dotted(node)]
    own = [each for each in values if each is not None and not _moves_itself(each, dotted(node))]
    return bool(own) and len(values) == len(places) and all(_is_tensor(script, each, hops - 1) for each in own)


def _moves_itself(value: ast.expr, name: str) -> bool:
    """``weights = weights.to(device)``."""
    moves = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES
    return moves and dotted(value.func.value) == name  # type: ignore[attr-defined]


def _is_uniform(values: ast.expr) -> bool:
    """``[1.0, 1.0]``: equal weights change nothing."""
    if not isinstance(values, (ast.List, ast.Tuple)):
        return False
    return len({ast.dump(each) for each in values.elts}) <= 1


def _message(weight: str, window: Window) -> str:
    size = f"`{window.size_text}` micro-batches" if window.size_text else "the micro-batches of the window"
    shown = f"`{weight}`" if len(weight) <= 40 else "The class weights"
    return (
        f"{shown} makes the loss a mean over the class weights of its own micro-batch, and it is averaged again over "
        f"{size}: an example weighs more beside light classes."
    )
