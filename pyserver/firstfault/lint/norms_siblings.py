"""BatchNorm in a module of the workspace that the training script imports its model from."""

import ast
from typing import NamedTuple

from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_families import families
from firstfault.lint.norms_trained import Builders
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace

_HOPS = 2
_MOST_NAMES = 12  # a model is built by few names; the rest is not worth a user's wait
_LIBRARIES = ("torch.", "torchvision.", "timm.", "numpy.", "transformers.", "os.", "math.")


class Sibling(NamedTuple):
    """A place in another file, and the expression of this script that leads to it."""

    script: Script
    norm: BatchNorm
    used: ast.expr


def sibling_norm(script: Script, model: Builders, workspace: Workspace, hops: int = _HOPS) -> Sibling | None:
    """The first BatchNorm behind the names that the model's builders import, one or two files away."""
    for name, used in [each for each in model.imported.items() if _is_called(script, *each)][:_MOST_NAMES]:
        found = _behind(script, name, workspace, hops)
        if found is not None and isinstance(used, ast.expr):
            return found._replace(used=used)
    return None


def _is_called(script: Script, name: str, used: ast.AST) -> bool:
    """Only what is called builds something; a library's own code is not of the workspace."""
    parent = script.parent(used)
    library = f"{script.imports.get(name.partition('.')[0], '')}.".startswith(_LIBRARIES)
    return not library and isinstance(parent, ast.Call) and parent.func is used


def _behind(script: Script, name: str, workspace: Workspace, hops: int) -> Sibling | None:
    defined = workspace.definition(name, script)
    if defined is None:
        return None
    module, definition = defined
    if hops == 1 and not _may_have(module):
        return None
    built = Builders(module, [definition])
    for norm in (*batch_norms(module), *families(module)):
        if built.hold(norm.node) and norm.kind != "parameter groups":
            return Sibling(module, norm, norm.node)
    return sibling_norm(module, built, workspace, hops - 1) if hops > 1 else None


def _may_have(module: Script) -> bool:
    return bool(batch_norms(module) or families(module))
