"""A loss is divided by the number of micro-batches, and the framework that runs backward divides it again.

## What it does

Finds a division of the loss by the size of the window where backward is run by accelerate, DeepSpeed's engine,
mmengine's wrapper or Lightning's automatic optimization, and that framework was given a number of accumulation steps
too: in the script, in the DeepSpeed configuration beside it, or in one that an imported module writes
(`"train_batch_size": batch_size * update_freq * world_size`).

## Why it matters

The gradient of every step is too small by the number of steps. Measured with a window of 4: a quarter. Plain SGD then
moves a quarter as far; Adam hides the factor, but clipping never acts, and the logged loss is a quarter of the loss. It
looks like a learning rate that is too small, and it changes with the number of steps. No error is raised.

## Example

```python
import torch.nn.functional as F
from accelerate import Accelerator


def train(model, loader, optimizer, args):
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulation_steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for images, kinds in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(images), kinds)
            loss = loss / args.accumulation_steps
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F
from accelerate import Accelerator


def train(model, loader, optimizer, args):
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulation_steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for images, kinds in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(images), kinds)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix takes the division by hand away, and the multiplications in the same loop that undo it for a log. It is marked
unsafe: a learning rate that was tuned on the small gradients is too large afterwards, and a log that took the divided
loss shows the loss itself. It is not offered where the same division serves another backend, which does not divide.

## Limits

The rule needs the number that the framework was given: an Accelerator without `gradient_accumulation_steps`, Fabric,
manual optimization and `engine.backward(loss, scale_wrt_gas=False)` do not divide, and `transformers.Trainer` hands
accelerate a 1. Under accelerate it is silent where the script speaks of DeepSpeed. A number from a configuration is a
warning, because another one may be given at the start; so is one that is 1 by default.

## References

- `Accelerator.backward` of accelerate 1.15, `DeepSpeedEngine.backward` of DeepSpeed 0.19, Lightning 2.6: read.
- The factor was measured with torch 2.13 in double precision (ratio 0.2500 for 4 steps). Megatron-DeepSpeed issue 42.
"""

import ast
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.averaging import is_window_size
from firstfault.lint.calls import Backward
from firstfault.lint.framework_scale import Divider, divider, rewritten, written_divider
from firstfault.lint.loss_terms import loss_terms
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.scaling import scaling, true_span
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import guards
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

_Division = ast.BinOp | ast.AugAssign


@rule("GA103")
def double_division(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        for backward in loop.backwards:
            who = divider(script, backward, workspace) or written_divider(script, backward, workspace)
            division = _division(script, backward, who, workspace) if who is not None else None
            if who is not None and division is not None and division not in seen:
                seen.add(division)
                yield _hit(script, loop, backward, who, division)


def _division(script: Script, backward: Backward, who: Divider, workspace: Workspace) -> _Division | None:
    """The division by hand, where it surely runs before this backward and nothing undoes it."""
    for term in loss_terms(script, backward.loss, workspace):
        found = scaling(script, term, who.window)
        node = found.division.node if found.division is not None else None
        if found.by_window > 0 and found.known and isinstance(node, (ast.BinOp, ast.AugAssign)):
            return node if script.parent(node) is not None and _always(script, node, backward, who) else None
    for node in rewritten(script, backward):
        by = node.right if isinstance(node, ast.BinOp) else node.value
        if _is_size(script, by, who) and _always(script, node, backward, who):
            return node
    return None


def _is_size(script: Script, operand: ast.expr, who: Divider) -> bool:
    return is_window_size(script, operand, who.window, script)


def _always(script: Script, division: ast.AST, backward: Backward, who: Divider) -> bool:
    """No condition lies around the division alone, but the one whether there is a window at all (``if steps > 1``)."""
    function = script.function(division)
    if function is not script.function(backward.node) or function is None:
        return function is None
    shared = {(id(each.holder), each.positive) for each in guards(script, backward.node, function)}
    for guard in guards(script, division, function):
        if (id(guard.holder), guard.positive) in shared or guard.after_continue:
            continue
        compared = isinstance(guard.test, ast.Compare) and guard.positive and _is_size(script, guard.test.left, who)
        if not compared:
            return False
    return True


def _hit(script: Script, loop: TrainingLoop, backward: Backward, who: Divider, division: _Division) -> Hit:
    dividend, by = _sides(division)
    name = f"`{script.text(dividend)}`" if len(script.text(dividend)) <= 40 else "The loss"
    message = (
        f"{name} is divided by `{script.text(by)}` here, and {who.framework} divides it by `{who.window.size_text}` "
        "again when backward runs: the gradients are that many times too small."
    )
    related = (Related(who.file, who.line, f"{who.framework} divides by this"),)
    fix = _fix(script, loop, backward, who, division)
    return Hit(script.span(division), _severity(script, who), message, related, (fix,) if fix else ())


def _sides(division: _Division) -> tuple[ast.expr, ast.expr]:
    if isinstance(division, ast.BinOp):
        return division.left, division.right
    return division.target, division.value


def _severity(script: Script, who: Divider) -> Severity:
    return "warning" if who.file != script.path or who.window.default_one else "error"


def _fix(script: Script, loop: TrainingLoop, backward: Backward, who: Divider, division: _Division) -> Fix | None:
    if any(each.receiver != backward.receiver for each in loop.backwards):
        return None  # the other backend needs the division
    own = _without(script, division, backward)
    if own is None:
        return None
    logs = _undone_multiplications(script, loop, who, division)
    return Fix("Leave the division to the framework", "unsafe", (own, *logs)) if logs is not None else None


def _without(script: Script, division: _Division, backward: Backward) -> Edit | None:
    statement = script.statement(division)
    dividend, _ = _sides(division)
    deletes = isinstance(division, ast.AugAssign) or (
        isinstance(statement, ast.Assign)
        and statement.value is division
        and ast.unparse(statement.targets[0]) == ast.unparse(dividend)
    )
    if deletes:
        anchor = script.statement(backward.node)
        place = placement.lifted(script, statement, anchor)
        alone = place is not None and len(script.block(place)) > 1 and placement.own_line(script, place)
        return placement.delete_lines(script, place) if place is not None and alone else None
    if not isinstance(division, ast.BinOp) or not isinstance(division.op, ast.Div):
        return None
    text = script.text(dividend)
    nested = isinstance(script.parent(division), (ast.BinOp, ast.UnaryOp, ast.Attribute))
    if nested and not isinstance(dividend, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return None
    return Edit(script.span(division), text)


def _undone_multiplications(script: Script, loop: TrainingLoop, who: Divider, division: _Division) -> list[Edit] | None:
    """``loss.item() * N`` behind the division: the log multiplies back what is no longer divided.

    None where such a place cannot be told exactly: before Python 3.12 the parts of an f-string have no true places.
    """
    edits, statement = [], script.statement(division)
    holds = statement.targets[0] if isinstance(statement, ast.Assign) else _sides(division)[0]
    for node in script.walk(loop.node):
        if not isinstance(node, ast.BinOp):
            continue
        kept = _multiplied_back(script, node, who, ast.unparse(holds))
        if kept is None or script.line(script.statement(node)) < script.line(division):
            continue
        place, text = true_span(script, node), _text(script, kept)
        if place is None or text is None:
            return None
        if place.start > script.span(division).end:
            edits.append(Edit(place, text))
    return edits


def _multiplied_back(script: Script, node: ast.BinOp, who: Divider, name: str) -> ast.expr | None:
    """The side of a product with the window's size that reads the loss."""
    if not isinstance(node.op, ast.Mult):
        return None
    for kept, factor in ((node.left, node.right), (node.right, node.left)):
        reads = any(isinstance(each, ast.expr) and ast.unparse(each) == name for each in ast.walk(kept))
        if reads and _is_size(script, factor, who):
            return kept
    return None


def _text(script: Script, node: ast.expr) -> str | None:
    place = true_span(script, node)
    return script.source[script.table.offset(place.start) : script.table.offset(place.end)] if place else None
