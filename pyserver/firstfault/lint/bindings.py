"""What a name was last set to, and which number it stands for, as far as the text tells.

Everything here answers None where the text does not tell; a rule treats that as unknown, never as a value.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from firstfault.lint.script import Script, dotted, per_script

Origin = Literal["literal", "constant", "default"]
_HOPS = 6


class Binding(NamedTuple):
    """One place where a name (``loss``) or a dotted name (``self.loss``) gets a value."""

    name: str
    node: ast.AST
    value: ast.expr | None  # None where the value has no expression of its own: a loop target, a parameter
    kind: Literal["assign", "augmented", "loop", "with", "unpacked", "parameter"]
    item: int | None = None  # which of an unpacked value


class Number(NamedTuple):
    """A number that an expression stands for. A default can be overridden outside the text; a constant cannot."""

    value: float
    origin: Origin
    node: ast.AST


@per_script
def _bindings_of(script: Script) -> dict[tuple[ast.AST | None, str], list[Binding]]:
    """By scope and name; dotted names count as belonging to their class (``self.x``) or to no scope at all."""
    found: dict[tuple[ast.AST | None, str], list[Binding]] = {}
    for binding in _all_bindings(script):
        found.setdefault((_owner(script, binding), binding.name), []).append(binding)
    for places in found.values():
        places.sort(key=lambda each: (getattr(each.node, "lineno", 0), getattr(each.node, "col_offset", 0)))
    return found


def bindings(script: Script, name: str, at: ast.AST) -> list[Binding]:
    """Every place that sets a name, seen from a node: the nearest scope that sets it counts."""
    if script.parent(at) is None and at is not script.tree:
        return []  # a node of another script, whose names are other names
    table = _bindings_of(script)
    if "." in name:
        owner = script.class_of(at) if name.startswith("self.") else None
        return table.get((owner, name), [])
    for scope in (*_scopes(script, at), script.tree):
        if (scope, name) in table:
            return table[scope, name]
    return []


def last_binding(script: Script, name: str, at: ast.AST) -> Binding | None:
    """The nearest place above a node that sets the name; else the last of all (a loop comes round again)."""
    places = bindings(script, name, at)
    if not places:
        return None
    line = (getattr(at, "lineno", 0), getattr(at, "col_offset", 0))
    above = [each for each in places if (getattr(each.node, "lineno", 0), getattr(each.node, "col_offset", 0)) < line]
    statement = script.statement(at) if not isinstance(at, ast.mod) else None
    above = [each for each in above if each.node is not statement] or above
    return above[-1] if above else places[-1]


def number(script: Script, node: ast.expr | None, hops: int = _HOPS) -> Number | None:
    """The number an expression stands for: a literal, a constant, an argparse, dataclass or parameter default."""
    if node is None or hops == 0:
        return None
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        return Number(node.value, "literal", node) if plain else None  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(script, node.operand, hops - 1)
        return inner._replace(value=-inner.value) if inner else None
    if isinstance(node, ast.BinOp):
        return _computed(script, node, hops)
    if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float", "max", "round") and len(node.args) == 1:
        return number(script, node.args[0], hops - 1)
    if isinstance(node, ast.Call):
        return _looked_up(script, node, hops)
    name = dotted(node)
    if name:
        return _named(script, name, node, hops)
    if isinstance(node, ast.Subscript):
        return _item(script, node, hops)
    return None


def _computed(script: Script, node: ast.BinOp, hops: int) -> Number | None:
    left, right = number(script, node.left, hops - 1), number(script, node.right, hops - 1)
    if left is None or right is None:
        return None
    try:
        value = _ARITHMETIC[type(node.op)](left.value, right.value)
    except (KeyError, ArithmeticError, ValueError):
        return None
    origin: Origin = "default" if "default" in (left.origin, right.origin) else "constant"
    return Number(value, origin, node)


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _named(script: Script, name: str, at: ast.expr, hops: int) -> Number | None:
    places = bindings(script, name, at)
    values = [each for each in places if each.kind != "augmented"]
    if len(values) > 1:  # set in several places: the text does not tell which
        return None
    if not places:
        return _default(script, name.rpartition(".")[2], hops) if "." in name else None
    binding = places[0]
    if binding.kind == "assign" and len(places) == 1:
        found = number(script, binding.value, hops - 1)
        return found._replace(origin="constant") if found and found.origin == "literal" else found
    if binding.kind == "parameter" and binding.value is not None:
        found = number(script, binding.value, hops - 1)
        return found._replace(origin="default") if found else None
    return None


def _looked_up(script: Script, node: ast.Call, hops: int) -> Number | None:
    """``config.get("steps", 1)``."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) == 2:
        found = number(script, node.args[1], hops - 1)
        return found._replace(origin="default") if found else None
    return None


def _item(script: Script, node: ast.Subscript, hops: int) -> Number | None:
    """``config["steps"]`` where the dictionary is written in the file."""
    name = dotted(node.value)
    binding = last_binding(script, name, node) if name else None
    if binding is None or not isinstance(binding.value, ast.Dict) or not isinstance(node.slice, ast.Constant):
        return None
    for key, value in zip(binding.value.keys, binding.value.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == node.slice.value:
            found = number(script, value, hops - 1)
            return found._replace(origin="default") if found else None
    return None


@per_script
def _defaults_of(script: Script) -> dict[str, list[ast.expr]]:
    """Attribute name -> its default in argparse calls and in class bodies (dataclasses, plain settings classes)."""
    found: dict[str, list[ast.expr]] = {}
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            default = keyword(call, "default")
            for name in _option_names(call):
                if default is not None:
                    found.setdefault(name, []).append(default)
    for node in script.nodes(ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                found.setdefault(statement.target.id, []).append(_field_default(statement.value))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                found.setdefault(statement.targets[0].id, []).append(statement.value)
    return found


def _default(script: Script, attribute: str, hops: int) -> Number | None:
    defaults = _defaults_of(script).get(attribute, [])
    if len(defaults) != 1:
        return None
    found = number(script, defaults[0], hops - 1)
    return found._replace(origin="default") if found else None


def _option_names(call: ast.Call) -> Iterator[str]:
    """The attribute that an ``add_argument`` fills: ``dest``, else the first long option."""
    dest = keyword(call, "dest")
    if isinstance(dest, ast.Constant):
        yield str(dest.value)
        return
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    long_flags = [each for each in flags if each.startswith("--")] or flags
    if long_flags:
        yield long_flags[0].lstrip("-").replace("-", "_")


def _field_default(value: ast.expr) -> ast.expr:
    """``field(default=4)`` of a dataclass."""
    default = keyword(value, "default") if isinstance(value, ast.Call) else None
    return default if default is not None else value


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _scopes(script: Script, at: ast.AST) -> Iterator[ast.AST]:
    function = at if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else script.function(at)
    while function is not None:
        yield function
        function = script.function(function)


def _owner(script: Script, binding: Binding) -> ast.AST | None:
    if "." not in binding.name:
        return script.scope(binding.node)
    return script.class_of(binding.node) if binding.name.startswith("self.") else None


def _all_bindings(script: Script) -> Iterator[Binding]:
    for assign in script.nodes(ast.Assign):
        for target in assign.targets:
            yield from _targets(target, assign, assign.value)
    for annotated in script.nodes(ast.AnnAssign):
        yield from _targets(annotated.target, annotated, annotated.value)
    for named in script.nodes(ast.NamedExpr):
        yield from _targets(named.target, named, named.value)
    for augmented in script.nodes(ast.AugAssign):
        if dotted(augmented.target):
            yield Binding(dotted(augmented.target), augmented, augmented.value, "augmented")
    loops: list[ast.For | ast.AsyncFor] = [*script.nodes(ast.For), *script.nodes(ast.AsyncFor)]
    for loop in loops:
        for name in _names(loop.target):
            yield Binding(name, loop.target, None, "loop")
    for item in script.nodes(ast.withitem):
        for name in _names(item.optional_vars):
            yield Binding(name, item.context_expr, item.context_expr, "with")
    for arguments in script.nodes(ast.arguments):
        yield from _parameters(arguments)


def _targets(target: ast.expr, node: ast.AST, value: ast.expr | None) -> Iterator[Binding]:
    if isinstance(target, (ast.Tuple, ast.List)):
        parallel = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, each in enumerate(target.elts):
            if parallel:
                yield from _targets(each, node, value.elts[index])  # type: ignore[union-attr]
            elif dotted(each):
                yield Binding(dotted(each), node, value, "unpacked", index)
    elif dotted(target):
        yield Binding(dotted(target), node, value, "assign")


def _names(target: ast.expr | None) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _names(each)
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    elif target is not None and dotted(target):
        yield dotted(target)


def _parameters(arguments: ast.arguments) -> Iterator[Binding]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for each, default in [*zip(positional, defaults, strict=True), *named]:
        yield Binding(each.arg, each, default, "parameter")
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield Binding(rest.arg, rest, None, "parameter")
