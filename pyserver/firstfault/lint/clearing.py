"""Which call clears the gradients that which optimizer steps, and how a call is moved to where it belongs."""

import ast

from firstfault.lint import placement
from firstfault.lint.bindings import bindings, last_binding
from firstfault.lint.calls import last_name
from firstfault.lint.script import LOOPS, Script, dotted
from firstfault.lint.training_loop import Action, TrainingLoop
from firstfault.lint.window import guards
from firstfault.text import Edit, Position, Span


def optimizer_of_step(script: Script, action: Action) -> str:
    """``optimizer`` of ``optimizer.step()`` and of ``scaler.step(optimizer)``, by its name where the call stands."""
    call = action.inner
    if not isinstance(call.func, ast.Attribute):
        return ""
    given = dotted(call.args[0]) if call.args else ""
    return given or script.text(call.func.value)


def cleared_object(script: Script, action: Action) -> str:
    """``optimizer`` of ``optimizer.zero_grad()``, ``model`` of ``model.zero_grad()``."""
    call = action.inner
    return script.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def is_model(script: Script, action: Action) -> bool:
    """The call clears a model's gradients: its own name says so, and no optimizer of the loop is called that."""
    name = cleared_object(script, action).rpartition(".")[2].lower()
    return "optim" not in name and ("model" in name or "net" in name or name in ("self", "module"))


def clears_what_is_stepped(script: Script, loop: TrainingLoop, action: Action) -> bool:
    """The optimizer that steps at the end of the window, or its model where only one optimizer steps."""
    steps = {optimizer_of_step(script, each): each for each in loop.optimizer_steps}
    target = cleared_object(script, action)
    if target in steps:
        return True
    return is_model(script, action) and len(steps) == 1 and _is_model_of(script, loop, action, *steps.popitem())


def _is_model_of(script: Script, loop: TrainingLoop, action: Action, optimizer: str, step: Action) -> bool:
    """The optimizer was made for this model, as far as the text tells; a copy made in the loop is another model."""
    name = cleared_object(script, action)
    around = {loop.node, *script.ancestors(loop.node)}
    for place in bindings(script, name, action.inner):
        if any(isinstance(each, LOOPS) and each in around for each in script.ancestors(place.node)):
            return False
    made = last_binding(script, optimizer, step.inner)
    if made is None or made.kind != "assign" or not isinstance(made.value, ast.Call):
        return True
    return not made.value.args or name in script.text(made.value) or last_name(made.value.func) == "prepare"


def runs_with_every_backward(script: Script, loop: TrainingLoop, action: Action) -> bool:
    """No condition stands before the call that backward is free of."""
    shared: set[tuple[ast.If, bool]] | None = None
    for backward in loop.backwards:
        own = {(each.holder, each.positive) for each in guards(script, backward.node, loop.node)}
        shared = own if shared is None else shared & own
    return not action.after_loop and all((each.holder, each.positive) in (shared or set()) for each in action.guards)


def is_prepared(script: Script, name: str, at: ast.AST) -> bool:
    """The object went through ``accelerator.prepare``: as an argument, or as a result."""
    places = bindings(script, name, at)
    if any(isinstance(each.value, ast.Call) and last_name(each.value.func) == "prepare" for each in places):
        return True
    return any(dotted(each) == name for call in script.calls("prepare") for each in call.args)


def delete_statement(script: Script, statement: ast.stmt) -> Edit | None:
    """The whole line of a statement that stands alone, with the one of two blank lines that would be too many."""
    if not placement.own_line(script, statement) or len(script.block(statement)) < 2:
        return None
    start, end = script.span(statement)
    edit = placement.delete_lines(script, statement)
    above = start.line > 1 and not script.line_text(start.line - 1).strip()
    below = end.line < len(script.table.starts) and not script.line_text(end.line + 1).strip()
    if above and below:
        return Edit(Span(Position(start.line - 1, 1), edit.span.end), "")
    if below and statement is script.block(statement)[0]:
        return Edit(Span(edit.span.start, Position(end.line + 2, 1)), "")
    return edit
