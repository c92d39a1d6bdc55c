"""The ranks do not share gradients in the very micro-batch whose step uses them.

## What it does

Finds loops that turn off the sharing of gradients (`no_sync()`, `no_backward_sync`, `require_backward_grad_sync`,
`set_requires_gradient_sync`) under a condition that also holds in a micro-batch after which the optimizer steps. Both
conditions are tried out, round by round.

## Why it matters

`no_sync` leaves the gradients of a backward on their rank; the next backward outside of it shares all that has been
collected. If the last backward before the step is inside, each rank steps on gradients of its own, and the copies of
the model drift apart. Nothing is raised. Measured on two ranks with `i % k != 0` in the place of `(i + 1) % k != 0`:
the gradient is off by 82 %, and those of the two ranks differ by 129 %.

## Example

```python
import contextlib


def train(ddp, loader, criterion, optimizer, accumulation_steps):
    for i, (inputs, labels) in enumerate(loader):
        hold = ddp.no_sync() if i % accumulation_steps != 0 else contextlib.nullcontext()
        with hold:
            loss = criterion(ddp(inputs), labels) / accumulation_steps
            loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import contextlib


def train(ddp, loader, criterion, optimizer, accumulation_steps):
    for i, (inputs, labels) in enumerate(loader):
        hold = ddp.no_sync() if (i + 1) % accumulation_steps != 0 else contextlib.nullcontext()
        with hold:
            loss = criterion(ddp(inputs), labels) / accumulation_steps
            loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

The fix puts the exact negation of the step's condition in the place of the wrong one. It is safe: the gradients are
shared in the micro-batches that step, and in no other. It is not offered where the condition or a part of the step's
is a flag that is computed elsewhere, or where the step stands in a helper.

## Limits

Conditions whose counters are not those of the loop itself, and those that come from a function, are not judged. Where
only a leftover window at the end of the data steps without sharing, it is a warning, since it depends on the length
of the data. Silent where the script shares gradients by its own `all_reduce`.

## References

- FunASR pull request 3472, accelerate issue 435: the same fault.
- PyTorch, DistributedDataParallel: `no_sync`.
"""

import ast
from collections.abc import Iterator
from typing import Literal

from firstfault.lint.gradient_sync import Condition, Hold, holds, shares_by_hand
from firstfault.lint.rounds import Rounds, is_about_rounds, rounds, values
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace
from firstfault.text import Edit

Extent = Literal["each window", "leftover"]


@rule("GA303")
def no_sync_on_step(script: Script, workspace: Workspace) -> Iterator[Hit]:
    found = holds(script)
    if not found or shares_by_hand(script):
        return
    for loop in training_loops(script):
        window = loop.window
        if window is None or window.is_literal_one or window.kind in ("accumulate-context", "framework"):
            continue
        whole = window.kind in ("inner-range", "chunks")
        played = rounds(script, loop.node, window.size_node, whole)
        for hold in found if played is not None else ():
            if played is not None and _is_of_the_loop(script, loop, hold):
                yield from _judged(script, loop, window, played, hold)


def _judged(script: Script, loop: TrainingLoop, window: Window, played: Rounds, hold: Hold) -> Iterator[Hit]:
    stepping = _step_conditions(script, loop, window, played)
    extent = _extent(loop, window, played, hold, stepping)
    if extent is None:
        return
    fix = _fix(script, loop, window, played, hold, stepping)
    place = hold.node if hold.body is None else _test(hold, played)
    yield Hit(
        script.span(place),
        "error" if extent == "each window" and not window.default_one else "warning",
        _message(script, hold, extent),
        (Related(script.path, script.line(loop.optimizer_steps[0].node), "the step that uses the gradients"),),
        (fix,) if fix else (),
    )


def _is_of_the_loop(script: Script, loop: TrainingLoop, hold: Hold) -> bool:
    around = hold.body if hold.body is not None else hold.node
    if script.loop(around) is not loop.node:
        return False
    if hold.body is None:
        return True
    inside = set(script.walk(hold.body))
    return loop.in_helper or any(each.node in inside for each in loop.backwards)


def _step_conditions(
    script: Script, loop: TrainingLoop, window: Window, played: Rounds
) -> list[tuple[Action, tuple[Condition, ...]]]:
    """For each step in the loop: the conditions about the round that it runs under."""
    found = []
    for step in loop.optimizer_steps:
        own = [each for each in step.guards if loop.node in script.ancestors(each.holder)]
        tests = tuple((each.test, each.positive) for each in own if is_about_rounds(played, each.test))
        if not step.after_loop and tests:
            found.append((step, tests))
    return found


def _extent(
    loop: TrainingLoop,
    window: Window,
    played: Rounds,
    hold: Hold,
    stepping: list[tuple[Action, tuple[Condition, ...]]],
) -> Extent | None:
    """Whether the sharing is off in a round that steps; None where no round is shown to be one."""
    last = played.length - 1
    for off in values(played, hold.off):
        if all(off) or not any(off):  # always on, always off: another story
            continue
        wrong = {last} if loop.window is not None and _steps_behind(loop) and off[last] is True else set()
        for _, tests in stepping:
            for steps in values(played, tests):
                wrong |= {i for i in range(played.length) if steps[i] is True and off[i] is True}
        if wrong:
            return "leftover" if wrong == {last} and window.kind not in ("inner-range", "chunks") else "each window"
    return None


def _steps_behind(loop: TrainingLoop) -> bool:
    return any(each.after_loop for each in loop.optimizer_steps)


def _test(hold: Hold, played: Rounds) -> ast.AST:
    """The condition that is wrong, where it is one about the round."""
    return next((test for test, _ in hold.off if is_about_rounds(played, test)), hold.node)


def _message(script: Script, hold: Hold, extent: Extent) -> str:
    owner = f"`{hold.owner}`" if hold.owner else "The model"
    if extent == "leftover":
        return (
            f"{owner} does not share gradients in the last micro-batch of a leftover window, but the optimizer steps "
            "on them: the ranks drift apart."
        )
    return (
        f"{owner} does not share gradients in the micro-batch that the optimizer steps after: each rank steps on its "
        "own, and the ranks drift apart."
    )


def _fix(
    script: Script,
    loop: TrainingLoop,
    window: Window,
    played: Rounds,
    hold: Hold,
    stepping: list[tuple[Action, tuple[Condition, ...]]],
) -> Fix | None:
    """The condition of the step, or its negation, in the place of the wrong one."""
    leaf = _leaf(played, hold)
    step = _step_text(script, window, played, stepping)
    behind = window.boundary is not None and _steps_behind(loop)  # no condition of the loop covers that step
    if leaf is None or step is None or behind:
        return None
    node, positive = leaf
    text = step[1] if positive else step[0]
    joined = not text.startswith("not (") and (" or " in text or " and " in text)
    if joined and isinstance(script.parent(node), (ast.BoolOp, ast.UnaryOp)):
        text = f"({text})"
    if text == script.text(node):
        return None
    return Fix("Share the gradients in the micro-batches that step", "safe", (Edit(script.span(node), text),))


def _leaf(played: Rounds, hold: Hold) -> tuple[ast.expr, bool] | None:
    """The one part of the conditions that is about the round, and whether the sharing is off where it holds."""
    about = [(test, positive) for test, positive in hold.off if is_about_rounds(played, test)]
    if len(about) != 1:
        return None
    node, positive = about[0]
    while isinstance(node, (ast.BoolOp, ast.UnaryOp)):
        if isinstance(node, ast.UnaryOp):
            if not isinstance(node.op, ast.Not):
                return None
            node, positive = node.operand, not positive
            continue
        parts = [each for each in node.values if is_about_rounds(played, each)]
        if len(parts) != 1 or isinstance(node.op, ast.And) is not positive:
            return None
        node = parts[0]
    return None if dotted(node) else (node, positive)


def _step_text(
    script: Script,
    window: Window,
    played: Rounds,
    stepping: list[tuple[Action, tuple[Condition, ...]]],
) -> tuple[str, str] | None:
    """The condition of the step and its negation, as text that can stand where the wrong one stands."""
    if window.kind == "inner-range" and window.size_text and played.first == 0 and not stepping:
        size = window.size_text if dotted(window.size_node) or window.size_text.isdigit() else f"({window.size_text})"
        return f"{played.counter} == {size} - 1", f"{played.counter} != {size} - 1"
    if len(stepping) != 1 or len(stepping[0][1]) != 1 or stepping[0][0].helper is not None:
        return None
    test, positive = stepping[0][1][0]
    if any(isinstance(each, ast.Name) and _is_a_flag(played, each) for each in script.walk(test)):
        return None
    holds_, fails = script.text(test), f"not ({script.text(test)})"
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        old, new = ("==", "!=") if isinstance(test.ops[0], ast.Eq) else ("!=", "==")
        fails = new.join(holds_.rsplit(old, 1)) if holds_.count(old) == 1 else fails
    return (holds_, fails) if positive else (fails, holds_)


def _is_a_flag(played: Rounds, name: ast.Name) -> bool:
    return name.id != played.counter and is_about_rounds(played, name)
