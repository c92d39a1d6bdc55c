"""Whether the gradients of a window are added up as they are: nobody divides, and nothing else is going on.

Everything that may stand for a division counts as one: only where the text shows that there is none a rule may speak.
"""

import ast
import re

from firstfault.lint.bindings import bindings, keyword
from firstfault.lint.cadence import starts_anew
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.framework_scale import knows_deepspeed, rewritten
from firstfault.lint.loss_terms import Term
from firstfault.lint.scaling import Scaling, exclusive, scales_gradients, scales_rate
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, calls_in
from firstfault.lint.window import Window

PLAIN = ("tensor", "scaler", "apex", "fabric", "manual_backward")  # receivers that divide by nothing
_COUNTED = ("modulo", "counter", "distance", "flag")
_WINDOW_NAME = re.compile(r"accum|micro|grad_acc|update_freq|subdivisions|iter_size", re.IGNORECASE)
_DRAWS = re.compile(r"^next$|get_batch|next_batch|sample_batch|draw", re.IGNORECASE)
_JOINS = {"cat", "concat", "concatenate", "hstack", "vstack"}


def is_summed_up(script: Script, loop: TrainingLoop, window: Window, backward: Backward) -> bool:
    """Gradients of several batches are added up as they are: nobody divides, nothing else is going on."""
    if window.is_literal_one or not _is_window(script, loop, window) or not _nobody_divides(script, window, backward):
        return False
    return not (
        starts_anew(loop)
        or _steps_otherwise(script, loop, window)
        or _is_apart(script, loop, window, backward)
        or _keeps_graph(backward)
        or _is_weighted(loop, backward)
        or _is_scaled_in_place(script, backward)
        or scales_gradients(script, loop)
        or scales_rate(script, window)
    )


def _is_window(script: Script, loop: TrainingLoop, window: Window) -> bool:
    if window.kind in _COUNTED:
        return True
    if window.kind not in ("inner-range", "chunks") or not isinstance(loop.node, LOOPS):
        return False
    calls = [last_name(each.func) for each in calls_in(script, loop.node)]
    if any(each in _JOINS for each in calls):  # the loss of the whole batch, computed anew for each part
        return False
    named = bool(_WINDOW_NAME.search(window.size_text)) and "len(" not in window.size_text
    return window.kind == "chunks" or named or any(_DRAWS.search(each) for each in calls)


def _nobody_divides(script: Script, window: Window, backward: Backward) -> bool:
    if backward.receiver == "accelerator":
        return window.kind != "accumulate-context" and _is_plain_accelerator(script)
    return backward.receiver in PLAIN and not knows_deepspeed(script)


def _is_plain_accelerator(script: Script) -> bool:
    """Made in the file, without a number of steps: then its backward divides by 1."""
    made = script.calls("Accelerator")
    words = ("gradient_accumulation_steps", "gradient_accumulation_plugin")
    plain = all(not any(each.arg in (None, *words) for each in call.keywords) for call in made)
    sets = any(each.attr == words[0] and isinstance(each.ctx, ast.Store) for each in script.nodes(ast.Attribute))
    return bool(made) and plain and not sets


def _steps_otherwise(script: Script, loop: TrainingLoop, window: Window) -> bool:
    """A step of the loop that does not wait for the window, and is no other branch of the window's own condition."""
    boundary = window.boundary
    for step in loop.optimizer_steps:
        if step.after_loop or boundary is None:
            continue
        holders = {id(each.holder) for each in step.guards}
        own = {id(boundary), *(id(each) for each in script.ancestors(boundary))}
        if step.guards and id(boundary) not in holders and not exclusive(script, step.node, boundary.body[0]):
            return True
        if not step.guards or not holders & own:
            return True
    return False


def _is_apart(script: Script, loop: TrainingLoop, window: Window, backward: Backward) -> bool:
    """Backward of a branch that does not reach the window's step, or one that is followed by its own zero_grad."""
    if window.boundary is not None and not loop.in_helper and exclusive(script, backward.node, window.boundary):
        return True
    losses = {ast.dump(each.loss) for each in loop.backwards}
    optimizers = {dotted(each.inner.func) for each in loop.optimizer_steps}
    return len(losses) > 1 and len(optimizers) > 1 and not _wait_together(loop, window)


def _wait_together(loop: TrainingLoop, window: Window) -> bool:
    """All optimizers step and are cleared where the one window is full, so each of their losses belongs to it."""
    together = [*loop.optimizer_steps, *loop.zero_grads]
    return window.boundary is not None and all(
        any(guard.holder is window.boundary for guard in each.guards) for each in together
    )


def _keeps_graph(backward: Backward) -> bool:
    call = backward.node
    return isinstance(call, ast.Call) and any(keyword(call, each) for each in ("retain_graph", "create_graph"))


def _is_weighted(loop: TrainingLoop, backward: Backward) -> bool:
    """``loss.backward(gradient)`` and ``optimizer.step(scale=n)`` scale in their own way."""
    call = backward.node
    own = isinstance(call, ast.Call) and call.args and call.args[0] is not backward.loss
    given = isinstance(call, ast.Call) and keyword(call, "gradient") is not None
    steps = any("scale" in (word.arg or "") for each in loop.optimizer_steps for word in each.inner.keywords)
    return bool(own or given or steps)


def _is_scaled_in_place(script: Script, backward: Backward) -> bool:
    """``loss.div_(n)``, ``losses["total"] /= n``: no new value of a name, so the loss's terms do not show it."""
    wanted, function = ast.unparse(backward.loss), script.function(backward.node)
    in_place = script.calls("div_", "mul_", "true_divide_")
    return bool(rewritten(script, backward)) or any(
        isinstance(each.func, ast.Attribute)
        and script.function(each) is function
        and ast.unparse(each.func.value) == wanted
        for each in in_place
    )


def is_undivided(found: Scaling, term: Term, window: Window) -> bool:
    if found.by_window != 0 or found.division is not None or not found.known:
        return False
    return not _speaks_of_window(term, window)


def _speaks_of_window(term: Term, window: Window) -> bool:
    """The division may stand inside the mean: ``(per_row / steps).mean()``."""
    size = last_name(window.size_node) if window.size_node is not None else ""
    names = {last_name(each) for each in ast.walk(term.node) if isinstance(each, ast.expr)}
    return any(name and (name == size or _WINDOW_NAME.search(name)) for name in names)


def is_nominal(script: Script, window: Window) -> bool:
    """``round(64 / batch_size)`` micro-batches: then the loss often is a sum over the rows, up to a nominal number."""
    size = window.size_node
    values = [each.value for each in bindings(script, dotted(size), size)] if size is not None and dotted(size) else []
    parts = [part for each in values if each is not None for part in ast.walk(each)]
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Div, ast.FloorDiv)) for each in parts)
