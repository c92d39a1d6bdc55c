"""Whether a layer is built at all, where the code around it chooses between several kinds.

``if norm == "batch": nn.BatchNorm2d(c)`` is decided by the defaults and the calls of this file. A choice that they
do not decide is not evidence.
"""

import ast
import operator
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.bindings import bindings
from firstfault.lint.calls import argument_of
from firstfault.lint.script import FUNCTIONS, Script, dotted

_SWITCH = re.compile(r"norm|(?:^|_)(?:s|use|with|has|is)?_?bn(?:$|_)|batch_?stat", re.IGNORECASE)
_OTHER_NORM = re.compile(r"\w*(?:Group|Layer|Instance|RMS|Frozen\w*)Norm\w*")
_DEPTH = 4


class _Unknown(NamedTuple):
    """A value that the text does not tell."""


_UNKNOWN = _Unknown()
_COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def may_be_reached(script: Script, node: ast.expr) -> bool:
    """False where a choice of the normalisation goes another way, or where the text does not tell which way it goes."""
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(above, (ast.If, ast.IfExp)) and not _leads_to(script, above, below):
            return False
        if isinstance(above, ast.Dict) and _offers_other_norms(script, above, below):
            return False
        if isinstance(above, ast.match_case):
            return False
        if isinstance(above, FUNCTIONS):
            return _default_is_used(script, above, node)
        if isinstance(below, ast.stmt) and not _passes_earlier_returns(script, below):
            return False
        below = above
    return True


def _leads_to(script: Script, choice: ast.If | ast.IfExp, below: ast.AST) -> bool:
    if below is choice.test:
        return True
    branch = below in choice.body if isinstance(choice, ast.If) else below is choice.body
    return _may_be_taken(script, choice.test, branch)


def _may_be_taken(script: Script, test: ast.expr, branch: bool) -> bool:
    outcomes = _outcomes(script, test, _DEPTH)
    if branch in outcomes:
        return True
    return None in outcomes and not _chooses_a_norm(test)


def _chooses_a_norm(test: ast.expr) -> bool:
    """A switch by its name (``use_bn``), or a comparison with a word (``kind == "batch"``)."""
    for node in ast.walk(test):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name and _SWITCH.search(name):
            return True
        if isinstance(node, ast.Compare) and any(_is_word(each) for each in (node.left, *node.comparators)):
            return True
    return False


def _is_word(node: ast.expr) -> bool:
    elements = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in elements)


def _offers_other_norms(script: Script, table: ast.Dict, below: ast.AST) -> bool:
    others = [each for each in table.values if each is not below]
    names = (script.qualified(part).rpartition(".")[2] for each in others for part in ast.walk(each))
    return any(_OTHER_NORM.fullmatch(name) for name in names)


def _passes_earlier_returns(script: Script, statement: ast.stmt) -> bool:
    """``if norm == "group": return ...`` above decides about what comes after it."""
    block = script.block(statement)
    above = [each for each in block[: block.index(statement)] if isinstance(each, ast.If)]
    leaving = [each for each in above if isinstance(each.body[-1], (ast.Return, ast.Raise, ast.Continue))]
    return all(_may_be_taken(script, each.test, False) for each in leaving)


def _default_is_used(script: Script, function: ast.AST, node: ast.expr) -> bool:
    """A default argument counts unless a call of this file hands over something else."""
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return True
    for name, default in _parameters(arguments):
        if default is node:
            handed = [argument_of(call, function, name) for call in calls_by_name(script, function)]
            return not handed or any(each is None for each in handed)
    return True


def _outcomes(script: Script, test: ast.expr, depth: int) -> set[bool | None]:
    """What a test can come out as; None stands for what the text does not tell."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return {None if each is None else not each for each in _outcomes(script, test.operand, depth)}
    if isinstance(test, ast.BoolOp):
        return _combined([_outcomes(script, each, depth) for each in test.values], isinstance(test.op, ast.And))
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(script, test, depth)
    return {None if value is _UNKNOWN else bool(value) for value in _values(script, test, depth)}


def _combined(parts: list[set[bool | None]], is_and: bool) -> set[bool | None]:
    """Three-valued and, or."""
    decisive = not is_and
    if any(part == {decisive} for part in parts):
        return {decisive}
    found: set[bool | None] = set()
    if any(decisive in part for part in parts):
        found.add(decisive)
    if all((not decisive) in part for part in parts):
        found.add(not decisive)
    if any(None in part for part in parts):
        found.add(None)
    return found


def _compared(script: Script, test: ast.Compare, depth: int) -> set[bool | None]:
    compare = _COMPARISONS.get(type(test.ops[0]))
    if compare is None:
        return {None}
    rights = _values(script, test.comparators[0], depth)
    return {_comparison(compare, a, b) for a in _values(script, test.left, depth) for b in rights}


def _comparison(compare: object, left: object, right: object) -> bool | None:
    if left is _UNKNOWN or right is _UNKNOWN:
        return None
    try:
        return bool(compare(left, right))  # type: ignore[operator]
    except TypeError:
        return None


def _values(script: Script, node: ast.expr, depth: int) -> list[object]:
    """Every value that an expression can have, seen from this file alone."""
    try:
        return [ast.literal_eval(node)]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    name = dotted(node)
    if not name or depth == 0:
        return [_UNKNOWN]
    found: list[object] = []
    for binding in bindings(script, name, node):
        if binding.kind == "parameter":
            found += _handed_over(script, binding.node, binding.value, depth)
        elif binding.kind == "assign" and binding.value is not None:
            found += _values(script, binding.value, depth - 1)
        else:
            found.append(_UNKNOWN)
    return found or [_UNKNOWN]


def _handed_over(script: Script, parameter: ast.AST, default: ast.expr | None, depth: int) -> list[object]:
    """What the calls of this file give to a parameter; its default where they give nothing, or there are none."""
    function = script.function(parameter)
    if function is None or not isinstance(parameter, ast.arg):
        return [_UNKNOWN]
    own = _values(script, default, depth - 1) if default is not None else []
    calls = calls_by_name(script, function)
    found: list[object] = [] if calls else own
    for call in calls:
        given = argument_of(call, function, parameter.arg)
        if given is None or given == "hidden":
            found += own
        if given is not None:
            found += [_UNKNOWN] if given == "hidden" else _values(script, given, depth - 1)
    return found or [_UNKNOWN]


def calls_by_name(script: Script, function: ast.AST) -> list[ast.Call]:
    """The calls of a function of this file, those of its class where it is ``__init__``."""
    name = getattr(function, "name", "")
    owner = script.parent(function)
    if name == "__init__" and isinstance(owner, ast.ClassDef):
        name = owner.name
    return script.calls(name)


def _parameters(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    for each, default in zip(positional, defaults, strict=True):
        yield each.arg, default
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield each.arg, default
