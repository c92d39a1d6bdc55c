"""Loops that hand loss, optimizer and the window's condition to one call, which runs backward and perhaps steps.

scaler(loss, optimizer, parameters=model.parameters(), update_grad=(i + 1) % steps == 0)
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from firstfault.lint.calls import Backward, last_name, verb
from firstfault.lint.leftover import closes_at_the_end
from firstfault.lint.script import LOOPS, Loop, Script, per_script
from firstfault.lint.training_loop import TrainingLoop, actions_of
from firstfault.lint.window import Guard, Window, window_of_guard

_FLAG = re.compile(r"update|step|sync|boundary|accum", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|^opt$", re.IGNORECASE)


@per_script
def delegated_loops(script: Script) -> tuple[tuple[TrainingLoop, Window], ...]:
    """Each such loop with its window, where the condition does not close at the end of the data too."""
    return tuple(_found(script))


def _found(script: Script) -> Iterator[tuple[TrainingLoop, Window]]:
    for call in script.nodes(ast.Call):
        loop = script.loop(call)
        if loop is None or not isinstance(loop, LOOPS) or verb(script, call) is not None or not _takes_both(call):
            continue
        for word in call.keywords:
            window = _window(script, word.value, loop) if _FLAG.search(word.arg or "") else None
            if window is None or window.is_literal_one or closes_at_the_end(script, window):
                continue
            actions = actions_of(script, loop)
            if not any(each.verb == "step" for each in actions):
                backward = (Backward(call, call.args[0], "unknown"),)
                yield TrainingLoop(loop, window, backward, (), actions, in_helper=False), window


def _window(script: Script, test: ast.expr, loop: Loop) -> Window | None:
    """The window of a condition that is no `if`'s: the call decides what to do with it."""
    found = window_of_guard(script, Guard(test, ast.If(test=test, body=[], orelse=[]), positive=True), loop)
    return replace(found, boundary=None) if found is not None and found.counter is not None else None


def _takes_both(call: ast.Call) -> bool:
    names = [last_name(each) for each in (*call.args, *(word.value for word in call.keywords))]
    return bool(call.args) and "loss" in names[0].lower() and any(_OPTIMIZER.search(each) for each in names)
