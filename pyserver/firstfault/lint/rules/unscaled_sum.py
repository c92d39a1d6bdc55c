"""A loss that is divided by the count of the whole window is divided once more by the framework that runs backward.

## What it does

Finds a sum of losses that is divided by a number counted over the whole window (or a model that is given
`num_items_in_batch`), back-propagated by accelerate or DeepSpeed with a number of accumulation steps, and not
multiplied by that number.

## Why it matters

The division by the count of the window is the whole mean already; accelerate and DeepSpeed divide by the number of
steps on top of it. The gradient of every step is too small by that number: measured with a window of 4, a quarter. It
looks like a learning rate that is too small. Under several processes the mean over them divides once more by their
number, if the count was gathered from all of them.

## Example

```python
import torch.nn.functional as F
from accelerate import Accelerator


def train(model, windows, optimizer, steps):
    accelerator = Accelerator(gradient_accumulation_steps=steps)
    for window in windows:
        tokens = accelerator.gather(sum((labels != -100).sum() for _, labels in window)).sum()
        for ids, labels in window:
            with accelerator.accumulate(model):
                summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="sum")
                loss = summed / tokens
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F
from accelerate import Accelerator


def train(model, windows, optimizer, steps):
    accelerator = Accelerator(gradient_accumulation_steps=steps)
    for window in windows:
        tokens = accelerator.gather(sum((labels != -100).sum() for _, labels in window)).sum()
        for ids, labels in window:
            with accelerator.accumulate(model):
                summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="sum")
                loss = summed / tokens
                accelerator.backward(loss * steps * accelerator.num_processes)
                optimizer.step()
                optimizer.zero_grad()
```

## Fix safety

Under accelerate the fix multiplies what backward is given by the number of steps, and by the number of processes where
the count was gathered from all of them; what is logged keeps its value, and a short last window is right too. Under
DeepSpeed it asks the engine not to divide (`scale_wrt_gas=False`). It is marked unsafe, because a learning rate that
was tuned on the small gradients is too large afterwards.

## Limits

The count must be made before the loop over the micro-batches of a window, in the round around it; a count of one
micro-batch makes a mean, which is another matter (see mean-of-means). The rule is silent where a further factor may be
anything. Lightning's automatic optimization is not looked at, because `training_step` sees one micro-batch.

## References

- The accelerate guide to gradient accumulation with samples of variable size multiplies by both numbers.
- The factor was measured with torch 2.13 in double precision (ratio 0.2500 for 4 steps).
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.bindings import Binding, keyword, last_binding
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.framework_scale import Divider, divider
from firstfault.lint.loss_terms import Term, home_of, loss_terms
from firstfault.lint.reductions import reduction
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.scaling import factors, scaling
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit, Span

_WORLD = re.compile(r"num_processes|world|n_ranks|num_gpus|n_gpu", re.IGNORECASE)
_CASTS = {"clamp", "clamp_min", "clamp_", "item", "float", "max", "int", "to", "type_as"}
_GATHERS = {"gather", "reduce", "all_reduce", "gather_for_metrics"}
_COUNTERS = {"sum", "gather", "reduce", "all_reduce", "numel", "count_nonzero"}


@rule("GA104")
def unscaled_sum(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        for backward in loop.backwards:
            who = divider(script, backward, workspace)
            if who is None or who.framework not in ("accelerate", "DeepSpeed") or not isinstance(loop.node, LOOPS):
                continue
            hits = (_hit(script, loop, backward, who, term, workspace) for term in _terms(script, backward, workspace))
            yield from [each for each in hits if each][:1]


def _terms(script: Script, backward: Backward, workspace: Workspace) -> tuple[Term, ...]:
    return loss_terms(script, backward.loss, workspace)


def _hit(
    script: Script, loop: TrainingLoop, backward: Backward, who: Divider, term: Term, workspace: Workspace
) -> Hit | None:
    count = _window_count(script, loop, term, workspace)
    if count is None or scaling(script, term, who.window).by_window != 0 or not _is_plain(script, term, count):
        return None
    where = last_binding(script, dotted(count), count)
    line = script.line(where.node) if where else script.line(count)
    loss = f"`{script.text(backward.loss)}`" if dotted(backward.loss) else "The loss"
    message = (
        f"{loss} is divided by `{script.text(count)}` of the whole window already, and {who.framework} divides it by "
        f"`{who.window.size_text}` on top when backward runs: the gradients are that many times too small."
    )
    related = (
        Related(script.path, line, "this counts the whole window"),
        Related(who.file, who.line, f"{who.framework} divides by this"),
    )
    fix = _fix(script, backward, who, term, where)
    severity = "warning" if who.file != script.path or who.window.default_one else "error"
    return Hit(script.span(backward.node), severity, message, related, (fix,) if fix else ())  # type: ignore[arg-type]


def _window_count(script: Script, loop: TrainingLoop, term: Term, workspace: Workspace) -> ast.expr | None:
    """The count that the term is divided by, where it was made before the loop over the window's micro-batches."""
    if term.kind == "model-output" and isinstance(term.node, ast.Call) and term.script is script:
        given = keyword(term.node, "num_items_in_batch")
        return given if given is not None and _counts_window(script, loop, given) else None
    if reduction(term, workspace) != "sum" and not _is_sum_method(term):
        return None
    for scale in term.scales:
        name = _without_cast(scale.operand)
        if scale.divides and home_of(script, term, scale.node) is script and _counts_window(script, loop, name):
            return name
    return None


def _is_sum_method(term: Term) -> bool:
    """``(losses * mask).sum()``."""
    return term.kind == "sum"


def _without_cast(node: ast.expr) -> ast.expr:
    """``tokens`` of ``tokens.clamp(min=1)``, ``max(tokens, 1)``, ``float(tokens)``."""
    while isinstance(node, ast.Call) and last_name(node.func) in _CASTS:
        if isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif node.args:
            node = next((each for each in node.args if not isinstance(each, ast.Constant)), node.args[0])
        else:
            break
    return node


def _counts_window(script: Script, loop: TrainingLoop, name: ast.expr) -> bool:
    """Set before the loop over the micro-batches, in the same round of the loop around it, to a count."""
    binding = last_binding(script, dotted(name), name) if dotted(name) else None
    if binding is None or binding.kind != "assign" or binding.value is None or script.loop(loop.node) is None:
        return False
    before = script.line(binding.node) < script.line(loop.node)
    if not before or script.loop(binding.node) is not script.loop(loop.node):
        return False
    return any(isinstance(each, ast.Call) and last_name(each.func) in _COUNTERS for each in ast.walk(binding.value))


def _is_plain(script: Script, term: Term, count: ast.expr) -> bool:
    """Every other factor is a number or the number of processes."""
    for scale in term.scales:
        for factor in factors(home_of(script, term, scale.node), scale):
            same = dotted(_without_cast(factor)) == dotted(count)
            if not same and not isinstance(factor, ast.Constant) and not _is_world(factor):
                return False
    return True


def _is_world(factor: ast.expr) -> bool:
    return bool(_WORLD.search(last_name(factor.func if isinstance(factor, ast.Call) else factor)))


def _fix(script: Script, backward: Backward, who: Divider, term: Term, count: Binding | None) -> Fix | None:
    call = backward.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if who.framework == "DeepSpeed":
        end = script.span(backward.loss).end
        return Fix("Let the engine not divide", "unsafe", (Edit(Span(end, end), ", scale_wrt_gas=False"),))
    size, owner = who.window.size_text, script.text(call.func.value)
    if who.window.size_node is None or not isinstance(who.window.size_node, (ast.Name, ast.Attribute, ast.Constant)):
        return None
    if not _is_readable(script, who.window.size_node, call):
        size = f"{owner}.gradient_accumulation_steps"
    text = f"{script.text(backward.loss)} * {size}"
    if not isinstance(backward.loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        text = f"({script.text(backward.loss)}) * {size}"
    over_ranks = count is not None and count.value is not None and _is_gathered(script, count.value)
    multiplied = any(_is_world(each) for scale in term.scales for each in factors(script, scale))
    if over_ranks and not multiplied:
        text += f" * {owner}.num_processes"
    edit = Edit(script.span(backward.loss), text)
    return Fix(f"Multiply by `{size}`, which {who.framework} divides by", "unsafe", (edit,))


def _is_readable(script: Script, size: ast.expr, at: ast.AST) -> bool:
    """The number has the same name where backward runs."""
    if isinstance(size, ast.Constant):
        return False
    return script.function(size) is script.function(at) or script.function(size) is None


def _is_gathered(script: Script, value: ast.expr, hops: int = 2) -> bool:
    parts = list(ast.walk(value))
    if any(isinstance(each, ast.Call) and last_name(each.func) in _GATHERS for each in parts):
        return True
    names = [last_binding(script, each.id, each) for each in parts if isinstance(each, ast.Name)] if hops else []
    above = [each.value for each in names if each is not None and each.kind == "assign" and each.value is not value]
    return any(each is not None and _is_gathered(script, each, hops - 1) for each in above)
