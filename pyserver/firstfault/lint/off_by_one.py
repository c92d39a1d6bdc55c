"""Windows whose condition already holds for the first micro-batch, because it is counted from zero."""

import ast
from typing import NamedTuple

from firstfault.lint.bindings import number
from firstfault.lint.clearing import runs_with_every_backward
from firstfault.lint.micro_count import Count, counting_test, micro_count
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop
from firstfault.lint.window import Window


class OffByOne(NamedTuple):
    window: Window
    counted: Count
    test: ast.expr  # `i % N == 0`
    skips_first: bool  # the first is left out (`and i > 0`): then the first window holds one micro-batch too many


def off_by_one(script: Script, loop: TrainingLoop) -> OffByOne | None:
    """``i % N == 0`` behind backward, with ``i`` counted from zero by the loop itself or by a counter of each run."""
    window = loop.window
    if window is None or window.kind not in ("modulo", "flag") or window.is_literal_one or loop.in_helper:
        return None
    count = micro_count(script, window, loop.node)
    test = counting_test(script, window)
    if count is None or count.first != 0 or not count.restarts or test is None or not _compares_with_zero(test):
        return None
    last = max(script.line(each.node) for each in loop.backwards)
    steps = [each for each in loop.optimizer_steps if not each.after_loop]
    if not steps or any(script.line(each.node) < last for each in steps):
        return None  # a step in front of backward takes what the rounds before have collected
    if any(runs_with_every_backward(script, loop, each) for each in steps):
        return None  # every round is stepped: the condition is about another optimizer
    whole = script.parent(test)
    if _holds_by_itself(window, whole):
        return OffByOne(window, count, test, False)
    if isinstance(whole, ast.BoolOp) or (window.boundary is not None and isinstance(window.boundary.test, ast.BoolOp)):
        return OffByOne(window, count, test, True) if _leaves_out_zero(script, whole, count) else None
    return OffByOne(window, count, test, False)


def _holds_by_itself(window: Window, whole: ast.AST | None) -> bool:
    """``i % N == 0 or last``: what else may close the window takes nothing from the first micro-batch."""
    either = isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.Or)
    return either and window.boundary is not None and window.boundary.test is whole and not window.inverted


def _compares_with_zero(test: ast.expr) -> bool:
    """``i % N == 0``, ``not i % N``; ``i % N == N - 1`` closes a whole window."""
    if isinstance(test, ast.Compare):
        return any(isinstance(each, ast.Constant) and each.value == 0 for each in (test.left, *test.comparators))
    return isinstance(test, (ast.UnaryOp, ast.BinOp))


def _leaves_out_zero(script: Script, test: ast.AST | None, count: Count) -> bool:
    """``i > 0 and i % N == 0``."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And) or len(test.values) != 2:
        return False
    for each in test.values:
        named = isinstance(each, ast.Compare) and isinstance(each.left, ast.Name) and each.left.id == count.name
        if named and isinstance(each, ast.Compare):
            limit = number(script, each.comparators[0])
            above = isinstance(each.ops[0], (ast.Gt, ast.NotEq)) and limit is not None and limit.value == 0
            return above or (isinstance(each.ops[0], ast.GtE) and limit is not None and limit.value == 1)
        if isinstance(each, ast.Name) and each.id == count.name:
            return True
    return False
