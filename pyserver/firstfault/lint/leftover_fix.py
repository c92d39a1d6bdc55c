"""The fix for micro-batches that are left over: a step at the end of the data too, divided by what it really holds."""

import ast
import re
from typing import NamedTuple

from firstfault.lint import placement
from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import last_binding
from firstfault.lint.calls import last_name
from firstfault.lint.leftover import Leftover
from firstfault.lint.micro_count import counting_test, iterable
from firstfault.lint.rule import Fix
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop
from firstfault.lint.window import Window
from firstfault.text import Edit, Span

TITLE = "Step at the end of the data too"
_RECEIVERS = ("tensor", "scaler", "apex", "fabric")
_SIMPLE = re.compile(r"[\w.]+(?:\[[\"']?\w+[\"']?\])?")


class _Data(NamedTuple):
    length: str  # the expression that gives the number of micro-batches
    certain: bool  # the script shows that it has one


def leftover_fix(script: Script, loop: TrainingLoop, window: Window, found: Leftover) -> Fix | None:
    test, data = _plain_test(script, loop, window, found), _data(script, loop.node)
    if test is None or data is None or not isinstance(loop.node, ast.For) or not _SIMPLE.fullmatch(window.size_text):
        return None
    if (
        loop.in_helper
        or not isinstance(loop.node, ast.For)
        or any(each.receiver not in _RECEIVERS for each in loop.backwards)
    ):
        return None
    uses = _uses(script, loop, window, test)
    if uses is None or not placement.own_line(script, loop.node.body[0]):
        return None
    end = script.span(test).end
    edits = [Edit(Span(end, end), f" or {script.text(test.left.left)} == {data.length}")]  # type: ignore[attr-defined]
    if uses:
        name = _free_name(script)
        line = f"{name} = min({window.size_text}, {data.length} - {_done(window, found)})"
        named = [Edit(script.span(each), name) for each in uses]
        edits = [placement.insert_at_top(script, loop.node, [line]), *named, *edits]
    scheduled = any(each.verb == "schedule" and not each.after_loop for each in loop.actions)
    safe = bool(uses) and data.certain and not scheduled and not _scaled_outside(script, loop, window)
    return Fix(TITLE, "safe" if safe else "unsafe", tuple(edits))


def _plain_test(script: Script, loop: TrainingLoop, window: Window, found: Leftover) -> ast.Compare | None:
    """``(i + 1) % N == 0`` that is all of a condition or of a flag, and the only one of its kind in the loop."""
    test, count = counting_test(script, window), found.counted
    if count is None or count.first != 1 or not count.is_index or window.inverted or window.boundary is None:
        return None
    if not isinstance(test, ast.Compare) or window.size_node is None:
        return None
    plain = isinstance(test.left, ast.BinOp) and isinstance(test.ops[0], ast.Eq)
    if not plain or not isinstance(script.parent(test), (ast.If, ast.Assign)):
        return None
    size = ast.dump(window.size_node)
    mods = [
        each
        for each in script.walk(loop.node)
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) and ast.dump(each.right) == size
    ]
    return test if len(mods) == 1 else None


def _data(script: Script, loop: ast.AST) -> _Data | None:
    source = iterable(script, loop)
    if isinstance(source, ast.Call) and last_name(source.func) in ("range", "trange"):
        plain = len(source.args) == 1 and isinstance(source.args[0], (ast.Name, ast.Attribute, ast.Constant))
        return _Data(script.text(source.args[0]), True) if plain else None
    if source is None or not dotted(source):
        return None
    text = f"len({script.text(source)})"
    binding = last_binding(script, dotted(source), source)
    loader = (
        binding is not None and isinstance(binding.value, ast.Call) and last_name(binding.value.func) == "DataLoader"
    )
    return _Data(text, loader or text in script.source)


def _uses(script: Script, loop: TrainingLoop, window: Window, test: ast.Compare) -> list[ast.expr] | None:
    """Where the loop divides by the size or multiplies with it; None where it does so by another name."""
    assert window.size_node is not None
    size = ast.dump(window.size_node)
    uses: list[ast.expr] = []
    divides = False
    for node in script.walk(loop.node):
        if not isinstance(node, (ast.BinOp, ast.AugAssign)) or not isinstance(node.op, (ast.Div, ast.Mult)):
            continue
        is_loss = "loss" in script.text(node).lower() or (isinstance(node.op, ast.Div) and _is_of_a_call(node))
        for side in (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,):
            if not is_window_size(script, side, window, script):
                continue
            if ast.dump(side) != size or not is_loss:
                return None  # divided by the size under another name, or something else than a loss
            uses.append(side)
            divides = divides or isinstance(node.op, ast.Div)
    return uses if divides or not uses else None


def _scaled_outside(script: Script, loop: TrainingLoop, window: Window) -> bool:
    """The function multiplies with the size behind the loop, to log what the loop has divided by it."""
    inside = set(script.walk(loop.node))
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and node not in inside
        and any(is_window_size(script, side, window, script) for side in (node.left, node.right))
        for node in script.walk(script.scope(loop.node))
    )


def _is_of_a_call(node: ast.BinOp | ast.AugAssign) -> bool:
    """``criterion(scores, targets) / N``."""
    return isinstance(node, ast.BinOp) and isinstance(node.left, ast.Call)


def _done(window: Window, found: Leftover) -> str:
    """The micro-batches of the windows before this one."""
    assert found.counted is not None
    index = found.counted.name if found.counted.offset == 1 else f"({found.counted.name} - 1)"
    return f"{index} // {window.size_text} * {window.size_text}"


def _free_name(script: Script) -> str:
    names = ("window_size", "window_batches", "real_window_size", "micro_batches_of_window")
    return next(each for each in names if each not in script.source)
