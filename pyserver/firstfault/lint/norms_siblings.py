"""BatchNorm in a module of the workspace that the training script imports its model from, or that a setting names."""

import ast
from typing import NamedTuple

from firstfault.lint.config_values import Setting, config_value, setting_name
from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_choice import may_be_reached
from firstfault.lint.norms_families import families, has_batch_norm, has_own_norm, model_name
from firstfault.lint.norms_trained import Builders
from firstfault.lint.script import FUNCTIONS, Script, dotted
from firstfault.lint.workspace import Workspace

_HOPS = 2
_MOST_NAMES = 12  # a model is built by few names; the rest is not worth a user's wait
_LIBRARIES = ("torch.", "torchvision.", "timm.", "numpy.", "transformers.", "os.", "math.")


class Sibling(NamedTuple):
    """A place in another file, and the expression of this script that leads to it."""

    script: Script
    norm: BatchNorm
    used: ast.expr
    setting: Setting | None = None  # the line of a settings file that names the model


def configured_norm(
    script: Script, model: Builders | None, workspace: Workspace, home: Script | None = None
) -> tuple[BatchNorm, Setting] | None:
    """A call that builds a model by a name that a settings file of the project tells: one with BatchNorm."""
    for call in script.nodes(ast.Call):
        named = model_name(script, call)
        key = setting_name(named) if isinstance(named, ast.expr) else ""
        if not key or has_own_norm(script, call) or not (model is None or model.hold(call)):
            continue
        setting = config_value(home or script, key, workspace)
        if setting is not None and has_batch_norm(setting.value) and may_be_reached(script, call):
            return BatchNorm(call, "family", setting.value), setting
    return None


def sibling_norm(
    script: Script, model: Builders, workspace: Workspace, hops: int = _HOPS, home: Script | None = None
) -> Sibling | None:
    """The first BatchNorm behind the names that the model's builders import, one or two files away."""
    for name, used in [each for each in model.imported.items() if _is_called(script, *each)][:_MOST_NAMES]:
        found = _behind(script, name, workspace, hops, home or script)
        if found is not None and isinstance(used, ast.expr):
            return found._replace(used=used)
    return None


def _is_called(script: Script, name: str, used: ast.AST) -> bool:
    """Only what is called builds something; a library's own code is not of the workspace."""
    parent = script.parent(used)
    library = f"{script.imports.get(name.partition('.')[0], '')}.".startswith(_LIBRARIES)
    return not library and isinstance(parent, ast.Call) and parent.func is used


def _behind(script: Script, name: str, workspace: Workspace, hops: int, home: Script) -> Sibling | None:
    defined = workspace.definition(name, script)
    if defined is None:
        return None
    module, definition = defined
    built = Builders(module, [definition])
    for norm in (*batch_norms(module), *families(module)):
        if built.hold(norm.node) and norm.kind != "parameter groups" and not _converts_what_comes(module, norm):
            return Sibling(module, norm, norm.node)
    configured = configured_norm(module, built, workspace, home)
    if configured is not None:
        return Sibling(module, configured[0], configured[0].node, configured[1])
    return sibling_norm(module, built, workspace, hops - 1, home) if hops > 1 else None


def _converts_what_comes(module: Script, norm: BatchNorm) -> bool:
    """A wrapper that converts whatever model it is handed (a plugin, a launcher) says nothing about this one."""
    call = norm.node
    if norm.kind != "conversion" or not isinstance(call, ast.Call) or not call.args:
        return False
    name, function = dotted(call.args[0]), module.function(call)
    taken = function.args if isinstance(function, FUNCTIONS) else None
    return taken is not None and any(each.arg == name for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs))
