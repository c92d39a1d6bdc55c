"""Whether a window of 1 is what the script runs with unless somebody changes it, and whether anybody can."""

import ast
import re

from firstfault.lint.bindings import number
from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted
from firstfault.lint.window import Window

_FROM_OUTSIDE = re.compile(r"Parser|parse_args|tyro|hydra|OmegaConf|draccus|click|typer|fire\.Fire|simple_parsing")


def is_always_one(script: Script, window: Window) -> bool:
    """A literal, or a setting of a class in a script that takes nothing from outside."""
    if window.is_literal_one:
        return True
    if not is_one_by_default(script, window) or window.resolved is None or _FROM_OUTSIDE.search(script.source):
        return False
    value = window.resolved.node
    around = script.parent(value)
    owner = script.parent(around) if isinstance(around, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(owner, ast.ClassDef) and not any(_spreads(each, owner) for each in script.nodes(ast.Call))


def _spreads(call: ast.Call, owner: ast.ClassDef) -> bool:
    """``Settings(**loaded)``."""
    return last_name(call.func) == owner.name and any(each.arg is None for each in call.keywords)


def is_one_by_default(script: Script, window: Window) -> bool:
    """The size is 1 by default, and no call of the file hands over another value."""
    if not window.default_one or window.size_node is None:
        return False
    name = dotted(window.size_node)
    given = [word.value for call in script.nodes(ast.Call) for word in call.keywords if name and word.arg == name]
    return all((found := number(script, each)) is not None and found.value == 1 for each in given)
