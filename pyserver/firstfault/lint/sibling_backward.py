"""Loops over the parts of a batch that let a method of another file run backward on each of them.

for part in batch.split(rows):
    losses.add_gradients(part)       # other file: value.mean().backward()
optimizer.step()
"""

import ast
from collections.abc import Iterator

from firstfault.lint.calls import backwards, verb
from firstfault.lint.objects import instance
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop, actions_of, calls_in
from firstfault.lint.window import guards, window_of_range
from firstfault.lint.workspace import Workspace

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def sibling_loops(script: Script, workspace: Workspace) -> Iterator[tuple[TrainingLoop, ast.Call, Script]]:
    """Each such loop with its backward calls, the call that reaches them, and the script that holds them."""
    for node in script.nodes(ast.For):
        window = window_of_range(script, node)
        if window is None or window.kind != "chunks":
            continue
        actions = actions_of(script, node)
        steps = [each for each in actions if each.verb == "step"]
        shared = {id(each.holder) for each in guards(script, node, script.loop(node) or script.tree)}
        own = [each for step in steps for each in step.guards if id(each.holder) not in shared]
        if not steps or own or not all(each.after_loop for each in steps):
            continue
        for call in calls_in(script, node):
            found = _elsewhere(script, call, workspace)
            if found is not None:
                home, function = found
                inside = tuple(each for each in backwards(home) if home.function(each.node) is function)
                if inside and not any(verb(home, each) == "step" for each in calls_in(home, function)):
                    yield TrainingLoop(node, window, inside, (), actions, in_helper=True), call, home


def _elsewhere(script: Script, call: ast.Call, workspace: Workspace) -> tuple[Script, _Function] | None:
    """The function or method of another file that a call runs."""
    defined = workspace.definition(dotted(call.func), script) if dotted(call.func) else None
    if defined is not None and isinstance(defined[1], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return (defined[0], defined[1]) if defined[0] is not script else None
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = instance(script, call.func.value, workspace)
    if owner is None or owner.definition is None or owner.script is None or owner.script is script:
        return None
    for each in owner.definition.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == call.func.attr:
            return owner.script, each
    return None
