"""Which code builds the model that a loop trains: from the optimizer's parameters back to the classes.

A perceptual network, a teacher or a discriminator in the same file is not trained by the loop, and its BatchNorm does
not count.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from firstfault.lint.bindings import Binding, bindings
from firstfault.lint.calls import argument_of
from firstfault.lint.norms_choice import calls_by_name
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.training_loop import TrainingLoop

_OPTIMIZER = re.compile(r"optim|adam|sgd|adagrad|adadelta|rmsprop|lion|lamb|lars|adafactor|lbfgs|prodigy|muon", re.I)
_TRAINER = re.compile(r"Trainer$|^prepare$|^fit$|^initialize$|DataParallel$|^DDP$|^FSDP$")
_NOT_AN_OPTIMIZER = re.compile(r"sched|clip|accelerat|wrapper|load|save|state", re.I)
_ADDERS = ("append", "extend", "insert", "add_module", "register_module", "update")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MOST_EXPRESSIONS = 400  # a script that ties everything to everything is followed no further


class Builders:
    """Code that builds a model: expressions, and the functions and classes of the file that they name."""

    def __init__(self, script: Script, seeds: Iterable[ast.AST]) -> None:
        self.script = script
        self.expressions: dict[ast.AST, None] = {}
        self.imported: dict[str, ast.AST] = {}  # a name from another module -> where it is used
        self._frozen = frozen_expressions(script)
        self._follow(list(seeds))

    def hold(self, node: ast.AST) -> bool:
        """Whether a node stands in code that builds the model, and in no part of it that is frozen."""
        chain = [node, *self.script.ancestors(node)]
        if any(each in self._frozen for each in chain):
            return False
        return any(each in self.expressions for each in chain)

    def _follow(self, todo: list[ast.AST]) -> None:
        while todo and len(self.expressions) < _MOST_EXPRESSIONS:
            node = todo.pop()
            if node in self.expressions or node in self._frozen:
                continue
            self.expressions[node] = None
            for each in self._walk(node):
                todo += self._sources(each, inside_definition=isinstance(node, _DEFINITIONS))

    def _walk(self, node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
        """The names in a piece of code that is not frozen; a dotted name once, as a whole."""
        todo: list[ast.AST] = [node]
        while todo:
            each = todo.pop()
            if each in self._frozen:
                continue
            if isinstance(each, (ast.Name, ast.Attribute)):
                yield each
                if dotted(each):
                    continue
            todo += ast.iter_child_nodes(each)

    def _sources(self, node: ast.Name | ast.Attribute, inside_definition: bool) -> Iterator[ast.AST]:
        """What a name stands for: a definition of this file, else the values that it gets."""
        name = dotted(node)
        if name.rpartition(".")[2] in _WRAPPERS:
            return
        if name.partition(".")[0] in self.script.imports:
            if name not in self.imported or _is_called(self.script, node):
                self.imported[name] = node
            return
        for part in _prefixes(name):
            definition = self._definition(node, part, name)
            if definition is not None:
                yield definition
                return
            values = [] if inside_definition else list(_values(self.script, node, part))
            yield from values
            if values:
                return

    def _definition(self, node: ast.AST, part: str, name: str) -> ast.AST | None:
        definitions = self.script.definitions
        owner = self.script.class_of(node)
        if part == "self":
            return owner if name[5:] in ("", *_WALKERS) else None
        if part in definitions:
            return definitions[part]
        return definitions.get(f"{owner.name}.{part[5:]}") if owner is not None and part.startswith("self.") else None


_WRAPPERS = ("prepare", "prepare_model", "initialize", "setup")  # accelerate, apex, DeepSpeed, Fabric build no layers
_WALKERS = ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children")


def _is_called(script: Script, node: ast.AST) -> bool:
    parent = script.parent(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _prefixes(name: str) -> Iterator[str]:
    """``a.b.c``, ``a.b``, ``a``."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def builders(script: Script, loop: TrainingLoop | None) -> Builders | None:
    """The builders of what a loop trains, or None where the text does not tell what its optimizers hold."""
    steppers = [each for each in _optimizer_calls(script) if loop and _is_stepped_by(script, each, loop)]
    calls = steppers or _optimizer_calls(script)
    seeds = [each for call in calls for each in _parameters_of(script, call)]
    found = Builders(script, seeds) if seeds else None
    return found if found and _tells_something(found) else None


def builders_of(script: Script, part: ast.expr) -> Builders:
    """The builders of one named part of a model: ``self.backbone``."""
    return Builders(script, _values(script, part, dotted(part)))


@per_script
def frozen_expressions(script: Script) -> frozenset[ast.AST]:
    """Parts that are put into eval mode where they are built, or afterwards, and never trained."""
    in_place = {call for call in script.calls("eval", "requires_grad_") if _freezes(call)}
    named = {_receiver(call) for call in in_place} - {"", "self"}
    named -= _trained_names(script)
    later = {
        value for assign in script.nodes(ast.Assign) for target, value in _pairs(assign) if dotted(target) in named
    }
    chained = {call for call in in_place if not _is_statement(script, call) and not _receiver(call)}
    return frozenset(each for each in later | chained if not _mode_is_set_again(script, each))


def _freezes(call: ast.Call) -> bool:
    """``net.eval()``, ``net.requires_grad_(False)``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "requires_grad_":
        return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is False
    return call.func.attr == "eval" and not call.args


def _receiver(call: ast.Call) -> str:
    return dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""


@per_script
def _trained_names(script: Script) -> frozenset[str]:
    """Names that are put into train mode, or that an optimizer or a trainer gets, also under another name."""
    found = {dotted(call.func.value) for call in script.calls("train") if isinstance(call.func, ast.Attribute)}
    for call in [*_optimizer_calls(script), *_trainer_calls(script)]:
        found |= {dotted(node) for node in script.walk(call) if isinstance(node, (ast.Name, ast.Attribute))}
    for _ in range(2):  # a function that trains its parameter trains what it is called with
        found |= {name for parameter, name in _parameter_names(script) if parameter in found}
    return frozenset(found)


def _trainer_calls(script: Script) -> list[ast.Call]:
    return [call for call in script.nodes(ast.Call) if _TRAINER.search(script.qualified(call.func).rpartition(".")[2])]


@per_script
def _parameter_names(script: Script) -> list[tuple[str, str]]:
    """Parameter, and a name that a call of this file hands over for it."""
    found = []
    for function in script.nodes(ast.FunctionDef):
        for call in calls_by_name(script, function):
            for parameter in function.args.args:
                given = argument_of(call, function, parameter.arg)
                if isinstance(given, ast.expr) and dotted(given):
                    found.append((parameter.arg, dotted(given)))
    return found


def _is_statement(script: Script, node: ast.AST) -> bool:
    return isinstance(script.parent(node), ast.Expr)


def _mode_is_set_again(script: Script, value: ast.AST) -> bool:
    """``net = Net().eval()`` and ``net.train()`` later."""
    assign = next((each for each in script.ancestors(value) if isinstance(each, ast.Assign)), None)
    return assign is not None and any(dotted(each) in _trained_names(script) for each in assign.targets)


def _pairs(assign: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in assign.targets:
        if isinstance(target, ast.Tuple) and isinstance(assign.value, ast.Tuple):
            yield from zip(target.elts, assign.value.elts, strict=False)
        else:
            yield target, assign.value


@per_script
def _optimizer_calls(script: Script) -> list[ast.Call]:
    """Calls that make an optimizer: of torch's, or of what is called after one and gets parameters."""
    return [call for call in script.nodes(ast.Call) if _makes_an_optimizer(script, call)]


def _makes_an_optimizer(script: Script, call: ast.Call) -> bool:
    qualified = script.qualified(call.func)
    if qualified.startswith("torch.optim.lr_scheduler") or not (call.args or call.keywords):
        return False
    if qualified.startswith("torch.optim."):
        return True
    name = qualified.rpartition(".")[2]
    return bool(_OPTIMIZER.search(name)) and not _NOT_AN_OPTIMIZER.search(name) and not name.startswith("_")


def _parameters_of(script: Script, call: ast.Call) -> list[ast.expr]:
    """What an optimizer is given to train: torch's own take it first, others anywhere."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return given[:1] if script.qualified(call.func).startswith("torch.optim.") and call.args else given


def _is_stepped_by(script: Script, made: ast.Call, loop: TrainingLoop) -> bool:
    return any(made in _origins(script, each) for each in _stepped(loop))


def _stepped(loop: TrainingLoop) -> Iterator[ast.expr]:
    """What the loop steps: ``optimizer.step()``, ``scaler.step(optimizer)``."""
    inside = [each for each in loop.optimizer_steps if not each.after_loop]
    for action in inside or loop.optimizer_steps:
        if isinstance(action.inner.func, ast.Attribute):
            yield action.inner.func.value
        yield from action.inner.args[:1]


def _origins(script: Script, node: ast.expr) -> set[ast.AST]:
    """The expressions that a name's value comes from, through assignments and arguments."""
    found: set[ast.AST] = set()
    todo: list[ast.AST] = [node]
    while todo and len(found) < _MOST_EXPRESSIONS:
        each = todo.pop()
        if each in found:
            continue
        found.add(each)
        if isinstance(each, (ast.Name, ast.Attribute)) and dotted(each):
            todo += _values(script, each, dotted(each))
        elif isinstance(each, ast.Call):
            todo += [*each.args, *_returned(script, each)]
        elif isinstance(each, (ast.Tuple, ast.List, ast.IfExp, ast.Subscript, ast.Dict)):
            todo += ast.iter_child_nodes(each)
    return found


def _returned(script: Script, call: ast.Call) -> list[ast.AST]:
    """What a function of this file returns."""
    definition = script.definitions.get(dotted(call.func))
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    returns = [each for each in ast.walk(definition) if isinstance(each, ast.Return) and each.value is not None]
    return [each.value for each in returns if each.value is not None]


def _values(script: Script, node: ast.AST, name: str) -> Iterator[ast.AST]:
    """Every value that a name gets: assigned, handed over by a call of this file, or added to a list."""
    for binding in bindings(script, name, node):
        if binding.kind == "parameter":
            yield from _handed_over(script, binding)
        elif binding.value is not None:
            yield _own_part(binding)
    if not name:
        return
    for call in _added(script).get(name, []):
        yield from call.args


def _own_part(binding: Binding) -> ast.AST:
    """Of ``a, b = prepare(a, b)`` the argument in the same place."""
    value = binding.value
    assert value is not None
    if binding.kind != "unpacked" or not isinstance(value, ast.Call) or binding.item is None:
        return value
    assign = binding.node
    targets = assign.targets[0] if isinstance(assign, ast.Assign) else None
    parallel = isinstance(targets, ast.Tuple) and len(targets.elts) == len(value.args)
    return value.args[binding.item] if parallel else value


def _handed_over(script: Script, binding: Binding) -> Iterator[ast.AST]:
    function = script.function(binding.node)
    if function is None or not isinstance(binding.node, ast.arg):
        return
    for call in calls_by_name(script, function):
        given = argument_of(call, function, binding.node.arg)
        if isinstance(given, ast.expr):
            yield given


@per_script
def _added(script: Script) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for call in script.calls(*_ADDERS):
        if isinstance(call.func, ast.Attribute) and dotted(call.func.value):
            found.setdefault(dotted(call.func.value), []).append(call)
    return found


def _tells_something(found: Builders) -> bool:
    """Whether the way back ends where something is built, not at a bare parameter or a setting."""
    return any(
        isinstance(each, ast.ClassDef) or any(_builds(found.script, call) for call in _calls_in(each))
        for each in found.expressions
    )


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _builds(script: Script, call: ast.Call) -> bool:
    """A class is called, or a function of another module that is not torch's own."""
    head, _, rest = script.qualified(call.func).partition(".")
    name = rest.rpartition(".")[2] or head
    is_own = dotted(call.func).partition(".")[0] in script.imports and head not in _NOT_BUILDING
    return name[:1].isupper() or is_own


_NOT_BUILDING = ("torch", "math", "numpy", "itertools", "functools", "os", "accelerate", "deepspeed", "apex")
