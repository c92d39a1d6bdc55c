"""BatchNorm in a module of the workspace that the training script imports its model from, or that a setting names."""

import ast
from typing import NamedTuple

from firstfault.lint.bindings import bindings
from firstfault.lint.calls import argument_of
from firstfault.lint.config_values import Setting, config_value, setting_name
from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_choice import may_be_reached
from firstfault.lint.norms_families import families, has_batch_norm, has_own_norm, model_name, words_of
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
        found = _behind(script, name, workspace, hops, home or script) or _by_word(script, name, used, workspace)
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


def _by_word(script: Script, name: str, used: ast.AST, workspace: Workspace) -> Sibling | None:
    """The name of the library's model is handed over: ``Net(config.BACKBONE)`` of ``timm.create_model(backbone)``."""
    defined, call = workspace.definition(name, script), script.parent(used)
    if defined is None or not isinstance(call, ast.Call):
        return None
    module, definition = defined
    built = Builders(module, [definition])
    for inner in module.nodes(ast.Call):
        named, function = model_name(module, inner), module.function(inner)
        if not isinstance(named, ast.Name) or function is None or has_own_norm(module, inner) or not built.hold(inner):
            continue
        given = argument_of(call, function, named.id)
        words = _words(script, given, workspace) if isinstance(given, ast.expr) else []
        found = next((each for each in words if has_batch_norm(each)), None)
        if found is not None and may_be_reached(module, inner):
            return Sibling(module, BatchNorm(inner, "family", found), inner)
    return None


def _words(script: Script, node: ast.expr, workspace: Workspace) -> list[str]:
    """What a word may be, also where it is a constant of another module: ``config.BACKBONE``."""
    words = words_of(script, node)
    head, _, rest = dotted(node).partition(".")
    qualified = script.imports.get(head, "")
    if words or not qualified:
        return words
    home, _, name = (f"{qualified}.{rest}" if rest else qualified).rpartition(".")
    module = workspace.module(home or ".", script) if name else None
    places = bindings(module, name, module.tree) if module is not None else []
    return [word for each in places if module and each.value is not None for word in words_of(module, each.value)]


def _converts_what_comes(module: Script, norm: BatchNorm) -> bool:
    """A wrapper that converts whatever model it is handed (a plugin, a launcher) says nothing about this one."""
    call = norm.node
    if norm.kind != "conversion" or not isinstance(call, ast.Call) or not call.args:
        return False
    name, function = dotted(call.args[0]), module.function(call)
    taken = function.args if isinstance(function, FUNCTIONS) else None
    return taken is not None and any(each.arg == name for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs))
