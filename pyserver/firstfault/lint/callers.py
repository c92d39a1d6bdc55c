"""What the files that import a training script hand over to it: the model's makers, the window's size, its Trainer.

engine.py                                           train.py
def fit(net, loader, optimizer, every=1): ...       fit(resnet50(), loader, optimizer, every=config.ACCUM)
"""

import ast
from collections.abc import Iterator

from firstfault.lint.bindings import Number, number
from firstfault.lint.config_values import config_value
from firstfault.lint.ignored_labels import value_of
from firstfault.lint.objects import argument, calls_elsewhere
from firstfault.lint.script import Function, Script, last_name
from firstfault.lint.training_loop import calls_of
from firstfault.lint.workspace import Workspace

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_TRAINER_SIZE = "accumulate_grad_batches"


def callers(script: Script, node: ast.AST, workspace: Workspace) -> Iterator[tuple[Script, ast.Call, _Function]]:
    """The calls in other files of the function around a node, or of who calls that in this file; of a method's class,
    with the function that takes the arguments.
    """
    todo: list[Function | None] = [script.function(node)]
    for function in todo:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        owner = script.parent(function)
        taking = _constructor(owner) if isinstance(owner, ast.ClassDef) else function
        if taking is not None:
            yield from ((home, call, taking) for home, call in calls_elsewhere(script, taking, workspace))
        around = [script.function(call) for call in calls_of(script, function)]
        todo += [each for each in around if each not in todo]


def handed_number(
    home: Script, call: ast.Call, taking: _Function, size: ast.expr | None, workspace: Workspace
) -> float | None:
    """The number that a call gives for the setting which an expression names: ``self.every``, ``args.every``."""
    name = last_name(size) if size is not None else ""
    given = argument(call, taking, name) if name else None
    return value_of(home, given, workspace) if given is not None else None


def trainer_size(script: Script, workspace: Workspace) -> tuple[str, Number | None] | None:
    """The window that a Lightning Trainer gets in a file that imports this one, or from the project's settings."""
    for home in workspace.importers(script):
        for word in (each for call in home.calls("Trainer") for each in call.keywords if each.arg == _TRAINER_SIZE):
            return home.text(word.value), number(home, word.value)
    told = config_value(script, _TRAINER_SIZE, workspace)
    return (told.value, Number(int(told.value), "constant", script.tree)) if told and told.value.isdigit() else None


def _constructor(owner: ast.ClassDef) -> _Function | None:
    return next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
