"""What in a loop would make the token-count fix wrong; where one of these is found the fix is not offered."""

import ast
import re

from firstfault.lint import placement
from firstfault.lint.calls import backwards
from firstfault.lint.script import FUNCTIONS, Loop, Script
from firstfault.lint.training_loop import TrainingLoop
from firstfault.lint.window import window_of_guard

# Virtual tokens in front of the labels change which of them the model predicts.
_VIRTUAL_TOKENS = re.compile(r"PromptTuning|PrefixTuning|PromptEncoder|P_TUNING|PROMPT_TUNING|PREFIX_TUNING")


def is_hindered(script: Script, loop: TrainingLoop, node: Loop, computed: ast.stmt, backward: list[ast.stmt]) -> bool:
    """Some other code of the loop relies on the gradients as they are, or skips what has been counted."""
    return (
        _other_gradients(script, loop, node)
        or _may_skip(script, node, computed, backward)
        or _reads_gradients_early(script, loop)
        or _goes_on_over_windows(script, loop)
        or bool(_VIRTUAL_TOKENS.search(script.source))
    )


def _other_gradients(script: Script, loop: TrainingLoop, node: Loop) -> bool:
    """Another backward adds to the same gradients, or the script works on them by hand."""
    outer = placement.outermost_loop(script, node)
    own = {id(each.node) for each in loop.backwards}
    for each in backwards(script):
        if id(each.node) not in own and outer in script.ancestors(each.node):
            return True
    return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in script.walk(outer))


def _may_skip(script: Script, node: Loop, computed: ast.stmt, backward: list[ast.stmt]) -> bool:
    """A way out of the round between the count and backward, or an error that is caught around them."""
    first, last = script.span(computed).end, max(script.span(each).start for each in backward)
    for each in script.walk(node):
        leaves = isinstance(each, (ast.Continue, ast.Break, ast.Return, ast.Raise))
        if leaves and first <= script.span(each).start < last:
            return True
    for above in script.ancestors(backward[0]):
        if above is node or isinstance(above, FUNCTIONS):
            return False
        if isinstance(above, ast.Try) and above.handlers:
            return True
    return False


def _reads_gradients_early(script: Script, loop: TrainingLoop) -> bool:
    """Clipped or unscaled for every micro-batch: the threshold was chosen for gradients of another size."""
    if loop.window is None or loop.window.boundary is None:
        return any(not each.after_loop and not each.guards and _is_raw_clip(each.verb, loop) for each in loop.actions)
    block = placement.boundary_block(script, loop)
    inside = {id(node) for statement in block for node in script.walk(statement)}
    early = (each for each in loop.actions if each.verb in ("clip", "unscale") and not each.after_loop)
    return any(id(each.node) not in inside for each in early)


def _is_raw_clip(verb: str, loop: TrainingLoop) -> bool:
    """Under accelerate a clip without a guard follows the rescaling, and does nothing between windows."""
    return verb in ("clip", "unscale") and loop.backwards[0].receiver != "accelerator"


def _goes_on_over_windows(script: Script, loop: TrainingLoop) -> bool:
    """The step behind an inner range waits for several of them, so the gradients outlive the count."""
    if loop.window is None or loop.window.kind != "inner-range":
        return False
    tests = [guard for each in loop.optimizer_steps for guard in each.guards]
    return any(window_of_guard(script, guard, script.loop(loop.node) or script.tree) for guard in tests)


def guards_leftover(script: Script, anchor: ast.stmt, loop: TrainingLoop) -> bool:
    """The flush behind the loop runs only where something is left: its condition counts."""
    above = script.parent(anchor)
    if not isinstance(above, ast.If) or anchor not in above.body:
        return False
    counter = loop.window.counter if loop.window else None
    counted = {each.id for each in ast.walk(counter) if isinstance(each, ast.Name)} if counter is not None else set()
    parts = list(ast.walk(above.test))
    remainder = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in parts)
    return remainder or any(isinstance(each, ast.Name) and each.id in counted for each in parts)
