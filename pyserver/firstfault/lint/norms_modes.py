"""Where the training code puts its model into train mode."""

import ast

from firstfault.lint.script import FUNCTIONS, Script, dotted
from firstfault.lint.training_loop import TrainingLoop, called_function

_OF_A_MODULE = ("parameters", "named_parameters", "modules", "state_dict", "load_state_dict", "eval", "zero_grad", "to")


def train_statements(script: Script, loop: TrainingLoop) -> list[ast.Expr]:
    """The statements ``model.train()`` of the functions that train: those around the loop, and those that call them."""
    functions = _training_functions(script, loop)
    return [
        statement
        for statement in script.nodes(ast.Expr)
        if _is_train_mode(script, statement.value) and script.scope(statement) in functions
    ]


def _is_train_mode(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "train":
        return False
    off = any(isinstance(each, ast.Constant) and not each.value for each in node.args)
    return (
        bool(dotted(node.func.value))
        and len(node.args) <= 1
        and not node.keywords
        and not off
        and _is_module(script, node)
    )


def _is_module(script: Script, call: ast.Call) -> bool:
    """``trainer.train()`` starts a training: what has parameters, or is called with a batch, is a module."""
    assert isinstance(call.func, ast.Attribute)
    name = dotted(call.func.value)
    if name == "self":
        return False
    as_module = any(each.attr in _OF_A_MODULE and dotted(each.value) == name for each in script.nodes(ast.Attribute))
    called = any(dotted(each.func) == name for each in script.nodes(ast.Call))
    return as_module or called


def _training_functions(script: Script, loop: TrainingLoop) -> set[ast.AST]:
    """The function of the loop, and up to two callers above it."""
    found: set[ast.AST] = {_function(script, loop.node)}
    for _ in range(2):
        found |= {_function(script, call) for call in script.nodes(ast.Call) if called_function(script, call) in found}
    owner = script.class_of(loop.node)
    if owner is not None:  # a trainer's methods call each other through self
        found |= {each for each in owner.body if isinstance(each, FUNCTIONS)}
    return found


def _function(script: Script, node: ast.AST) -> ast.AST:
    if isinstance(node, FUNCTIONS):
        return node
    return script.scope(node)
