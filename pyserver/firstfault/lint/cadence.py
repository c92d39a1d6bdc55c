"""How often a call of a training loop runs: with every micro-batch, once a window, or the text does not tell.

A call runs with every micro-batch where backward has run and no condition but settings (``if args.clip:``) stands
between them. A condition that changes from one micro-batch to the next may be the window's own: then nothing is said.
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal

from firstfault.lint.bindings import bindings, number
from firstfault.lint.calls import last_name
from firstfault.lint.objects import argument
from firstfault.lint.rule import Severity
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop, called_function, calls_in
from firstfault.lint.window import Guard, Window, guards, window_of_guard

Cadence = Literal["micro-batch", "window"]
_SETTINGS = re.compile(r"^(?:self|a|args?|cfg|config|conf|hparams|hp|opts?|options|params|settings|flags|FLAGS)$")
_SETTING = re.compile(
    r"clip|norm|scaler|(?:^|_)amp(?:$|_)|fp16|half|apex|precision|enabled|use_|(?:^|_)(?:ema|rank)(?:$|_)|main_process"
)
_PURE = {"isinstance", "hasattr", "getattr", "float", "int", "bool", "len", "get", "is_enabled", "callable"}
# The framework decides about the step by itself; what the script calls beside it is not seen from here.
_OPAQUE = ("framework",)


def cadence(script: Script, loop: TrainingLoop, action: Action) -> Cadence | None:
    """How often an action of the loop runs, or None where the text does not tell."""
    window = loop.window
    if window is None or window.kind in _OPAQUE:
        return None
    if action.after_loop:
        return "window" if window.kind in ("inner-range", "chunks") else None
    own = [each for each in action.guards if not _is_shared(script, loop, each)]
    if any(_closes(script, loop, each) for each in own):
        return "window"
    if any(_is_without_window(window, each) for each in action.guards):
        return None
    if not all(_is_setting(script, loop, action, each) for each in own):
        return None
    return None if _runs_with_a_step(loop, action) else "micro-batch"


def micro_batch_actions(script: Script, loop: TrainingLoop, verb: str) -> Iterator[Action]:
    """The calls of one kind that run with every micro-batch of a window; none where each one starts anew."""
    if loop.window is None or starts_anew(loop):
        return
    for action in loop.actions:
        if action.verb == verb and cadence(script, loop, action) == "micro-batch":
            yield action


def starts_anew(loop: TrainingLoop) -> bool:
    """The gradients are zeroed with every micro-batch: nothing is collected over the window (another fault)."""
    if loop.window is None or loop.window.kind in ("accumulate-context", "framework"):
        return False
    return any(not each.guards and not each.after_loop and each.helper is None for each in loop.zero_grads)


def severity_by_window(window: Window, severity: Severity) -> Severity:
    """One step milder where the window is 1 by default, a hint where it is 1."""
    if window.is_literal_one:
        return "hint"
    return "warning" if window.default_one and severity == "error" else severity


def backward_guards(script: Script, loop: TrainingLoop) -> list[tuple[Guard, ...]]:
    """The conditions that each backward of the loop runs under, those around its helper's call included."""
    found = []
    for each in loop.backwards:
        function = script.function(each.node)
        own = tuple(guards(script, each.node, loop.node))
        calls: list[ast.Call] = []
        if loop.in_helper:
            calls = [call for call in calls_in(script, loop.node) if called_function(script, call) is function]
        found += [(*own, *guards(script, call, loop.node)) for call in calls] or [own]
    return found


def _is_shared(script: Script, loop: TrainingLoop, guard: Guard) -> bool:
    """Backward runs under the same condition, so it does not make the call rarer than backward."""
    same = (guard.holder, guard.positive)
    return any((each.holder, each.positive) == same for own in backward_guards(script, loop) for each in own)


def _closes(script: Script, loop: TrainingLoop, guard: Guard) -> bool:
    if loop.window is not None and guard.holder is loop.window.boundary:
        return True
    return window_of_guard(script, guard, loop.node) is not None


def _is_without_window(window: Window, guard: Guard) -> bool:
    """The branch that runs where nothing is accumulated: ``else`` of ``if steps > 1``, ``if steps == 1``."""
    test, size = guard.test, window.size_node
    if not isinstance(test, ast.Compare) or size is None or ast.dump(test.left) != ast.dump(size):
        return False
    limit = test.comparators[0]
    if not isinstance(limit, ast.Constant) or limit.value != 1:
        return False
    several = isinstance(test.ops[0], (ast.Gt, ast.NotEq))
    return several is not guard.positive and isinstance(test.ops[0], (ast.Gt, ast.NotEq, ast.Eq, ast.LtE))


def _runs_with_a_step(loop: TrainingLoop, action: Action) -> bool:
    """Whenever the call runs, a step runs too: its conditions are among those of the call."""
    if loop.window is not None and loop.window.kind == "accumulate-context":
        return False  # there the step itself waits for the end of the window
    conditions = {(each.holder, each.positive) for each in action.guards}
    return any(
        {(each.holder, each.positive) for each in step.guards} <= conditions
        for step in loop.optimizer_steps
        if not step.after_loop
    )


def _is_setting(script: Script, loop: TrainingLoop, action: Action, guard: Guard) -> bool:
    """The condition has one value for the whole run, as far as the text tells."""
    parts = [each for each in script.walk(guard.test) if isinstance(each, ast.expr)]
    calls = [each for each in parts if isinstance(each, ast.Call)]
    if any(last_name(each.func) not in _PURE for each in calls):
        return False
    if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in parts):
        return False
    called = {id(each.func) for each in calls}
    return all(
        _is_constant(script, loop, action, each) for each in _names(script, guard.test) if id(each) not in called
    )


def _names(script: Script, test: ast.expr) -> Iterator[ast.expr]:
    """The dotted names of a condition, each as a whole."""
    for each in script.walk(test):
        whole = isinstance(each, (ast.Name, ast.Attribute)) and dotted(each)
        if whole and not isinstance(script.parent(each), ast.Attribute):
            yield each  # type: ignore[misc]


def _is_constant(script: Script, loop: TrainingLoop, action: Action, name: ast.expr, hops: int = 2) -> bool:
    text = dotted(name)
    root, _, rest = text.partition(".")
    if root in script.imports or number(script, name) is not None:
        return True
    places = bindings(script, text, name)
    if not rest and hops and len(places) == 1 and places[0].kind == "assign":
        value = places[0].value  # `clip = cfg.train.clip` is a setting also where the loop reads it anew
        if isinstance(value, ast.Attribute) and dotted(value):
            return _is_constant(script, loop, action, value, hops - 1)
    if rest and not places:  # an attribute that the file does not set
        places = [] if root == "self" else bindings(script, root, name)
        parameter = any(each.kind == "parameter" for each in places)
        *holders, last = text.removeprefix("self.").split(".")
        known = any(_SETTINGS.search(each) for each in holders) or bool(_SETTING.search(last))
        return known and (parameter or not _set_in_loop(script, loop, action, places))
    if any(each.kind == "parameter" for each in places):
        return _is_constant_argument(script, loop, action, text)
    return not _set_in_loop(script, loop, action, places)


def _set_in_loop(script: Script, loop: TrainingLoop, action: Action, places: list) -> bool:  # type: ignore[type-arg]
    """A name that the loop, the helper or, for attributes, any method but the constructor sets anew."""
    for each in places:
        function = script.function(each.node)
        around = set(script.ancestors(each.node))
        if loop.node in around or (action.helper is not None and function is action.helper):
            return True
        if "." in each.name and getattr(function, "name", "") not in ("__init__", "setup", "configure"):
            return True
    return False


def _is_constant_argument(script: Script, loop: TrainingLoop, action: Action, name: str) -> bool:
    """A parameter: of the function around the loop it is set once; of a helper it is what the call hands over."""
    if action.helper is not None:
        given = argument(action.node, action.helper, name)
        if given is None:
            return True  # its default
        return all(
            not _set_in_loop(script, loop, action, bindings(script, dotted(each), each))
            for each in _names(script, given)
        ) and not any(isinstance(each, (ast.Compare, ast.Call, ast.BinOp)) for each in script.walk(given))
    return isinstance(loop.node, LOOPS) or bool(_SETTING.search(name))
