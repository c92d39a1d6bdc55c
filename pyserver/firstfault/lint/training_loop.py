"""The facts of a script's training loops, stated once: windows, backward calls, divisions, steps and their guards.

``training_loops(script)`` gives one value per loop that runs backward. What the text does not tell is None or empty:
a rule that needs it stays silent.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from firstfault.lint.bindings import number
from firstfault.lint.calls import Backward, Verb, backwards, verb
from firstfault.lint.facts import stated, stated_window, trainer_size_elsewhere
from firstfault.lint.script import FUNCTIONS, LOOPS, Loop, Script, dotted, per_script
from firstfault.lint.window import (
    Guard,
    Window,
    framework_steps,
    guards,
    window_of_context,
    window_of_guard,
    window_of_range,
)

Place = Loop | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True, slots=True)
class Division:
    """``loss / N`` or ``loss /= N``."""

    node: ast.BinOp | ast.AugAssign
    dividend: ast.expr
    by: ast.expr


@dataclass(frozen=True, slots=True)
class Action:
    """A call that steps, zeroes, clips, unscales, schedules; seen from the loop, so perhaps through a helper."""

    verb: Verb
    node: ast.Call  # the call in the loop's own text: the verb itself, or the call of the helper that holds it
    inner: ast.Call  # the verb's call
    helper: ast.FunctionDef | ast.AsyncFunctionDef | None
    guards: tuple[Guard, ...]
    after_loop: bool  # it stands behind the loop, in the same function


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """One micro-batch loop; a function where the loop that calls it is not in the file (``training_step``)."""

    node: Place
    window: Window | None
    backwards: tuple[Backward, ...]
    divisions: tuple[Division, ...]
    actions: tuple[Action, ...]
    in_helper: bool  # backward stands in a function that this loop calls

    def of(self, verb_name: Verb) -> tuple[Action, ...]:
        return tuple(each for each in self.actions if each.verb == verb_name)

    @property
    def optimizer_steps(self) -> tuple[Action, ...]:
        return self.of("step")

    @property
    def zero_grads(self) -> tuple[Action, ...]:
        return self.of("zero_grad")


@per_script
def training_loops(script: Script) -> tuple[TrainingLoop, ...]:
    """Every micro-batch loop of a script, in the order of the text."""
    places: dict[ast.AST, list[Backward]] = {}
    for each in backwards(script):
        places.setdefault(_place(script, each.node), []).append(each)
    return tuple(_loop(script, place, tuple(found)) for place, found in places.items())


def _place(script: Script, backward: ast.AST) -> ast.AST:
    """The innermost loop around backward; else its function; else the module."""
    place = script.loop(backward)
    if place is not None:
        return place
    function = script.function(backward)
    while isinstance(function, ast.Lambda):
        function = script.function(function)
    return function or script.tree


def _loop(script: Script, place: ast.AST, found: tuple[Backward, ...]) -> TrainingLoop:
    caller = _calling_loop(script, place) if isinstance(place, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    own = actions_of(script, place)
    if caller is not None and not any(each.verb == "step" for each in own):
        actions = (*own, *actions_of(script, caller))
        window = stated_window(script, _window(script, caller, _runs_of(script, caller, place), actions))
        return TrainingLoop(caller, window, found, _divisions(script, place), actions, in_helper=True)
    window = _window(script, place, [each.node for each in found], own) or _framework_window(script, place, found[0])
    window = stated_window(script, window)
    return TrainingLoop(place, window, found, _divisions(script, place), own, in_helper=False)  # type: ignore[arg-type]


def _window(script: Script, place: ast.AST, found: list[ast.AST], actions: tuple[Action, ...]) -> Window | None:
    context = _accumulate_context(script, found[0])
    if context is not None:
        return window_of_context(script, context)
    shared = _branches_of_backward(script, place, found)
    steps = [each for each in actions if each.verb == "step"]
    shared |= _branches_of_steps(steps)
    for step in (each for each in steps if not each.after_loop):
        for guard in step.guards:
            # A condition that backward runs under too (every n-th batch trains the critic) opens no window.
            window = window_of_guard(script, guard, place) if id(guard.holder) not in shared else None
            if window is not None:
                return window
    if isinstance(place, LOOPS) and steps and all(each.after_loop for each in steps):
        return window_of_range(script, place)
    return None


def _branches_of_backward(script: Script, place: ast.AST, found: list[ast.AST]) -> set[int]:
    """The conditions that decide whether backward runs at all, rather than which of two ways it takes."""
    sides: dict[int, set[bool]] = {}
    for backward in found:
        for guard in guards(script, backward, place):
            if not guard.after_continue:
                sides.setdefault(id(guard.holder), set()).add(guard.positive)
    return {holder for holder, taken in sides.items() if len(taken) == 1}


def _branches_of_steps(steps: list[Action]) -> set[int]:
    """The conditions that choose which optimizers step, some of them either way: every round is stepped."""
    taken = {(id(guard.holder), guard.positive) for step in steps for guard in step.guards if not guard.after_continue}
    return {holder for holder, positive in taken if positive and (holder, False) in taken}


def _framework_window(script: Script, place: ast.AST, backward: Backward) -> Window | None:
    """The framework counts: DeepSpeed's engine, mmengine's wrapper."""
    if backward.receiver not in ("engine", "mmengine", "lightning"):
        return None
    size = framework_steps(script)
    if size is None:
        node = backward.node
        elsewhere = trainer_size_elsewhere(script) if backward.receiver == "lightning" else None
        if elsewhere is not None:
            return Window("framework", node, script.span(node), elsewhere[0], None, elsewhere[1])  # type: ignore[arg-type]
        by_user = isinstance(node, ast.expr) and stated(script).grad_accumulation is not None
        return Window("framework", node, script.span(node), "", None, None) if by_user else None  # type: ignore[arg-type]
    return Window("framework", size, script.span(size), script.text(size), size, number(script, size))


def _accumulate_context(script: Script, backward: ast.AST) -> ast.Call | None:
    for above in script.ancestors(backward):
        if isinstance(above, FUNCTIONS):
            return None
        for item in above.items if isinstance(above, (ast.With, ast.AsyncWith)) else []:
            call = item.context_expr
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "accumulate":
                return call
    return None


def actions_of(script: Script, place: ast.AST) -> tuple[Action, ...]:
    """The verbs in a loop and, of its function, those that follow it."""
    found = [*_verbs_in(script, place, place, after_loop=False)]
    below = place
    for above in script.ancestors(place) if isinstance(place, LOOPS) else ():
        if isinstance(below, ast.stmt):
            block = script.block(below)
            for statement in block[block.index(below) + 1 :]:
                behind = _verbs_in(script, statement, above, after_loop=True)
                found += [each for each in behind if not _is_of_another_loop(script, each.node, above)]
        if isinstance(above, (*LOOPS, *FUNCTIONS)):
            break
        below = above
    return tuple(found)


def _is_of_another_loop(script: Script, call: ast.AST, limit: ast.AST) -> bool:
    """A loop behind this one that runs backward itself keeps its steps for itself."""
    for above in script.ancestors(call):
        if above is limit:
            return False
        if above in _loops_with_backward(script):
            return True
    return False


@per_script
def _loops_with_backward(script: Script) -> frozenset[ast.AST]:
    return frozenset(above for each in backwards(script) for above in script.ancestors(each.node) if _is_loop(above))


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, LOOPS)


def _verbs_in(script: Script, root: ast.AST, limit: ast.AST, after_loop: bool) -> Iterator[Action]:
    for call in calls_in(script, root):
        name = verb(script, call)
        if name:
            yield Action(name, call, call, None, tuple(guards(script, call, limit)), after_loop)
            continue
        helper = called_function(script, call)
        if helper is not None and helper is not root:
            conditions = tuple(guards(script, call, limit))
            for inner in calls_in(script, helper):
                name = verb(script, inner)
                if name:
                    own = tuple(guards(script, inner, helper))
                    yield Action(name, call, inner, helper, (*own, *conditions), after_loop)


def calls_in(script: Script, root: ast.AST) -> Iterator[ast.Call]:
    """The calls of a piece of code in the order of the text, without those of functions defined inside it."""
    todo: list[ast.AST] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            yield node
        todo += [each for each in reversed(script.below(node)) if not isinstance(each, FUNCTIONS)]


def called_function(script: Script, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of the same file, or the method of the same class, that a call runs."""
    found = script.definitions.get(callee(script, call))
    return found if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def callee(script: Script, call: ast.Call) -> str:
    """The dotted name of what is called; a method of the class around it as ``Class.method``."""
    name = dotted(call.func)
    owner = script.class_of(call) if name.startswith("self.") else None
    return f"{owner.name}.{name[5:]}" if owner else name


def calls_of(script: Script, function: ast.AST) -> list[ast.Call]:
    """The calls of the file that run a function of it, in the order of the text."""
    return _calls_of_functions(script).get(function, [])


@per_script
def _calls_of_functions(script: Script) -> dict[ast.AST, list[ast.Call]]:
    found: dict[ast.AST, list[ast.Call]] = {}
    for call in script.nodes(ast.Call):
        function = called_function(script, call)
        if function is not None:
            found.setdefault(function, []).append(call)
    return found


def _calling_loop(script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Loop | None:
    """The loop of the file that calls a function."""
    loops = (script.loop(call) for call in calls_of(script, function))
    return next((each for each in loops if each is not None), None)


def _runs_of(script: Script, loop: ast.AST, function: ast.AST) -> list[ast.AST]:
    """The calls of a function in a loop, and where it is handed on: ``optimizer.step(partial(self.training_step))``."""
    calls: list[ast.AST] = [call for call in calls_in(script, loop) if called_function(script, call) is function]
    called = {id(call.func) for call in calls if isinstance(call, ast.Call)}
    name = getattr(function, "name", "")
    for node in script.walk(loop):
        handed = isinstance(node, ast.Attribute) and node.attr == name and dotted(node) == f"self.{name}"
        if handed and id(node) not in called:
            calls.append(node)
    return calls or [loop]


def _divisions(script: Script, place: ast.AST) -> tuple[Division, ...]:
    found = []
    for node in script.walk(place):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            found.append(Division(node, node.left, node.right))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            found.append(Division(node, node.target, node.value))
    return tuple(found)
