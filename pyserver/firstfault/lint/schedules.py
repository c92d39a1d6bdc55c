"""Learning-rate schedules: which call made one, how long it is, and whether that counts updates or micro-batches."""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from firstfault.lint.averaging import is_window_size
from firstfault.lint.bindings import bindings, keyword
from firstfault.lint.calls import last_name
from firstfault.lint.clearing import is_prepared
from firstfault.lint.micro_count import iterable
from firstfault.lint.objects import Instance, argument, instance
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

Unit = Literal["updates", "micro-batches"]
_LOADER = re.compile(r"loader|batches|^dl$|_dl$", re.IGNORECASE)
_TOTAL = re.compile(r"t_?total|total(?:_(?:steps|iters|updates))?|(?:num_|n_|max_)(?:training_|train_)?(?:steps|iters)")
_HOPS = 4
# The length of a schedule: the parameter's name and its place.
_LENGTHS = {
    "CosineAnnealingLR": ("T_max", 1),
    "OneCycleLR": ("total_steps", 2),
    "LinearLR": ("total_iters", 3),
    "PolynomialLR": ("total_iters", 1),
    "get_scheduler": ("num_training_steps", 3),
    "get_linear_schedule_with_warmup": ("num_training_steps", 2),
    "get_cosine_schedule_with_warmup": ("num_training_steps", 2),
    "get_cosine_with_hard_restarts_schedule_with_warmup": ("num_training_steps", 2),
    "get_polynomial_decay_schedule_with_warmup": ("num_training_steps", 2),
}


class Schedule(NamedTuple):
    name: str  # as the loop calls it
    action: Action
    made: ast.Call
    length: ast.expr
    unit: Unit


def schedules(script: Script, loop: TrainingLoop, window: Window, workspace: Workspace) -> Iterator[Schedule]:
    """Schedules stepped without arguments and whose length the text tells; none that accelerate holds back."""
    for action in loop.of("schedule"):
        call = action.inner
        if call.args or call.keywords or not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
            continue
        found = instance(script, call.func.value, workspace)
        length, made = _told(script, call.func.value, found) if found is not None else (None, call)
        if length is None or script.parent(made) is None:
            continue
        name = script.text(call.func.value)
        if is_prepared(script, name, call) or _prepares_unseen(script):
            continue
        unit = _unit(script, length, window, loop)
        if unit is not None:
            yield Schedule(name, action, made, length, unit)


def _told(script: Script, schedule: ast.expr, found: Instance) -> tuple[ast.expr | None, ast.Call]:
    """The length that a library's schedule is made with, or that a function of the file is given which makes one."""
    length = _length(found.call) if found.script is None else None
    places = bindings(script, dotted(schedule), schedule) if dotted(schedule) and length is None else []
    value = places[0].value if len(places) == 1 else None
    function = script.definitions.get(dotted(value.func)) if isinstance(value, ast.Call) else None
    if isinstance(value, ast.Call) and isinstance(function, ast.FunctionDef):
        given = [argument(value, function, each.arg) for each in function.args.args if _TOTAL.fullmatch(each.arg)]
        return (given[0] if len(given) == 1 else None), value
    return length, found.call


def _length(call: ast.Call) -> ast.expr | None:
    name = last_name(call.func)
    if name == "OneCycleLR" and keyword(call, "steps_per_epoch") is not None:
        return keyword(call, "steps_per_epoch")
    if name not in _LENGTHS:
        return None
    word, place = _LENGTHS[name]
    given = keyword(call, word)
    return given if given is not None else call.args[place] if len(call.args) > place else None


def _prepares_unseen(script: Script) -> bool:
    """``accelerator.prepare(*things)``."""
    return any(
        last_name(call.func) == "prepare" and any(isinstance(each, ast.Starred) for each in call.args)
        for call in script.nodes(ast.Call)
    )


def _unit(script: Script, length: ast.expr, window: Window, loop: TrainingLoop) -> Unit | None:
    """Divided by the window's size it counts updates; a plain number of batches counts micro-batches."""
    parts = list(_expanded(script, length, _HOPS))
    batches = [each for each in parts if isinstance(each, ast.Call) and _counts_batches(script, each, loop)]
    if not batches:
        return None
    divisors = [
        each.right for each in parts if isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Div, ast.FloorDiv))
    ]
    if any(_holds_size(script, each, window) for each in divisors):
        return "updates"
    if divisors or any(isinstance(each, (ast.IfExp, ast.Compare)) for each in parts):
        return None  # divided by something else: what is counted is not told
    return "micro-batches"


def _holds_size(script: Script, divisor: ast.expr, window: Window) -> bool:
    return any(is_window_size(script, each, window, script) for each in ast.walk(divisor) if isinstance(each, ast.expr))


def _counts_batches(script: Script, call: ast.Call, loop: TrainingLoop) -> bool:
    """``len`` of a loader, or of what the loop goes through."""
    if dotted(call.func) != "len" or len(call.args) != 1:
        return False
    source = iterable(script, loop.node)
    same = source is not None and ast.dump(source) == ast.dump(call.args[0])
    return same or bool(_LOADER.search(last_name(call.args[0])))


def _expanded(script: Script, node: ast.expr, hops: int) -> Iterator[ast.AST]:
    """An expression, and in place of each of its names what that was set to, if it was set once."""
    for each in script.walk(node):
        yield each
        name = dotted(each) if isinstance(each, (ast.Name, ast.Attribute)) else ""
        if not name or not hops or isinstance(script.parent(each), ast.Attribute):
            continue
        places = [place for place in bindings(script, name, each) if place.kind == "assign" and place.value is not None]
        for place in places:
            if place.value is not None and node is not place.value:
                yield from _expanded(script, place.value, hops - 1)
