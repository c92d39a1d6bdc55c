"""Which name of a script is the model, and how it is made."""

import ast

from firstfault.lint.bindings import Binding, bindings
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop
from firstfault.scaffold.needed import Needed


def model_of(script: Script, loop: TrainingLoop) -> str:
    """The plain name whose parameters an optimizer gets, or that is set to train; else ``model``."""
    for verb in ("parameters", "named_parameters", "train"):
        for call in script.calls(verb):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and _stands_in(script, owner.id, loop.node):
                return owner.id
    return "model"


def build_lines(script: Script, loop: TrainingLoop, model: str, needed: Needed) -> list[str]:
    made = _made(script, loop, model)
    if made is None or made.value is None:
        return ["def build():", '    raise NotImplementedError("FILL IN: return the model, small")']
    before = needed.by([made.value], made.node, {model})
    text = script.text(made.value)
    return [
        "def build():",
        *(f"    {line}" for line in before),
        f"    return ({text})" if "\n" in text else f"    return {text}",
    ]


def _made(script: Script, loop: TrainingLoop, model: str) -> Binding | None:
    """Where it is made, before it is moved, wrapped or prepared: the first value that does not come from itself."""
    for binding in bindings(script, model, loop.node):
        value = binding.value
        if binding.kind == "assign" and binding.item is None and value is not None and not _mentions(value, model):
            return binding
    return None


def _stands_in(script: Script, name: str, node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in script.walk(node))


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(value))
