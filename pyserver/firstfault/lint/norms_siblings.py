"""BatchNorm in a module of the workspace that the training script imports its model from."""

import ast
from typing import NamedTuple

from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_families import families
from firstfault.lint.norms_trained import Builders
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace

_HOPS = 2
_LIBRARIES = ("torch.", "torchvision.", "timm.", "numpy.", "transformers.", "os.", "math.")


class Sibling(NamedTuple):
    """A place in another file, and the expression of this script that leads to it."""

    script: Script
    norm: BatchNorm
    used: ast.expr


def sibling_norm(script: Script, model: Builders, workspace: Workspace, hops: int = _HOPS) -> Sibling | None:
    """The first BatchNorm behind the names that the model's builders import, one or two files away."""
    for name, used in model.imported.items():
        if f"{script.imports.get(name.partition('.')[0], '')}.".startswith(_LIBRARIES):
            continue
        found = _behind(script, name, workspace, hops)
        if found is not None and isinstance(used, ast.expr):
            return found._replace(used=used)
    return None


def _behind(script: Script, name: str, workspace: Workspace, hops: int) -> Sibling | None:
    defined = workspace.definition(name, script)
    if defined is None:
        return None
    module, definition = defined
    built = Builders(module, [definition])
    for norm in (*batch_norms(module), *families(module)):
        if built.hold(norm.node) and norm.kind != "parameter groups":
            return Sibling(module, norm, norm.node)
    return sibling_norm(module, built, workspace, hops - 1) if hops > 1 else None
