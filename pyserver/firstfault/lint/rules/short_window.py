"""The last window of an epoch holds fewer micro-batches, but its loss is divided by the number of a full one.

## What it does

Finds loops that step the optimizer at the end of the data too (a condition with `or last batch`, or a step behind the
loop for what is left), where each micro-batch's loss was divided by the full number of accumulation steps. As a hint it
also finds accelerate's `accumulate()`, which closes the window where the data ends and still divides by the full
number; not where that number is 1 by default.

## Why it matters

The last step of each epoch is too small: with one micro-batch left of a window of 4 its gradient is a quarter of what
it should be. Measured for 1 of 2: half. It is one step in each epoch, so the effect is small where an epoch has many
steps, and large on small data with many accumulation steps.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for i, (images, kinds) in enumerate(loader):
        loss = F.cross_entropy(model(images), kinds)
        (loss / accumulation_steps).backward()
        if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for i, (images, kinds) in enumerate(loader):
        window_size = min(accumulation_steps, len(loader) - i // accumulation_steps * accumulation_steps)
        loss = F.cross_entropy(model(images), kinds)
        (loss / window_size).backward()
        if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix computes the real size of the window that a micro-batch belongs to and divides by it; multiplications by the
full number in the loop that undo the division for a log follow. Full windows keep their gradients bit for bit. It needs
an index of the loop that counts the micro-batches and data with a length, and is offered only where the script itself
takes that length. Where micro-batches hold different numbers of tokens the mean of means remains (see mean-of-means).

## Limits

Silent where the divisor is computed in the loop, where the data is endless, and where the window is 1. The length of
the data is not known: where it is always a multiple of the window, nothing is short. Lightning divides a short window
by the full number too, and DeepSpeed does not step it at all; both are not reported here.

## References

- accelerate 1.15 and Lightning 2.6 divide the last window by the full number (Lightning issue 19987; measured with
  torch 2.13: gradient x0.5 for 1 of 2). Samudra issue 476, NightmareNet issue 562.
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint import placement
from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import bindings, last_binding
from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.framework_scale import divider, rewritten
from firstfault.lint.loss_terms import home_of, loss_terms
from firstfault.lint.micro_count import Count, iterable, micro_count
from firstfault.lint.reductions import reduction
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.scaling import scaling
from firstfault.lint.script import Script, dotted
from firstfault.lint.short_windows import closing_condition, short_close, windows_by_parameter
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

_COUNTED = ("modulo", "counter", "flag")
_PLAIN = ("tensor", "scaler", "apex", "fabric", "manual_backward")
_ENDLESS = re.compile(r"cycle|infinit|endless|forever|repeat|islice", re.IGNORECASE)
_SIMPLE = re.compile(r"[\w.]+(?:\[[\"']?\w+[\"']?\])?")
_NAMES = ("window_size", "window_batches", "real_window_size", "micro_batches_of_window")


@rule("GA202")
def short_window(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for loop in training_loops(script):
        found = (look(script, loop, workspace) for look in (_own, _by_parameter, _of_accelerate))
        yield from [each for each in found if each is not None][:1]


def _own(script: Script, loop: TrainingLoop, workspace: Workspace) -> Hit | None:
    window = loop.window
    if window is None or window.kind not in _COUNTED or window.is_literal_one or starts_anew(loop):
        return None
    place = short_close(script, loop, window)
    if place is None:
        return None
    for backward in loop.backwards:
        division = _division(script, loop.node, window, backward, workspace)
        if division is not None and backward.receiver in _PLAIN:
            fix = _fix(script, loop, window)
            return _hit(script, window, place, division, "hint" if window.default_one else "warning", fix)
    return None


def _by_parameter(script: Script, loop: TrainingLoop, workspace: Workspace) -> Hit | None:
    """The function that runs backward is told by its caller when to step."""
    for window, test in windows_by_parameter(script, loop):
        place = None if window.is_literal_one else closing_condition(script, test)
        for backward in loop.backwards if place is not None else ():
            division = _division(script, loop.node, window, backward, workspace)
            if division is not None and place is not None and backward.receiver in _PLAIN:
                return _hit(script, window, place, division, "hint" if window.default_one else "warning", None)
    return None


def _of_accelerate(script: Script, loop: TrainingLoop, workspace: Workspace) -> Hit | None:
    window, node = loop.window, loop.node
    if window is None or window.kind != "accumulate-context" or not isinstance(node, ast.For):
        return None
    if window.size_node is None or window.default_one or _is_endless(script, node):
        return None
    if "sync_with_dataloader" in script.source:
        return None
    backward = loop.backwards[0]
    who = divider(script, backward, workspace)
    if who is None or backward.receiver != "accelerator" or not _is_mean(script, backward, window, workspace):
        return None
    message = (
        f"Where the data ends accelerate steps a window of fewer than `{window.size_text}` micro-batches, but divides "
        "each loss by the full number: the last step of an epoch may be too small."
    )
    return Hit(window.span, "hint", message, (Related(who.file, who.line, "accelerate divides by this"),))


def _is_mean(script: Script, backward: Backward, window: Window, workspace: Workspace) -> bool:
    """Nothing undoes the framework's division, and the loss is no share of the window's sum."""
    for term in loss_terms(script, backward.loss, workspace):
        if scaling(script, term, window).by_window < 0 or reduction(term, workspace) == "sum":
            return False
        if any(scale.divides for scale in term.scales) and not scaling(script, term, window).known:
            return False
        call = term.node
        if isinstance(call, ast.Call) and any(each.arg == "num_items_in_batch" for each in call.keywords):
            return False
    return True


def _is_endless(script: Script, loop: ast.For) -> bool:
    source = iterable(script, loop)
    binding = last_binding(script, dotted(source), source) if source is not None and dotted(source) else None
    texts = [script.text(loop.iter), script.text(binding.value) if binding is not None and binding.value else ""]
    return any(_ENDLESS.search(each) for each in (*texts, *_drawn_from(script, loop)))


def _drawn_from(script: Script, loop: ast.For) -> Iterator[str]:
    """What ``next(loader)`` in the loop draws from: each way that the name is set."""
    for call in script.calls("next"):
        name = dotted(call.args[0]) if call.args and loop in script.ancestors(call) else ""
        for each in bindings(script, name, call) if name else ():
            yield script.text(each.value) if each.value is not None else ""


def _division(
    script: Script, place: ast.AST, window: Window, backward: Backward, workspace: Workspace
) -> ast.AST | None:
    """The division by the full size, where that is the same for all micro-batches of the loop."""
    for term in loss_terms(script, backward.loss, workspace):
        found = scaling(script, term, window)
        if found.by_window > 0 and found.division is not None:
            home = home_of(script, term, found.division.node)
            if _is_fixed(home, place, found.division.operand):
                return found.division.node
    for node in rewritten(script, backward):
        by = node.right if isinstance(node, ast.BinOp) else node.value
        if is_window_size(script, by, window, script) and _is_fixed(script, place, by):
            return node
    return None


def _is_fixed(home: Script, place: ast.AST, divisor: ast.expr) -> bool:
    """Set once, not within the loop, and not computed from what is left."""
    if isinstance(divisor, (ast.IfExp, ast.Subscript)) and not isinstance(
        getattr(divisor, "slice", None), ast.Constant
    ):
        return False
    for each in ast.walk(divisor):
        if isinstance(each, ast.Call) and last_name(each.func) in ("min", "len"):
            return False
        places = (
            bindings(home, dotted(each), each) if isinstance(each, (ast.Name, ast.Attribute)) and dotted(each) else []
        )
        if len(places) > 1 or any(
            place in home.ancestors(binding.node) and binding.kind != "parameter" for binding in places
        ):
            return False
        value = places[0].value if places and places[0].kind == "assign" else None
        if value is not None and any(isinstance(part, ast.IfExp) or _is_min(part) for part in ast.walk(value)):
            return False
    return True


def _is_min(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "min"


def _hit(script: Script, window: Window, place: ast.AST, division: ast.AST, severity: Severity, fix: Fix | None) -> Hit:
    size = f"`{window.size_text}`" if window.size_text else "the full number"
    message = (
        f"This also steps a window of fewer micro-batches than {size}, whose losses were divided by {size}: "
        "the last step of an epoch is too small."
    )
    in_file = script.parent(division) is not None
    related = (
        (Related(script.path, script.line(division), "each loss is divided by the full number"),) if in_file else ()
    )
    return Hit(
        script.span(place.test if isinstance(place, ast.If) else place),
        severity,
        message,
        related,
        (fix,) if fix else (),
    )


def _fix(script: Script, loop: TrainingLoop, window: Window) -> Fix | None:
    """``window_size = min(N, len(loader) - i // N * N)`` at the top of the loop, and every use of N follows."""
    node = loop.node
    count = micro_count(script, window, node)
    if not isinstance(node, ast.For) or count is None or not count.is_index or loop.in_helper:
        return None
    length = _length(script, node)
    if length is None or count.first is None or count.first not in (1,) or not _SIMPLE.fullmatch(window.size_text):
        return None
    uses = _uses(script, node, window)
    if not uses or not placement.own_line(script, node.body[0]):
        return None
    name = next(each for each in _NAMES if not re.search(rf"\b{each}\b", script.source))
    line = f"{name} = min({window.size_text}, {length} - {_done(window, count)})"
    edits = [placement.insert_at_top(script, node, [line]), *(Edit(script.span(each), name) for each in uses)]
    return Fix("Divide by the real size of the window", "safe", tuple(edits))


def _length(script: Script, loop: ast.For) -> str | None:
    """``len(loader)`` of what the loop goes through, where the script takes that length itself."""
    source = iterable(script, loop)
    text = f"len({script.text(source)})" if source is not None and dotted(source) else ""
    return text if text and text in script.source else None


def _done(window: Window, count: Count) -> str:
    """The micro-batches of the windows before this one."""
    index = count.name if count.offset == 1 else f"({count.name} - 1)"
    return f"{index} // {window.size_text} * {window.size_text}"


def _uses(script: Script, loop: ast.For, window: Window) -> list[ast.expr] | None:
    """Where the loop divides by the size or multiplies with it; None where it does so by another name."""
    assert window.size_node is not None
    size, uses = ast.dump(window.size_node), []
    for node in script.walk(loop):
        if not isinstance(node, (ast.BinOp, ast.AugAssign)) or not isinstance(node.op, (ast.Div, ast.Mult)):
            continue
        for side in (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,):
            if ast.dump(side) == size and script.text(side) == window.size_text:
                uses.append(side)
            elif is_window_size(script, side, window, script):
                return None
    return uses
