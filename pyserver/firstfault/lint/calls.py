"""Which calls of a script run backward, step an optimizer, clip, zero, unscale: the verbs of a training loop.

A call is known by what it is called on: the text's own bindings first, the habits of naming where they are silent.
"""

import ast
import re
from typing import Literal, NamedTuple

from firstfault.lint.bindings import Binding, keyword, last_binding
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.script import last_name as last_name

Receiver = Literal[
    "tensor",
    "scaler",
    "apex",
    "accelerator",
    "fabric",
    "engine",
    "manual_backward",
    "mmengine",
    "lightning",  # automatic optimization: the returned loss is divided and back-propagated by the trainer
    "unknown",
]
Verb = Literal["step", "zero_grad", "clip", "unscale", "schedule", "scaler_update", "all_reduce"]

_OPTIMIZER = re.compile(r"optim|^opt\b|_opt\b|^opt_|^opt[a-z]?$|adam|sgd|lion", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched|lr_|^lr|warm|decay|annealer|ramp", re.IGNORECASE)
_SCALER = re.compile(r"scaler|^amp$", re.IGNORECASE)
_BASE_CLASS_STEPS = {"step_optimizer", "step_optimizers", "optimizer_step"}  # of a trainer that the file derives from
_CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients", "clip_grads_with_norm_"}


class Backward(NamedTuple):
    """One call that runs backward, or the ``return`` that hands a loss to who does, and the loss."""

    node: ast.Call | ast.Return
    loss: ast.expr
    receiver: Receiver


@per_script
def backwards(script: Script) -> tuple[Backward, ...]:
    """Every place that runs backward, in the order of the text; then what Lightning's trainer runs backward on."""
    if _is_of_paddle(script):
        return ()
    named = script.calls("backward", "manual_backward", "update_params")
    calls = sorted(named, key=lambda each: (each.lineno, each.col_offset))
    found = [backward for call in calls if (backward := _backward(script, call))]
    return (*found, *_returned_to_lightning(script))


def _is_of_paddle(script: Script) -> bool:
    """PaddlePaddle gives the same names to what it does: what was measured with torch says nothing about it."""
    used = {each.partition(".")[0] for each in script.imports.values()}
    return "torch" not in used and bool(used & {"paddle", "paddlenlp"})


def verb(script: Script, call: ast.Call) -> Verb | None:
    """What a call does to the window, or None."""
    if not isinstance(call.func, ast.Attribute):
        return "clip" if dotted(call.func) in _CLIPS else None
    name = call.func.attr
    if name in _CLIPS:
        return "clip"
    if name in ("zero_grad", "all_reduce"):
        return name  # type: ignore[return-value]
    if name == "unscale_":
        return "unscale"
    if name == "step":
        return _step(script, call)
    if name in _BASE_CLASS_STEPS and not _is_defined(script, call, name):
        return "step"
    if name == "update" and _SCALER.search(dotted(call.func.value).rpartition(".")[2]):
        return "scaler_update"
    return "schedule" if name in ("step_update", "step_batch") else None


def _is_defined(script: Script, call: ast.Call, name: str) -> bool:
    """The file has the function itself: what it does is read there."""
    owner = script.class_of(call)
    return name in script.definitions or (owner is not None and f"{owner.name}.{name}" in script.definitions)


def origin(script: Script, node: ast.expr, hops: int = 4) -> str:
    """The qualified name of the call that made an object: ``torch.optim.AdamW``, ``accelerate.Accelerator``."""
    name = dotted(node)
    binding = last_binding(script, name, node) if name else None
    value = binding.value if binding else None
    if binding is not None and binding.kind == "loop":
        value = _walked_over(script, binding)
    if isinstance(value, ast.IfExp):
        value = value.body if not isinstance(value.body, ast.Constant) else value.orelse
    if isinstance(value, ast.Call):
        return script.qualified(value.func)
    return origin(script, value, hops - 1) if value is not None and hops and dotted(value) else ""


def _walked_over(script: Script, binding: Binding) -> ast.expr | None:
    """``actor_optimizer`` of ``for net, o in ((actor, actor_optimizer), (critic, critic_optimizer))``."""
    loop = script.parent(binding.node)
    rows = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if not isinstance(rows, (ast.Tuple, ast.List)) or not rows.elts:
        return None
    target, first = binding.node, rows.elts[0]
    if not isinstance(target, ast.Tuple):
        return first
    names = [dotted(each) for each in target.elts]
    if not isinstance(first, (ast.Tuple, ast.List)) or len(first.elts) != len(names) or binding.name not in names:
        return None
    return first.elts[names.index(binding.name)]


def _backward(script: Script, call: ast.Call) -> Backward | None:
    if not isinstance(call.func, ast.Attribute):
        return None
    name, target = call.func.attr, call.func.value
    if name == "update_params" and len(call.args) == 1:  # mmengine divides, runs backward and steps in one call
        return Backward(call, call.args[0], "mmengine")
    if name == "manual_backward" and call.args:
        return Backward(call, call.args[0], "manual_backward")
    if name != "backward" or (dotted(target) == "self" and _is_defined(script, call, name)):
        return None
    if script.qualified(call.func) == "torch.autograd.backward":
        return Backward(call, call.args[0], "tensor") if call.args else None
    loss = call.args[0] if call.args else keyword(call, "loss")
    if loss is None:
        return _tensor_backward(script, call, target)
    receiver = _owner_kind(script, target)
    return Backward(call, loss, receiver) if receiver != "tensor" else Backward(call, target, "tensor")


def _returned_to_lightning(script: Script) -> list[Backward]:
    """``return loss`` of a LightningModule's ``training_step``, where the trainer runs backward."""
    found = []
    for node in script.nodes(ast.Return):
        function, owner = script.function(node), script.class_of(node)
        if getattr(function, "name", "") != "training_step" or owner is None or not _is_lightning(script, owner):
            continue
        loss = node.value
        if isinstance(loss, ast.Dict):
            keys = [each.value if isinstance(each, ast.Constant) else None for each in loss.keys]
            loss = loss.values[keys.index("loss")] if "loss" in keys else None
        if loss is not None:
            found.append(Backward(node, loss, "lightning"))
    return found


def _is_lightning(script: Script, owner: ast.ClassDef) -> bool:
    derived = any(script.qualified(each).endswith("LightningModule") for each in owner.bases)
    return derived and not any(
        isinstance(each, ast.Attribute) and each.attr == "automatic_optimization" for each in script.walk(owner)
    )


def _tensor_backward(script: Script, call: ast.Call, target: ast.expr) -> Backward | None:
    """``loss.backward()``, ``scaler.scale(loss).backward()``, and either of both in one conditional expression."""
    if isinstance(target, ast.IfExp):
        first, second = (_tensor_backward(script, call, each) for each in (target.body, target.orelse))
        return first if first and first.receiver != "tensor" else second
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr == "scale":
        return Backward(call, target.args[0], "scaler") if target.args else None
    scaled = last_binding(script, dotted(target), target) if isinstance(target, ast.Name) else None
    if scaled and isinstance(scaled.value, ast.Call) and scaled.value.args:
        made_by = scaled.value.func
        if isinstance(made_by, ast.Attribute) and made_by.attr == "scale_loss":
            return Backward(call, scaled.value.args[0], "apex")
        if isinstance(made_by, ast.Attribute) and made_by.attr == "scale" and _SCALER.search(dotted(made_by.value)):
            return Backward(call, scaled.value.args[0], "scaler")
    return Backward(call, target, "tensor")


def _owner_kind(script: Script, target: ast.expr) -> Receiver:
    """Who runs ``x.backward(loss)``."""
    if isinstance(target, ast.Call):
        return "tensor"
    made_by = origin(script, target).lower()
    name = dotted(target).lower()
    for text in (made_by, name):
        if "accelerat" in text:
            return "accelerator"
        if "fabric" in text:
            return "fabric"
        if "deepspeed" in text or text.endswith("engine"):
            return "engine"
    if not name or "loss" in name:
        return "tensor"
    return "engine" if "deepspeed" in script.imports.values() else "unknown"


def _step(script: Script, call: ast.Call) -> Verb | None:
    assert isinstance(call.func, ast.Attribute)
    target = call.func.value
    name = dotted(target)
    last = name.rpartition(".")[2] if name else ""
    if _SCHEDULER.search(last):
        return "schedule"
    if isinstance(target, ast.Subscript):
        last = dotted(target.value).rpartition(".")[2]
    if _OPTIMIZER.search(last) or (call.args and _SCALER.search(last)):
        return "step"
    made_by = origin(script, target).lower() if name else ""
    if "lr_scheduler" in made_by or "schedule" in made_by:
        return "schedule"
    if any(word in made_by for word in ("optim", "deepspeed", "gradscaler", "adam", "sgd")):
        return "step"
    first = dotted(call.args[0]) if call.args else ""
    return "step" if first and _OPTIMIZER.search(first.rpartition(".")[2]) else None


def argument_of(call: ast.Call, function: ast.AST, name: str) -> ast.expr | Literal["hidden"] | None:
    """The argument that a call gives to a parameter: None for the default, "hidden" where ``*args`` may hold it."""
    for each in call.keywords:
        if each.arg == name:
            return each.value
    positional = [arg.arg for arg in _positional(function)]
    if positional and positional[0] in ("self", "cls"):
        positional = positional[1:]
    index = positional.index(name) if name in positional else len(call.args)
    starred = any(isinstance(each, ast.Starred) for each in call.args[: index + 1])
    if not starred and index < len(call.args):
        return call.args[index]
    return "hidden" if starred or any(each.arg is None for each in call.keywords) else None


def _positional(function: ast.AST) -> list[ast.arg]:
    arguments = getattr(function, "args", None)
    return [*arguments.posonlyargs, *arguments.args] if isinstance(arguments, ast.arguments) else []
