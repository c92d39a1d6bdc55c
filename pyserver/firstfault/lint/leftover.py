"""What becomes of micro-batches that are left over when the data of an epoch does not fill its last window."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import bindings, number
from firstfault.lint.calls import last_name, verb
from firstfault.lint.epochs import cleared_between, is_endless, may_be_flushed, runs_again
from firstfault.lint.micro_count import Count, carried_count, iterable, micro_count
from firstfault.lint.script import LOOPS, Script, dotted, per_script
from firstfault.lint.training_loop import Action, TrainingLoop, actions_of
from firstfault.lint.window import Guard, Window, window_of_guard
from firstfault.lint.window_default import is_always_one
from firstfault.lint.workspace import Workspace

Fate = Literal["cleared", "leaks", "unknown"]
_EXPLICIT = ("modulo", "flag", "counter", "distance")
_LAST = re.compile(r"last|final|is_end|_end$|end_of|done|finish|flush", re.IGNORECASE)


class Leftover(NamedTuple):
    fate: Fate
    cleared_by: ast.Call | None
    counted: Count | None


def leftover(script: Script, loop: TrainingLoop, workspace: Workspace) -> Leftover | None:
    """None where every micro-batch is stepped, where windows go on over the epochs, or where the text does not tell."""
    window = loop.window
    if window is None or window.kind not in _EXPLICIT or is_always_one(script, window) or window.counter is None:
        return None
    if not _steps_only_at_the_boundary(script, loop) or closes_at_the_end(script, window):
        return None
    carried = carried_count(script, window, loop.node)
    if carried is None:
        return leftover_of_window(script, loop, window, workspace)
    node, count = carried
    if not isinstance(node, LOOPS):
        return _of_lightning(script, loop, count)
    lifted = replace(loop, node=node, actions=actions_of(script, node), in_helper=True)
    return leftover_of_window(script, lifted, window, workspace, count)


def _of_lightning(script: Script, loop: TrainingLoop, count: Count) -> Leftover | None:
    """Manual optimization: the trainer calls the method, and any other method of the class may take the rest."""
    owner = script.class_of(loop.node)
    own = set(script.walk(loop.node))
    calls = [each for each in script.walk(owner) if isinstance(each, ast.Call) and each not in own] if owner else []
    if any(verb(script, each) == "step" or "is_last_batch" in script.text(each) for each in calls):
        return None
    return Leftover("unknown", None, count)


def leftover_of_window(
    script: Script, loop: TrainingLoop, window: Window, workspace: Workspace, count: Count | None = None
) -> Leftover | None:
    """The same, where it is known that the step runs at the boundary alone."""
    node = loop.node
    if may_be_flushed(script, loop) or is_endless(script, node, workspace) or _fits(script, window, node):
        return None
    count = count or micro_count(script, window, node)
    again = runs_again(script, node)
    if again is False or (again is None and (_is_range(script, node) or _stops_early(script, node))):
        return None
    cleared = cleared_between(script, loop) or _cleared_at_a_start(script, loop)
    if (window.kind == "distance" or (count is not None and not count.restarts)) and again and cleared is not None:
        return Leftover("cleared", cleared, count)
    if count is None or not count.restarts:
        return None
    fate: Fate = "cleared" if cleared is not None else "leaks" if again else "unknown"
    return Leftover(fate, cleared, count)


def _steps_only_at_the_boundary(script: Script, loop: TrainingLoop) -> bool:
    """Another step of the loop may be the one that takes what is left, unless it is the other way to run the loop."""
    inside = [each for each in loop.optimizer_steps if not each.after_loop]
    closing = [each for each in inside if _window_guard(script, loop, each) is not None]
    ways = {(guard.holder, guard.positive) for each in closing for guard in each.guards}
    for step in inside:
        if step not in closing and not any((each.holder, not each.positive) in ways for each in step.guards):
            return False
    return bool(closing)


def _window_guard(script: Script, loop: TrainingLoop, action: Action) -> Guard | None:
    return next((each for each in action.guards if window_of_guard(script, each, loop.node) is not None), None)


def closes_at_the_end(script: Script, window: Window) -> bool:
    """``... or last batch`` in the condition, or in the flags that it is made of."""
    tests = [window.boundary.test] if window.boundary is not None else []
    counting = {id(each) for each in script.walk(window.counter)} if window.counter is not None else set()
    for test in tests:
        for short in _only_short_epochs(script, test, window):
            counting |= {id(each) for each in script.walk(short)} | {id(script.parent(short))}
    return any(_may_close(script, test, counting, 3) for test in (*tests, window.node))


def _only_short_epochs(script: Script, test: ast.expr, window: Window) -> Iterator[ast.expr]:
    """``or (len(loader) <= N and i + 1 == len(loader))``: closes epochs that are shorter than one window, no others."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.Or) or len(test.values) != 2:
        return
    for part in test.values:
        for each in part.values if isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) else ():
            if not isinstance(each, ast.Compare) or not isinstance(each.ops[0], (ast.Lt, ast.LtE)):
                continue
            length = isinstance(each.left, ast.Call) and last_name(each.left.func) == "len"
            if length and is_window_size(script, each.comparators[0], window, script):
                yield part


def _may_close(script: Script, test: ast.expr, counting: set[int], hops: int) -> bool:
    for node in script.walk(test):
        if id(node) in counting:
            continue
        if isinstance(node, ast.BoolOp) and _is_two_ways(script, node):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) == "len":
            return True
        name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        if name and hops:
            places = [each for each in bindings(script, name, node) if each.kind == "assign" and each.value is not None]
            flags = [each for each in places if _is_flag(script, each.value)]
            if len(flags) > 1 or any(
                _may_close(script, each.value, counting, hops - 1) for each in flags if each.value
            ):
                return True
            if _LAST.search(name):
                return True
    return False


def _is_two_ways(script: Script, node: ast.BoolOp) -> bool:
    """``full or last``; ``not full and not last`` of the negation. ``full and enabled`` is one way."""
    if isinstance(node.op, ast.Or):
        return True
    negated = (ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.IsNot)
    return all(
        (isinstance(each, ast.Compare) and isinstance(each.ops[0], negated))
        or (isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not))
        for each in node.values
    )


def _is_flag(script: Script, value: ast.expr | None) -> bool:
    if isinstance(value, (ast.Compare, ast.BoolOp)) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    ):
        return True
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _fits(script: Script, window: Window, loop: ast.AST) -> bool:
    """The script cares for the remainder, or the numbers show that there is none."""
    if any(is_window_size(script, size, window, script) for size in (*_rests(script), *_cut_off(script))):
        return True
    if _skips(script, window, loop):
        return True
    source = iterable(script, loop)
    if isinstance(source, ast.Call) and last_name(source.func) in ("range", "trange") and window.resolved is not None:
        length = number(script, source.args[-1]) if len(source.args) == 1 else None
        exact = length is not None and length.origin != "default" and window.resolved.origin != "default"
        return exact and length is not None and length.value % max(window.resolved.value, 1) == 0
    return _has_factor(script, source, window)


@per_script
def _rests(script: Script) -> tuple[ast.expr, ...]:
    """The N of ``len(loader) % N``, ``num_batches % N``, ``steps_per_epoch % N``."""
    return tuple(
        node.right
        for node in script.nodes(ast.BinOp)
        if isinstance(node.op, ast.Mod)
        and re.search(r"\blen\(|num_|n_batches|per_epoch|total|_len\b|length", ast.unparse(node.left))
    )


@per_script
def _cut_off(script: Script) -> tuple[ast.expr, ...]:
    """The N of ``len(loader) // N * N``: the rest is cut off on purpose."""
    return tuple(
        other
        for node in script.nodes(ast.BinOp)
        if isinstance(node.op, ast.Mult)
        for side, other in ((node.left, node.right), (node.right, node.left))
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.FloorDiv) and ast.dump(side.right) == ast.dump(other)
    )


def _skips(script: Script, window: Window, loop: ast.AST) -> bool:
    """``if i // N >= updates: continue``: the rest is not even run."""
    for node in script.walk(loop):
        leaves = isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Continue, ast.Break))
        for each in script.walk(node.test) if leaves and isinstance(node, ast.If) else ():
            if _floors(script, each, window):
                return True
            values = _values_by_name(script).get(each.id, ()) if isinstance(each, ast.Name) else ()
            if any(_counts_windows(script, value, window, loop) for value in values):
                return True
    return False


def _floors(script: Script, value: ast.AST, window: Window) -> bool:
    """``len(loader) // N``: the windows of one epoch."""
    floor = isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv)
    return floor and is_window_size(script, value.right, window, script)  # type: ignore[attr-defined]


def _counts_windows(script: Script, value: ast.expr, window: Window, loop: ast.AST) -> bool:
    """The windows of an epoch, or in the loop itself something that is made of the window that it is in."""
    if _floors(script, value, window):
        return True
    inside = loop in script.ancestors(value)
    return inside and any(_floors(script, each, window) for each in script.walk(value))


@per_script
def _values_by_name(script: Script) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for assign in script.nodes(ast.Assign):
        for target in assign.targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(assign.value)
    return found


def _has_factor(script: Script, source: ast.expr | None, window: Window) -> bool:
    """``range(updates * N)``: a whole number of windows."""
    if not isinstance(source, ast.Call) or last_name(source.func) not in ("range", "trange"):
        return False
    return any(
        isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult) and _names_size(script, each, window)
        for argument in source.args
        for each in ast.walk(argument)
    )


def _names_size(script: Script, node: ast.BinOp, window: Window) -> bool:
    return any(is_window_size(script, each, window, script) for each in (node.left, node.right))


def _is_range(script: Script, loop: ast.AST) -> bool:
    source = iterable(script, loop)
    return isinstance(source, ast.Call) and last_name(source.func) in ("range", "trange")


def _stops_early(script: Script, loop: ast.AST) -> bool:
    """The loop is left after a number of steps: what it goes through may have no end."""
    return any(
        isinstance(each, (ast.Break, ast.Return)) and script.loop(each) is loop
        for each in script.walk(loop)
        if isinstance(each, ast.stmt)
    )


def _cleared_at_a_start(script: Script, loop: TrainingLoop) -> ast.Call | None:
    """Cleared in the loop before the first backward of a window, or of every micro-batch."""
    first = min(loop.backwards, key=lambda each: script.line(each.node)).node
    for action in loop.zero_grads:
        together = script.function(action.inner) is script.function(first)
        early = together and script.line(action.inner) < script.line(first) and not action.after_loop
        if early and not action.guards:
            return action.node
        if early and any(_is_window_start(script, each) for each in action.guards):
            return action.node
    return None


def _is_window_start(script: Script, guard: Guard) -> bool:
    return guard.positive and any(isinstance(each, ast.Mod) for each in ast.walk(guard.test))
