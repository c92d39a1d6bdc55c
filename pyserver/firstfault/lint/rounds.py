"""What a condition of a loop is in each round, tried out on counters: one window is as good as any other of its kind.

A part that the text does not tell is None. A part that stays the same in every round (``world_size > 1``) is a choice:
both of its values are tried.
"""

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firstfault.lint.bindings import bindings, number
from firstfault.lint.calls import last_name
from firstfault.lint.micro_count import index_of
from firstfault.lint.script import Script, dotted

_CHOICES = 3  # settings in one condition; more are not tried
_HOPS = 4
Value = float | bool | None


class Rounds(NamedTuple):
    """One loop, played with a window of ``size`` and ``length`` rounds that it does not divide."""

    script: Script
    loop: ast.For | ast.AsyncFor
    counter: str
    first: int
    size_node: ast.expr | None
    size: int
    length: int

    def each(self) -> range:
        return range(self.first, self.first + self.length)


def rounds(script: Script, loop: ast.AST, size_node: ast.expr | None, whole: bool) -> Rounds | None:
    """None where the loop has no counter of its own. ``whole``: the loop is one window."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return None
    found = _index(script, loop)
    if found is None:
        found = _counted_by_hand(script, loop)
    elif any(_inside(script, each.node, loop) for each in bindings(script, found[0], loop.body[0])[1:]):
        return None
    if found is None:
        return None
    known = number(script, size_node)
    size = int(known.value) if known and known.origin != "default" and known.value > 1 else 4
    return Rounds(script, loop, found[0], found[1], size_node, size, size if whole else 2 * size + 1)


def values(played: Rounds, tests: Sequence[tuple[ast.expr, bool]]) -> Iterator[list[Value]]:
    """For each way to choose the settings: whether all conditions hold together, round by round."""
    choices = _choices(played, tests)
    if len(choices) > _CHOICES:
        return
    for chosen in itertools.product((True, False), repeat=len(choices)):
        given: dict[str, Value] = dict(zip(choices, chosen, strict=True))
        yield [_together(played, tests, i, given) for i in played.each()]


def _together(played: Rounds, tests: Sequence[tuple[ast.expr, bool]], i: int, given: dict[str, Value]) -> Value:
    return _all([_signed(_value(played, test, i, given), positive) for test, positive in tests])


def is_about_rounds(played: Rounds, node: ast.expr, hops: int = _HOPS) -> bool:
    """The counter of the loop takes part, perhaps through a flag that the loop computes."""
    for each in played.script.walk(node):
        if isinstance(each, ast.Name) and each.id == played.counter:
            return True
        value = _set_in_loop(played, each) if isinstance(each, (ast.Name, ast.Attribute)) and hops else None
        if value is not None and is_about_rounds(played, value, hops - 1):
            return True
    return False


def _index(script: Script, loop: ast.For | ast.AsyncFor) -> tuple[str, int] | None:
    name = index_of(script, loop)
    if name is not None:
        return name, 0
    call = loop.iter
    if not isinstance(call, ast.Call) or last_name(call.func) != "enumerate" or not isinstance(loop.target, ast.Tuple):
        return None
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "start")]
    start = given[0] if given else None
    if not isinstance(start, ast.Constant) or not isinstance(start.value, int):
        return None
    return dotted(loop.target.elts[0]), start.value


def _counted_by_hand(script: Script, loop: ast.For | ast.AsyncFor) -> tuple[str, int] | None:
    """``seen += 1`` of each round, above all that reads it; one of several such counters is nobody's choice."""
    found = []
    for each in loop.body:
        if not isinstance(each, ast.AugAssign) or not isinstance(each.target, ast.Name):
            continue
        name, one = each.target.id, isinstance(each.value, ast.Constant) and each.value.value == 1
        changes = [place for place in bindings(script, name, each) if _inside(script, place.node, loop)]
        reads = [node for node in script.named(name) if node is not each.target and _inside(script, node, loop)]
        early = any(script.line(node) <= script.line(each) for node in reads)
        if one and isinstance(each.op, ast.Add) and len(changes) == 1 and reads and not early:
            found.append((name, 1))
    return found[0] if len(found) == 1 else None


def _inside(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    return loop in script.ancestors(node) and node is not getattr(loop, "target", None)


def _set_in_loop(played: Rounds, node: ast.AST) -> ast.expr | None:
    """What the loop sets a flag to, where one assignment alone does it."""
    name = dotted(node)
    places = bindings(played.script, name, node) if name else []
    if len(places) != 1 or places[0].kind != "assign" or not _inside(played.script, places[0].node, played.loop):
        return None
    return places[0].value


def _choices(played: Rounds, tests: Sequence[tuple[ast.expr, bool]]) -> list[str]:
    found: dict[str, None] = {}
    for test, _ in tests:
        for leaf in _leaves(test):
            if not is_about_rounds(played, leaf) and _is_the_same(played, leaf):
                found[ast.dump(leaf)] = None
    return list(found)


def _leaves(test: ast.expr) -> Iterator[ast.expr]:
    """The conditions that ``and``, ``or``, ``not`` join."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _leaves(each)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand)
    else:
        yield test


def _is_the_same(played: Rounds, leaf: ast.expr) -> bool:
    """Nothing that the leaf names is set in the loop."""
    return not any(
        _inside(played.script, each.node, played.loop) or each.kind == "loop"
        for part in played.script.walk(leaf)
        if isinstance(part, (ast.Name, ast.Attribute)) and dotted(part)
        for each in bindings(played.script, dotted(part), part)
    )


def _all(parts: list[Value]) -> Value:
    if any(each is False or each == 0 for each in parts if each is not None):
        return False
    return None if None in parts else True


def _signed(value: Value, positive: bool) -> Value:
    return None if value is None else bool(value) is positive


def _value(played: Rounds, node: ast.expr, i: int, given: dict[str, Value], hops: int = 12) -> Value:
    """A condition or a count in round ``i``."""
    if hops == 0:
        return None
    if ast.dump(node) in given:
        return given[ast.dump(node)]
    if played.size_node is not None and _same(node, played.size_node):
        return played.size
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float, bool)) else None
    if isinstance(node, ast.Name) and node.id == played.counter:
        return i
    if isinstance(node, ast.BoolOp):
        return _joined(node, [_value(played, each, i, given, hops - 1) for each in node.values])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _value(played, node.operand, i, given, hops - 1)
        return None if inner is None else not inner
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [_value(played, each, i, given, hops - 1) for each in (node.left, node.comparators[0])]
        return _compared(node.ops[0], sides[0], sides[1])
    if isinstance(node, ast.BinOp):
        sides = [_value(played, each, i, given, hops - 1) for each in (node.left, node.right)]
        return _computed(node.op, sides[0], sides[1])
    if isinstance(node, ast.Call):
        if last_name(node.func) == "len" and _is_of_the_loop(played, node):
            return played.length
        return _value(played, node.args[0], i, given, hops - 1) if dotted(node.func) == "bool" and node.args else None
    value = _set_in_loop(played, node)
    if value is not None:
        return _value(played, value, i, given, hops - 1)
    known = number(played.script, node)
    return known.value if known is not None and known.origin != "default" else None


def _is_of_the_loop(played: Rounds, call: ast.Call) -> bool:
    """``len(loader)`` of the loop over ``loader``."""
    parts = played.script.walk(played.loop.iter)
    walked = {dotted(each) for each in parts if isinstance(each, (ast.Name, ast.Attribute))}
    return bool(call.args) and dotted(call.args[0]) in walked - {""}


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def _joined(node: ast.BoolOp, parts: list[Value]) -> Value:
    if isinstance(node.op, ast.And):
        return _all([None if each is None else bool(each) for each in parts])
    inverse = _all([None if each is None else not each for each in parts])
    return None if inverse is None else not inverse


def _compared(operator: ast.cmpop, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    results = {
        ast.Eq: left == right,
        ast.NotEq: left != right,
        ast.Lt: left < right,
        ast.LtE: left <= right,
        ast.Gt: left > right,
        ast.GtE: left >= right,
    }
    return results.get(type(operator))


def _computed(operator: ast.operator, left: Value, right: Value) -> Value:
    if left is None or right is None or (isinstance(operator, (ast.Mod, ast.FloorDiv)) and right == 0):
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Mod):
        return left % right
    return left // right if isinstance(operator, ast.FloorDiv) else None
