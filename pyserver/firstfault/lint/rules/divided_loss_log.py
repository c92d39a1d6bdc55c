"""What is logged as the loss is the loss divided by the number of accumulation steps.

## What it does

Finds a loss that the script divides by the size of the window, and reads afterwards without multiplying it back: shown
as it is, exponentiated, or summed and divided by the number of micro-batches.

## Why it matters

Training is right, but the number is not: with 8 accumulation steps the curve is 8 times too low, it jumps when the
number of steps changes, and it looks far better than the validation loss beside it. The exponential is worse than a
factor: with a loss of 3.2 and 4 steps the perplexity is printed as 2.2 instead of 24.5.

## Example

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (images, kinds) in enumerate(loader):
        loss = F.cross_entropy(model(images), kinds)
        loss = loss / accumulation_steps
        loss.backward()
        print(loss.item())
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch.nn.functional as F


def train(model, loader, optimizer, accumulation_steps):
    for step, (images, kinds) in enumerate(loader):
        loss = F.cross_entropy(model(images), kinds)
        loss = loss / accumulation_steps
        loss.backward()
        print(loss.item() * accumulation_steps)
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix multiplies back what is read; training is not touched. It is safe where the value is shown or exponentiated,
and unsafe where it is summed, because the sum may be used elsewhere. It is offered where the size has a name at that
place. A finding that goes with several readings is fixed one by one.

## Limits

A hint; a warning for an exponential, and for an average that stands beside an undivided one of the same criterion taken
without gradients. A sum over one window of divided losses is the right mean and not reported, nor is a value that only
the last micro-batch of a window gives. A window that is 1 by default is always a hint. What loggers make of a value in
other files is not seen.

## References

- allennlp issue 4706, Lightning issue 13243; transformers 4.46.3, where the logged loss was right and the gradient not.
"""

import ast
from collections.abc import Iterator

from firstfault.lint.calls import last_name
from firstfault.lint.divided_logs import Reading, readings
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.scaling import true_span
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit


@rule("GA213")
def divided_loss_log(script: Script, workspace: Workspace) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.is_literal_one or not window.size_text:
            continue
        for reading in readings(script, loop, window, workspace):
            if reading.place not in seen:
                seen.add(reading.place)
                yield _hit(script, window, reading)


def _hit(script: Script, window: Window, reading: Reading) -> Hit:
    span = true_span(script, reading.place) if isinstance(reading.place, ast.expr) else None
    span = span or script.span(script.statement(reading.place))
    fix = _fix(script, window, reading)
    related = (Related(script.path, window.span.start.line, f"the window of `{window.size_text}` micro-batches"),)
    return Hit(span, _severity(script, window, reading), _message(window, reading), related, (fix,) if fix else ())


def _severity(script: Script, window: Window, reading: Reading) -> Severity:
    if window.default_one or reading.how == "shown":
        return "hint"
    return "warning" if reading.how == "exponentiated" or _has_undivided_twin(script, reading) else "hint"


def _has_undivided_twin(script: Script, reading: Reading) -> bool:
    """The same criterion is taken without gradients too: its mean is shown beside this one."""
    call = reading.term.node
    name = dotted(call.func) if isinstance(call, ast.Call) else ""
    last = last_name(call.func) if isinstance(call, ast.Call) else ""
    return bool(name) and any(
        isinstance(each, ast.Call) and last_name(each.func) == last
        for block in _without_gradients(script)
        for each in script.walk(block)
    )


def _without_gradients(script: Script) -> Iterator[ast.AST]:
    words = ("no_grad", "inference_mode")
    for block in script.nodes(ast.With):
        if any(last_name(getattr(each.context_expr, "func", each.context_expr)) in words for each in block.items):
            yield block
    for function in script.nodes(ast.FunctionDef):
        if any(last_name(getattr(each, "func", each)) in words for each in function.decorator_list):
            yield function


def _message(window: Window, reading: Reading) -> str:
    value, size = f"`{ast.unparse(reading.node)}`", f"`{window.size_text}`"
    if reading.how == "exponentiated":
        return f"{value} is the loss divided by {size}, so its exponential is no perplexity."
    if reading.how == "averaged":
        return (
            f"The sum of losses that were divided by {size} is divided by the number of micro-batches: "
            f"the average is {size} times too small."
        )
    return f"{value} is the loss divided by {size}: what is logged is that many times too small."


def _fix(script: Script, window: Window, reading: Reading) -> Fix | None:
    size, place = window.size_node, true_span(script, reading.node)
    if size is None or place is None or not isinstance(size, (ast.Name, ast.Attribute)):
        return None
    if script.function(size) is not script.function(reading.node):
        return None
    text = f"{ast.unparse(reading.node)} * {window.size_text}"
    applicability = "unsafe" if reading.how == "averaged" else "safe"
    return Fix(f"Multiply by `{window.size_text}`", applicability, (Edit(place, text),))  # type: ignore[arg-type]
