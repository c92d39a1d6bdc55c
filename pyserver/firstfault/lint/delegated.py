"""Loops that hand the window's condition to a call, which runs backward and steps where the condition holds:
``scaler(loss, optimizer, update_grad=(i + 1) % N == 0)``, ``self.optimize(batch, (i + 1) % N == 0)``.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from firstfault.lint.calls import Backward, last_name, verb
from firstfault.lint.leftover import closes_at_the_end
from firstfault.lint.objects import argument
from firstfault.lint.script import LOOPS, Loop, Script, dotted, per_script
from firstfault.lint.training_loop import TrainingLoop, actions_of, calls_of, training_loops
from firstfault.lint.window import Guard, Window, window_of_guard

_FLAG = re.compile(r"update|step|sync|boundary|accum", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|^opt$", re.IGNORECASE)


@per_script
def delegated_loops(script: Script) -> tuple[tuple[TrainingLoop, Window], ...]:
    """Each such loop with its window, where the condition does not close at the end of the data too."""
    return (*_found(script), *_through_parameters(script))


def _found(script: Script) -> Iterator[tuple[TrainingLoop, Window]]:
    for call in script.nodes(ast.Call):
        loop = script.loop(call)
        if loop is None or not isinstance(loop, LOOPS) or verb(script, call) is not None or not _takes_both(call):
            continue
        for word in call.keywords:
            window = _window(script, word.value, loop) if _FLAG.search(word.arg or "") else None
            if window is None or window.is_literal_one:
                continue
            actions = actions_of(script, loop)
            if not any(each.verb == "step" for each in actions):
                backward = (Backward(call, call.args[0], "unknown"),)
                yield TrainingLoop(loop, window, backward, (), actions, in_helper=False), window


def _through_parameters(script: Script) -> Iterator[tuple[TrainingLoop, Window]]:
    """A function of the file runs backward, and steps under a parameter that its caller's loop computes."""
    for inner in training_loops(script):
        function = inner.node
        if inner.window is not None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        flags = [
            {dotted(guard.test) for guard in step.guards if guard.positive and dotted(guard.test)}
            for step in inner.optimizer_steps
        ]
        shared = set.intersection(*flags) if flags else set()
        for call in calls_of(script, function) if shared else ():
            loop = script.loop(call)
            for name in shared if loop is not None else ():
                given = argument(call, function, name)
                window = _window(script, given, loop) if given is not None and loop is not None else None
                if window is None or window.is_literal_one or loop is None:
                    continue
                actions = actions_of(script, loop)
                yield replace(inner, node=loop, window=window, actions=actions, in_helper=True), window


def _window(script: Script, test: ast.expr, loop: Loop) -> Window | None:
    """The window of a condition that is no `if`'s and leaves a rest: the call decides what to do with it."""
    found = window_of_guard(script, Guard(test, ast.If(test=test, body=[], orelse=[]), positive=True), loop)
    if found is None or found.counter is None or closes_at_the_end(script, found):
        return None
    return replace(found, boundary=None)


def _takes_both(call: ast.Call) -> bool:
    names = [last_name(each) for each in (*call.args, *(word.value for word in call.keywords))]
    return bool(call.args) and "loss" in names[0].lower() and any(_OPTIMIZER.search(each) for each in names)
