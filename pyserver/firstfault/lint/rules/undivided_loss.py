"""A loss that is a mean over the micro-batch is back-propagated for each micro-batch of a window and never divided.

## What it does

Finds loops that accumulate gradients where neither the script nor the framework divides: not the loss on its way to
backward, not the gradients before the step, not the learning rate. It also finds a division that divides by 1: by
`numel()` of a loss that is a single number already.

## Why it matters

The gradients of the micro-batches are added up, so the step sees that of the large batch times the number of
micro-batches. Measured with a window of 4: the gradient is 4 times as large, and so is the update of plain SGD. Adam
hides the factor in the update but not in clipping, in weight decay that is added to the gradient, or in its epsilon.
Whoever changes the number of steps changes the learning rate with it. No error is raised, and the logged loss is right.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (images, heights) in enumerate(loader):
        loss = F.mse_loss(model(images), heights)
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (images, heights) in enumerate(loader):
        loss = F.mse_loss(model(images), heights)
        (loss / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix divides what backward is given by the size of the window, where that size has a name at this place; what is
logged stays as it is. It is marked unsafe: a learning rate or a clipping threshold that was tuned on the sum is too
small afterwards, by that factor. Where the loss is a mean over a varying number of tokens the division would make a
mean of means, so the fix weighs every token the same instead (see mean-of-means); where that fix is not at hand the
division is offered as partial. No fix is offered where the size may be None or is not named in the function that runs
backward.

## Limits

Error where the text shows that the loss is a mean; warning where it comes out of a library's model, and where a method
of another file, or a trainer of pytorch_metric_learning, runs backward; hint where a criterion is handed in from
elsewhere. One step milder where the window is 1 by default.

Silent for sums, where a factor may be the number of rows, tokens or ranks, where gradients are scaled before the step
or the learning rate is divided by the window, where the whole batch's loss is recomputed for each part of it, and where
accelerate, DeepSpeed, mmengine or Lightning divide. A loop over `range(n)` is taken for a window only if it is named
like one or draws a batch in each round.

## References

- nanoGPT issues 168 and 206, neural_sp issue 168, jiant issue 980.
- The factor was measured with torch 2.13 in double precision on equal micro-batches (ratio 4.000 for 4 steps).
"""

import ast
from collections.abc import Iterator

from firstfault.lint.averaging import Averaging
from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import Backward
from firstfault.lint.loss_terms import Term, loss_terms
from firstfault.lint.reductions import Reduction, reduction
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.scaling import scales_gradients, scaling
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.sibling_backward import sibling_loops
from firstfault.lint.summed_up import PLAIN, is_nominal, is_summed_up, is_undivided
from firstfault.lint.token_counts import varying_count
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.window_default import is_one_by_default
from firstfault.lint.window_fix import window_fix
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

_MILDER: dict[Severity, Severity] = {"error": "warning", "warning": "hint", "hint": "hint"}


@rule("GA102")
def undivided_loss(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        yield from [hit for each in _distinct(loop.backwards) if (hit := _hit(script, loop, each, workspace))]
    for loop, call, home in sibling_loops(script, workspace):
        found = (_in_sibling(script, loop, call, home, each, workspace) for each in loop.backwards)
        yield from [hit for hit in found if hit][:1]


def _distinct(backwards: tuple[Backward, ...]) -> list[Backward]:
    """One backward of each loss: with a scaler and without it is the same fault."""
    return list({ast.dump(each.loss): each for each in reversed(backwards)}.values())[::-1]


def _hit(script: Script, loop: TrainingLoop, backward: Backward, workspace: Workspace) -> Hit | None:
    terms = loss_terms(script, backward.loss, workspace)
    by_one = _divided_by_one(script, loop, backward, terms)
    if by_one is not None:
        return by_one
    window = loop.window
    if window is None or not is_summed_up(script, loop, window, backward):
        return None
    if _is_of_library(script, backward):
        return _of_library(script, window, backward)
    for term in terms:
        kind = reduction(term, workspace)
        if kind == "named" and is_nominal(script, window):
            continue
        if kind in ("mean", "hidden", "named") and is_undivided(scaling(script, term, window), term, window):
            fix = _fix(script, loop, window, backward, terms, term, workspace)
            message = _message(script, window, backward, term, kind)
            related = (Related(script.path, window.span.start.line, _related(window)),)
            severity = _severity(script, window, kind)
            return Hit(script.span(backward.node), severity, message, related, (fix,) if fix else ())
    return None


def _is_of_library(script: Script, backward: Backward) -> bool:
    """``self.backward()`` of a trainer of pytorch_metric_learning back-propagates the sum of its mean losses."""
    call, owner = backward.node, script.class_of(backward.node)
    if owner is None or not isinstance(call, ast.Call) or dotted(call.func) != "self.backward" or call.args:
        return False
    return any(script.qualified(each).startswith("pytorch_metric_learning.") for each in owner.bases)


def _of_library(script: Script, window: Window, backward: Backward) -> Hit:
    size = f"`{window.size_text}`" if window.size_text else "the number of micro-batches"
    message = (
        f"`{script.text(backward.node)}` back-propagates the mean of each batch and nothing divides it by {size}: the "
        "gradients of a step are that many times too large."
    )
    related = (Related(script.path, window.span.start.line, _related(window)),)
    return Hit(script.span(backward.node), _severity(script, window, "hidden"), message, related)


def _in_sibling(
    script: Script, loop: TrainingLoop, call: ast.Call, home: Script, backward: Backward, workspace: Workspace
) -> Hit | None:
    """A method of another file runs backward on the mean of each part of a batch."""
    window = loop.window
    if window is None or backward.receiver not in PLAIN or scales_gradients(script, loop):
        return None
    for term in loss_terms(home, backward.loss, workspace):
        if reduction(term, workspace) == "mean" and is_undivided(scaling(home, term, window), term, window):
            message = (
                f"`{script.text(call.func)}` back-propagates a mean over each part of the batch, and nothing divides "
                "it by their number: the gradients of a step are that many times too large."
            )
            related = (Related(home.path, home.line(backward.node), "backward on a mean"),)
            return Hit(script.span(call), "warning", message, related)
    return None


def _divided_by_one(script: Script, loop: TrainingLoop, backward: Backward, terms: tuple[Term, ...]) -> Hit | None:
    """``(total / total.numel()).backward()`` in a loop that is followed by the step."""
    steps = loop.optimizer_steps
    if not isinstance(loop.node, LOOPS) or not steps or starts_anew(loop) or scales_gradients(script, loop):
        return None
    if any(not each.guards and not each.after_loop for each in steps):
        return None
    window = loop.window or Window("chunks", loop.node, script.span(loop.node), "", None, None)  # type: ignore[arg-type]
    for term in terms:
        found = scaling(script, term, window)
        if found.by_one is not None and found.by_window == 0 and script.parent(found.by_one.node) is not None:
            number = script.text(found.by_one.operand)
            message = (
                f"The loss is a single number, so `{number}` is 1 and divides nothing: the gradients of a step grow "
                "with the number of micro-batches and of the elements that are summed."
            )
            return Hit(script.span(found.by_one.node), "warning", message)
    return None


def _severity(script: Script, window: Window, kind: Reduction) -> Severity:
    if kind == "named":
        return "hint"
    severity: Severity = "error" if kind == "mean" and window.kind != "chunks" else "warning"
    return _MILDER[severity] if is_one_by_default(script, window) else severity


def _message(script: Script, window: Window, backward: Backward, term: Term, kind: Reduction) -> str:
    loss = f"`{script.text(backward.loss)}`" if isinstance(backward.loss, (ast.Name, ast.Attribute)) else "The loss"
    size = f"`{window.size_text}`" if window.size_text else "the number of micro-batches"
    if kind == "named":
        maker = ast.unparse(term.node.func) if isinstance(term.node, ast.Call) else "the criterion"
        return (
            f"{loss} is not divided by {size}: if `{maker}` takes a mean over the micro-batch, the gradients of a step "
            "are that many times too large."
        )
    mean = "a mean over the micro-batch" if kind == "mean" else "what the model returns, a mean by custom,"
    return f"{loss} is {mean} and is not divided by {size}: the gradients of a step are that many times too large."


def _related(window: Window) -> str:
    size = f" of `{window.size_text}` micro-batches" if window.size_text else ""
    return f"the window{size} that the gradients are added up over"


def _fix(
    script: Script,
    loop: TrainingLoop,
    window: Window,
    backward: Backward,
    terms: tuple[Term, ...],
    term: Term,
    workspace: Workspace,
) -> Fix | None:
    same = ast.dump(backward.loss)
    mine = tuple(each for each in loop.backwards if ast.dump(each.loss) == same)
    if varying_count(term, script, workspace) is None:
        return _division(script, loop, window, mine, "unsafe")
    weighed = window_fix(script, loop, terms, Averaging("framework", backward.node, None)) if not term.scales else None
    if weighed is not None:
        return weighed._replace(applicability="unsafe")
    return _division(script, loop, window, mine, "partial")


def _division(
    script: Script, loop: TrainingLoop, window: Window, backwards: tuple[Backward, ...], applicability: str
) -> Fix | None:
    """``(loss / N).backward()``: what is logged keeps its value."""
    if loop.in_helper or not _is_at_hand(script, window):
        return None
    edits = []
    for each in backwards:
        loss = each.loss
        text = f"{script.text(loss)} / {window.size_text}"
        if not isinstance(loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            text = f"({script.text(loss)}) / {window.size_text}"
        called = isinstance(script.parent(loss), ast.Attribute)
        edits.append(Edit(script.span(loss), f"({text})" if called else text))
    return Fix(f"Divide by `{window.size_text}`", applicability, tuple(edits))  # type: ignore[arg-type]


def _is_at_hand(script: Script, window: Window) -> bool:
    """The size is a name or a number in the loop's own function, and never None."""
    size = window.size_node
    if size is None or not (dotted(size) or isinstance(size, (ast.Constant, ast.Subscript))):
        return False
    wanted = ast.dump(size)
    for compare in script.nodes(ast.Compare):
        if ast.dump(compare.left) == wanted and isinstance(compare.ops[0], (ast.Is, ast.IsNot)):
            return False
    return True
