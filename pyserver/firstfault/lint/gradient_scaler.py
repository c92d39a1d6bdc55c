"""The gradient scaler of a training loop: which object it is, which optimizer it steps, whether it unscales."""

import ast
from typing import NamedTuple

from firstfault.lint.bindings import keyword, last_binding
from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop


class Scaler(NamedTuple):
    """``scaler.scale(loss).backward()`` and ``scaler.step(optimizer)``."""

    name: str  # as the loop calls it
    steps: tuple[Action, ...]

    @property
    def optimizer(self) -> str:
        """The one optimizer that it steps; "" where there are several, or it has no name."""
        named = {dotted(each.inner.args[0]) for each in self.steps if each.inner.args}
        return named.pop() if len(named) == 1 else ""


def scaler_of(script: Script, loop: TrainingLoop) -> Scaler | None:
    """The scaler of the one way that a loop runs backward, or None where there is none or the text turns it off."""
    names = {_scaled_by(script, each.node) for each in loop.backwards if each.receiver == "scaler"}
    if len(names) != 1 or "" in names:
        return None
    name = names.pop()
    steps = tuple(each for each in loop.optimizer_steps if _receiver(each.inner) == name and each.inner.args)
    return Scaler(name, steps) if steps and not _is_off(script, loop, name) else None


def runs_always(scaler: Scaler, conditions: set[tuple[int, bool]]) -> bool:
    """The scaler steps whenever these conditions hold, so that it is there to unscale."""
    return all({(id(each.holder), each.positive) for each in step.guards} <= conditions for step in scaler.steps)


def unscales(script: Script) -> bool:
    """The file unscales somewhere, perhaps behind a name that the loop does not show."""
    return any(isinstance(each.func, ast.Attribute) and "unscale" in each.func.attr for each in script.nodes(ast.Call))


def _scaled_by(script: Script, backward: ast.AST) -> str:
    """``scaler`` of ``scaler.scale(loss).backward()``, also where the scaled loss has a name."""
    target = (
        backward.func.value if isinstance(backward, ast.Call) and isinstance(backward.func, ast.Attribute) else None
    )
    if isinstance(target, ast.Name):
        binding = last_binding(script, target.id, target)
        target = binding.value if binding else None
    return _receiver(target) if isinstance(target, ast.Call) and last_name(target.func) == "scale" else ""


def _receiver(call: ast.Call) -> str:
    return dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_off(script: Script, loop: TrainingLoop, name: str) -> bool:
    """``GradScaler(enabled=False)``."""
    binding = last_binding(script, name, loop.backwards[0].node)
    made = binding.value if binding and isinstance(binding.value, ast.Call) else None
    enabled = keyword(made, "enabled") if made is not None else None
    return isinstance(enabled, ast.Constant) and enabled.value is False
