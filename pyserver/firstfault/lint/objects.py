"""What kind of object a name holds: which class made it, however often it was moved, wrapped or handed on."""

import ast
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.bindings import Binding, bindings
from firstfault.lint.calls import argument_of, last_name
from firstfault.lint.script import Script, dotted
from firstfault.lint.workspace import Workspace

_HOPS = 5
_MOVES = {"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "compile"}
_WRAPPERS = {
    "DataParallel",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "compile",
    "get_peft_model",
    "prepare",
    "setup",
    "setup_module",
    "initialize",
    "convert_sync_batchnorm",
    "prepare_model_for_kbit_training",
}


class Instance(NamedTuple):
    name: str  # the qualified name of what made it
    call: ast.Call
    script: Script | None  # where the class is defined, if in the workspace
    definition: ast.ClassDef | None
    home: Script | None = None  # where the call stands


def instance(script: Script, node: ast.expr, workspace: Workspace, hops: int = _HOPS) -> Instance | None:
    """The object that an expression holds, or None where the text does not tell."""
    if hops <= 0:
        return None
    if isinstance(node, ast.Call):
        return _made(script, node, workspace, hops)
    if isinstance(node, ast.IfExp):
        chosen = node.orelse if isinstance(node.body, ast.Constant) else node.body
        return instance(script, chosen, workspace, hops - 1)
    name = dotted(node)
    if not name:
        return None
    for binding in bindings(script, name, node):
        found = _bound(script, binding, workspace, hops - 1)
        if found is not None:
            return found
    return None


def _bound(script: Script, binding: Binding, workspace: Workspace, hops: int) -> Instance | None:
    if binding.kind == "parameter":
        return _argument(script, binding, workspace, hops)
    if binding.kind == "unpacked" and isinstance(binding.value, ast.Call):
        # model, optimizer = accelerator.prepare(model, optimizer): the same order goes in and out.
        arguments = binding.value.args
        wraps = last_name(binding.value.func) in _WRAPPERS and binding.item is not None
        if wraps and binding.item is not None and binding.item < len(arguments):
            return _other_than(script, arguments[binding.item], binding, workspace, hops)
        return _from_factory(script, binding.value, binding.item, workspace, hops)
    if binding.kind not in ("assign", "with") or binding.value is None:
        return None
    return _other_than(script, binding.value, binding, workspace, hops)


def _other_than(script: Script, value: ast.expr, binding: Binding, workspace: Workspace, hops: int) -> Instance | None:
    """``model = model.cuda()`` says nothing that an earlier binding does not say."""
    return None if dotted(value) == binding.name else instance(script, value, workspace, hops)


def _argument(script: Script, binding: Binding, workspace: Workspace, hops: int) -> Instance | None:
    """What the calls of the same file hand to a parameter, or those of the files that import it."""
    function = script.function(binding.node)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    here = ((script, call) for call in script.calls(function.name, _class_name(script, function)))
    for home, call in itertools.chain(here, calls_elsewhere(script, function, workspace)):
        given = argument(call, function, binding.name)
        found = instance(home, given, workspace, hops) if given is not None else None
        if found is not None:
            return found
    return None


def calls_elsewhere(script: Script, function: ast.AST, workspace: Workspace) -> Iterator[tuple[Script, ast.Call]]:
    """The calls of a function, or of the class whose constructor it is, in the files that import this one."""
    name = _class_name(script, function)
    if not name and script.parent(function) is script.tree:
        name = getattr(function, "name", "")
    for home in workspace.importers(script) if name else ():
        for call in home.calls(name):
            found = workspace.definition(dotted(call.func), home) if dotted(call.func) else None
            if found is not None and os.path.abspath(found[0].path) == os.path.abspath(script.path):
                yield home, call


def _class_name(script: Script, function: ast.AST) -> str:
    """Arguments of ``__init__`` are given where the class is called."""
    above = script.parent(function)
    is_init = isinstance(above, ast.ClassDef) and getattr(function, "name", "") == "__init__"
    return above.name if is_init and isinstance(above, ast.ClassDef) else ""


def argument(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """What a call gives for a parameter; for a method without its ``self``."""
    given = argument_of(call, function, name)
    return None if given == "hidden" else given


def _made(script: Script, call: ast.Call, workspace: Workspace, hops: int) -> Instance | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES and not dotted(call.func).startswith("torch."):
        return instance(script, call.func.value, workspace, hops - 1)
    if last_name(call.func) in _WRAPPERS and call.args:
        return instance(script, call.args[0], workspace, hops - 1)
    name = script.qualified(call.func)
    defined = workspace.definition(dotted(call.func), script) or _loaded(script, call, workspace)
    if defined and isinstance(defined[1], ast.ClassDef):
        return Instance(name, call, defined[0], defined[1], script)
    if not name:
        return None
    if defined and isinstance(defined[1], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _returned(defined[0], defined[1], workspace, hops)
    return Instance(name, call, None, None, script)


def _loaded(script: Script, call: ast.Call, workspace: Workspace) -> tuple[Script, ast.AST] | None:
    """``Tagger.from_pretrained(...)`` of a class of the workspace that computes its own output."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOADERS:
        return None
    for owner in _classes(script, call.func.value):
        found = workspace.definition(owner, script)
        if found and isinstance(found[1], ast.ClassDef) and _has_method(found[1], "forward"):
            return found
    return None


_LOADERS = {"from_pretrained", "from_config", "load_from_checkpoint"}


def _classes(script: Script, node: ast.expr) -> list[str]:
    """The class that is named, or those of the table that it is taken from: ``_, model_class = KINDS[kind]``."""
    places = bindings(script, node.id, node) if isinstance(node, ast.Name) else []
    row: ast.expr | None = places[-1].value if places else None
    item = places[-1].item if places else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        row, item = node.value, node.slice.value if isinstance(node.slice.value, int) else None
    if item is None or not isinstance(row, ast.Subscript):
        return [dotted(node)]
    parts = (each.elts[item : item + 1] for each in _rows(script, row) if isinstance(each, ast.Tuple))
    return [dotted(part) for each in parts for part in each]


def _rows(script: Script, node: ast.Subscript) -> list[ast.expr]:
    places = bindings(script, dotted(node.value), node) if dotted(node.value) else []
    tables = [each.value.values for each in places if isinstance(each.value, ast.Dict)]
    return tables[0] if len(tables) == 1 else []


def _has_method(owner: ast.ClassDef, name: str) -> bool:
    return any(isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == name for each in owner.body)


def _from_factory(script: Script, call: ast.Call, item: int | None, workspace: Workspace, hops: int) -> Instance | None:
    """``model, tokenizer = build(config)``: one of several things that a function of the workspace returns."""
    defined = workspace.definition(dotted(call.func), script)
    if defined is None or not isinstance(defined[1], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    return _returned(defined[0], defined[1], workspace, hops, item)


def _returned(
    script: Script, function: ast.AST, workspace: Workspace, hops: int, item: int | None = None
) -> Instance | None:
    """A factory of the workspace: what it returns."""
    for each in script.returns(function):
        value = each.value
        if item is not None and isinstance(value, ast.Call) and hops:  # it hands on what another factory returns
            found = _from_factory(script, value, item, workspace, hops - 1)
        else:
            if item is not None:
                value = value.elts[item] if isinstance(value, ast.Tuple) and item < len(value.elts) else None
            found = instance(script, value, workspace, hops - 1) if value is not None else None
        if found is not None:
            return found
    return None
