"""Facts about normalisation layers: where a script shows that a model has BatchNorm.

Constructors count, never names of attributes: ``self.batchnorm1`` may hold a GroupNorm.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from firstfault.lint.norms_choice import may_be_reached
from firstfault.lint.script import Script, dotted, per_script

Kind = Literal["constructor", "reference", "conversion", "parameter groups", "family"]

# The layers of other libraries and hand-written ones follow torch's name. The ones left out hold their statistics
# still, or normalise over parts of a batch on purpose.
_BATCH_NORM = re.compile(r"_?[A-Z]?\w*Batch_?Norm(?:Act)?(?:\d[dD])?")
_NOT_OF_THE_BATCH = re.compile(r"Frozen|Fixed|Static|Ghost|Virtual|Meta|Renorm|Instance|Layer|Group")
_GHOST = re.compile(r"virtual_b|ghost", re.IGNORECASE)
_OTHER_FRAMEWORKS = ("tensorflow.", "tf.", "keras.", "flax.", "mxnet.", "paddle.", "jax.")
_OTHER_NORM = re.compile(r"(?:Group|Layer|Instance|RMS|Frozen\w*|Filter\w*)_?Norm\w*|GroupNorm32|Identity")
_TORCH_BATCH_NORM = re.compile(r"torch\.nn\.(?:modules\.batchnorm\.)?(?:Sync)?BatchNorm(?:[123]d)?")
_TAKES_A_NORM = re.compile(r"norm|bn", re.IGNORECASE)
_PART_OF_A_CHECK = ("isinstance", "issubclass", "type", "hasattr", "getattr")


class BatchNorm(NamedTuple):
    """One place that shows that a model has BatchNorm."""

    node: ast.expr  # what to underline
    kind: Kind
    name: str  # what the user calls it: ``self.bn1``, else how the text spells it


@per_script
def batch_norms(script: Script) -> list[BatchNorm]:
    """The places of one script, in the order of the text."""
    found = [*_built(script), *_converted(script), *_grouped(script)]
    return sorted(found, key=lambda each: (each.node.lineno, each.node.col_offset))


def is_batch_norm_class(script: Script, node: ast.AST) -> bool:
    """Whether an expression names a BatchNorm class: torch's, another library's, or one of this file."""
    if isinstance(node, ast.Name):
        if node.id in script.definitions:
            return node.id in _local_batch_norms(script)
        name = script.imports.get(node.id, node.id).rpartition(".")[2]
    else:
        name = node.attr if isinstance(node, ast.Attribute) else ""
    return _is_batch_norm_name(name) and not script.qualified(node).startswith(_OTHER_FRAMEWORKS)


def _may_be_a_norm(script: Script, word: str) -> bool:
    return word in script.definitions or word in script.imports or _is_batch_norm_name(word)


@per_script
def _local_batch_norms(script: Script) -> set[str]:
    return {node.name for node in script.nodes(ast.ClassDef) if _is_local_batch_norm(script, node)}


def is_torch_batch_norm(script: Script, node: ast.AST) -> bool:
    """Whether it is one of torch's own classes, whose arguments are known."""
    local = isinstance(node, ast.Name) and node.id in script.definitions
    qualified = script.qualified(node)
    if isinstance(node, ast.Name) and node.id not in script.imports and "torch.nn" in star_imports(script):
        qualified = f"torch.nn.{node.id}"
    return not local and bool(_TORCH_BATCH_NORM.fullmatch(qualified))


def star_imports(script: Script) -> set[str]:
    """The modules that ``from module import *`` names."""
    return {node.module or "" for node in script.nodes(ast.ImportFrom) if node.names[0].name == "*"}


def checks_for_batch_norm(script: Script) -> list[ast.expr]:
    """Tests that ask whether a layer is BatchNorm: ``isinstance(m, nn.BatchNorm2d)``, ``"BatchNorm" in name``."""
    by_class = [node for node in script.calls("isinstance", "issubclass") if _asks_by_class(script, node)]
    by_name: list[ast.expr] = [
        parent
        for node in script.nodes(ast.Constant)
        if isinstance(node.value, str) and _is_batch_norm_name(node.value)
        if isinstance(parent := script.parent(node), (ast.Call, ast.Compare))
    ]
    by_type: list[ast.expr] = [
        node
        for node in script.nodes(ast.Compare)
        if any(is_batch_norm_class(script, each) for each in node.comparators)
    ]
    return [*by_class, *by_name, *by_type]


def mentions_other_norm(script: Script, nodes: Iterable[ast.AST]) -> bool:
    """Whether a normalisation that does not look at the batch is named there."""
    names = (script.qualified(each).rpartition(".")[2] for node in nodes for each in ast.walk(node))
    return any(_OTHER_NORM.fullmatch(name) for name in names)


def _is_batch_norm_name(name: str) -> bool:
    if "orm" not in name or name[0].islower():  # most names, at little cost
        return False
    return bool(_BATCH_NORM.fullmatch(name)) and not _NOT_OF_THE_BATCH.search(name)


def _is_local_batch_norm(script: Script, node: ast.ClassDef, depth: int = 4) -> bool:
    """A class of this file: by its bases, and where they tell nothing by its name."""
    for base in node.bases:
        if _OTHER_NORM.fullmatch(script.qualified(base).rpartition(".")[2]):
            return False
        local = script.definitions.get(dotted(base))
        if isinstance(local, ast.ClassDef) and local is not node and depth:
            if _is_local_batch_norm(script, local, depth - 1):
                return not _NOT_OF_THE_BATCH.search(node.name)
        elif _is_batch_norm_name(script.qualified(base).rpartition(".")[2]):
            return not _NOT_OF_THE_BATCH.search(node.name)
    return _is_batch_norm_name(node.name)


def _built(script: Script) -> Iterator[BatchNorm]:
    for node in (each for word in script.words if _may_be_a_norm(script, word) for each in script.named(word)):
        if not is_batch_norm_class(script, node):
            continue
        parent = script.parent(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            if _is_of_a_model(script, parent) and may_be_reached(script, parent):
                yield BatchNorm(parent, "constructor", _name_of(script, parent))
        elif _is_passed_on(script, node) and may_be_reached(script, node):
            yield BatchNorm(node, "reference", script.text(node))


def _is_of_a_model(script: Script, call: ast.Call) -> bool:
    """Not a layer that is put into eval mode on the spot, and not the inside of a ghost BatchNorm."""
    parent = script.parent(call)
    if isinstance(parent, ast.Attribute) and parent.attr == "eval":
        return False
    owner = script.class_of(call)
    return owner is None or not any(isinstance(each, ast.arg) and _GHOST.search(each.arg) for each in ast.walk(owner))


def _is_passed_on(script: Script, node: ast.expr) -> bool:
    """A class handed to whoever builds the layers: ``norm_layer=nn.BatchNorm2d``, ``norm = nn.BatchNorm2d``."""
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(above, (ast.IfExp, ast.BoolOp)):
            below = above
            continue
        if isinstance(above, ast.Call) and below in above.args:
            if script.qualified(above.func).rpartition(".")[2] != "partial":
                return False
            below = above
            continue
        if isinstance(above, ast.keyword):
            return bool(above.arg and _TAKES_A_NORM.search(above.arg)) and not _is_check(script, script.parent(above))
        if isinstance(above, (ast.Assign, ast.AnnAssign)):
            return below is above.value and _targets_take_a_norm(above)
        if isinstance(above, ast.arguments):
            return _takes_a_norm_by_default(above, below)
        return isinstance(above, ast.Return)
    return False


def _targets_take_a_norm(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(_TAKES_A_NORM.search(dotted(each).rpartition(".")[2]) for each in targets)


def _takes_a_norm_by_default(arguments: ast.arguments, default: ast.AST) -> bool:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return any(value is default and _TAKES_A_NORM.search(each.arg) for each, value in pairs)


def _converted(script: Script) -> Iterator[BatchNorm]:
    """Nobody converts a model that has none."""
    for call in script.nodes(ast.Call) if "convert_sync" in script.source else ():
        if script.qualified(call.func).rpartition(".")[2] in ("convert_sync_batchnorm", "convert_syncbn_model"):
            yield BatchNorm(call, "conversion", script.text(call.args[0]) if call.args else "the model")


def _grouped(script: Script) -> Iterator[BatchNorm]:
    """``isinstance(m, nn.BatchNorm2d)`` where the weights are sorted into groups for the optimizer.

    In a weight initialiser it is boilerplate, and next to LayerNorm it stands for any norm: neither counts.
    """
    for call in script.calls("isinstance", "issubclass"):
        if not _asks_by_class(script, call) or mentions_other_norm(script, call.args):
            continue
        test = script.parent(call)
        if isinstance(test, ast.If) and test.test is call and _collects_weights(test.body):
            yield BatchNorm(call, "parameter groups", script.text(call))


def _collects_weights(body: list[ast.stmt]) -> bool:
    collectors = ("append", "extend", "add", "update", "insert")
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in collectors
        and any(isinstance(each, ast.Attribute) and each.attr in ("weight", "bias") for each in ast.walk(node))
        for statement in body
        for node in ast.walk(statement)
    )


def _asks_by_class(script: Script, node: ast.Call) -> bool:
    if dotted(node.func) not in ("isinstance", "issubclass") or len(node.args) != 2:
        return False
    asked = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
    return any(is_batch_norm_class(script, each) for each in asked)


def _is_check(script: Script, node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) in _PART_OF_A_CHECK


def _name_of(script: Script, call: ast.Call) -> str:
    """The name that the layer is assigned to, where it is; else the constructor as it is written."""
    parent = script.parent(call)
    if isinstance(parent, ast.Assign) and parent.value is call and dotted(parent.targets[0]):
        return dotted(parent.targets[0])
    text = script.text(call)
    return text if "\n" not in text and len(text) <= 60 else script.text(call.func)
