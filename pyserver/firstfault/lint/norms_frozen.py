"""Whether BatchNorm is kept from seeing the micro-batches: held in eval mode, frozen, or replaced."""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.norms import BatchNorm, checks_for_batch_norm, mentions_other_norm
from firstfault.lint.script import FUNCTIONS, LOOPS, Script, dotted, last_name, per_script
from firstfault.lint.training_loop import TrainingLoop, called_function

_BN = r"(?:bn|batch_?norms?|norms?|stats|statistics|norm_layers?)"
_FREEZES = re.compile(
    rf"(?:freeze|fix|hold|lock)\w*_{_BN}(?![a-z])|{_BN}_(?:to_)?(?:eval|frozen|freeze)(?![a-z])|freezebn|fixbn"
    r"|convert_frozen_batchnorm|freeze_?batch_?norm",
    re.IGNORECASE,
)
_REPLACES = re.compile(
    r"(?:replace|swap|remove|convert|change)\w*_(?:bn|batch_?norms?)(?![a-z])|(?:bn|batch_?norm)_?(?:to|2)_?(?:gn|ln|in|group|layer|instance)",
    re.IGNORECASE,
)
_KEEPS_BATCH_NORM = re.compile(r"sync|split", re.IGNORECASE)


def is_held(script: Script, loop: TrainingLoop) -> bool:
    """Whether no BatchNorm of the loop's model normalises by its micro-batch, as far as this file tells."""
    return is_frozen(script) or _trains_in_eval_mode(script, loop)


@per_script
def is_frozen(script: Script) -> bool:
    """Whether the file puts its BatchNorm layers into eval mode, or other layers into their place."""
    whole = any(_part(script, test) is None for test in _freezing_tests(script))
    return whole or any(_freezes_by_name(script, node) for node in _named_after_norms(script))


def frozen_parts(script: Script) -> list[ast.expr]:
    """The parts of a module that alone are held: ``for m in self.backbone.modules(): ...``."""
    return [part for test in _freezing_tests(script) if (part := _part(script, test)) is not None]


@per_script
def _freezing_tests(script: Script) -> list[ast.expr]:
    tests = checks_for_batch_norm(script)
    return [test for test in tests if freezes_or_replaces(script, test) and _is_used(script, test)]


def _part(script: Script, test: ast.expr) -> ast.expr | None:
    """What a module walks through, where that is an attribute of its own; a trainer's attribute is the whole model."""
    owner = script.class_of(test)
    walked = next((part for above in script.ancestors(test) for part in _walked(above)), None)
    is_module = owner is not None and any(dotted(base).endswith("Module") for base in owner.bases)
    return walked if walked is not None and is_module and dotted(walked).startswith("self.") else None


def _walked(node: ast.AST) -> Iterator[ast.expr]:
    """``x`` of ``for m in x.modules()``."""
    loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
    for loop in loops:
        if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute):
            yield loop.iter.func.value


def set_aside(script: Script, layer: BatchNorm) -> bool:
    """Whether a layer is put into eval mode by its own name: ``self.bn1.eval()``."""
    if layer.kind != "constructor":
        return False
    evals = (call.func for call in script.calls("eval") if isinstance(call.func, ast.Attribute))
    return any(dotted(each.value) == layer.name for each in evals)


def freezes_or_replaces(script: Script, test: ast.expr) -> bool:
    """The code that a test decides about: the branch of an ``if``, the element of a comprehension."""
    decided = _decided(script, test)
    if any(_sets_eval_mode(node) for part in decided for node in ast.walk(part)):
        return True
    return mentions_other_norm(script, decided) and any(
        _puts_in_place(node) for part in decided for node in ast.walk(part)
    )


def _decided(script: Script, test: ast.expr) -> list[ast.AST]:
    for above in script.ancestors(test):
        if isinstance(above, ast.If):
            return list(above.body)
        if isinstance(above, ast.stmt):
            return [above]
    return []


def _sets_eval_mode(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        value = node.value
        sets = any(isinstance(each, ast.Attribute) and each.attr == "training" for each in node.targets)
        return sets and isinstance(value, ast.Constant) and value.value is False
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "train":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    return node.func.attr == "eval"


def _puts_in_place(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("setattr", "module.add_module")
    return isinstance(node, (ast.Assign, ast.Return))


def _is_used(script: Script, test: ast.expr) -> bool:
    """A function that nobody names freezes nothing; ``train`` is called as the module's own mode switch."""
    function = script.function(test)
    name = getattr(function, "name", "")
    if not name or name in ("train", "__init__", "forward", "on_train_epoch_start", "on_epoch_start"):
        return True
    return any(
        dotted(node).rpartition(".")[2] == name
        for node in script.nodes(ast.Name, ast.Attribute)
        if all(above is not function for above in script.ancestors(node))
    )


def _named_after_norms(script: Script) -> Iterator[ast.expr]:
    for word in script.words:
        lower = word.lower()
        if "bn" in lower or "norm" in lower or "stat" in lower:
            yield from script.named(word)


def _freezes_by_name(script: Script, node: ast.expr) -> bool:
    """``freeze_bn(model)``, ``model.apply(set_bn_eval)``, where the function is not in this file to be read."""
    name = last_name(node)
    if not (_FREEZES.search(name) or (_REPLACES.search(name) and not _KEEPS_BATCH_NORM.search(name))):
        return False
    return _is_called_or_applied(script, node) and not _is_defined_here(script, name)


def _is_called_or_applied(script: Script, node: ast.expr) -> bool:
    parent = script.parent(node)
    if not isinstance(parent, ast.Call):
        return False
    return parent.func is node or (isinstance(parent.func, ast.Attribute) and parent.func.attr == "apply")


def _is_defined_here(script: Script, name: str) -> bool:
    return any(each.rpartition(".")[2] == name for each in script.definitions)


def _trains_in_eval_mode(script: Script, loop: TrainingLoop) -> bool:
    """``model.eval()`` above the loop and no ``model.train()`` anywhere: fine-tuning with all statistics frozen."""
    called: set[str] | None = None
    for function in _functions(script, loop):
        for call in _mode_switches(script, function):
            name = dotted(call.func.value)  # type: ignore[attr-defined]
            above = call.lineno < loop.backwards[0].node.lineno
            if call.func.attr != "eval" or not above or _is_trained(script, name):  # type: ignore[attr-defined]
                continue
            if called is None:
                called = {dotted(each.func) for place in _places(script, loop) for each in _calls(script, place)}
            if name in called:
                return True
    return False


def _places(script: Script, loop: TrainingLoop) -> Iterator[ast.AST]:
    """The loop, and the functions of the file that it calls."""
    yield loop.node
    for call in _calls(script, loop.node):
        helper = called_function(script, call)
        if helper is not None:
            yield helper


def _calls(script: Script, root: ast.AST) -> Iterator[ast.Call]:
    return (node for node in script.walk(root) if isinstance(node, ast.Call))


def _functions(script: Script, loop: TrainingLoop) -> Iterator[ast.AST]:
    yield next((each for each in script.ancestors(loop.node) if isinstance(each, FUNCTIONS)), script.tree)


def _mode_switches(script: Script, function: ast.AST) -> Iterator[ast.Call]:
    """Unconditional ``x.eval()`` statements of a function itself."""
    for call in _calls(script, function):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("eval", "train"):
            continue
        around = [each for each in script.ancestors(call) if not isinstance(each, (*LOOPS, ast.Expr, ast.With))]
        if isinstance(script.parent(call), ast.Expr) and around[0] is function:
            yield call


def _is_trained(script: Script, name: str) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "train" and dotted(call.func.value) == name
        for call in script.nodes(ast.Call)
    )
